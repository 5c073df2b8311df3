"""The closed form from sums with noise: sufficient statistics perturbation.

Y.-X. Wang, "Revisiting differentially private linear regression: optimal and adaptive prediction and
estimation in unbounded domain", UAI 2018 (AdaSSP). All that the closed form needs of the rows are sums, so
noise on them is all the noise there is, in one round. What a row x, of length at most r, brings to them
(``row_norm``: longer ones are shortened; the one for the bias is not counted):

    xxᵀ, each entry off the diagonal once and times √2, so that its norm is ‖x‖² whatever x is
    x for each class, 0 but for the row's own; and 1 for it

Every target of a classifier is one of two numbers, so that XᵀFFX, m and the column of the bias follow from
these: nothing is released twice. If f' differs between the two, xxᵀ travels for each class, and again a row
is in one only. In a regression, which must be linear here, 1 and the target stand for the class. The three
are weighted by 1, 1.5 and ½ (measured), and divided so that all that a row brings has a norm of at most 1:
this is what the protection adds noise to.

Whoever opens the total takes off the mean, sets negative eigenvalues of XᵀX to zero, and raises all by λ: a
third of the norm that a symmetric matrix of such noise has, or ``lam`` if that is more, which costs nothing
of the budget. The model shortens rows in the same way before it predicts: it was learnt from such.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.errors import DataError
from tacit.core.layout import Field, Layout
from tacit.core.shared import Shared, Total
from tacit.data.inputs import shorten_rows
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.methods.heonn.exchange import invert_class_targets
from tacit.models.leastsquares import Matrix, symmetric, upper

PARTS = 8  # of the budget, beside one for each sum of the preparation
WEIGHTS = np.array([1.0, 1.5, 0.5])  # of products, sums and counts
NORM = float(np.linalg.norm(WEIGHTS))
PRODUCTS, SUMS, COUNTS = WEIGHTS / NORM
LARGEST_TARGET = 2.0  # of a regression, in spreads: larger ones are cut
RIDGE = 0.5  # λ over deviation × √features; the norm of such noise is √2 of that
CERTAIN = 3.0  # standard deviations of the noise that the number of rows must exceed


@dataclass(frozen=True)
class NoisySums:
    """The closed form with noise, for one activation and penalty, and rows of at most a certain length.

    ``balanced``: all classes weigh the same, by the counts in the sums, which then have xxᵀ of each class.
    """

    lam: float
    activation: str
    row_norm: float
    balanced: bool = False

    def find_hopeless(self, schema: Schema, clients: float, noise: float) -> str | None:
        """Return why nothing can be learnt from such sums, if that is known beforehand."""
        if schema.task == "regression" and self.activation != "linear":
            return (
                f"activation = '{self.activation}' weights each row of a regression by its target, and sums "
                "with noise hold no such weights: set activation = 'linear'"
            )
        squares, _ = self._coefficients(schema)
        needed = max(_least_rows(square, noise / np.sqrt(PARTS)) for square in squares)
        if clients < needed:
            return (
                f"the noise that hides a client exceeds what {clients:.0f} of them bring, {needed:.0f} are "
                "needed: raise epsilon, or hide single rows with unit = 'row'"
            )
        return None

    def layout(self, schema: Schema, features: int, grams: int) -> Layout:
        """Return the layout of a client's sums."""
        groups = schema.outputs + (schema.task == "regression")
        return Layout(
            Field("gram", (grams, features * (features + 1) // 2)),
            Field("sums", (features, groups)),
            Field("counts", (groups,)),
            row_norm=1.0,
            parts=PARTS,
        )

    # -- at the clients ----------------------------------------------------------------------------

    def terms(self, X: Matrix, groups: Matrix, grams: int) -> dict[str, Any]:
        """Return the sums over a client's rows."""
        X = shorten_rows(X / self.row_norm, 1.0)
        members = [groups[:, which] > 0 for which in range(grams)] if grams > 1 else [slice(None)]
        gram = np.stack([upper(X[rows].T @ X[rows]) for rows in members])
        return {
            "gram": PRODUCTS * gram * _stretch(X.shape[1]),
            "sums": SUMS * (X.T @ groups),
            "counts": COUNTS * groups.sum(axis=0),
        }

    # -- whoever opens the total -------------------------------------------------------------------

    def solve(self, total: Total, shared: Shared) -> dict[str, Any]:
        """Return the weights of all outputs."""
        features = len(total["sums"])
        gram = np.stack([symmetric(part, features) for part in total["gram"] / _stretch(features) / PRODUCTS])
        squares, targets = self._coefficients(shared.schema)
        sums, counts = total["sums"] / SUMS, total["counts"] / COUNTS
        if self.balanced:  # a class in which nothing but noise is seen counts as one of so many rows
            seen = np.maximum(counts, max(1.0, CERTAIN * total.noise / COUNTS))
            squares, targets = (part * (seen.mean() / seen) for part in (squares, targets))
        # λ of eq. 2 for rows that are divided by their norm, and not weighted by the largest f'.
        lam = self.lam / (max(invert_class_targets(self.activation)[1]) * self.row_norm) ** 2
        noise, weights = total.noise / PRODUCTS, []
        for square, target in zip(squares, targets, strict=True):
            share = square if len(gram) > 1 else np.ones(1)
            rows = counts @ square
            if not rows > _least_rows(square, total.noise):
                raise DataError(
                    "the noise is larger than what all clients bring together, and nothing can be learnt: "
                    "raise epsilon, or have more rows; to hide whole clients (unit = 'client'), more clients"
                )
            mean = sums @ square / rows
            G = np.tensordot(share, gram, axes=1) - rows * np.outer(mean, mean)
            m = sums @ target - mean * (counts @ target)
            values, vectors = np.linalg.eigh(G)
            penalty = max(lam, RIDGE * noise * np.linalg.norm(share) * np.sqrt(features))
            raised = np.maximum(values, 0.0) + penalty
            # With lam = 0 and without noise, directions in which there are no rows get no weight.
            inverse = np.divide(1.0, raised, out=np.zeros(features), where=raised > 0)
            w = vectors @ (inverse * (vectors.T @ m))
            weights.append(np.append(counts @ target / rows - mean @ w, w / self.row_norm))
        found: Matrix = np.stack(weights, axis=1)
        if "target_centre" in shared:
            found *= shared["target_spread"]
            found[0] += shared["target_centre"]
        return {"weights": found}

    def _coefficients(self, schema: Schema) -> tuple[Matrix, Matrix]:
        """Return for each output how groups' sums add up to those weighted by f'² (≤ 1) and by f'² d̄."""
        if schema.task == "regression":
            size = schema.outputs, 1 + schema.outputs
            ones = np.eye(1, size[1]).repeat(size[0], axis=0)
            return ones * _target_scale(schema), np.eye(*size, 1) * _target_scale(schema)
        (low, high), slopes = invert_class_targets(self.activation)
        own = np.eye(schema.outputs, dtype=bool)
        squares = np.where(own, slopes[1] ** 2, slopes[0] ** 2) / max(slopes) ** 2
        return squares, squares * np.where(own, high, low)


def group_rows(table: Table, shared: Shared) -> Matrix:
    """Return a row's class as zeros and a one; in a regression 1 and the targets; of length at most 1."""
    schema = shared.schema
    if schema.task == "classification":
        return np.asarray(schema.labels(table)[:, None] == np.arange(schema.outputs), dtype=np.float64)
    targets = table.target
    if "target_centre" in shared:
        targets = (targets - shared["target_centre"]) / shared["target_spread"]
    # A scale that makes a target no number must not make the contribution fail: that would tell of the row.
    cut = np.clip(np.nan_to_num(targets), -LARGEST_TARGET, LARGEST_TARGET)
    return np.concatenate([np.ones((len(cut), 1)), cut], axis=1) / _target_scale(schema)


def _least_rows(square: Matrix, noise: float) -> float:
    return float(CERTAIN * np.linalg.norm(square) * noise / COUNTS)


def _target_scale(schema: Schema) -> float:
    return float(np.sqrt(1 + schema.outputs * LARGEST_TARGET**2))


def _stretch(size: int) -> Matrix:
    """Return the factors of a triangle's entries: 1 on the diagonal, √2 off it."""
    return upper(np.where(np.eye(size, dtype=bool), 1.0, np.sqrt(2.0)))
