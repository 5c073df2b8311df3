"""Models as ONNX graphs that take raw rows: preparation, network and probabilities in one file.

Each column is an input of its own name and of shape (rows, 1): a number as a 64-bit float (NaN if missing),
a category as a string ("" if missing). The outputs are ``label``, as the data had it, ``probabilities``, and
``classes`` in their order; or ``targets``. One whose name is that of a column has an underscore behind it.
"""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, extra
from tacit.data.schema import ABSENT, OTHER, Schema
from tacit.data.table import Column
from tacit.models.activations import HIGH, LOW
from tacit.models.estimator import Estimator
from tacit.models.mlp import MLP
from tacit.models.neural import TARGET_CENTRE, TARGET_SPREAD, Neural
from tacit.models.onelayer import Ensemble, OneLayer
from tacit.models.onnx_foreign import LABELS, OPSET, PROBABILITIES, convert_estimator, convert_module
from tacit.models.predictor import Predictor
from tacit.models.trees import Arrays, BoostedTrees

IR = 10  # as OPSET
FLOAT, BOOLEAN, DOUBLE = 1, 9, 11  # ONNX's numbers of types
TREES = "ai.onnx.ml"  # ONNX's domain of trees
WORDS = {"logistic": "Sigmoid", "relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "fourier": "Cos"}
WORDS |= {"softmax": "Softmax", "poisson": "Exp"}


class Graph:
    """A graph that grows node by node."""

    def __init__(self, onnx: Any, schema: Schema) -> None:
        self._onnx = onnx
        self._columns = {column.name for column in schema.columns}
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.opsets = {"": OPSET}

    def node(self, kind: str, *inputs: str | NDArray[Any], output: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output; inputs are names, or arrays as constants."""
        name = self.free(output) if output else f"tacit/value{len(self.nodes)}"
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        self.nodes.append(self._onnx.helper.make_node(kind, names, [name], **attributes))
        return name

    def _constant(self, values: NDArray[Any]) -> str:
        name = f"tacit/constant{len(self.constants)}"
        self.constants.append(self._onnx.numpy_helper.from_array(values, name))
        return name

    def free(self, name: str) -> str:
        """Return the name under which an output stands beside the columns."""
        return self.free(f"{name}_") if name in self._columns else name

    def total(self, X: str, axis: int) -> str:
        """Add a node that sums along an axis, which stays."""
        return self.node("ReduceSum", X, np.array([axis]), keepdims=1)


def to_onnx(model: Predictor) -> bytes:
    """Return a model as an ONNX file."""
    with extra("onnx is not installed: pip install 'tacit-fl[onnx]'"):
        import onnx
    graph = Graph(onnx, model.schema)
    outputs, classifies = _outputs(onnx, graph, model), model.schema.task == "classification"
    graph.node("Identity", outputs, output="probabilities" if classifies else "targets")
    whole = _assembled(onnx, graph, model.schema)
    onnx.checker.check_model(whole)
    raw: bytes = whole.SerializeToString()
    return raw


def _outputs(onnx: Any, graph: Graph, model: Predictor) -> str:
    """Add nodes from raw rows to probabilities or targets."""
    if isinstance(model, BoostedTrees):
        return _trees(graph, model)
    X, classifies = _prepared(graph, model), model.schema.task == "classification"
    if isinstance(model, Neural):
        network = model.network
        if isinstance(network, MLP):
            outputs = _perceptron(graph, model, network, X)
        else:
            module = convert_module(onnx, model)
            outputs = _inserted(onnx, graph, module, X, module.graph.output[0].name)
        if TARGET_SPREAD in model.arrays:
            outputs = graph.node("Mul", outputs, model.arrays[TARGET_SPREAD][None])
            outputs = graph.node("Add", outputs, model.arrays[TARGET_CENTRE][None])
        return graph.node("Softmax", outputs, axis=1) if classifies else outputs
    if isinstance(model, Estimator):
        outputs = _estimator(onnx, graph, model, X)
    elif isinstance(model, OneLayer | Ensemble):
        outputs = _evidence(graph, model, X)
    else:
        raise ConfigError(f"a {type(model).__name__} has no ONNX form: export it as safetensors")
    return _shares(graph, outputs) if classifies else outputs


def _prepared(graph: Graph, model: Predictor) -> str:
    schema, values, known = model.schema, model.inputs.values, model.inputs.recoding
    places = zip(schema.columns, known.unseen, known.gaps, strict=True)
    pieces = [one_hot(graph, *place) if place[0].kind != "number" else place[0].name for place in places]
    X = graph.node("Concat", *pieces, axis=1)
    if len(known.moved):
        # Left out first, since a missing number times 0 is still missing.
        X = graph.node("Where", known.features[None] != ABSENT, X, np.zeros((1, schema.features)))
        stands_for = known.features[:, None] == np.arange(schema.features)
        X = graph.node("MatMul", X, stands_for.astype(np.float64))
    if "fill" in values:
        X = graph.node("Where", graph.node("IsNaN", X), values["fill"][None], X)
    if "centre" in values:
        X = graph.node("Sub", X, values["centre"][None])
        X = graph.node("Div", X, values["spread"][None])
        X = graph.node("Mul", X, np.where(values["constant"], 0.0, 1.0)[None])
    if "longest" in values:
        squares = graph.total(graph.node("Mul", X, X), 1)
        lengths = graph.node("Div", graph.node("Sqrt", squares), values["longest"][None])
        X = graph.node("Div", X, graph.node("Max", lengths, np.ones((1, 1))))
    return X


def one_hot(graph: Graph, column: Column, unseen: int, gap: int) -> str:
    """Add nodes that encode a column's words; one that is missing or not in the list may count as "other"."""
    categories = len(column.categories)
    unseen = column.categories.index(OTHER) if OTHER in column.categories else unseen
    words = np.array([column.categories], dtype=object).reshape(1, -1)
    encoded = graph.node("Cast", graph.node("Equal", column.name, words), to=DOUBLE)
    if unseen == ABSENT and gap == ABSENT:
        return encoded
    empty = np.array([["" if "" not in column.categories else "\0"]], dtype=object)
    missing = graph.node("Cast", graph.node("Equal", column.name, empty), to=DOUBLE)
    found = graph.node("Add", missing, graph.total(encoded, 1))
    unknown = graph.node("Sub", np.ones((1, 1)), found)
    for which, place in ((missing, gap), (unknown, unseen)):
        if place != ABSENT:
            at = (np.arange(categories) == place).astype(np.float64)[None]
            encoded = graph.node("Add", encoded, graph.node("MatMul", which, at))
    return encoded


def _layer(graph: Graph, X: str, weights: Any, bias: Any, activation: str) -> str:
    X = graph.node("Add", graph.node("MatMul", X, weights), bias)
    if activation == "softplus":  # which onnxruntime does not compute of 64-bit floats
        small = graph.node("Exp", graph.node("Neg", graph.node("Abs", X)))
        log = graph.node("Log", graph.node("Add", small, np.array(1.0)))
        return graph.node("Add", log, graph.node("Max", X, np.array(0.0)))
    return graph.node(WORDS[activation], X) if activation in WORDS else X


def _evidence(graph: Graph, model: OneLayer | Ensemble, X: str) -> str:
    if isinstance(model, OneLayer) and model.layer is not None:
        X = _layer(graph, X, model.layer.weights, model.layer.bias, model.layer.kind)
    many = isinstance(model, Ensemble) and len(model.weights) > 1
    weights = model.weights if many else model.weights.reshape(model.weights.shape[-2:])
    outputs = _layer(graph, X, weights[..., 1:, :], weights[..., :1, :], model.activation)
    if model.schema.task == "classification":
        if model.activation == "softplus":  # the output nearest to the target speaks loudest
            distance = graph.node("Abs", graph.node("Sub", outputs, np.array(HIGH)))
            outputs = graph.node("Reciprocal", graph.node("Add", distance, np.array(LOW)))
        if isinstance(model, Ensemble) and many and model.vote == "majority":
            chosen = graph.node("ArgMax", outputs, axis=2, keepdims=1)
            places = np.arange(model.schema.outputs)
            outputs = graph.node("Cast", graph.node("Equal", chosen, places), to=DOUBLE)
        elif many:
            outputs = _shares(graph, outputs)
    return graph.node("ReduceMean", outputs, np.array([0]), keepdims=0) if many else outputs


def _shares(graph: Graph, found: str) -> str:
    clipped = graph.node("Max", found, np.array(1e-12))
    return graph.node("Div", clipped, graph.total(clipped, -1))


def _perceptron(graph: Graph, model: Neural, network: MLP, X: str) -> str:
    arrays = [model.arrays[name] for name in network.shapes]
    for place in range(0, len(arrays), 2):
        activation = "" if place == len(arrays) - 2 else network.activation
        X = _layer(graph, X, arrays[place], arrays[place + 1], activation)
    return X


def _assembled(onnx: Any, graph: Graph, schema: Schema) -> Any:
    helper, types = onnx.helper, onnx.TensorProto
    kinds = {"number": types.DOUBLE, "category": types.STRING}
    rows = [helper.make_tensor_value_info(own.name, kinds[own.kind], ["n", 1]) for own in schema.columns]
    outputs = _given_out(onnx, graph, schema)
    made = helper.make_graph(graph.nodes, "tacit", rows, outputs, graph.constants)
    opsets = [helper.make_opsetid(*pair) for pair in graph.opsets.items()]
    whole = helper.make_model(made, producer_name="tacit", opset_imports=opsets, ir_version=IR)
    columns = [(column.name, list(column.categories)) for column in schema.columns]
    words = {"classes": list(schema.classes), "targets": list(schema.target_names), "columns": columns}
    helper.set_model_props(whole, {k: msgspec.json.encode(v).decode() for k, v in words.items()})
    return whole


def _given_out(onnx: Any, graph: Graph, schema: Schema) -> list[Any]:
    if schema.task == "regression":
        return [onnx.helper.make_tensor_value_info(graph.free("targets"), DOUBLE, ["n", schema.outputs])]
    mixed = len({type(label) for label in schema.classes}) > 1 or isinstance(schema.classes[0], str)
    names = np.array([str(label) for label in schema.classes], object) if mixed else np.array(schema.classes)
    classes = graph.node("Identity", names, output="classes")
    likeliest = graph.node("ArgMax", graph.free("probabilities"), axis=1, keepdims=0)
    label = graph.node("Gather", classes, likeliest, output="label")
    kind = onnx.helper.np_dtype_to_tensor_dtype(names.dtype)
    return [
        onnx.helper.make_tensor_value_info(label, kind, ["n"]),
        onnx.helper.make_tensor_value_info(graph.free("probabilities"), DOUBLE, ["n", len(names)]),
        onnx.helper.make_tensor_value_info(classes, kind, [len(names)]),
    ]


def _estimator(onnx: Any, graph: Graph, model: Estimator, X: str) -> str:
    theirs, found = convert_estimator(model)
    outputs, classes = _inserted(onnx, graph, theirs, X, found), np.arange(model.schema.outputs)
    if found == LABELS:
        column = graph.node("Unsqueeze", outputs, np.array([1]))
        return graph.node("Cast", graph.node("Equal", column, classes.astype(np.float64)), to=DOUBLE)
    if found == PROBABILITIES:  # of the classes that it has seen
        seen = model.estimator.classes_[:, None] == classes
        return graph.node("MatMul", outputs, seen.astype(np.float64))
    scale = model.estimator.transformer_
    return graph.node("Add", graph.node("Mul", outputs, scale.scale_[None]), scale.mean_[None])


def _inserted(onnx: Any, graph: Graph, theirs: Any, X: str, found: str) -> str:
    """Add the nodes of a model that takes 32-bit numbers, and return one of its outputs as 64-bit ones."""
    theirs = onnx.compose.add_prefix(theirs, "network/")
    graph.node("Cast", X, output=theirs.graph.input[0].name, to=FLOAT)
    graph.nodes += theirs.graph.node
    graph.constants += theirs.graph.initializer
    graph.opsets |= {one.domain: one.version for one in theirs.opset_import if one.domain}
    return graph.node("Cast", f"network/{found}", to=DOUBLE)


def _trees(graph: Graph, model: BoostedTrees) -> str:
    arrays, graph.opsets[TREES] = model.with_base_as_trees(), 1
    features, splits = _features(graph, model, arrays)
    leaf, nodes = arrays["feature"] < 0, np.arange(len(arrays["feature"]))
    sizes = np.diff(arrays["tree_start"])
    trees = np.repeat(np.arange(len(sizes)), sizes)
    parts: dict[str, Any] = {
        "nodes_treeids": trees,
        "nodes_nodeids": nodes,
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LT"),
        "nodes_featureids": np.where(splits < 0, np.where(leaf, 0, arrays["feature"]), splits),
        "nodes_values": np.where(splits < 0, arrays["threshold"], 0.5),
        "nodes_truenodeids": arrays["left"],
        "nodes_falsenodeids": arrays["right"],
        "nodes_missing_value_tracks_true": arrays["default_left"],
        "target_treeids": trees[leaf],
        "target_nodeids": nodes[leaf],
        "target_ids": arrays["tree_output"][trees[leaf]],
        "target_weights": arrays["value"][leaf],
    }
    kind, outputs = "TreeEnsembleRegressor", len(model.arrays["base"])
    margins = graph.node(kind, features, domain=TREES, n_targets=outputs, **parts)
    total = graph.node("Cast", margins, to=DOUBLE)
    if model.loss == "logistic":
        total = graph.node("Concat", graph.node("Neg", total), total, axis=1)
    return graph.node(WORDS.get(model.loss, "Identity"), total)


def _features(graph: Graph, model: BoostedTrees, arrays: Arrays) -> tuple[str, NDArray[np.int64]]:
    """Add nodes from raw rows to what trees split by, and return the feature of each split by categories.

    ONNX has no trees that split by sets of them: such a feature says whether a row's category goes right.
    """
    known, columns = model.inputs.recoding, model.schema.columns
    pieces, more = list[str](), list[str]()
    splits = np.full(len(arrays["feature"]), -1)
    for index, (column, place) in enumerate(zip(columns, model.schema.places, strict=True)):
        if column.kind == "number":
            pieces.append(column.name)
            continue
        own = known.features[place]
        at = np.flatnonzero((arrays["feature"] == index) & (arrays["category_row"] >= 0))
        encoded = one_hot(graph, column, known.unseen[index], known.gaps[index])
        found = graph.node("MatMul", encoded, (own != ABSENT).astype(np.float64)[:, None])
        pieces.append(found)
        if len(at):
            splits[at] = len(columns) + (splits >= 0).sum() + np.arange(len(at))
            sets = arrays["categories"][arrays["category_row"][at]]
            sets = sets[:, np.where(own == ABSENT, 0, own - place.start)]
            right = graph.node("MatMul", encoded, sets.T.astype(np.float64))
            more.append(
                graph.node("Where", graph.node("Cast", found, to=BOOLEAN), right, np.array([[np.nan]]))
            )
    return graph.node("Cast", graph.node("Concat", *pieces, *more, axis=1), to=FLOAT), splits
