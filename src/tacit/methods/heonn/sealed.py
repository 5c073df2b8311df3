"""Sums only: the upper triangle of XᵀFFX and m are one vector through any protected sum.

The paper's factors merge but do not add; XᵀFFX adds, so that a protected sum shows nobody more than the
total. Columns are divided by their length over the whole federation, so that all entries lie in [-1, 1]; λ
stays that of eq. 2. With folds, every fold's sums travel side by side, to choose by cross-validation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.errors import ConfigError, DataError
from tacit.core.layout import Field, Layout
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.methods.heonn.exchange import Exchange, Rows, Units
from tacit.methods.heonn.selection import Candidate, Selection, solve_sums
from tacit.models.leastsquares import upper

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
        """Return the sums over every fold of a client's rows."""
        size, outputs = rows.designs[0].shape[1], rows.d_bar.shape[1]
        gram = np.empty((len(rows.folds), self.scales, grams, size * (size + 1) // 2))
        m = np.empty((len(rows.folds), self.scales, size, outputs))
        constant = units.constant_slope
        square = units.slope**2 if constant else 1.0
        weighted = rows.d_bar if constant else rows.slope**2 * rows.d_bar
        for scale, design in enumerate(rows.designs):
            for fold, members in enumerate(rows.folds):
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
        """Return the weights, with the sums to which later clients add (eq. 7), or the finalists."""
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
