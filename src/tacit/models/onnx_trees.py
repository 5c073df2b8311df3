"""Boosted trees as nodes of an ONNX graph, by onnxmltools' converter of XGBoost's boosters.

ONNX has no trees that split by sets of categories. So the graph computes for each such split a feature that
says whether a row's category goes right, and the trees split these at one half.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import UnavailableError
from tacit.data.schema import ABSENT
from tacit.models.onnx_export import DOUBLE, Graph, one_hot
from tacit.models.trees import BoostedTrees
from tacit.models.xgboost_export import document, leaf_tree, to_booster, tree_of

FLOAT, BOOLEAN = 1, 9  # ONNX's numbers of types


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
    """Add nodes for columns and splits by category; return also the feature of each such split, else -1."""
    known, columns, first = model.inputs.recoding, model.schema.columns, 0
    pieces, more = list[str](), list[str]()
    splits = np.full(len(model.arrays["feature"]), -1)
    for index, column in enumerate(columns):
        if column.kind == "number":
            pieces.append(column.name)
            first += 1
            continue
        own = known.features[first : first + len(column.categories)]
        at = np.flatnonzero((model.arrays["feature"] == index) & (model.arrays["category_row"] >= 0))
        encoded = one_hot(graph, column, known.unseen[index], known.gaps[index])
        found = graph.node("MatMul", encoded, (own != ABSENT).astype(np.float64)[:, None])
        pieces.append(found)
        if len(at):
            splits[at] = len(columns) + (splits >= 0).sum() + np.arange(len(at))
            sets = model.arrays["categories"][model.arrays["category_row"][at]]
            sets = sets[:, np.where(own == ABSENT, 0, own - first)]
            right = graph.node("MatMul", encoded, sets.T.astype(np.float64))
            more.append(
                graph.node("Where", graph.node("Cast", found, to=BOOLEAN), right, np.array([[np.nan]]))
            )
        first += len(own)
    return graph.node("Cast", graph.node("Concat", *pieces, *more, axis=1), to=FLOAT), splits


def _converted(graph: Graph, raw: bytes, size: int) -> Any:
    """Return the node that onnxmltools makes of a booster's trees."""
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
