"""Triangles [R | z] in the clear, for a coordinator that may see them: no digits are lost.

Gram matrices square the condition number. Triangles do not: TSQR (Demmel, Grigori, Hoemmen and Langou,
"Communication-optimal parallel and sequential QR and LU factorizations", 2012) over the clients, with the
right-hand side as further columns, is as exact as least squares on the pooled rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.core.layout import Field, Layout
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.methods.heonn.exchange import Exchange, Rows, Units
from tacit.models.leastsquares import Matrix, solve_triangle, stack, triangle


class Robust(Exchange):
    """Triangles of [F X | F d̄]: one for all outputs, or one for each."""

    clear_fields = ("triangle",)

    def layout(self, schema: Schema, size: int, grams: int) -> Layout:
        """Return the layout: nothing is summed, the triangles are folded."""
        width = size + (schema.outputs if grams == 1 else 1)
        return Layout(Field("triangle", (grams, width, width), clear=True))

    def terms(self, rows: Rows, units: Units, grams: int) -> dict[str, Any]:
        """Return the triangles of a client's rows, padded to full height."""
        X, b = rows.designs[0], rows.slope * rows.d_bar
        if units.constant_slope:
            return {"triangle": _pad(triangle(units.slope * X, b))[None]}
        each = [triangle(X * rows.slope[:, [o]], b[:, [o]]) for o in range(grams)]
        return {"triangle": np.stack([_pad(R) for R in each])}

    def fold(self, name: str, pieces: Sequence[Matrix]) -> Matrix:
        """Stack many clients' triangles at once."""
        return np.stack([_pad(stack([piece[o] for piece in pieces])) for o in range(len(pieces[0]))])

    def solve(self, total: Total, shared: Shared, units: Units) -> Mapping[str, Any]:
        """Return the weights, and the triangles on which those of later clients are stacked."""
        triangles = np.asarray(total["triangle"])
        if "triangle" in shared:
            triangles = self.fold("triangle", [shared["triangle"], triangles])
        outputs = shared.schema.outputs if len(triangles) == 1 else 1
        each = [solve_triangle(R, outputs, self.lam) for R in triangles]
        return {"weights": np.concatenate(each, axis=1), "triangle": triangles}


def _pad(R: Matrix) -> Matrix:
    """Pad with zero rows, as a client with fewer rows than columns needs."""
    return np.pad(R, ((0, R.shape[1] - len(R)), (0, 0)))
