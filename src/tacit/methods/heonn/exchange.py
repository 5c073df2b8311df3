"""The interface of the three exchanges: what clients send, and how the weights follow from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit.core.layout import Layout
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.methods.heonn.units import Rows, Units
from tacit.models.leastsquares import Matrix

MAX_ENTRY = 1e150  # of a factor or triangle


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
