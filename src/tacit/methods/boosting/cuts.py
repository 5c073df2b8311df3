"""Where the buckets of numbers begin: quantiles of all clients' rows together, from sums of counts.

The 32 bits of a float32 become an integer that keeps the order. A column begins as one interval of such
integers, and each sum counts the rows in the quarters of all intervals of all columns: sixteen sums lead to
single values, and nobody tells its least or largest. While a column has no more intervals with rows than
buckets, all are followed: each value of a discrete column gets a bucket of its own. Of more, only those that
hold a quantile are; if one holds several, as a value that many rows have does, those left over are quantiles
of all other rows. One with fewer rows than ``least`` is followed no further: its beginning, which is
nobody's value, does as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.preparation import value_of
from tacit.data.schema import Schema

Integers = NDArray[np.int64]
PARTS, SUMS = 4, 16  # PARTS ** SUMS values have an image
LARGEST = np.finfo(np.float32).max
MISSING = 0  # the bucket of missing values, in every column
NAMES = ("low", "size", "below", "inside")  # of an interval: first image, images, rows before it, rows in it


@dataclass(frozen=True)
class Buckets:
    """Which places of a histogram belong to which column: missing values first, then the values in order.

    Once ``cuts`` are known, a column has the buckets that hold values; before, as many as it may have.
    """

    schema: Schema
    most: int  # buckets of a column of numbers, that of missing values among them
    cuts: NDArray[np.float32] | None = None

    @cached_property
    def numbers(self) -> list[int]:
        """The columns of numbers."""
        return [index for index, column in enumerate(self.schema.columns) if column.kind == "number"]

    @cached_property
    def widths(self) -> Integers:
        """Buckets of each column."""
        widths = np.array([len(column.categories) + 1 for column in self.schema.columns])
        widths[self.numbers] = self.most if self.cuts is None else 2 + (self.cuts < LARGEST).sum(axis=1)
        return widths

    @cached_property
    def offsets(self) -> Integers:
        """Where each column begins, and at last the size of a histogram."""
        return np.concatenate([[0], np.cumsum(self.widths)])

    @cached_property
    def thresholds(self) -> NDArray[np.float32]:
        """The first value behind each place: of a column's last bucket, none; of categories, 0."""
        found = np.zeros(int(self.offsets[-1]), dtype=np.float32)
        for column, cuts in zip(self.numbers, [] if self.cuts is None else self.cuts, strict=True):
            start, end = self.offsets[column : column + 2]
            found[start + 1 : end] = np.append(cuts, LARGEST)[: end - start - 1]
        return found

    def select(self, columns: NDArray[np.intp]) -> "Buckets":
        """Return the buckets of these columns alone."""
        schema = replace(self.schema, columns=tuple(self.schema.columns[each] for each in columns))
        cuts = None if self.cuts is None else self.cuts[np.isin(self.numbers, columns)]
        return Buckets(schema, self.most, cuts)

    def fill(self, X: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the bucket of each value."""
        found, numbers = np.empty(X.shape, dtype=np.uint8), iter([] if self.cuts is None else self.cuts)
        for index, column in enumerate(self.schema.columns):
            values = X[:, index]
            missing = np.isnan(values)
            if column.kind == "number":
                places = np.searchsorted(next(numbers), values, side="right")
            else:
                places = np.where(missing, 0, values).astype(np.int64)
            found[:, index] = np.where(missing, MISSING, places + 1)
        return found


def images(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Return sorted images of the values that are there."""
    bits = (values[~np.isnan(values)] + np.float32(0.0)).view(np.uint32)  # -0 and 0 are one value
    return np.sort(np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31)))


def begin(columns: int, most: int) -> dict[str, Integers]:
    """Return one interval for each column, of all images, whose rows nobody knows yet."""
    found = {name: np.zeros((columns, most), dtype=np.int64) for name in NAMES}
    found["size"][:, 0] = PARTS**SUMS
    return {**found, "rows": np.zeros(columns, dtype=np.int64)}


def follows(state: Mapping[str, Any], least: int) -> NDArray[np.bool_]:
    """Return which intervals are cut into quarters."""
    first = state["size"] == PARTS**SUMS
    return np.asarray(first | ((state["inside"] >= least) & (state["size"] > 1)))


