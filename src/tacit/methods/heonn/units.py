"""What FedHEONN and its ensemble share: targets before the activation, and units in which sums stay small."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.models.activations import ACTIVATIONS, HIGH, LOW

Matrix = NDArray[np.float64]
# Clients that join later may bring sixteen times as many rows as those who settled the scale.
ROOM = 16.0


def constant_slope(activation: str, schema: Schema) -> bool:
    """Whether F is one number times I, so that one factor or Gram matrix serves all outputs."""
    return activation == "linear" or (activation == "logistic" and schema.task == "classification")


def targets(activation: str, table: Table, schema: Schema) -> tuple[Matrix, Matrix]:
    """d̄ = f⁻¹(d) and f'(d̄) of every row and output, for targets d by class or as the table has them."""
    f = ACTIVATIONS[activation]
    if schema.task == "classification":
        # Only two values occur: look them up instead of computing a logarithm for each row and class.
        chosen = schema.labels(table)[:, None] == np.arange(schema.outputs)
        (no, yes), (flat, steep) = _by_class(activation)
        return np.where(chosen, yes, no), np.where(chosen, steep, flat)
    d = table.target
    if not np.all((d > f.low) & (d < f.high)):
        raise DataError(
            f"a target lies outside ({f.low:g}, {f.high:g}), the range of {activation}: "
            "rescale the target, or use activation = 'linear'"
        )
    return f.inverse(d), f.slope_at_target(d)


@cache
def _by_class(activation: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """f⁻¹ of the target of rows that are not of a class and of those that are, and f' there."""
    f, both = ACTIVATIONS[activation], np.array([LOW, HIGH])
    (no, yes), (flat, steep) = f.inverse(both).tolist(), f.slope_at_target(both).tolist()
    return (no, yes), (flat, steep)


def with_bias(X: Matrix) -> Matrix:
    """Rows with a leading one."""
    return np.concatenate([np.ones((len(X), 1)), X], axis=1)


@dataclass(frozen=True, eq=False)
class Units:
    """Public units in which every entry of the sums lies in [-1, 1], by the Cauchy-Schwarz inequality.

    An entry of XᵀFFX is at most the product of two columns' lengths times the largest slope squared; the
    lengths of the federation's columns are known from its preparation. An entry of m is at most a
    column's length times that of F d̄, which for a classifier is at most a constant times √n.

    Parameters
    ----------
    root : ndarray
        Length of each column, and room for later clients; 1 for columns of zeros.
    slope : float
        Largest f'.
    pull : float or None
        Largest length of F d̄; None if it cannot be known beforehand, as in regression.
    """

    root: Matrix
    slope: float
    pull: float | None

    @classmethod
    def of(cls, activation: str, schema: Schema, norms: Matrix, rows: float) -> Units:
        """Units for columns with these sums of squares, in a federation with so many rows."""
        return _units(activation, schema.task == "classification", norms.tobytes(), rows)

    @property
    def known_pull(self) -> float:
        """The largest length of F d̄, or 1 where it is not known."""
        return 1.0 if self.pull is None else self.pull

    @property
    def target(self) -> float | None:
        """Return the largest absolute value of d̄ for a classifier; None if it is not known beforehand."""
        return None if self.pull is None else self.pull / (self.slope * float(self.root[0]))

    def gram(self, G: Matrix) -> Matrix:
        """XᵀFFX in these units."""
        scaled: Matrix = G / (np.outer(self.root, self.root) * self.slope**2)
        return scaled

    def m(self, m: Matrix) -> Matrix:
        """XᵀFF d̄ in these units."""
        scaled: Matrix = m / (self.root[:, None] * (self.slope * self.known_pull))
        return scaled

    def penalty(self, lam: float) -> Matrix:
        """λ of eq. 2 in these units, on the diagonal of the Gram matrix."""
        return lam / (self.slope * self.root) ** 2

    def weights(self, v: Matrix) -> Matrix:
        """Weights from the solution in these units."""
        found: Matrix = v * (self.known_pull / self.slope) / self.root[:, None]
        return found

    def first(self, size: int) -> Units:
        """Units of the first columns."""
        return Units(self.root[:size], self.slope, self.pull)


@lru_cache(maxsize=256)  # the same for all clients; one for each estimator of an ensemble
def _units(activation: str, classes: bool, lengths: bytes, rows: float) -> Units:
    norms = np.frombuffer(lengths)
    root = np.sqrt(ROOM * np.where(norms > 0, norms, 1.0))
    root.flags.writeable = False
    if not classes:
        return Units(root, {"linear": 1.0, "logistic": 0.25, "softplus": 1.0}[activation], None)
    inverses, slopes = _by_class(activation)
    pulls = (abs(slope * inverse) for slope, inverse in zip(slopes, inverses, strict=True))
    return Units(root, max(slopes), max(pulls) * float(np.sqrt(ROOM * max(rows, 1.0))))


@dataclass(frozen=True, eq=False)
class Rows:
    """A client's rows as the closed form sees them.

    Parameters
    ----------
    designs : list of ndarray
        Inputs with a leading one; several if a random layer is tried at several scales.
    d_bar, slope : ndarray
        f⁻¹ of the targets, and f' there.
    folds : list
        Which rows belong to which fold; one slice of all if there are none.
    """

    designs: list[Matrix]
    d_bar: Matrix
    slope: Matrix
    folds: list[Any]
