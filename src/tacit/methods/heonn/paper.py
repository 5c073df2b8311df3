"""As published: factors U S in the clear, m through the protected sum (algorithms 1 and 2 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, DataError
from tacit.core.layout import Field, Layout
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.methods.heonn.units import ROOM, Rows, Units
from tacit.models.leastsquares import EPS, factor, merge, operator, solve, widened

Matrix = NDArray[np.float64]
LARGEST = 1e150  # of a factor's entries: beyond, their squares overflow
WANTED = 1e-4  # share of the targets (before f) by which the outputs of a model may be wrong
FARTHEST = 1e10  # longest column over the shortest: beyond, the short one is lost in a factor's rounding


@dataclass(frozen=True)
class Paper:
    """Factors merge (eq. 5), m adds (eq. 8), w = U (S² + λI)⁻¹ Uᵀ m (eq. 4)."""

    lam: float
    rank: int | None

    def layout(self, schema: Schema, size: int, grams: int) -> Layout:
        """One column of m for each output, in units that keep it within [-1, 1], and the factors."""
        known = {"bound": 1.0, "total": 1.0} if schema.task == "classification" else {}
        m = Field("m", (size, schema.outputs), columns=grams, **known)  # type: ignore[arg-type]
        clear = [Field("factor", None, clear=True)]
        if self.rank is not None:  # follows from the factor: tells nobody more
            clear.append(Field("energy", (grams,), clear=True))
        return Layout(m, *clear)

    def terms(self, rows: Rows, units: Units, grams: int) -> dict[str, Any]:
        """U S and m of a client's rows (algorithm 1)."""
        X = rows.designs[0]
        m = X.T @ (rows.slope**2 * rows.d_bar) / self._unit(units)
        if grams == 1:
            factors = units.slope * factor(X)[None]
        else:
            factors = _stacked([factor(X * rows.slope[:, [output]]) for output in range(grams)])
        found = {"m": m, "factor": factors}
        return found if self.rank is None else found | {"energy": _energy(factors)}

    def flaw(self, name: str, piece: Any, size: int, grams: int) -> str | None:
        """Refuse a factor of another width than the agreed features."""
        if name == "energy":
            return None if (piece >= 0).all() else "is below 0, and a sum of squares is not"
        if piece.ndim != 3 or piece.shape[:2] != (grams, size):
            return f"has shape {piece.shape}, agreed was ({grams}, {size}, rank)"
        if np.abs(piece).max(initial=0.0) > LARGEST:
            return f"holds absurd values (beyond {LARGEST:g})"
        return None

    def fold(self, name: str, pieces: Sequence[Matrix]) -> Matrix:
        """Merge many clients' factors at once, output by output; add up how much they hold."""
        if name == "energy":
            return np.asarray(np.sum(pieces, axis=0))
        merged = [merge([piece[o] for piece in pieces], self.rank) for o in range(len(pieces[0]))]
        return _stacked(merged)

    def operator(self, factors: Matrix) -> Matrix:
        """U (S² + λI)⁻¹ Uᵀ of the merged factors: one, or one for each output."""
        each = np.stack([operator(US, self.lam) for US in factors])
        return each[0] if len(each) == 1 else each

    def remarks(self, clear: Mapping[str, Any]) -> list[str]:
        """How much of the factors a truncation left out."""
        if self.rank is None:
            return []
        left = 1 - _energy(np.asarray(clear["factor"])) / clear["energy"]
        return [f"rank {self.rank} leaves out {max(0.0, left.max()):.2e} of the squared singular values"]

    def solve(self, total: Total, shared: Shared, units: Units) -> Mapping[str, Any]:
        """Weights of all outputs; what earlier clients brought is kept and added to (eq. 7)."""
        if "weights" in shared and (total.mapped or "m" not in shared):
            raise ConfigError(
                "clients cannot be added to weights that the coordinator computed unopened, for nobody kept "
                "m: train all together, or set mode = 'sealed'"
            )
        unit = self._unit(units)
        if total.mapped:  # the coordinator has multiplied already (algorithm 2)
            w = total["m"] * unit
            # An error in a weight counts as much as its column is long.
            _check(total.error * unit * float(np.linalg.norm(units.root)) / units.root[0], w, units)
            return {"weights": w}
        m, factors = total["m"], np.asarray(total["factor"])
        if "m" in shared:
            m = m + shared["m"]
            factors = self.fold("factor", [shared["factor"], factors])
        columns = [m] if len(factors) == 1 else [m[:, [output]] for output in range(m.shape[1])]
        pairs = zip(factors, columns, strict=True)
        w = unit * np.concatenate([solve(US, column, self.lam) for US, column in pairs], axis=1)
        worst = max(_amplified(US, self.lam) for US in factors)
        _check(total.error * unit * worst / (units.slope * units.root[0] / np.sqrt(ROOM)), w, units)
        return {"weights": w, "m": m, "factor": factors}

    @staticmethod
    def _unit(units: Units) -> float:
        """One unit for all of m, so that the coordinator can multiply without knowing it."""
        return float(units.root.max() * units.slope * units.known_pull)


def _amplified(US: Matrix, lam: float) -> float:
    """How much longer F X w gets by an error in m than that error is, for random ones: ‖S (S² + λ)⁻¹‖."""
    S = np.linalg.svd(US, compute_uv=False)
    S = S[S > S.max(initial=0.0) * max(US.shape) * EPS]
    return float(np.linalg.norm(S / (S**2 + lam)))


def _check(error: float, w: Matrix, units: Units) -> None:
    """Refuse weights whose outputs may be wrong by more than a share of the targets (before f)."""
    lengths = units.root / units.root[0]
    size = units.target or float(np.abs(w * lengths[:, None]).max(initial=0.0))
    if lengths.max() > FARTHEST * lengths.min() or not error <= WANTED * size:
        raise DataError(
            f"outputs would be exact to {error:.0e} where targets are of {size:.0e}: raise lam, drop "
            "features that repeat others, scale features (scale = 'standard'), or set mode = 'sealed'"
        )


def _energy(factors: Matrix) -> Matrix:
    """Sum of the squared singular values, factor by factor."""
    return np.asarray(np.einsum("oij,oij->o", factors, factors))


def _stacked(factors: Sequence[Matrix]) -> Matrix:
    return np.stack([widened(US, max(US.shape[1] for US in factors)) for US in factors])
