"""Sums only: the upper triangle of XᵀFFX and m are one vector through any protected sum.

The paper's factor reveals XᵀFFX of a single client, because factors merge but do not add. XᵀFFX itself
adds, so that a protected sum shows nobody more than the total. Columns are divided by their length over
the whole federation, so that all entries lie in [-1, 1]; λ stays that of eq. 2. With folds, every fold's sums
travel side by side, and whoever opens them chooses penalty, width and scale by cross-validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, DataError
from tacit.core.layout import Field, Layout
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.methods.heonn.selection import Candidate, Sums, evened, ranked
from tacit.methods.heonn.units import Rows, Units
from tacit.models.leastsquares import solve_gram, symmetric, upper

Matrix = NDArray[np.float64]
LEAST = 1e-12  # of a sum without a bound, which is rounded to 2⁻⁶⁰


@dataclass(frozen=True)
class Sealed:
    """Gram matrices and right-hand sides of every fold and scale; the closed form from their sum."""

    lam: float
    lams: tuple[float, ...]
    folds: int
    scales: int
    widths: tuple[int, ...]
    finalists: int

    def layout(self, schema: Schema, size: int, grams: int) -> Layout:
        """Gram matrices are needed finely: what is lost in them is lost squared."""
        folds, known = max(1, self.folds), {"bound": 1.0, "total": 1.0, "fine": True}
        m_known: dict[str, Any] = known if schema.task == "classification" else {}
        fields = [
            Field("gram", (folds, self.scales, grams, size * (size + 1) // 2), **known),  # type: ignore[arg-type]
            Field("m", (folds, self.scales, size, schema.outputs), **m_known),
        ]
        if self.folds:
            fields.append(Field("energy", (folds, schema.outputs), **m_known))
        return Layout(*fields)

    def terms(self, rows: Rows, units: Units, grams: int) -> dict[str, Any]:
        """Sums over every fold of a client's rows."""
        size, outputs = rows.designs[0].shape[1], rows.d_bar.shape[1]
        gram = np.empty((len(rows.folds), self.scales, grams, size * (size + 1) // 2))
        m = np.empty((len(rows.folds), self.scales, size, outputs))
        # F is one number times I wherever one Gram matrix serves all outputs: rows need no factor then.
        square = units.slope**2 if grams == 1 else 1.0
        pulled = rows.d_bar if grams == 1 else rows.slope**2 * rows.d_bar
        for scale, design in enumerate(rows.designs):
            for fold, members in enumerate(rows.folds):
                X = design[members]
                m[fold, scale] = units.m(square * (X.T @ pulled[members]))
                for which in range(grams):
                    A = X if grams == 1 else X * rows.slope[members, which, None]
                    gram[fold, scale, which] = upper(units.gram(square * (A.T @ A)))
        if not self.folds:
            return {"gram": gram, "m": m}
        lengths = (rows.slope * rows.d_bar / units.known_pull) ** 2
        return {"gram": gram, "m": m, "energy": np.array([lengths[f].sum(axis=0) for f in rows.folds])}

    def solve(self, total: Total, shared: Shared, units: Units) -> Mapping[str, Any]:
        """Weights of all outputs; what earlier clients brought is kept and added to (eq. 7)."""
        error = total.error
        vanished = units.pull is None and not total.exact and np.abs(total["m"]).max(initial=0.0) < LEAST
        if vanished and np.abs(total["gram"]).max(initial=0.0) > error:  # and not for want of rows
            raise DataError(
                "targets are zero, or so small that a protected sum has no digits for them (below "
                f"{LEAST:g}): use larger units"
            )
        if "chosen" in shared or not self.folds:
            chosen = _candidate(shared.get("chosen"), len(units.root) - 1, self.lam)
            gram, m = total["gram"][:, chosen.scale].sum(axis=0), total["m"][:, chosen.scale].sum(axis=0)
            if "gram" in shared:
                gram, m = gram + shared["gram"], m + shared["m"]
            return {"weights": weights(gram, m, units, chosen, error), "gram": gram, "m": m}
        if "gram" in shared:
            raise ConfigError(
                "the earlier training kept no sums by fold, so these cannot choose for its rows: join it "
                "with folds = 0, or train all together"
            )
        if self.finalists:
            rest = slice(1, None)  # the first fold judges
            finalists = [one for one, _ in islice(self._trusted(total, units, rest), self.finalists)]
            return {
                "finalists": np.array([_values(one) for one in finalists]),
                "tried": self._padded(total, rest, finalists, units, error),
                "finals": self._padded(total, slice(None), finalists, units, error),
                "gram": total["gram"].sum(axis=0),
                "m": total["m"].sum(axis=0),
            }
        best, found = next(self._trusted(total, units, slice(None)))
        gram, m = total["gram"][:, best.scale].sum(axis=0), total["m"][:, best.scale].sum(axis=0)
        return {"weights": found, "gram": gram, "m": m, "chosen": _values(best)}

    def decide(self, right: Matrix, shared: Shared) -> dict[str, Any]:
        """Take the finalist that was right most often, or whose errors of all targets are least."""
        right = right[: len(shared["finalists"])]
        judged = np.rint(right) if right.ndim == 1 else -_shares(-right)
        best = int(np.argmax(judged))  # of equals the one that cross-validation preferred
        chosen = shared["finalists"][best]
        scale, width = int(chosen[0]), int(chosen[1])
        kept = {"gram": shared["gram"][scale], "m": shared["m"][scale]}
        return {"weights": shared["finals"][best][: width + 1], "chosen": chosen, **kept}

    def _trusted(self, total: Total, units: Units, folds: slice) -> Iterator[tuple[Candidate, Matrix]]:
        """Candidates, the best first, whose weights the digits of this sum can give; with the weights.

        Units of a wide random layer nearly repeat each other, so that small penalties may ask for more
        digits than there are; the next best is then taken. If none is left, the first says why.
        """
        failed: dict[tuple[int, int], float] = {}
        first: DataError | None = None
        found = False
        for one in self._ranked(total, units):
            place = one.scale, one.width
            if one.lam <= failed.get(place, -1.0):
                continue  # with even less of a penalty
            gram, m = (total[name][folds, one.scale].sum(axis=0) for name in ("gram", "m"))
            try:
                solution = weights(gram, m, units, one, total.error)
            except DataError as refused:
                failed[place], first = one.lam, first or refused
                continue
            found = True
            yield one, solution
        if first and not found:
            raise first

    def _ranked(self, total: Total, units: Units) -> list[Candidate]:
        size = len(units.root)
        back = np.outer(units.root, units.root) * units.slope**2
        gram = np.apply_along_axis(symmetric, -1, total["gram"], size) * back
        m = total["m"] * units.root[:, None] * (units.slope * units.known_pull)
        sums = Sums(gram, m, total["energy"] * units.known_pull**2)
        if units.pull is None:  # targets of a regression, each in a unit of its own
            sums = evened(sums)
        return ranked(sums, self.widths or (size - 1,), self.lams or (self.lam,))

    def _padded(
        self, total: Total, folds: slice, best: list[Candidate], units: Units, error: float
    ) -> Matrix:
        """Weights of several candidates from some folds, narrow ones padded with zeros."""
        found = np.zeros((len(best), len(units.root), total["m"].shape[-1]))
        for index, one in enumerate(best):
            gram, m = (total[name][folds, one.scale].sum(axis=0) for name in ("gram", "m"))
            found[index, : one.width + 1] = weights(gram, m, units, one, error)
        return found


def weights(gram: Matrix, m: Matrix, units: Units, chosen: Candidate, error: float) -> Matrix:
    """Solve in equilibrated units, for the chosen width and penalty; one Gram matrix, or one per output."""
    size, full = chosen.width + 1, len(units.root)
    part = units.first(size)
    penalty = part.penalty(chosen.lam)
    each = [
        solve_gram(
            symmetric(triangle, full)[:size, :size],
            m[:size] if len(gram) == 1 else m[:size, [which]],
            penalty,
            error,
        )
        for which, triangle in enumerate(gram)
    ]
    return part.weights(np.concatenate(each, axis=1))


def _shares(errors: Matrix) -> Matrix:
    """Errors of each finalist over those of the best, target by target, added: units make no difference.

    >>> _shares(np.array([[1e6, 4.0], [2e6, 1.0]])).tolist()
    [5.0, 3.0]
    """
    least = np.maximum(errors.min(axis=0), 1e-12 * errors.max(axis=0))
    return np.asarray((errors / np.where(least > 0, least, 1.0)).sum(axis=1))


def _values(chosen: Candidate) -> Matrix:
    return np.array([chosen.scale, chosen.width, chosen.lam])


def _candidate(values: Any, width: int, lam: float) -> Candidate:
    if values is None:
        return Candidate(0, width, lam, 0.0)
    return Candidate(int(values[0]), int(values[1]), float(values[2]), 0.0)
