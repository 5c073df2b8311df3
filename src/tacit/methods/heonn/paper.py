"""As published: factors U S in the clear, m through the protected sum (algorithms 1 and 2 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.layout import Field, Layout
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.methods.heonn.units import Rows, Units
from tacit.models.leastsquares import factor, merge, operator, widened

Matrix = NDArray[np.float64]
LARGEST = 1e150  # of a factor's entries: beyond, their squares overflow


@dataclass(frozen=True)
class Paper:
    """Factors merge (eq. 5), m adds (eq. 8), w = U (S² + λI)⁻¹ Uᵀ m (eq. 4)."""

    lam: float
    rank: int | None

    def layout(self, schema: Schema, size: int, grams: int) -> Layout:
        """One column of m for each output, in units that keep it within [-1, 1], and the factors."""
        known = {"bound": 1.0, "total": 1.0} if schema.task == "classification" else {}
        return Layout(
            Field("m", (size, schema.outputs), columns=True, **known),  # type: ignore[arg-type]
            Field("factor", None, clear=True),
        )

    def terms(self, rows: Rows, units: Units, grams: int) -> dict[str, Any]:
        """U S and m of a client's rows (algorithm 1)."""
        X = rows.designs[0]
        m = X.T @ (rows.slope**2 * rows.d_bar) / self._unit(units)
        if grams == 1:
            return {"m": m, "factor": units.slope * factor(X)[None]}
        each = [factor(X * rows.slope[:, [output]]) for output in range(grams)]
        return {"m": m, "factor": _stacked(each)}

    def flaw(self, piece: Any, size: int, grams: int) -> str | None:
        """Refuse a factor of another width than the agreed features."""
        if piece.ndim != 3 or piece.shape[:2] != (grams, size):
            return f"has shape {piece.shape}, agreed was ({grams}, {size}, rank)"
        if np.abs(piece).max(initial=0.0) > LARGEST:
            return f"holds absurd values (beyond {LARGEST:g})"
        return None

    def fold(self, pieces: Sequence[Matrix]) -> Matrix:
        """Merge many clients' factors at once, output by output."""
        merged = [merge([piece[o] for piece in pieces], self.rank) for o in range(len(pieces[0]))]
        return _stacked(merged)

    def operator(self, factors: Matrix) -> Matrix:
        """U (S² + λI)⁻¹ Uᵀ of the merged factors: one, or one for each output."""
        each = np.stack([operator(US, self.lam) for US in factors])
        return each[0] if len(each) == 1 else each

    def solve(self, total: Total, shared: Shared, units: Units) -> Mapping[str, Any]:
        """Weights of all outputs; what earlier clients brought is kept and added to (eq. 7)."""
        if total.mapped:  # the coordinator has multiplied already (algorithm 2)
            return {"weights": total["m"] * self._unit(units)}
        m, factors = total["m"], np.asarray(total["factor"])
        if "m" in shared:
            m = m + shared["m"]
            factors = self.fold([shared["factor"], factors])
        A = self.operator(factors)
        w = A @ m if A.ndim == 2 else np.einsum("oij,jo->io", A, m)
        return {"weights": w * self._unit(units), "m": m, "factor": factors}

    @staticmethod
    def _unit(units: Units) -> float:
        """One unit for all of m, so that the coordinator can multiply without knowing it."""
        return float(units.root.max() * units.slope * units.known_pull)


def _stacked(factors: Sequence[Matrix]) -> Matrix:
    return np.stack([widened(US, max(US.shape[1] for US in factors)) for US in factors])
