"""What the three exchanges share: a client's rows, the units of sums, and the interface of an exchange."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from tacit.core.errors import DataError
from tacit.core.layout import Layout
from tacit.core.method import CLASS_WEIGHTS
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.models.activations import ACTIVATIONS, HIGH, LOW
from tacit.models.leastsquares import Matrix

MAX_ENTRY = 1e150  # of a factor or triangle
HEADROOM = 16.0  # times as many rows as those that settled the scale may be added by later clients
MAX_SLOPE = {"linear": 1.0, "logistic": 0.25, "softplus": 1.0}


def has_constant_slope(activation: str, schema: Schema) -> bool:
    """Return whether F is a number times I, so that one factor or Gram matrix serves all outputs."""
    return activation == "linear" or (activation == "logistic" and schema.task == "classification")


def invert_targets(activation: str, table: Table, schema: Schema) -> tuple[Matrix, Matrix]:
    """Return d̄ = f⁻¹(d) and f'(d̄) of every row and output; a class has the targets 0.05 and 0.95."""
    f = ACTIVATIONS[activation]
    if schema.task == "classification":
        # Only two values occur: look them up instead of computing a logarithm for each row and class.
        is_class = schema.labels(table)[:, None] == np.arange(schema.outputs)
        (low, high), (low_slope, high_slope) = invert_class_targets(activation)
        return np.where(is_class, high, low), np.where(is_class, high_slope, low_slope)
    d = table.target
    if not np.all((d > f.low) & (d < f.high)):
        raise DataError(
            f"a target lies outside ({f.low:g}, {f.high:g}), the range of {activation}: "
            "rescale the target, or use activation = 'linear'"
        )
    return f.inverse(d), f.slope_at_target(d)


