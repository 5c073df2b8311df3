"""For a coordinator that may see triangles: [R | z] of every client, stacked; no digits are lost.

Gram matrices square the condition number. Triangles do not: TSQR (Demmel, Grigori, Hoemmen and Langou,
"Communication-optimal parallel and sequential QR and LU factorizations", 2012) over the clients, with the
right-hand side as further columns, is as exact as least squares on the pooled rows.
"""

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
from tacit.models.leastsquares import solve_triangle, stack, triangle

Matrix = NDArray[np.float64]
LARGEST = 1e150


@dataclass(frozen=True)
class Robust:
    """Triangles of [F X | F d̄]: one for all outputs, or one for each."""

    lam: float

    def layout(self, schema: Schema, size: int, grams: int) -> Layout:
        """Nothing is summed; the triangles are folded."""
        width = size + (schema.outputs if grams == 1 else 1)
        return Layout(Field("triangle", (grams, width, width), clear=True))

    def terms(self, rows: Rows, units: Units, grams: int) -> dict[str, Any]:
        """Triangles of a client's rows, padded to full height."""
        X, b = rows.designs[0], rows.slope * rows.d_bar
        if grams == 1:
            return {"triangle": _square(triangle(units.slope * X, b))[None]}
        each = [triangle(X * rows.slope[:, [o]], b[:, [o]]) for o in range(grams)]
        return {"triangle": np.stack([_square(R) for R in each])}

    def flaw(self, name: str, piece: Any, size: int, grams: int) -> str | None:
        """Refuse absurd values; shapes are checked by the layout."""
        return f"holds absurd values (beyond {LARGEST:g})" if np.abs(piece).max() > LARGEST else None

    def fold(self, name: str, pieces: Sequence[Matrix]) -> Matrix:
        """Stack many clients' triangles at once."""
        return np.stack([_square(stack([piece[o] for piece in pieces])) for o in range(len(pieces[0]))])

    def solve(self, total: Total, shared: Shared, units: Units) -> Mapping[str, Any]:
        """Weights of all outputs; earlier triangles are kept and stacked upon."""
        found = np.asarray(total["triangle"])
        if "triangle" in shared:
            found = self.fold("triangle", [shared["triangle"], found])
        outputs = shared.schema.outputs if len(found) == 1 else 1
        each = [solve_triangle(R, outputs, self.lam) for R in found]
        return {"weights": np.concatenate(each, axis=1), "triangle": found}


def _square(R: Matrix) -> Matrix:
    """Pad with zero rows, as a client with fewer rows than columns needs."""
    return np.pad(R, ((0, R.shape[1] - len(R)), (0, 0)))
