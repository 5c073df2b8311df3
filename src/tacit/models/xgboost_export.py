"""Boosted trees as XGBoost's own JSON, which its Booster predicts the same with, and as nodes of ONNX.

Features are what :meth:`BoostedTrees.columns` gives. What outputs are before any tree is a tree of one leaf
each, since XGBoost would round it as a probability.

ONNX, by onnxmltools' converter of boosters, has no trees that split by sets of categories. So the graph
computes for each such split a feature that says whether a row's category goes right, to split at one half.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, UnavailableError
from tacit.data.schema import ABSENT
from tacit.models.onnx_export import DOUBLE, Graph, one_hot
from tacit.models.predictor import Predictor
from tacit.models.trees import NODES, BoostedTrees

ROOT = 2**31 - 1  # XGBoost's parent of a root
SCALED = {"reg_loss_param": {"scale_pos_weight": "1"}}
OBJECTIVES = {  # with the base score whose margin is 0, and what XGBoost insists on reading beside the name
    "logistic": ("binary:logistic", "0.5", SCALED),
    "softmax": ("multi:softprob", "0", {}),
    "squared": ("reg:squarederror", "0", SCALED),
    "poisson": ("count:poisson", "1", {"poisson_regression_param": {"max_delta_step": "0.7"}}),
}

Tree = dict[str, Any]
FLOAT, BOOLEAN = 1, 9  # ONNX's numbers of types


def to_xgboost(model: Predictor) -> bytes:
    """Return boosted trees as a file that ``xgboost.Booster(model_file=...)`` reads."""
    if not isinstance(model, BoostedTrees):
        raise ConfigError(f"a {type(model).__name__} has no trees: export it as safetensors or onnx")
    names = [column.name for column in model.schema.columns]
    if any(set("[]<") & set(name) for name in names):  # which XGBoost allows in no name
        names = []
    trees = [leaf_tree(base) for base in model.arrays["base"]]
    places = [*range(len(trees)), *model.arrays["tree_output"].tolist()]
    trees += [tree_of(model, tree) for tree in range(model.trees)]
    kinds = ["q" if column.kind == "number" else "c" for column in model.schema.columns]
    return document(trees, places, model.loss, len(kinds), {"feature_names": names, "feature_types": kinds})


def to_booster(raw: bytes) -> Any:
    """Return the ``xgboost.Booster`` of a file's content."""
    try:
        import xgboost
    except ImportError:
        raise UnavailableError("xgboost is not installed: pip install 'tacit-fl[xgboost]'") from None
    return xgboost.Booster(model_file=bytearray(raw))


def document(
    trees: Sequence[Tree], places: Sequence[int], loss: str, features: int, known: Mapping[str, Any]
) -> bytes:
    """Return trees as XGBoost's JSON; ``places`` has the output that each adds to, ``known`` what else is."""
    objective, base, parameters = OBJECTIVES[loss]
    outputs, several = max(places) + 1, loss == "softmax"
    sizes = {
        "num_class": str(outputs * several),
        "num_feature": str(features),
        "num_target": str(1 if several else outputs),
    }
    if several:
        parameters = {"softmax_multiclass_param": {"num_class": str(outputs)}}
    # A round ends where the outputs begin anew.
    ends = [i for i in range(1, len(places)) if places[i] <= places[i - 1]]
    shape = {"num_deleted": "0", "num_feature": str(features), "size_leaf_vector": "1"}
    sized = [{**tree, "tree_param": {**shape, "num_nodes": str(len(tree["parents"]))}} for tree in trees]
    model = {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "iteration_indptr": [0, *ends, len(places)],
        "tree_info": places,
        "trees": [{**tree, "id": number} for number, tree in enumerate(sized)],
    }
    learner = {
        **known,
        "attributes": {},
        "gradient_booster": {"model": model, "name": "gbtree"},
        "learner_model_param": {"base_score": base, "boost_from_average": "0", **sizes},
        "objective": {"name": objective, **parameters},
    }
    return msgspec.json.encode({"learner": learner, "version": [2, 0, 0]})


def tree_of(model: BoostedTrees, tree: Any, split_features: NDArray[np.int64] | None = None) -> Tree:
    """Return one tree; in ``split_features`` each split by category has a feature, above ½ to go right."""
    first, end = model.arrays["tree_start"][tree : tree + 2]
    node = {name: model.arrays[name][first:end] for name in NODES}
    leaf, by_category = node["feature"] < 0, node["category_row"] >= 0
    left, right = (np.where(leaf, -1, node[side] - first) for side in ("left", "right"))
    parents = np.full(end - first, ROOT)
    for children in (left, right):
        parents[children[~leaf]] = np.flatnonzero(~leaf)
    feature = np.where(leaf, 0, node["feature"])
    if split_features is not None:
        feature = np.where(by_category, split_features[first:end], feature)
    sets = [_right(model, row) for row in node["category_row"][by_category]] if split_features is None else []
    return {
        "base_weights": _short(node["value"]),
        "categories": [code for codes in sets for code in codes],
        "categories_nodes": np.flatnonzero(by_category).tolist() if sets else [],
        "categories_segments": np.cumsum([0, *map(len, sets)])[:-1].tolist(),
        "categories_sizes": [len(codes) for codes in sets],
        "default_left": node["default_left"].tolist(),
        "left_children": left.tolist(),
        "loss_changes": _short(node["gain"]),
        "parents": parents.tolist(),
        "right_children": right.tolist(),
        "split_conditions": _short(
            np.where(leaf, node["value"], np.where(by_category, 0.5, node["threshold"]))
        ),
        "split_indices": feature.tolist(),
        "split_type": (by_category & (split_features is None)).astype(int).tolist(),
        "sum_hessian": _short(node["cover"]),
    }


