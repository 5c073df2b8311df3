"""The three exchanges of FedHEONN: how what travels is made and solved; docs/fedheonn.md compares the modes.

**Sealed**: sums only; the upper triangle of XᵀFFX and m are one vector. Columns are divided by their length
over the whole federation, so that all entries lie in [-1, 1]; λ stays that of eq. 2. With folds, every fold's
sums travel side by side.

**Paper**: as published; factors U S in the clear, m through the protected sum (algorithms 1 and 2).

**Robust**: triangles [R | z] in the clear, the right-hand side as further columns: TSQR over clients (Demmel,
Grigori, Hoemmen and Langou, "Communication-optimal parallel and sequential QR and LU factorizations", 2012).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tacit.core.errors import ConfigError, DataError
from tacit.core.layout import Field, Layout
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.methods.heonn.exchange import HEADROOM, Exchange, Rows, Units, find_absurd, stack
from tacit.methods.heonn.selection import Candidate, Selection, solve_sums
from tacit.models import leastsquares
from tacit.models.leastsquares import Matrix, upper

MAX_OUTPUT_ERROR = 1e-4  # of a model's outputs, as a share of the targets (both before f)
MAX_LENGTH_RATIO = 1e10  # longest column over the shortest: beyond, a factor's rounding hides the short one
MIN_UNBOUNDED = 1e-12  # largest entry of a sum without a bound, which is rounded to 2⁻⁶⁰


@dataclass(frozen=True)
class Sealed(Exchange):
    """Gram matrices and right-hand sides of every fold and scale; the closed form from their sum."""

    scales: int
    selection: Selection

    def layout(self, schema: Schema, size: int, grams: int) -> Layout:
        """Return the layout; Gram matrices are fine, because what is lost in them is lost squared."""
        folds, bound = max(1, self.selection.folds), 1.0 if schema.task == "classification" else None
        known: dict[str, Any] = {"bound": bound, "total": bound, "fine": bound is not None}
        gram_shape = (folds, self.scales, grams, size * (size + 1) // 2)
        fields = [
            Field("gram", gram_shape, bound=1.0, total=1.0, fine=True),
            Field("m", (folds, self.scales, size, schema.outputs), **known),
        ]
        if self.selection.folds:
            fields.append(Field("energy", (folds, schema.outputs), **known))
        return Layout(*fields)

    def terms(self, rows: Rows, units: Units, grams: int) -> dict[str, Any]:
        size, outputs = rows.designs[0].shape[1], rows.d_bar.shape[1]
        gram = np.empty((len(rows.folds), self.scales, grams, size * (size + 1) // 2))
        m = np.empty((len(rows.folds), self.scales, size, outputs))
        constant = units.constant_slope
        square = units.slope**2 if constant else 1.0
        weighted = rows.d_bar if constant else rows.slope**2 * rows.d_bar
        for (scale, design), (fold, members) in product(enumerate(rows.designs), enumerate(rows.folds)):
            X = design[members]
            m[fold, scale] = units.scale_m(square * (X.T @ weighted[members]))
            for which in range(grams):
                A = X if constant else X * rows.slope[members, which, None]
                gram[fold, scale, which] = upper(units.scale_gram(square * (A.T @ A)))
        if not self.selection.folds:
            return {"gram": gram, "m": m}
        squares = (rows.slope * rows.d_bar / units.target_unit) ** 2
        return {"gram": gram, "m": m, "energy": np.array([squares[f].sum(axis=0) for f in rows.folds])}

    def is_empty(self, fields: Mapping[str, Any], error: float) -> bool:
        """Return whether no row was counted: the first entry of a Gram matrix is Σ f'²."""
        return bool(np.all(fields["gram"][..., 0] <= error))

    def solve(self, total: Total, shared: Shared, units: Units) -> Mapping[str, Any]:
        rounds = units.target_length is None and not total.exact
        too_small = rounds and np.abs(total["m"]).max(initial=0.0) < MIN_UNBOUNDED
        if too_small and np.abs(total["gram"]).max(initial=0.0) > total.error:  # there are rows
            raise DataError(
                "targets are zero, or so small that a protected sum has no digits for them (below "
                f"{MIN_UNBOUNDED:g}): use larger units"
            )
        if self.selection.folds and "chosen" not in shared:
            if "gram" in shared:
                raise ConfigError(
                    "the earlier training kept no sums by fold, so these cannot choose for its rows: join it "
                    "with folds = 0, or train all together"
                )
            return self.selection.select(total, units)
        scale, width, lam = shared.get("chosen", (0, len(units.lengths) - 1, self.lam))
        candidate = Candidate(int(scale), int(width), float(lam))
        gram, m = (total[name][:, candidate.scale].sum(axis=0) for name in ("gram", "m"))
        if "gram" in shared:
            gram, m = gram + shared["gram"], m + shared["m"]
        return {"weights": solve_sums(gram, m, units, candidate, total.error), "gram": gram, "m": m}


