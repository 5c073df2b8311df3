"""Scale and sums at once: XᵀX with its row of ones holds n, Σx and Σx².

With T the map from raw to standardised rows, that of the standardised ones is T XᵀX Tᵀ, and m becomes T m: so
rows need not be scaled before they are summed, and one sum serves preparation and training. What is
subtracted costs digits, twice as many as the mean of a column has more than its spread; so this is for sums
that keep all digits, and for columns whose mean is not far beyond their spread.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.layout import Field, Layout
from tacit.core.shared import Shared, Total
from tacit.data.preparation import Preparation
from tacit.data.schema import Schema
from tacit.models.leastsquares import symmetric, upper

Matrix = NDArray[np.float64]
FARTHEST = 100.0  # spreads from zero that a mean may be: four of sixteen digits are lost then
STANDARD = Preparation(scale="standard")


def layout(schema: Schema) -> Layout:
    """Triangle of XᵀX, and Xᵀd̄."""
    size = schema.features + 1
    return Layout(Field("gram", (size * (size + 1) // 2,)), Field("m", (size, schema.outputs)))


def terms(X: Matrix, d_bar: Matrix) -> dict[str, Any]:
    """Sums of rows with a leading one, as they are."""
    return {"gram": upper(X.T @ X), "m": X.T @ d_bar}


def standardised(total: Total, shared: Shared) -> tuple[Shared, Matrix, Matrix, float] | None:
    """The scale, and what the sums of standardised rows are, with their error; None if digits are lacking."""
    G = symmetric(total["gram"], shared.schema.features + 1)
    moments = {"rows": G[0, 0], "sum": G[0, 1:], "square": np.diagonal(G)[1:]}
    found = STANDARD.settle(Total(moments, total.contributors), shared)
    centre, spread, varies = found["centre"], found["spread"], ~found["constant"]
    far = float(np.abs(centre / spread)[varies].max(initial=0.0))
    if not far <= FARTHEST:
        return None
    T = np.diag(np.append(1.0, varies / spread))
    T[1:, 0] = -centre * np.diagonal(T)[1:]
    return found, T @ G @ T.T, T @ total["m"], total.error * (1.0 + far**2)
