"""What a network learns to predict: labels, or the targets of a regression in units of their own spread.

A rate that suits one unit of a target lets training run away in another. So all clients agree on the mean and
the spread of every target, in one protected sum; the model keeps both, and predicts in the targets' units.
"""

from math import isfinite
from typing import Any

import numpy as np

from tacit.core.errors import OpeningError
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.method import Method
from tacit.core.party import Party
from tacit.core.shared import Shared, Total
from tacit.data.table import Table
from tacit.models.network import Targets
from tacit.models.neural import TARGET_CENTRE, TARGET_SPREAD

SUMS = ("target_sum", "target_square")
LEAST = 1e-12  # variance over mean square that sums can tell from rounding


@contribution(lambda _, schema: Layout(Field("rows", ()), *(Field(n, (schema.outputs,)) for n in SUMS)))
def target_moments(self: Method, party: Party, shared: Shared) -> dict[str, Any]:
    """Return n, Σy and Σy² of this client's targets."""
    if isfinite(self.own_epsilon):  # DP-SGD, whose budget does not cover this sum
        raise OpeningError(f"targets are summed without noise: {party.id} takes part with noise only")
    y = np.asarray(party.data.target, dtype=np.float64).reshape(party.data.rows, -1)
    return {"rows": float(len(y)), **dict(zip(SUMS, (y.sum(axis=0), (y**2).sum(axis=0)), strict=True))}


@apply
def scale_targets(self: Method, total: Total, shared: Shared) -> Shared:
    """Set mean and spread of every target; a spread of 1 where a target is constant."""
    rows = max(float(total["rows"]), 1.0)
    mean, mean_square = (np.asarray(total[name]) / rows for name in SUMS)
    variance = mean_square - mean**2
    varies = variance > LEAST * mean_square
    return shared | {TARGET_CENTRE: mean, TARGET_SPREAD: np.sqrt(np.where(varies, variance, 1.0))}


def read_targets(table: Table, shared: Shared) -> Targets:
    """Return the labels of a table, or its targets from the agreed mean, in units of the agreed spread."""
    if shared.schema.task == "classification":
        return np.asarray(shared.schema.labels(table), dtype=np.int64)
    scaled = (table.target - shared.get(TARGET_CENTRE, 0.0)) / shared.get(TARGET_SPREAD, 1.0)
    return np.asarray(scaled, dtype=np.float64)


@apply
def share_classes(self: Method, total: Total, shared: Shared) -> Shared:
    """Set the share of each class, P_j; noise may have made a count negative, or none positive."""
    counts = np.maximum(np.asarray(total["counts"]), 0.0) + 1e-12
    return shared | {"class_shares": counts / counts.sum()}
