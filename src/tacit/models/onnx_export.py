"""Models as ONNX graphs that take raw rows: preparation, network and probabilities in one file.

The input ``rows`` has one column for each column of the agreed schema, as 64-bit floats: a number as it is, a
category as its place in the schema's list (NaN if it is missing, -1 if it is not in the list). The outputs
are ``probabilities`` and ``label``, the place of the likeliest class, or ``targets``; classes and columns
stand in the file's metadata.
"""

from __future__ import annotations

import io
from typing import Any

import msgspec
import numpy as np

from tacit.core.errors import ConfigError, UnavailableError
from tacit.data.recoding import Recoding
from tacit.data.schema import ABSENT
from tacit.models.activations import HIGH, LOW
from tacit.models.mlp import MLP
from tacit.models.neural import TARGET_CENTRE, TARGET_SPREAD, Neural
from tacit.models.onelayer import OneLayer
from tacit.models.predictor import Predictor

OPSET, IR = 18, 10
DOUBLE = 11  # ONNX's number of the type
WORDS = {"logistic": "Sigmoid", "softplus": "Softplus", "relu": "Relu", "tanh": "Tanh"}
WORDS |= {"sigmoid": "Sigmoid", "fourier": "Cos"}


class _Graph:
    """A graph that grows node by node."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: Any) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(self._onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"value{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], **attributes))
        return name


def to_onnx(model: Predictor) -> bytes:
    """Return a model as an ONNX file."""
    try:
        import onnx
    except ImportError:
        raise UnavailableError("onnx is not installed: pip install 'tacit-fl[onnx]'") from None
    graph = _Graph(onnx)
    X = _prepared(graph, model)
    if isinstance(model, OneLayer):
        _one_layer(graph, model, X)
        whole = _assembled(onnx, graph, model)
    elif isinstance(model, Neural) and isinstance(model.network, MLP):
        outputs = _perceptron(graph, model, model.network, X)
        if model.schema.task == "regression":
            graph.node("Identity", outputs, output="targets")
        else:
            graph.node("Softmax", outputs, output="probabilities", axis=1)
        whole = _assembled(onnx, graph, model)
    elif isinstance(model, Neural):
        graph.node("Cast", X, output="features", to=onnx.TensorProto.FLOAT)
        whole = _with_module(onnx, _assembled(onnx, graph, model), model)
    else:
        raise ConfigError(f"a {type(model).__name__} has no ONNX form: export it as safetensors or json")
    onnx.checker.check_model(whole)
    raw: bytes = whole.SerializeToString()
    return raw


def _prepared(graph: _Graph, model: Predictor) -> str:
    """Add nodes that encode, fill and scale raw rows, as :class:`tacit.data.inputs.Inputs` does."""
    schema, values = model.schema, model.inputs.values
    known = Recoding(schema, values.get("cells"))
    X = "rows"
    if not schema.numeric:
        pieces = []
        for index, column in enumerate(schema.columns):
            own = graph.node("Gather", "rows", graph.constant(np.array([index])), axis=1)
            if column.kind != "number":
                own = _one_hot(graph, own, len(column.categories), known.unseen[index], known.gaps[index])
            pieces.append(own)
        X = graph.node("Concat", *pieces, axis=1)
    if len(known.moved):
        # Left out first, since a missing number times 0 is still missing.
        kept = graph.constant(known.features[None] != ABSENT)
        X = graph.node("Where", kept, X, graph.constant(np.zeros((1, schema.features))))
        X = graph.node("MatMul", X, graph.constant(known.as_matrix()))
    if "fill" in values:
        X = graph.node("Where", graph.node("IsNaN", X), graph.constant(values["fill"][None]), X)
    if "centre" in values:
        X = graph.node("Sub", X, graph.constant(values["centre"][None]))
        X = graph.node("Div", X, graph.constant(values["spread"][None]))
        X = graph.node("Mul", X, graph.constant(np.where(values["constant"], 0.0, 1.0)[None]))
    if "longest" in values:
        squares = graph.node("ReduceSum", graph.node("Mul", X, X), graph.constant(np.array([1])), keepdims=1)
        lengths = graph.node("Div", graph.node("Sqrt", squares), graph.constant(values["longest"][None]))
        X = graph.node("Div", X, graph.node("Max", lengths, graph.constant(np.ones((1, 1)))))
    return X


def _one_hot(graph: _Graph, codes: str, categories: int, unseen: int, gap: int) -> str:
    """Nodes that encode a column's codes; one that is missing or not in the list may count as "other"."""
    places = graph.constant(np.arange(categories, dtype=np.float64)[None])
    encoded = graph.node("Cast", graph.node("Equal", codes, places), to=DOUBLE)
    if unseen == ABSENT and gap == ABSENT:
        return encoded
    missing = graph.node("Cast", graph.node("IsNaN", codes), to=DOUBLE)
    found = graph.node(
        "Add", missing, graph.node("ReduceSum", encoded, graph.constant(np.array([1])), keepdims=1)
    )
    unknown = graph.node("Sub", graph.constant(np.ones((1, 1))), found)
    for which, place in ((missing, gap), (unknown, unseen)):
        if place != ABSENT:
            at = (np.arange(categories) == place).astype(np.float64)[None]
            encoded = graph.node("Add", encoded, graph.node("MatMul", which, graph.constant(at)))
    return encoded


