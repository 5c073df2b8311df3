"""How the trees of a round grow: one for each output, all at once, a wave of sums at a time.

What is known of them is a record of plain arrays, so that it can be shared: the nodes so far, in the order in
which they were made; which are to be summed next (``slots``, of two children the lighter one); the histograms
of their parents, from which those of their siblings follow; and, if only the best leaf is split, those of all
others that still may be.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.methods.boosting.cuts import Buckets
from tacit.methods.boosting.losses import Matrix
from tacit.methods.boosting.splits import Rules, Splits, find_splits
from tacit.models.trees import NODES as MODEL_NODES

Arrays = dict[str, Any]
MODEL = {name: kind for name, kind in MODEL_NODES.items() if name not in ("right", "category_row")}
NODES = {**MODEL, "output": np.int32, "depth": np.int32, "lower": np.float64, "upper": np.float64}
LATER = ("waiting", "waiting_sums", "parent_sums", "slots")  # what complete trees have no more


@dataclass(frozen=True)
class Grower:
    """Grows the trees of one round by fixed rules; derivatives are counted in ``units`` of their output.

    ``buckets`` are those of the ``columns`` that are drawn for the round; no column at all has more than
    ``width``.
    """

    buckets: Buckets
    columns: NDArray[np.intp]
    width: int
    rules: Rules
    units: Matrix
    rate: float
    leafwise: bool

    def plant(self, sums: Matrix) -> Arrays:
        """Return roots, one for each output, split if that gains anything."""
        nodes: Arrays = {name: np.zeros(0, dtype=kind) for name, kind in NODES.items()}
        nodes["right"] = np.zeros((0, self.width), dtype=np.uint8)
        outputs, bounds = np.arange(len(sums)), np.tile([-np.inf, np.inf], (len(sums), 1))
        return self._split(self._append(nodes, outputs, 0, self._whole(sums, outputs), bounds), outputs, sums)

    def extend(self, record: Mapping[str, Any], sums: Matrix) -> Arrays:
        """Return the trees one wave further, from the sums over the nodes in ``slots``."""
        slots, own = record["slots"], sums[: len(record["slots"])]
        siblings = slots + np.where(np.isin(slots, record["left"]), 1, -1)
        known = np.concatenate([record["waiting"], slots, siblings])
        histograms = np.concatenate([record["waiting_sums"], own, record["parent_sums"] - own])
        nodes = {name: record[name].copy() for name in NODES}
        nodes["right"] = np.unpackbits(record["goes"], axis=1)[:, : self.width]
        return self._split(nodes, known, histograms)

    def _whole(self, sums: Matrix, outputs: Any) -> Matrix:
        """Return G and H of nodes: their sums over the buckets of any column."""
        return np.asarray(sums[:, : int(self.buckets.widths[0])].sum(axis=1) / self.units[outputs])

    def _append(self, nodes: Arrays, outputs: Any, depth: Any, sums: Matrix, bounds: Matrix) -> Arrays:
        lower, upper = bounds.T
        # Leaves are 32-bit numbers where models of this kind are read.
        value = (self.rate * self.rules.weigh(sums[:, 0], sums[:, 1], lower, upper)).astype(np.float32)
        new = {"output": outputs, "depth": depth, "value": value, "lower": lower, "upper": upper}
        new |= {"cover": sums[:, 1], "feature": -1, "left": -1}
        rows = len(sums)
        found = {n: np.append(nodes[n], np.broadcast_to(new.get(n, 0), rows).astype(NODES[n])) for n in NODES}
        return {**found, "right": np.pad(nodes["right"], ((0, rows), (0, 0)))}

    def _split(self, nodes: Arrays, known: NDArray[Any], sums: Matrix) -> Arrays:
        bounds = np.stack([nodes["lower"][known], nodes["upper"][known]], axis=1)
        trees = nodes["output"][known]
        found = find_splits(sums / self.units[trees][:, None], bounds, self.buckets, self.rules)
        chosen = found.gain > self.rules.gamma
        waiting = np.zeros_like(chosen)
        if self.leafwise:
            own = (np.flatnonzero(trees == tree) for tree in np.unique(trees))
            best = np.isin(np.arange(len(known)), [places[np.argmax(found.gain[places])] for places in own])
            chosen, waiting = chosen & best, chosen & ~best
        nodes, slots = self._make_children(
            nodes, known, found, np.flatnonzero(chosen), self._whole(sums, trees)
        )
        later = known[waiting].astype(np.int32), sums[waiting], sums[chosen], slots.astype(np.int32)
        goes = np.packbits(nodes.pop("right"), axis=1)
        return {**nodes, "goes": goes, **dict(zip(LATER, later, strict=True))}

    def _make_children(
        self, nodes: Arrays, known: NDArray[Any], found: Splits, chosen: NDArray[Any], whole: Matrix
    ) -> tuple[Arrays, NDArray[Any]]:
        parents, left = known[chosen], found.left_sums[chosen]
        pairs = np.stack([left, whole[chosen] - left], axis=1)  # parent × side × (G, H)
        bounds = np.stack([nodes["lower"][parents], nodes["upper"][parents]], axis=1)
        bounds = np.repeat(bounds[:, None], 2, axis=1)  # parent × side × (lower, upper)
        weights = self.rules.weigh(pairs[..., 0], pairs[..., 1], bounds[..., 0], bounds[..., 1])
        signs, middle = self.rules.signs[found.feature[chosen]], weights.mean(axis=1)
        for sign, side in ((1, 1), (-1, 0)):  # the side that must be larger
            own = signs == sign
            bounds[own, side, 0] = bounds[own, 1 - side, 1] = middle[own]
        first = len(nodes["left"]) + 2 * np.arange(len(parents))
        twice = np.repeat(nodes["output"][parents], 2), np.repeat(nodes["depth"][parents] + 1, 2)
        nodes = self._append(nodes, *twice, pairs.reshape(-1, 2), bounds.reshape(-1, 2))
        for name in ("threshold", "default_left", "gain"):
            nodes[name][parents] = getattr(found, name)[chosen]
        nodes["feature"][parents] = self.columns[found.feature[chosen]]
        nodes["right"][parents, : found.right.shape[1]] = found.right[chosen]
        nodes["left"][parents] = first
        return nodes, first + (pairs[:, 0, 1] > pairs[:, 1, 1])


def start_model(buckets: Buckets) -> Arrays:
    """Return the arrays of a model without trees."""
    found: Arrays = {name: np.zeros(0, dtype=kind) for name, kind in MODEL.items()}
    found |= {name: np.zeros(0, dtype=np.int32) for name in ("right", "category_row", "tree_output")}
    widest = max((len(column.categories) for column in buckets.schema.columns), default=0)
    return {**found, "tree_start": np.zeros(1, np.int32), "categories": np.zeros((0, widest), np.uint8)}


def append_trees(model: Mapping[str, Any], record: Mapping[str, Any], buckets: Buckets) -> Arrays:
    """Return a model's arrays with the trees of a record behind them, each tree level by level."""
    order = np.lexsort((record["depth"], record["output"]))  # stable: siblings stay side by side
    places = np.argsort(order) + len(model["feature"])
    new = {name: record[name][order] for name in MODEL}
    inner = new["feature"] >= 0
    new["left"] = np.where(inner, places[new["left"]], -1).astype(np.int32)
    new["right"] = np.where(inner, new["left"] + 1, -1).astype(np.int32)
    by_category = inner & ~np.isin(new["feature"], buckets.numbers)
    rows = len(model["categories"]) + np.cumsum(by_category) - 1
    new["category_row"] = np.where(by_category, rows, -1).astype(np.int32)
    goes = np.unpackbits(record["goes"], axis=1)[order]
    new["categories"] = goes[by_category, 1 : 1 + model["categories"].shape[1]]
    outputs, counts = np.unique(record["output"], return_counts=True)
    new["tree_output"] = outputs.astype(np.int32)
    new["tree_start"] = (model["tree_start"][-1] + np.cumsum(counts)).astype(np.int32)
    return {name: np.concatenate([model[name], values]) for name, values in new.items()}


def drop_trees(model: Mapping[str, Any], trees: int) -> Arrays:
    """Return a model's arrays without its last trees."""
    starts = model["tree_start"][: len(model["tree_start"]) - trees]
    found = {name: model[name][: starts[-1]] for name in (*MODEL, "right", "category_row")}
    rows, outputs = found["category_row"].max(initial=-1) + 1, model["tree_output"][: len(starts) - 1]
    return {**found, "categories": model["categories"][:rows], "tree_start": starts, "tree_output": outputs}
