"""How the trees of a round grow: one for each output, all at once, a wave of sums at a time.

What is known of them is a record of plain arrays, so that it can be shared: the nodes so far, in the order in
which they were made; which are to be summed next (``slots``, of two children the one of less weight); the
histograms of their parents, from which those of their siblings follow; and, if only the best leaf is split,
the histograms of all others that still may be.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.methods.boosting.cuts import Buckets
from tacit.methods.boosting.splits import Rules, Splits, find_splits

Matrix = NDArray[np.float64]
Arrays = dict[str, Any]
NODES = {  # what is known of a node, and what it is before
    "output": (np.int32, 0),
    "depth": (np.int32, 0),
    "feature": (np.int32, -1),
    "threshold": (np.float32, 0),
    "default_left": (np.uint8, 0),
    "left": (np.int32, -1),
    "value": (np.float64, 0),
    "gain": (np.float64, 0),
    "cover": (np.float64, 0),
    "lower": (np.float64, -np.inf),
    "upper": (np.float64, np.inf),
}
TOLD = ("output", "feature", "left", "value")  # what a client needs of a node, beside where buckets go
MODEL = ("feature", "threshold", "default_left", "left", "value", "gain", "cover")


@dataclass(frozen=True)
class Grower:
    """Grows the trees of one round by fixed rules."""

    buckets: Buckets
    cuts: NDArray[np.float32]
    rules: Rules
    units: Matrix  # of first and second derivatives
    rate: float
    grow: Literal["level", "leaf"]

    def plant(self, sums: Matrix) -> Arrays:
        """Return roots, one for each output, split as far as their sums allow."""
        total = sums[:, : int(self.buckets.widths[0])].sum(axis=1) / self.units
        nodes: Arrays = {name: np.zeros(0, dtype=kind) for name, (kind, _) in NODES.items()}
        nodes |= {"right": np.zeros((0, int(self.buckets.widths.max())), dtype=np.uint8)}
        whole = np.full(len(sums), np.inf)
        nodes = self._append(nodes, np.arange(len(sums)), 0, total, np.stack([-whole, whole], axis=1))
        return self._split(nodes, np.arange(len(sums)), sums)

    def extend(self, record: Mapping[str, Any], sums: Matrix) -> Arrays:
        """Return the trees one wave further, from the sums over the nodes in ``slots``."""
        slots, left = record["slots"], record["left"]
        own = sums[: len(slots)]
        siblings = slots + np.where(np.isin(slots, left), 1, -1)
        known = np.concatenate([record["waiting"], slots, siblings])
        histograms = np.concatenate([record["waiting_sums"], own, record["parent_sums"] - own])
        nodes = {name: record[name].copy() for name in NODES}
        nodes["right"] = np.unpackbits(record["goes"], axis=1)[:, : int(self.buckets.widths.max())]
        return self._split(nodes, known, histograms)

    def _append(self, nodes: Arrays, outputs: Any, depth: Any, sums: Matrix, bounds: Matrix) -> Arrays:
        """Return the nodes with new ones behind them."""
        weights = self.rules.weigh(sums[:, 0], sums[:, 1], *bounds.T)
        new = {"output": outputs, "depth": depth, "cover": sums[:, 1], "lower": bounds[:, 0]}
        # Leaves are 32-bit numbers where models of this kind are read.
        new |= {"upper": bounds[:, 1], "value": (self.rate * weights).astype(np.float32)}
        found = {}
        for name, (kind, before) in NODES.items():
            more = np.broadcast_to(new.get(name, before), len(sums)).astype(kind)
            found[name] = np.concatenate([nodes[name], more])
        more = np.zeros((len(sums), nodes["right"].shape[1]), dtype=np.uint8)
        return {**found, "right": np.concatenate([nodes["right"], more])}

    def _split(self, nodes: Arrays, known: NDArray[Any], sums: Matrix) -> Arrays:
        """Split nodes whose histograms are known: all, or of each tree the one that gains most."""
        bounds = np.stack([nodes["lower"][known], nodes["upper"][known]], axis=1)
        found = find_splits(sums / self.units, bounds, self.buckets, self.cuts, self.rules)
        chosen = found.gain > self.rules.gamma
        waiting = np.zeros(len(known), dtype=bool)
        if self.grow == "leaf":
            waiting = chosen
            trees = nodes["output"][known]
            best = [np.flatnonzero(trees == tree) for tree in np.unique(trees)]
            places = [own[np.argmax(found.gain[own])] for own in best]
            chosen = chosen & np.isin(np.arange(len(known)), places)
            waiting = waiting & ~chosen
        nodes, slots = self._make_children(nodes, known, found, np.flatnonzero(chosen), sums)
        kept = {"waiting": known[waiting].astype(np.int32), "waiting_sums": sums[waiting]}
        goes = np.packbits(nodes.pop("right"), axis=1)
        return {**nodes, **kept, "goes": goes, "slots": slots.astype(np.int32), "parent_sums": sums[chosen]}

    def _make_children(
        self, nodes: Arrays, known: NDArray[Any], found: Splits, chosen: NDArray[Any], sums: Matrix
    ) -> tuple[Arrays, NDArray[Any]]:
        """Return the nodes with two children of each that is split, and which of two is to be summed."""
        parents, first = known[chosen], len(nodes["left"])
        left = found.left_sums[chosen]
        right = sums[chosen, : int(self.buckets.widths[0])].sum(axis=1) / self.units - left
        bounds = np.repeat(np.stack([nodes["lower"][parents], nodes["upper"][parents]], axis=1), 2, axis=0)
        pairs = np.stack([left, right], axis=1).reshape(-1, 2)
        weights = self.rules.weigh(pairs[:, 0], pairs[:, 1], *bounds.T)
        middle = weights.reshape(-1, 2).mean(axis=1)
        signs = self.rules.signs[found.column[chosen]]
        lower, upper = bounds.reshape(-1, 2, 2)[:, :, 0], bounds.reshape(-1, 2, 2)[:, :, 1]  # views
        for sign, low, high in ((1, 1, 0), (-1, 0, 1)):
            lower[signs == sign, low] = upper[signs == sign, high] = middle[signs == sign]
        nodes = self._append(
            nodes,
            np.repeat(nodes["output"][parents], 2),
            np.repeat(nodes["depth"][parents] + 1, 2),
            pairs,
            bounds,
        )
        for name, values in (
            ("feature", found.column),
            ("threshold", found.threshold),
            ("default_left", found.default_left),
            ("gain", found.gain),
            ("right", found.right),
        ):
            nodes[name][parents] = values[chosen]
        nodes["left"][parents] = first + 2 * np.arange(len(parents))
        return nodes, first + 2 * np.arange(len(parents)) + (left[:, 1] > right[:, 1])


def append_trees(model: Mapping[str, Any], record: Mapping[str, Any], buckets: Buckets) -> Arrays:
    """Return a model's arrays with the trees of a record behind them, each tree level by level."""
    order = np.lexsort((record["depth"], record["output"]))  # stable: siblings stay side by side
    places = np.argsort(order) + len(model["feature"])
    new = {name: record[name][order] for name in MODEL}
    new["left"] = np.where(new["feature"] >= 0, places[new["left"]], -1).astype(np.int32)
    new["right"] = np.where(new["feature"] >= 0, new["left"] + 1, -1).astype(np.int32)
    by_category = (new["feature"] >= 0) & ~np.isin(new["feature"], buckets.numbers)
    rows = np.cumsum(by_category) - 1 + len(model["categories"])
    new["category_row"] = np.where(by_category, rows, -1).astype(np.int32)
    goes = np.unpackbits(record["goes"], axis=1)[order]
    new["categories"] = goes[by_category, 1 : 1 + model["categories"].shape[1]]
    outputs, counts = np.unique(record["output"], return_counts=True)
    new["tree_output"] = outputs.astype(np.int32)
    new["tree_start"] = (model["tree_start"][-1] + np.cumsum(counts)).astype(np.int32)
    return {name: np.concatenate([model[name], values]) for name, values in new.items()}


def start_model(buckets: Buckets) -> Arrays:
    """Return the arrays of a model without trees."""
    found: Arrays = {name: np.zeros(0, dtype=NODES[name][0]) for name in MODEL}
    found |= {name: np.zeros(0, dtype=np.int32) for name in ("right", "category_row", "tree_output")}
    widest = max((len(column.categories) for column in buckets.schema.columns), default=0)
    found["categories"] = np.zeros((0, widest), dtype=np.uint8)
    return {**found, "tree_start": np.zeros(1, dtype=np.int32)}


def drop_trees(model: Mapping[str, Any], trees: int) -> Arrays:
    """Return a model's arrays without its last trees."""
    starts = model["tree_start"][: len(model["tree_start"]) - trees]
    nodes = int(starts[-1])
    found = {name: model[name][:nodes] for name in (*MODEL, "right", "category_row")}
    rows = int(found["category_row"].max(initial=-1)) + 1
    outputs = model["tree_output"][: len(starts) - 1]
    return {**found, "categories": model["categories"][:rows], "tree_start": starts, "tree_output": outputs}
