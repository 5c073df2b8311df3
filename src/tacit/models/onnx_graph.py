"""Parts of ONNX graphs: a graph that grows, and the encoding of a category."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.schema import ABSENT, OTHER, Schema
from tacit.data.table import Column

OPSET = 19  # the first that compares strings
DOUBLE = 11  # ONNX's number of the type


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