def leaf_tree(value: float) -> Tree:
    """Return a tree that adds the same to all rows."""
    return {
        **{name: _short([value]) for name in ("base_weights", "split_conditions")},
        **{name: [-1] for name in ("left_children", "right_children")},
        **{name: [0] for name in ("default_left", "split_indices", "split_type")},
        **{name: [0.0] for name in ("loss_changes", "sum_hessian")},
        **{f"categories{part}": [] for part in ("", "_nodes", "_segments", "_sizes")},
        "parents": [ROOT],
    }


def _right(model: BoostedTrees, row: int) -> list[int]:
    """Return the categories that go right; of none, which XGBoost does not take, one that no row has."""
    codes: list[int] = np.flatnonzero(model.arrays["categories"][row]).tolist()
    return codes or [model.arrays["categories"].shape[1]]


def _short(values: Any) -> list[float]:
    """Return values as the shortest decimals that 32-bit floats have, so that they are read back the same."""
    plain: list[float] = np.asarray(values, dtype=np.float32).astype(str).astype(np.float64).tolist()
    return plain


def add_trees(graph: Graph, model: BoostedTrees) -> None:
    """Add nodes from raw rows to probabilities or targets."""
    features, splits = _features(graph, model)
    margins = []
    for output, base in enumerate(model.arrays["base"]):
        own = np.flatnonzero(model.arrays["tree_output"] == output)
        trees = [leaf_tree(base), *(tree_of(model, tree, splits) for tree in own)]
        size = len(model.schema.columns) + int((splits >= 0).sum())
        node = _converted(graph, document(trees, [0] * len(trees), "squared", size, {}), size)
        node.name = f"tacit/margin{output}"
        node.input[:], node.output[:] = [features], [node.name]
        graph.nodes.append(node)
        margins.append(node.name)
    total = graph.node("Cast", graph.node("Concat", *margins, axis=1), to=DOUBLE)
    if model.loss == "logistic":
        total = graph.node("Concat", graph.node("Neg", total), total, axis=1)
    kinds = {"logistic": "Sigmoid", "softmax": "Softmax", "poisson": "Exp"}
    named = "probabilities" if model.schema.task == "classification" else "targets"
    graph.node(kinds.get(model.loss, "Identity"), total, output=named)


def _features(graph: Graph, model: BoostedTrees) -> tuple[str, NDArray[np.int64]]:
    known, columns = model.inputs.recoding, model.schema.columns
    pieces, more = list[str](), list[str]()
    splits = np.full(len(model.arrays["feature"]), -1)
    for index, (column, place) in enumerate(zip(columns, model.schema.places, strict=True)):
        if column.kind == "number":
            pieces.append(column.name)
            continue
        own = known.features[place]
        at = np.flatnonzero((model.arrays["feature"] == index) & (model.arrays["category_row"] >= 0))
        encoded = one_hot(graph, column, known.unseen[index], known.gaps[index])
        found = graph.node("MatMul", encoded, (own != ABSENT).astype(np.float64)[:, None])
        pieces.append(found)
        if len(at):
            splits[at] = len(columns) + (splits >= 0).sum() + np.arange(len(at))
            sets = model.arrays["categories"][model.arrays["category_row"][at]]
            sets = sets[:, np.where(own == ABSENT, 0, own - place.start)]
            right = graph.node("MatMul", encoded, sets.T.astype(np.float64))
            more.append(
                graph.node("Where", graph.node("Cast", found, to=BOOLEAN), right, np.array([[np.nan]]))
            )
    return graph.node("Cast", graph.node("Concat", *pieces, *more, axis=1), to=FLOAT), splits


def _converted(graph: Graph, raw: bytes, size: int) -> Any:
    try:
        from onnxmltools.convert import convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType
    except ImportError:
        raise UnavailableError(
            "onnxmltools, which writes trees as ONNX, is not installed: pip install 'tacit-fl[onnx,xgboost]'"
        ) from None
    whole = convert_xgboost(to_booster(raw), initial_types=[("rows", FloatTensorType([None, size]))])
    graph.opsets |= {one.domain: one.version for one in whole.opset_import if one.domain}
    return next(node for node in whole.graph.node if node.op_type == "TreeEnsembleRegressor")