@dataclass(frozen=True)
class Paper(Exchange):
    """Factors merge (eq. 5), m adds (eq. 8), w = U (S² + λI)⁻¹ Uᵀ m (eq. 4)."""

    clear_fields = ("factor", "energy")

    rank: int | None

    def layout(self, schema: Schema, size: int, grams: int) -> Layout:
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
        slopes: list[Any] = [units.slope] if units.constant_slope else np.split(rows.slope, grams, axis=1)
        factors = stack([leastsquares.factor(X * slope) for slope in slopes])
        found = {"m": m, "factor": factors}
        return found if self.rank is None else found | {"energy": _energy(factors)}

    def flaw(self, name: str, piece: Any, size: int, grams: int) -> str | None:
        if name == "energy":
            return None if (piece >= 0).all() else "is below 0, and a sum of squares is not"
        if piece.ndim != 3 or piece.shape[:2] != (grams, size):
            return f"has shape {piece.shape}, agreed was ({grams}, {size}, rank)"
        return find_absurd(piece)

    def fold(self, name: str, pieces: Sequence[Matrix]) -> Matrix:
        if name == "energy":
            return np.asarray(np.sum(pieces, axis=0))
        return stack([leastsquares.merge(own, self.rank) for own in zip(*pieces, strict=True)])

    def operator(self, clear: Mapping[str, Any]) -> Matrix:
        """Return U (S² + λI)⁻¹ Uᵀ of the merged factors: one matrix, or one for each output."""
        each = np.stack(
            [leastsquares.solve(US, np.eye(len(US)), self.lam) for US in np.asarray(clear["factor"])]
        )
        return each[0] if len(each) == 1 else each

    def remarks(self, clear: Mapping[str, Any]) -> list[str]:
        if self.rank is None:
            return []
        left = 1 - _energy(np.asarray(clear["factor"])) / clear["energy"]
        return [f"rank {self.rank} leaves out {max(0.0, left.max()):.2e} of the squared singular values"]

    def solve(self, total: Total, shared: Shared, units: Units) -> Mapping[str, Any]:
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
        columns = np.split(m, len(factors), axis=1)
        each = [leastsquares.solve(US, column, self.lam) for US, column in zip(factors, columns, strict=True)]
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
    S = np.asarray(np.linalg.svd(US, compute_uv=False), dtype=np.float64)
    S = S[leastsquares.meaningful(S, US)]
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
    return np.asarray(np.einsum("oij,oij->o", factors, factors))


class Robust(Exchange):
    """Triangles of [F X | F d̄]: one for all outputs, or one for each."""

    clear_fields = ("triangle",)

    def layout(self, schema: Schema, size: int, grams: int) -> Layout:
        width = size + (schema.outputs if grams == 1 else 1)
        return Layout(Field("triangle", (grams, width, width), clear=True))

    def terms(self, rows: Rows, units: Units, grams: int) -> dict[str, Any]:
        X, b = rows.designs[0], rows.slope * rows.d_bar
        slopes: list[Any] = [units.slope] if units.constant_slope else np.split(rows.slope, grams, axis=1)
        pairs = zip(slopes, np.split(b, grams, axis=1), strict=True)
        return {"triangle": np.stack([leastsquares.triangle(X * slope, own) for slope, own in pairs])}

    def fold(self, name: str, pieces: Sequence[Matrix]) -> Matrix:
        return np.stack([leastsquares.stack(own) for own in zip(*pieces, strict=True)])

    def solve(self, total: Total, shared: Shared, units: Units) -> Mapping[str, Any]:
        triangles = np.asarray(total["triangle"])
        if "triangle" in shared:
            triangles = self.fold("triangle", [shared["triangle"], triangles])
        outputs = shared.schema.outputs if len(triangles) == 1 else 1
        each = [leastsquares.solve_triangle(R, outputs, self.lam) for R in triangles]
        return {"weights": np.concatenate(each, axis=1), "triangle": triangles}
