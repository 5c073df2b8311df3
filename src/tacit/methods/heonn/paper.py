"""As published: factors U S in the clear, m through the protected sum (algorithms 1 and 2 of the paper)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.errors import ConfigError, DataError
from tacit.core.layout import Field, Layout
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.methods.heonn.exchange import HEADROOM, Exchange, Rows, Units, find_absurd, stack
from tacit.models.leastsquares import EPS, Matrix, factor, merge, operator, solve

MAX_OUTPUT_ERROR = 1e-4  # of a model's outputs, as a share of the targets (both before f)
MAX_LENGTH_RATIO = 1e10  # longest column over the shortest: beyond, a factor's rounding hides the short one


@dataclass(frozen=True)
class Paper(Exchange):
    """Factors merge (eq. 5), m adds (eq. 8), w = U (S² + λI)⁻¹ Uᵀ m (eq. 4)."""

    clear_fields = ("factor", "energy")

    rank: int | None

    def layout(self, schema: Schema, size: int, grams: int) -> Layout:
        """Return the layout: a column of m for each output, within [-1, 1] if known, and the factors."""
        bound = 1.0 if schema.task == "classification" else None
        m = Field("m", (size, schema.outputs), bound, bound, columns=grams)
        clear = [Field("factor", None, clear=True)]
        if self.rank is not None:  # follows from the factor, so it reveals nothing more
            clear.append(Field("energy", (grams,), clear=True))
        return Layout(m, *clear)

    def terms(self, rows: Rows, units: Units, grams: int) -> dict[str, Any]:
        """Return U S and m of a client's rows (algorithm 1)."""
        X = rows.designs[0]
        m = X.T @ (rows.slope**2 * rows.d_bar) / _unit_of_m(units)
        if units.constant_slope:
            factors = units.slope * factor(X)[None]
        else:
            factors = stack([factor(X * rows.slope[:, [output]]) for output in range(grams)])
        found = {"m": m, "factor": factors}
        return found if self.rank is None else found | {"energy": _energy(factors)}

    def flaw(self, name: str, piece: Any, size: int, grams: int) -> str | None:
        """Refuse a factor of another width than the agreed features."""
        if name == "energy":
            return None if (piece >= 0).all() else "is below 0, and a sum of squares is not"
        if piece.ndim != 3 or piece.shape[:2] != (grams, size):
            return f"has shape {piece.shape}, agreed was ({grams}, {size}, rank)"
        return find_absurd(piece)

    def fold(self, name: str, pieces: Sequence[Matrix]) -> Matrix:
        """Merge many clients' factors at once, output by output; add up their energies."""
        if name == "energy":
            return np.asarray(np.sum(pieces, axis=0))
        return stack([merge([piece[o] for piece in pieces], self.rank) for o in range(len(pieces[0]))])

    def operator(self, clear: Mapping[str, Any]) -> Matrix:
        """Return U (S² + λI)⁻¹ Uᵀ of the merged factors: one matrix, or one for each output."""
        each = np.stack([operator(US, self.lam) for US in np.asarray(clear["factor"])])
        return each[0] if len(each) == 1 else each

    def remarks(self, clear: Mapping[str, Any]) -> list[str]:
        """Return how much of the factors a truncation left out."""
        if self.rank is None:
            return []
        left = 1 - _energy(np.asarray(clear["factor"])) / clear["energy"]
        return [f"rank {self.rank} leaves out {max(0.0, left.max()):.2e} of the squared singular values"]

    def solve(self, total: Total, shared: Shared, units: Units) -> Mapping[str, Any]:
        """Return the weights (algorithm 2), with m and factors to which later clients add (eq. 7)."""
        if "weights" in shared and (total.multiplied or "m" not in shared):
            raise ConfigError(
                "clients cannot be added to weights that the coordinator computed unopened, for nobody kept "
                "m: train all together, or set mode = 'sealed'"
            )
        unit = _unit_of_m(units)
        if total.multiplied:  # the coordinator has multiplied m by its operator already
            w = total["m"] * unit
            # An error in a weight counts as much as its column is long.
            gain = float(np.linalg.norm(units.lengths)) / units.lengths[0]
            _check_precision(total.error * unit * gain, w, units)
            return {"weights": w}
        m, factors = total["m"], np.asarray(total["factor"])
        if "m" in shared:
            m = m + shared["m"]
            factors = self.fold("factor", [shared["factor"], factors])
        columns = [m] if len(factors) == 1 else [m[:, [output]] for output in range(m.shape[1])]
        each = [solve(US, column, self.lam) for US, column in zip(factors, columns, strict=True)]
        w = unit * np.concatenate(each, axis=1)
        gain = max(_error_gain(US, self.lam) for US in factors)
        error = total.error * unit * gain / (units.slope * units.lengths[0] / np.sqrt(HEADROOM))
        _check_precision(error, w, units)
        return {"weights": w, "m": m, "factor": factors}


def _unit_of_m(units: Units) -> float:
    """Return one unit for all of m, so that the coordinator can multiply without knowing it."""
    return float(units.lengths.max() * units.slope * units.target_unit)


def _error_gain(US: Matrix, lam: float) -> float:
    """Return ‖S (S² + λ)⁻¹‖: the length of F X w that a random error in m causes, over that error's."""
    S = np.linalg.svd(US, compute_uv=False)
    S = S[S > S.max(initial=0.0) * max(US.shape) * EPS]
    return float(np.linalg.norm(S / (S**2 + lam)))


def _check_precision(error: float, w: Matrix, units: Units) -> None:
    """Refuse weights whose outputs may be wrong by more than a share of the targets (before f)."""
    lengths = units.lengths / units.lengths[0]
    if units.target_length:  # of a classifier: the largest d̄
        size = units.target_length / (units.slope * float(units.lengths[0]))
    else:
        size = float(np.abs(w * lengths[:, None]).max(initial=0.0))
    if lengths.max() > MAX_LENGTH_RATIO * lengths.min() or not error <= MAX_OUTPUT_ERROR * size:
        raise DataError(
            f"outputs would be exact to {error:.0e}, too little for these targets: raise lam, drop features "
            "that repeat others, scale features (scale = 'standard'), or set mode = 'sealed'",
            private=f"targets are of {size:.0e}",
        )


def _energy(factors: Matrix) -> Matrix:
    """Return the sum of the squared singular values, factor by factor."""
    return np.asarray(np.einsum("oij,oij->o", factors, factors))