def _layer(graph: _Graph, X: str, weights: Any, bias: Any, activation: str, output: str = "") -> str:
    product = graph.node("MatMul", X, graph.constant(weights))
    named = output if activation not in WORDS else ""
    X = graph.node("Add", product, graph.constant(bias), output=named)
    return graph.node(WORDS[activation], X, output=output) if activation in WORDS else X


def _one_layer(graph: _Graph, model: OneLayer, X: str) -> None:
    if model.layer is not None:
        X = _layer(graph, X, model.layer.weights, model.layer.bias, model.layer.kind)
    if model.schema.task == "regression":
        _layer(graph, X, model.weights[1:], model.weights[0], model.activation, "targets")
        return
    outputs = _layer(graph, X, model.weights[1:], model.weights[0], model.activation)
    if model.activation == "softplus":  # the output nearest to the target speaks loudest
        distance = graph.node("Abs", graph.node("Sub", outputs, graph.constant(np.array([[HIGH]]))))
        outputs = graph.node("Reciprocal", graph.node("Add", distance, graph.constant(np.array([[LOW]]))))
    clipped = graph.node("Max", outputs, graph.constant(np.array([[1e-12]])))
    total = graph.node("ReduceSum", clipped, graph.constant(np.array([1])), keepdims=1)
    graph.node("Div", clipped, total, output="probabilities")


def _perceptron(graph: _Graph, model: Neural, network: MLP, X: str) -> str:
    arrays = [model.arrays[name] for name in network.shapes]
    for place in range(0, len(arrays), 2):
        activation = "" if place == len(arrays) - 2 else network.activation
        X = _layer(graph, X, arrays[place], arrays[place + 1], activation)
    if TARGET_SPREAD in model.arrays:
        X = graph.node("Mul", X, graph.constant(model.arrays[TARGET_SPREAD][None]))
        X = graph.node("Add", X, graph.constant(model.arrays[TARGET_CENTRE][None]))
    return X


def _assembled(onnx: Any, graph: _Graph, model: Predictor) -> Any:
    helper, types = onnx.helper, onnx.TensorProto
    schema = model.schema
    rows = helper.make_tensor_value_info("rows", types.DOUBLE, ["n", len(schema.columns)])
    if any("features" in node.output for node in graph.nodes):
        outputs = [helper.make_tensor_value_info("features", types.FLOAT, ["n", schema.features])]
    elif schema.task == "regression":
        outputs = [helper.make_tensor_value_info("targets", types.DOUBLE, ["n", schema.outputs])]
    else:
        graph.node("ArgMax", "probabilities", output="label", axis=1, keepdims=0)
        outputs = [
            helper.make_tensor_value_info("probabilities", types.DOUBLE, ["n", schema.outputs]),
            helper.make_tensor_value_info("label", types.INT64, ["n"]),
        ]
    made = helper.make_graph(graph.nodes, "tacit", [rows], outputs, graph.constants)
    whole = helper.make_model(
        made, producer_name="tacit", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR
    )
    columns = [(column.name, list(column.categories)) for column in schema.columns]
    words = {"classes": list(schema.classes), "targets": list(schema.target_names), "columns": columns}
    helper.set_model_props(whole, {k: msgspec.json.encode(v).decode() for k, v in words.items()})
    return whole


def _with_module(onnx: Any, prepared: Any, model: Neural) -> Any:
    """Put torch's own graph of a module behind the preparation, and a softmax behind that."""
    from tacit.models.torch_network import TorchNetwork, torch_library

    if model.schema.task == "regression":
        raise ConfigError(
            "a torch module that learnt a regression has no ONNX form: export it as safetensors"
        )
    network = model.network
    assert isinstance(network, TorchNetwork)
    torch = torch_library()
    module = network.load(network.flat(model.arrays)).eval()
    example = torch.zeros((2, model.schema.features), dtype=torch.float32)
    rows = {0: torch.export.Dim("n")}
    program = torch.onnx.export(
        torch.nn.Sequential(module, torch.nn.Softmax(1)).eval(),
        (example,),
        input_names=["module_features"],
        output_names=["probabilities"],
        dynamic_shapes=({**rows},),
        opset_version=OPSET,
        dynamo=True,
        verbose=False,
    )
    stream = io.BytesIO()
    program.save(stream)
    theirs = onnx.load_from_string(stream.getvalue())
    theirs.ir_version = IR
    whole = onnx.compose.merge_models(
        onnx.compose.add_prefix(prepared, "prepare/", rename_inputs=False, rename_outputs=False),
        onnx.compose.add_prefix(theirs, "network/", rename_inputs=False, rename_outputs=False),
        io_map=[("features", "module_features")],
    )
    label = onnx.helper.make_node("ArgMax", ["probabilities"], ["label"], axis=1, keepdims=0)
    whole.graph.node.append(label)
    whole.graph.output.append(onnx.helper.make_tensor_value_info("label", onnx.TensorProto.INT64, ["n"]))
    return whole