@cache
def invert_class_targets(activation: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return f⁻¹ of a classifier's low and high target, and f' at both."""
    f, both = ACTIVATIONS[activation], np.array([LOW, HIGH])
    return tuple(f.inverse(both).tolist()), tuple(f.slope_at_target(both).tolist())


def with_bias(X: Matrix) -> Matrix:
    """Return the rows with a leading one."""
    return np.concatenate([np.ones((len(X), 1)), X], axis=1)


@dataclass(frozen=True, eq=False)
class Rows:
    """A client's rows as the closed form needs them: inputs with a leading one, d̄ and f'(d̄)."""

    designs: list[Matrix]  # several if a random layer is tried at several scales
    d_bar: Matrix
    slope: Matrix
    folds: Sequence[Any] = (slice(None),)  # which rows belong to which fold

    def weighted(self, weights: Matrix | None) -> "Rows":
        """Return rows whose squared errors count by these weights, as if they were there so many times."""
        if weights is None:
            return self
        roots = np.sqrt(weights)[:, None]
        return replace(self, designs=[X * roots for X in self.designs], d_bar=self.d_bar * roots)


@dataclass(frozen=True, eq=False)
class Units:
    """Public units in which every entry of the sums lies in [-1, 1], by the Cauchy-Schwarz inequality.

    An entry of XᵀFFX is at most the product of two columns' lengths, known from the preparation, times the
    largest slope squared; one of m a column's length times that of F d̄, for classes at most constant · √n.
    """

    lengths: Matrix  # of the columns, with headroom for later clients; 1 for columns of zeros
    slope: float  # the largest f'
    target_length: float | None  # the largest of F d̄; None if not known beforehand, as in regression
    constant_slope: bool  # f' is ``slope`` for every row and output, so that rows need no factor

    @classmethod
    def of(cls, activation: str, shared: Shared, norms: Matrix) -> "Units":
        """Return the units for columns with these sums of squares; the first column is that of the ones."""
        schema = shared.schema
        norms = norms * np.max(shared.get(CLASS_WEIGHTS, 1.0))  # columns of weighted rows are longer, up to √
        lengths = np.sqrt(HEADROOM * np.where(norms > 0, norms, 1.0))
        constant = has_constant_slope(activation, schema)
        if schema.task == "regression":
            return cls(lengths, MAX_SLOPE[activation], None, constant)
        inverses, slopes = invert_class_targets(activation)
        largest = max(abs(slope * inverse) for slope, inverse in zip(slopes, inverses, strict=True))
        target_length = largest * float(np.sqrt(HEADROOM * max(float(norms[0]), 1.0)))
        return cls(lengths, max(slopes), target_length, constant)

    @property
    def target_unit(self) -> float:
        """The largest length of F d̄, or 1 where it is not known."""
        return 1.0 if self.target_length is None else self.target_length

    def scale_gram(self, G: Matrix) -> Matrix:
        """Return XᵀFFX in these units."""
        return np.asarray(G / (np.outer(self.lengths, self.lengths) * self.slope**2))

    def scale_m(self, m: Matrix) -> Matrix:
        """Return m = XᵀFF d̄ in these units."""
        return np.asarray(m / (self.lengths[:, None] * (self.slope * self.target_unit)))


def find_absurd(piece: Matrix) -> str | None:
    """Return a complaint about entries whose squares overflow, or None."""
    absurd = np.abs(piece).max(initial=0.0) > MAX_ENTRY
    return f"holds absurd values (beyond {MAX_ENTRY:g})" if absurd else None


def stack(arrays: Sequence[Matrix]) -> Matrix:
    """Stack arrays that may differ in their last dimension: zero columns change nothing in a factor."""
    width = max(array.shape[-1] for array in arrays)
    return np.stack([np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, width - a.shape[-1])]) for a in arrays])


@dataclass(frozen=True)
class Exchange(ABC):
    """What travels in one mode of FedHEONN, and how it is solved with penalty ``lam``.

    In all methods ``size`` is the number of inputs with the bias, and ``grams`` the number of Gram matrices,
    factors or triangles: one for all outputs, or one for each output.
    """

    # Fields that travel in the clear, beside the protected sum. If there are none, contributions are sums
    # only, which can be added and subtracted at any time.
    clear_fields: ClassVar[tuple[str, ...]] = ()

    lam: float

    @abstractmethod
    def layout(self, schema: Schema, size: int, grams: int) -> Layout:
        """Return the layout of a client's terms."""

    @abstractmethod
    def terms(self, rows: Rows, units: Units, grams: int) -> dict[str, Any]:
        """Return what a client sends for its rows (algorithm 1)."""

    @abstractmethod
    def solve(self, total: Total, shared: Shared, units: Units) -> Mapping[str, Any]:
        """Return the weights of all outputs (algorithm 2), and what later clients add to (eq. 7)."""

    def is_empty(self, fields: Mapping[str, Any], error: float) -> bool:
        """Return whether terms or their total are those of no rows; ``error`` is that of the total."""
        return not np.any(fields[self.clear_fields[0]])

    def flaw(self, name: str, piece: Any, size: int, grams: int) -> str | None:
        """Return what is wrong with a client's clear field, beyond its layout, or None."""
        return find_absurd(piece)

    def fold(self, name: str, pieces: Sequence[Any]) -> Any:
        """Return the clear field of all rows from those of several clients."""
        raise TypeError(f"{type(self).__name__} has no clear field '{name}'")

    def combine(self, pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the terms of all rows from the terms of parts of them."""
        parts = {name: [piece[name] for piece in pieces] for name in pieces[0]}
        return {
            name: self.fold(name, v) if name in self.clear_fields else sum(v) for name, v in parts.items()
        }

    def operator(self, clear: Mapping[str, Any]) -> Matrix | None:
        """Return the matrix by which the coordinator multiplies the unopened total, or None."""
        return None

    def remarks(self, clear: Mapping[str, Any]) -> Sequence[str]:
        """Return what people should know of the folded clear fields."""
        return ()
