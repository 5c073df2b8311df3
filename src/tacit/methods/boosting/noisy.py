"""Trees from sums that bear noise, such that no total tells of a single row.

A first sum counts how many values of each column of numbers lie in each of 4,096 public cells, eight for each
power of two, and how many rows each class has. Buckets begin where cells do; a cell in which nothing is seen
but noise counts as empty. Each level of a tree is one more sum. What a row brings to it, to each column (g,
2h) for every output, is shortened to ``LONGEST`` and rounded towards zero; divided by that and by the root of
the number of columns, those that are drawn for the round, it has a norm of at most 1. All sums take equal
parts of the budget.

Whoever opens a total knows that G and H of a node are the same in all columns: what differs is noise, and is
taken off. Leaves have at least as much weight as noise could have, and λ is as large.
"""

from math import sqrt
from typing import Any

import numpy as np

from tacit.core.errors import DataError
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.shared import Shared, Total
from tacit.data.inputs import Inputs
from tacit.data.preparation import value_of
from tacit.data.schema import Schema
from tacit.methods.boosting import cuts, growing, losses
from tacit.methods.boosting.cuts import Buckets

CELLS, CELL_BITS = 1 << 12, 20  # of the 32 bits of an image, those that a cell leaves out
CLASSES = 0.3  # share of a row's norm that its class has in the first sum
SURE = 5.0  # standard deviations of the noise beyond which a count is not noise
UNIT = 2.0**9  # of derivatives: public, and fit for four million rows of a client
UNITS = np.full((1, 2), UNIT)
LONGEST = {"logistic": 1.0, "softmax": 1.5}  # norm of g and 2h of all outputs of a row
SECOND = 2.0  # by what second derivatives are multiplied
RIDGE, WEIGHT = 3.0, 2.0  # λ, and least weight of a leaf, over the noise in the sum of a column's buckets
MOST_DEPTH = 6


def start_layout(method: Any, schema: Schema) -> Layout:
    """Return the layout of the first sum."""
    numbers = len(Buckets(schema, method.buckets).numbers)
    return Layout(Field("cells", (numbers, CELLS)), Field("classes", (schema.outputs,)), row_norm=1.0)


@contribution(start_layout)
def noisy_start(self: Any, party: Party, shared: Shared) -> dict[str, Any]:
    """Return how many of this client's values are in each cell, and its rows in each class."""
    X, numbers = Inputs.of(shared).columns(party.data), self.buckets_of(shared).numbers
    counted = [np.bincount(cuts.images(X[:, each]) >> CELL_BITS, minlength=CELLS) for each in numbers]
    classes = np.bincount(shared.schema.labels(party.data), minlength=shared.schema.outputs)
    cells = np.reshape(counted, (len(numbers), CELLS)) * _cell_share(len(numbers))
    return {"cells": cells, "classes": CLASSES * classes}


@apply
def begin_noisy(self: Any, total: Total, shared: Shared) -> Shared:
    """Set buckets and margins before any tree."""
    buckets, share = self.buckets_of(shared), _cell_share(len(total["cells"]))
    classes = total["classes"] / CLASSES
    if not classes.sum() > SURE * total.noise / CLASSES:
        raise DataError("the noise is larger than what all clients bring together: raise epsilon")
    found = np.full((len(buckets.numbers), self.buckets - 2), cuts.LARGEST)
    for column, counts in enumerate(np.where(total["cells"] > SURE * total.noise, total["cells"] / share, 0)):
        places = value_of(divide_cells(counts, self.buckets - 1)[1:] << CELL_BITS)
        found[column, : len(places)] = places
    counted = Total({"rows": classes.sum(), "classes": np.maximum(classes, 1.0)}, total.contributors)
    base, units = losses.start(self.loss_of(shared), counted, None)
    model = {**growing.start_model(buckets), "base": base}
    kept = {name: value for name, value in shared.items() if not name.startswith("cut/")}
    return Shared(shared.schema, {**kept, **model, "cuts": found, "units": np.ones_like(units)})


def divide_cells(counts: Any, most: int) -> Any:
    """Return where at most so many buckets begin, of about as many rows each; a full cell is one by itself.

    >>> divide_cells(np.array([0, 90, 5, 0, 5, 5]), 3).tolist()
    [1, 2, 5]
    """
    begins: list[int] = []
    filled, left = 0.0, float(counts.sum())
    for cell in np.flatnonzero(counts > 0).tolist():
        goal = left / (most - max(0, len(begins) - 1))
        if not begins or (len(begins) < most and filled + counts[cell] / 2 > goal):
            begins.append(cell)
            left, filled = left - filled, 0.0
        filled += counts[cell]
    return np.array(begins, dtype=np.int64)


def _cell_share(numbers: int) -> float:
    return sqrt((1 - CLASSES**2) / max(1, numbers))


def histogram_layout(method: Any, schema: Schema, width: int = 1) -> Layout:
    """Return the layout of histograms of up to so many nodes of each output's tree."""
    shape = method.histogram_layout(schema, width).fields[0].shape
    return Layout(Field("sums", shape), row_norm=1.0)


def bound_rows(loss: str, first: Any, second: Any) -> tuple[Any, Any]:
    """Return derivatives whose length is bounded, as multiples of the unit; none of h is below 0."""
    both = np.nan_to_num(np.stack([first, SECOND * np.maximum(second, 0)]))
    length = np.sqrt((both**2).sum(axis=(0, 1)))
    both *= LONGEST[loss] / np.maximum(length, LONGEST[loss])
    return tuple(np.trunc(both * UNIT / [[[1.0]], [[SECOND]]]) / UNIT)


def scale_sums(loss: str, columns: int) -> Any:
    """Return by what G and H are multiplied, so that a row brings at most 1 to so many columns."""
    return np.array([1.0, SECOND]) / (LONGEST[loss] * sqrt(columns))


def read_sums(sums: Any, loss: str, buckets: Buckets) -> Any:
    """Return histograms in which the buckets of every column add up to the same."""
    widths = buckets.widths
    sums = sums / scale_sums(loss, len(widths))
    wholes = np.add.reduceat(sums, buckets.offsets[:-1], axis=1)
    mean = np.average(wholes, axis=1, weights=1 / widths, keepdims=True)
    return sums + np.repeat((mean - wholes) / widths[:, None], widths, axis=1)


def find_floors(noise: float, loss: str, buckets: Buckets) -> tuple[float, float]:
    """Return λ and the weight of a leaf that noise asks for."""
    first, second = noise / scale_sums(loss, len(buckets.widths)) * sqrt(buckets.widths.max())
    return RIDGE * first, WEIGHT * second


def find_unfit(method: Any, unit: str | None) -> str | None:
    """Return why settings do not fit sums with noise, if they do not."""
    reasons = {
        "a client's trees need the rows of all: hide single rows with unit = 'row'": unit != "row",
        "patience needs scores without noise: set it to 0": method.patience > 0,
        "class_weight needs counts without noise: leave it out": bool(method.class_weight),
        f"depth is {method.depth}, and each level costs budget: set at most {MOST_DEPTH}": method.depth
        > MOST_DEPTH,
    }
    return next((text for text, holds in reasons.items() if holds), None)