def count(columns: Sequence[NDArray[np.uint32]], state: Mapping[str, Any], least: int) -> Integers:
    """Return how many of a client's rows are in the quarters of each interval that is followed."""
    edges = state["low"][:, :, None] + state["size"][:, :, None] // PARTS * np.arange(PARTS + 1)
    edges = np.minimum(edges, 0xFFFFFFFF).astype(np.uint32)  # the last image is that of no number
    places = [np.searchsorted(own, at.ravel()) for own, at in zip(columns, edges, strict=True)]
    counts = np.diff(np.reshape(places, edges.shape), axis=2)
    return np.where(follows(state, least)[:, :, None], counts, 0)


def narrow(state: Mapping[str, Any], counts: Integers, least: int) -> dict[str, Integers]:
    """Return the intervals that are followed next, from the counts of all clients."""
    columns, most = state["low"].shape
    result, followed = begin(columns, most), follows(state, least)
    rows = counts.sum(axis=(1, 2)) if (state["size"] == PARTS**SUMS).any() else state["rows"]
    for column in range(columns):
        old = np.stack([state[name][column] for name in NAMES])
        low, size, below, _ = old[:, followed[column], None]
        parts = counts[column][followed[column]]
        size = np.repeat(size // PARTS, PARTS, axis=1)
        new = np.stack([low + size * np.arange(PARTS), size, below + np.cumsum(parts, axis=1) - parts, parts])
        found = np.concatenate([old[:, ~followed[column]], new.reshape(len(NAMES), -1)], axis=1)
        found = found[:, found[3] > 0]
        found = found[:, np.argsort(found[0])]
        if found.shape[1] > most or found[3].sum() < rows[column]:  # too many values for a bucket each
            found = found[:, _choose(found, int(rows[column]), most)]
        for name, values in zip(NAMES, found, strict=True):
            result[name][column] = np.append(values, np.zeros(most - len(values), dtype=np.int64))
    return {**result, "rows": rows}


def _choose(found: Integers, rows: int, most: int) -> Integers:
    """Return which intervals to follow: holders of quantiles, and of those of rows outside of heavy ones."""
    holders, times = np.unique(_find_holders(found, rows, most), return_counts=True)
    heavy = holders[times > 1]
    light = np.delete(np.arange(found.shape[1]), heavy)
    if len(holders) == most or not len(light):
        return np.asarray(holders)
    inside = found[3] * np.isin(np.arange(found.shape[1]), heavy)
    below, parts = (found[2] - np.cumsum(inside))[light], most - len(heavy)
    goals = (rows - inside.sum()) * np.arange(1, parts) / parts
    even = light[np.maximum(np.searchsorted(below, goals, side="right") - 1, 0)]
    heaviest = light[np.argsort(-found[3, light], kind="stable")]
    order = list(dict.fromkeys([*holders.tolist(), *even.tolist(), *heaviest.tolist()]))
    return np.sort(np.array(order[:most], dtype=np.int64))


def _find_holders(found: Integers, rows: int, most: int) -> Integers:
    return np.maximum(np.searchsorted(found[2], _quantiles(rows, most), side="right") - 1, 0)


def _quantiles(rows: int, most: int) -> NDArray[np.float64]:
    return np.asarray(rows * np.arange(1, most) / most)


def finish(state: Mapping[str, Any], least: int) -> NDArray[np.float32]:
    """Return the first value of all buckets but the first, for each column, in order; then LARGEST.

    No bucket has fewer than ``least`` rows: it joins its neighbour.
    """
    columns, most = state["low"].shape
    cuts = np.full((columns, most - 1), LARGEST)
    for column, rows in enumerate(state["rows"].tolist()):
        found = np.stack([state[name][column] for name in NAMES])
        found = found[:, found[3] > 0]
        places, before = found[0], found[2]
        if found[3].sum() < rows:  # the nearer end of the interval that holds a quantile
            low, size, below, inside = found[:, _find_holders(found, rows, most)]
            later = below + inside - _quantiles(rows, most) < _quantiles(rows, most) - below
            places, before = low + size * later, below + inside * later
            others = found[:, _choose(found, rows, most)]
            usable = places[(before >= least) & (before <= rows - least)]
            others = others[:, ~np.isin(others[0], places)][:, : most - 1 - len(np.unique(usable))]
            places, before = np.append(places, others[0]), np.append(before, others[2])
        kept: list[int] = []
        last = 0
        for place, rank in sorted(zip(places.tolist(), before.tolist(), strict=True)):
            if rank - last >= least and rows - rank >= least:
                kept.append(place)
                last = rank
        values = value_of(np.array(kept, dtype=np.int64))
        values = values[values < LARGEST]  # neither infinite nor NaN
        cuts[column, : len(values)] = values
    return cuts
