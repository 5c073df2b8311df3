"""Mean and spread of every column from two sums that bear noise, so that no other statistic opens.

docs/preparation.md has both, and what becomes of columns in which little but noise is seen. A row brings one
count for each column to the first sum, and at most (½, 1, 1) to the second; both are divided for a norm of at
most 1.
"""

from typing import Any, Literal

import numpy as np

from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.shared import Shared, Total
from tacit.data.inputs import Inputs, Matrix
from tacit.data.schema import Schema
from tacit.data.table import Table

SUMS = 2
POWERS = 4.0 ** np.arange(-12, 21)  # 6e-8 to 1e12: smaller numbers count as 0, larger ones as the largest
EDGES = np.concatenate([-POWERS[::-1], POWERS])
INTERVALS = len(EDGES) - 1
ZERO = INTERVALS // 2  # the interval of the numbers that count as 0
# Standard deviations of the noise beyond which a count is not noise, in any of a column's intervals, and
# beyond which it need not be, if it is the column's largest or beside one that is not.
SURE, LIKELY = 5.0, 4.0
DOUBT = 2.0  # of the noise in a variance, below which it is not told from 0
MOMENT_WEIGHTS = np.array([[0.5], [1.0], [1.0]])  # of n, Σu and Σu²


def _number_places(schema: Schema) -> list[int]:
    places = zip(schema.columns, schema.places, strict=True)
    return [place.start for column, place in places if column.kind == "number"]


def _count_columns(schema: Schema) -> int:
    targets = schema.outputs if schema.task == "regression" else 0
    return max(1, len(_number_places(schema)) + targets)


def _values(table: Table, shared: Shared) -> Matrix:
    schema = shared.schema
    numbers = Inputs.of(shared).recoding.encode(table)[:, _number_places(schema)]
    if schema.task == "regression":
        numbers = np.concatenate([numbers, table.target], axis=1)
    return numbers if numbers.shape[1] else np.zeros((table.rows, 1))


class NoisyScale:
    """The two sums by which a preparation finds a scale where sums bear noise."""

    missing: Literal["refuse", "mean", "keep"]

    @contribution(
        lambda self, schema: Layout(Field("magnitudes", (_count_columns(schema), INTERVALS)), row_norm=1.0)
    )
    def magnitudes(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return how many values of each column lie in each interval; missing ones in none."""
        values = _values(party.data, shared)
        columns = values.shape[1]
        places = np.searchsorted(EDGES[1:-1], values, side="right") + INTERVALS * np.arange(columns)
        counts = np.bincount(places[np.isfinite(values)], minlength=columns * INTERVALS)
        return {"magnitudes": counts.reshape(columns, INTERVALS) / np.sqrt(columns)}

    @apply
    def apply_magnitudes(self, total: Total, shared: Shared) -> Shared:
        """Keep the bounds of each column, the same number twice if only noise or zeros are seen in it."""
        counts = total["magnitudes"]
        likely = counts > LIKELY * total.noise
        seen = (counts > SURE * total.noise) | (likely & (counts == counts.max(axis=1, keepdims=True)))
        for _ in range(INTERVALS):
            beside = np.pad(seen, ((0, 0), (1, 1)))
            seen |= likely & (beside[:, :-2] | beside[:, 2:])
        varies = seen.any(axis=1) & (seen.sum(axis=1) > seen[:, ZERO])
        low = EDGES[np.argmax(seen, axis=1)]
        high = EDGES[INTERVALS - np.argmax(seen[:, ::-1], axis=1)]
        return shared | {"low": np.where(varies, low, 0.0), "high": np.where(varies, high, 0.0)}

    @contribution(lambda self, schema: Layout(Field("moments", (3, _count_columns(schema))), row_norm=1.0))
    def noisy_moments(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return n, Σu and Σu² of each column, over the values that are there."""
        values = _values(party.data, shared)
        present = np.isfinite(values)
        with np.errstate(all="ignore"):  # whoever sends the bounds may have sent some that overflow
            middle, half = _middle(shared)
            scaled = np.nan_to_num((values - middle) / np.where(half > 0, half, np.inf))
        u = np.where(present, np.clip(scaled, -1.0, 1.0), 0.0)
        sums = np.stack([present.sum(axis=0), u.sum(axis=0), np.einsum("ij,ij->j", u, u)])
        return {"moments": sums * _share(values.shape[1])}

    @apply
    def apply_noisy_moments(self, total: Total, shared: Shared) -> Shared:
        """Derive centre and spread of every feature and target, as far as noise lets them be known."""
        schema, share = shared.schema, _share(_count_columns(shared.schema))
        middle, half = _middle(shared)
        count, first, second = total["moments"] / share
        noise = total.noise / share[1, 0]  # of Σu and Σu²
        if self.missing == "refuse":  # no value is missing, so that all columns have the same count
            count = np.full_like(count, count.mean())
        count = np.maximum(count, noise if noise > 0 else 1.0)
        mean = np.clip(first / count, -1.0, 1.0)
        variance = np.minimum(np.maximum(second / count - mean**2, DOUBT * noise / count), 1.0)
        constant = (half == 0) | (variance == 0)
        centre, spread = middle + half * mean, np.where(constant, 1.0, half * np.sqrt(variance))
        places = _number_places(schema)
        found: dict[str, Any] = {}
        usual = {"centre": (centre, 0.0), "spread": (spread, 1.0), "constant": (constant, False)}
        for name, (value, otherwise) in usual.items():
            found[name] = np.full(schema.features, otherwise)
            found[name][places] = value[: len(places)]
        if schema.task == "regression":
            found |= {"target_centre": centre[len(places) :], "target_spread": spread[len(places) :]}
        return shared | found | ({"fill": found["centre"]} if self.missing == "mean" else {})


def _share(columns: int) -> Matrix:
    """Return by what a row's (1, u, u²) of each column is multiplied, for a norm of 1 at most in all."""
    return np.asarray(MOMENT_WEIGHTS / np.sqrt(columns * np.sum(MOMENT_WEIGHTS**2)))


def _middle(shared: Shared) -> tuple[Matrix, Matrix]:
    low, high = shared["low"], shared["high"]
    return (low + high) / 2, (high - low) / 2
