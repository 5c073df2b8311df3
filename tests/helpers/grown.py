"""Random trees over numbers and categories, and rows for them with missing values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.data.inputs import Inputs
from tacit.data.schema import Schema
from tacit.data.table import Column
from tacit.models.trees import ARRAYS, NODES, BoostedTrees

COLOURS = ("amber", "blue", "green", "red", "violet")
COLUMNS = (
    Column("x"),
    Column("colour", "category", categories=COLOURS),
    Column("y"),
    Column("on", "category", categories=("n", "y")),
)
SCHEMAS = {
    "logistic": Schema(COLUMNS, "classification", ("no", "yes"), ("t",)),
    "softmax": Schema(COLUMNS, "classification", ("a", "b", "c"), ("t",)),
    "squared": Schema(COLUMNS, "regression", (), ("price",)),
    "poisson": Schema(COLUMNS, "regression", (), ("count",)),
    "two targets": Schema(COLUMNS, "regression", (), ("price", "weight")),
}


def random_trees(case: str, *, trees: int = 12, depth: int = 3, rows: int = 300) -> tuple[BoostedTrees, Any]:
    """Return trees of a loss, some of them unbalanced, and plain rows of which a tenth is missing."""
    rng, schema = np.random.default_rng(7), SCHEMAS[case]
    outputs = 1 if case == "logistic" else schema.outputs
    arrays: dict[str, list[Any]] = {name: [] for name in {**NODES, **ARRAYS}}
    X = rng.normal(size=(rows, 4)).astype(np.float32)
    for tree in range(trees * outputs):
        arrays["tree_start"].append(len(arrays["feature"]))
        arrays["tree_output"].append(tree % outputs)
        level = [grow(rng, arrays, X)]
        for _ in range(depth):
            children = []
            for node in level:
                if rng.random() < 0.85:
                    split(rng, arrays, node, X)
                    children += [grow(rng, arrays, X), grow(rng, arrays, X)]
                    arrays["left"][node], arrays["right"][node] = children[-2:]
            level = children
    arrays["tree_start"].append(len(arrays["feature"]))
    arrays["base"] = rng.normal(size=outputs).tolist()
    arrays["categories"] = arrays["categories"] or np.zeros((0, 0), np.uint8)
    table = X.astype(object)
    for column in (1, 3):
        words = COLUMNS[column].categories
        table[:, column] = [words[int(code)] for code in rng.integers(len(words), size=rows)]
    table[rng.random(table.shape) < 0.1] = None
    loss = "squared" if case == "two targets" else case
    return BoostedTrees(arrays, loss, Inputs(schema, {})), table


def grow(rng: np.random.Generator, arrays: dict[str, list[Any]], X: Any) -> int:
    """Add a leaf and return its place."""
    leaf = {"feature": -1, "left": -1, "right": -1, "category_row": -1, "value": rng.normal() * 0.1}
    for name in NODES:
        arrays[name].append(leaf.get(name, 0))
    arrays["cover"][-1] = 1.0 + rng.random()
    return len(arrays["feature"]) - 1


def split(rng: np.random.Generator, arrays: dict[str, list[Any]], node: int, X: Any) -> None:
    """Make a node split, at the value of a row, so that rows lie on the threshold itself."""
    feature = int(rng.integers(4))
    arrays["feature"][node], arrays["gain"][node] = feature, rng.random()
    arrays["default_left"][node] = int(rng.integers(2))
    if COLUMNS[feature].kind == "number":
        arrays["threshold"][node] = X[rng.integers(len(X)), feature]
    else:
        arrays["category_row"][node] = len(arrays["categories"])
        words = len(COLUMNS[feature].categories)
        right = rng.permutation(words)[: rng.integers(1, words)]
        arrays["categories"].append(np.isin(np.arange(len(COLOURS)), right).astype(int).tolist())
