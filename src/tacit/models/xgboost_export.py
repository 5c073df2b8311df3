"""Boosted trees as XGBoost's own JSON, which its Booster predicts the same with.

Features are what :meth:`BoostedTrees.columns` gives.
"""

from typing import Any

import msgspec
import numpy as np

from tacit.core.errors import ConfigError
from tacit.models.predictor import Predictor
from tacit.models.trees import NODES, Arrays, BoostedTrees

ROOT = 2**31 - 1  # XGBoost's parent of a root
SCALED = {"reg_loss_param": {"scale_pos_weight": "1"}}
OBJECTIVES = {  # with the base score whose margin is 0, and what XGBoost insists on reading beside the name
    "logistic": ("binary:logistic", "0.5", SCALED),
    "softmax": ("multi:softprob", "0", {}),
    "squared": ("reg:squarederror", "0", SCALED),
    "poisson": ("count:poisson", "1", {"poisson_regression_param": {"max_delta_step": "0.7"}}),
}


def to_xgboost(model: Predictor) -> bytes:
    """Return boosted trees as a file that ``xgboost.Booster(model_file=...)`` reads."""
    if not isinstance(model, BoostedTrees):
        raise ConfigError(f"a {type(model).__name__} has no trees: export it as safetensors or onnx")
    names = [column.name for column in model.schema.columns]
    features, several = str(len(names)), model.loss == "softmax"
    if any(set("[]<") & set(name) for name in names):  # which XGBoost allows in no name
        names = []
    arrays = model.with_base_as_trees()
    places, outputs = arrays["tree_output"].tolist(), len(model.arrays["base"])
    objective, base, parameters = OBJECTIVES[model.loss]
    if several:
        parameters = {"softmax_multiclass_param": {"num_class": str(outputs)}}
    # A round ends where the outputs begin anew.
    ends = [i for i in range(1, len(places)) if places[i] <= places[i - 1]]
    trees = [_tree(arrays, number, features) for number in range(len(places))]
    grown = {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "iteration_indptr": [0, *ends, len(places)],
        "tree_info": places,
        "trees": trees,
    }
    sizes = {
        "num_class": str(outputs * several),
        "num_feature": features,
        "num_target": str(1 if several else outputs),
    }
    learner = {
        "feature_names": names,
        "feature_types": ["q" if column.kind == "number" else "c" for column in model.schema.columns],
        "attributes": {},
        "gradient_booster": {"model": grown, "name": "gbtree"},
        "learner_model_param": {"base_score": base, "boost_from_average": "0", **sizes},
        "objective": {"name": objective, **parameters},
    }
    return msgspec.json.encode({"learner": learner, "version": [2, 0, 0]})


def _tree(arrays: Arrays, number: int, features: str) -> dict[str, Any]:
    first, end = arrays["tree_start"][number : number + 2]
    node = {name: arrays[name][first:end] for name in NODES}
    leaf, by_category = node["feature"] < 0, node["category_row"] >= 0
    left, right = (np.where(leaf, -1, node[side] - first) for side in ("left", "right"))
    parents = np.full(end - first, ROOT)
    for children in (left, right):
        parents[children[~leaf]] = np.flatnonzero(~leaf)
    # Of no categories that go right, which XGBoost does not take, one that no row has.
    none = [arrays["categories"].shape[1]]
    sets = [
        np.flatnonzero(arrays["categories"][row]).tolist() or none
        for row in node["category_row"][by_category]
    ]
    limits = np.where(by_category, 0.5, node["threshold"])
    sized = {"num_deleted": "0", "num_feature": features, "size_leaf_vector": "1"}
    return {
        "base_weights": _short(node["value"]),
        "categories": [code for codes in sets for code in codes],
        "categories_nodes": np.flatnonzero(by_category).tolist(),
        "categories_segments": np.cumsum([0, *map(len, sets)])[:-1].tolist(),
        "categories_sizes": [len(codes) for codes in sets],
        "default_left": node["default_left"].tolist(),
        "left_children": left.tolist(),
        "loss_changes": _short(node["gain"]),
        "parents": parents.tolist(),
        "right_children": right.tolist(),
        "split_conditions": _short(np.where(leaf, node["value"], limits)),
        "split_indices": np.where(leaf, 0, node["feature"]).tolist(),
        "split_type": by_category.astype(int).tolist(),
        "sum_hessian": _short(node["cover"]),
        "tree_param": {**sized, "num_nodes": str(end - first)},
        "id": number,
    }


def _short(values: Any) -> list[float]:
    """Return values as the shortest decimals that 32-bit floats have, so that they are read back the same."""
    plain: list[float] = np.asarray(values, dtype=np.float32).astype(str).astype(np.float64).tolist()
    return plain
