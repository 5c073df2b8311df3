"""Boosted trees: each adds a number to one of the outputs, by the leaf that a row falls into."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, DataError, extra, nearest
from tacit.data.inputs import Inputs
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.models.activations import logistic
from tacit.models.network import softmax
from tacit.models.predictor import Matrix, Predictor

Loss = Literal["logistic", "softmax", "squared", "poisson"]
Importance = Literal["gain", "cover"]
Arrays = dict[str, NDArray[Any]]

LOSSES = {"logistic": "classification", "softmax": "classification"}
LOSSES |= {"squared": "regression", "poisson": "regression"}
# Arrays with an entry for each node.
NODES: dict[str, Any] = {"feature": np.int32, "threshold": np.float32, "default_left": np.uint8}
NODES |= dict.fromkeys(("left", "right", "category_row"), np.int32)
NODES |= dict.fromkeys(("value", "gain", "cover"), np.float64)
ARRAYS = {"categories": np.uint8, "tree_start": np.int32, "tree_output": np.int32, "base": np.float64}
BLOCK = 2**18  # leaves that are looked up at once


class BoostedTrees(Predictor):
    """Regression trees whose leaves add up to margins, as XGBoost has them.

    Parameters
    ----------
    arrays : mapping
        Of all nodes, tree after tree, each from its root down: ``feature``, the column at which a node splits
        (-1: a leaf); ``threshold``, below which 32-bit numbers go left; ``category_row``, the row of
        ``categories`` with a 1 for each category that goes right (-1: a split by number); ``default_left``,
        if missing values go left; the children ``left`` and ``right``, as places among all nodes; ``value``,
        what a leaf adds; ``gain`` and ``cover``, the sum of second derivatives. ``tree_start`` has the first
        node of each tree and the number of nodes, ``tree_output`` the output that each tree adds to, ``base``
        the outputs before any tree.
    loss : {"logistic", "softmax", "squared", "poisson"}
        Two classes have one margin under "logistic", several one each under "softmax"; so do targets.
    """

    FORMAT = "tacit-boosted-trees-1"

    def __init__(self, arrays: Mapping[str, Any], loss: str, inputs: Inputs) -> None:
        super().__init__(loss, inputs)
        self.loss = loss
        kinds = {**NODES, **ARRAYS}
        self.arrays = {name: np.asarray(arrays[name], dtype=kind) for name, kind in kinds.items()}
        if flaw := _flaw(self.arrays, loss, inputs.schema):
            raise DataError(f"the model is damaged: {flaw}")

    @property
    def trees(self) -> int:
        """Number of trees, those of all outputs together."""
        return len(self.arrays["tree_output"])

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "trees": self.trees, "loss": self.loss}

    def columns(self, rows: Any) -> NDArray[np.float32]:
        """Return raw rows or a table as the trees read them, and an exported booster: NaN is missing."""
        return self.inputs.columns(self.schema.table_of(rows), lenient=isinstance(rows, Table))

    def _matrix(self, rows: Any) -> Any:
        return self.columns(rows)

    @cached_property
    def depth(self) -> int:
        """Number of splits on the longest way from a root to a leaf."""
        feature, left, right = (self.arrays[name] for name in ("feature", "left", "right"))
        here, depth = self.arrays["tree_start"][:-1], 0
        while len(here := here[feature[here] >= 0]):
            here, depth = np.unique(np.concatenate([left[here], right[here]])), depth + 1
        return depth

    def leaves(self, X: NDArray[np.float32]) -> NDArray[np.int32]:
        """Return for each tree the leaf that each row of columns falls into."""
        feature, threshold, default, left, right, row = (self.arrays[name] for name in list(NODES)[:6])
        stay = np.arange(len(feature), dtype=np.int32)  # a leaf is its own child
        children = np.where(feature < 0, stay, [right, left])
        at = np.repeat(self.arrays["tree_start"][:-1, None], len(X), axis=1)
        rows, by_category = np.arange(len(X)), bool((row >= 0).any())
        for _ in range(self.depth):
            x = X[rows, feature[at]]
            missing = np.isnan(x)
            goes_left = np.where(missing, default[at], x < threshold[at])
            if by_category:
                chosen = (row[at] >= 0) & ~missing
                goes_left[chosen] = 1 - self.arrays["categories"][row[at[chosen]], x[chosen].astype(np.intp)]
            at = children[goes_left.astype(np.intp), at]
        return at

    def margins(self, X: NDArray[np.float32]) -> Matrix:
        """Return the sums of leaves for rows of columns, before probabilities or targets are made of them."""
        total = np.tile(self.arrays["base"], (len(X), 1))
        step = max(1, BLOCK // max(1, self.trees))
        for first in range(0, len(X), step):
            values = self.arrays["value"][self.leaves(X[first : first + step])]
            for output, added in zip(self.arrays["tree_output"], values, strict=True):
                total[first : first + step, output] += added  # in the order of trees, whatever the block
        return total

    def _outputs(self, X: Any) -> Matrix:
        margins = self.margins(X)
        return np.exp(margins) if self.loss == "poisson" else margins

    def _probabilities(self, X: Any) -> Matrix:
        margins = self.margins(X)
        if self.loss == "softmax":
            return softmax(margins)
        return logistic(np.hstack([-margins, margins]))

    def _centre(self) -> Matrix:
        base = self.arrays["base"]
        return np.asarray(np.exp(base) if self.loss == "poisson" else base)

    def importances(self, kind: Importance = "gain") -> dict[str, float]:
        """Return for each column the gain or cover of all its splits; largest first."""
        if kind not in get_args(Importance):
            raise ConfigError(f"unknown importance '{kind}': {nearest(kind, get_args(Importance))}")
        feature, columns = self.arrays["feature"], self.schema.columns
        inner = feature >= 0
        totals = np.bincount(feature[inner], self.arrays[kind][inner], minlength=len(columns))
        return {columns[i].name: float(totals[i]) for i in np.argsort(-totals, kind="stable")}

    def nested(self, tree: int, levels: int = 3) -> dict[str, Any]:
        """Return a tree as nodes within nodes, down to some levels; where ``split`` holds, rows go left."""
        return self._below(int(self.arrays["tree_start"][tree]), levels)

    def _below(self, node: int, levels: int) -> dict[str, Any]:
        at = {name: self.arrays[name][node].item() for name in NODES}
        if at["feature"] < 0 or not levels:
            return {"value": at["value"], "more": at["feature"] >= 0}
        column = self.schema.columns[at["feature"]]
        split = f"{column.name} < {at['threshold']:.4g}"
        if at["category_row"] >= 0:
            goes_right = self.arrays["categories"][at["category_row"]]
            words = [word for word, right in zip(column.categories, goes_right, strict=False) if not right]
            split = f"{column.name}: {', '.join(words)}"
        sides = {side: self._below(at[side], levels - 1) for side in ("left", "right")}
        return {"split": split, "missing": "left" if at["default_left"] else "right", **sides}

    def with_base_as_trees(self) -> Arrays:
        """Return the arrays with each base as a tree of a leaf, since XGBoost rounds it as a probability."""
        outputs, known = np.arange(len(self.arrays["base"])), self.arrays
        leaves = {**dict.fromkeys(NODES, 0 * outputs), "value": known["base"]}
        leaves |= dict.fromkeys(("feature", "category_row"), 0 * outputs - 1)
        found = {name: np.append(part, known[name]) for name, part in leaves.items()}
        found |= {
            name: np.append(outputs, known[name] + len(outputs)) for name in ("left", "right", "tree_start")
        }
        return {**known, **found, "tree_output": np.append(outputs, known["tree_output"])}

    def to_xgboost(self) -> Any:
        """Return an ``xgboost.Booster`` that predicts as this model does, from what :meth:`columns` gives."""
        with extra("xgboost is not installed: pip install 'tacit-fl[xgboost]'"):
            import xgboost
        return xgboost.Booster(model_file=bytearray(self.to_bytes("xgboost")))

    def _content(self) -> tuple[dict[str, Any], dict[str, str]]:
        return self.arrays, {"loss": self.loss}

    @classmethod
    def restore(cls, words: Mapping[str, str], tensors: Mapping[str, Any], inputs: Inputs) -> Self:
        return cls(tensors, words["loss"], inputs)


def _flaw(arrays: Mapping[str, NDArray[Any]], loss: str, schema: Schema) -> str:
    if LOSSES.get(loss) != schema.task or (loss == "logistic" and schema.outputs != 2):
        return f"loss '{loss}' does not fit {schema.task} with {schema.outputs} outputs"
    nodes, starts, of_tree = len(arrays["feature"]), arrays["tree_start"], arrays["tree_output"]
    outputs = 1 if loss == "logistic" else schema.outputs
    shapes = {**dict.fromkeys(NODES, (nodes,)), "tree_start": (len(of_tree) + 1,), "base": (outputs,)}
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            return f"'{name}' has shape {arrays[name].shape}, not {shape}"
    if starts[0] != 0 or starts[-1] != nodes or (np.diff(starts) < 1).any():
        return "'tree_start' does not rise from 0 to the number of nodes"
    if not np.isin(of_tree, np.arange(outputs)).all():
        return f"'tree_output' names an output that is not among {outputs}"
    if not all(np.isfinite(arrays[name]).all() for name in ("threshold", "value", "base", "gain", "cover")):
        return "a number is not finite"
    return _split_flaw(arrays, np.repeat(starts[1:], np.diff(starts)), schema)


def _split_flaw(arrays: Mapping[str, NDArray[Any]], ends: NDArray[Any], schema: Schema) -> str:
    """Return what is wrong with the splits, if anything; ``ends`` has for each node where its tree ends."""
    feature, rows = arrays["feature"], arrays["category_row"]
    inner = np.flatnonzero(feature >= 0)
    for child in (arrays["left"][inner], arrays["right"][inner]):
        if ((child <= inner) | (child >= ends[inner])).any():
            return "a child does not come after its parent in the same tree"
    if feature.max(initial=-1) >= len(schema.columns):
        return f"a split is at a column that is not among {len(schema.columns)}"
    sizes = np.array([len(column.categories) for column in schema.columns])
    kinds = np.array([column.kind == "category" for column in schema.columns], dtype=bool)
    by_category = (feature >= 0) & kinds[feature]
    most, widest = (*arrays["categories"].shape, 0)[:2]
    if (
        ((rows >= 0) != by_category).any()
        or rows.max(initial=-1) >= most
        or sizes[feature[by_category]].max(initial=0) > widest
    ):
        return "'category_row' and 'categories' do not fit the columns at which nodes split"
    return ""
