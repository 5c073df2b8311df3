"""Scale and weights from one sum: XᵀX of unscaled rows, with its row of ones, holds n, Σx and Σx².

With T the map from unscaled to standardised rows, that of the standardised ones is T XᵀX Tᵀ, and m becomes
T m: one sum serves preparation and training. What is subtracted costs digits, twice as many as the mean of a
column has more than its spread: so this is for exact sums, and means that are not far beyond the spread.
"""

from typing import Any

import numpy as np

from tacit.core.errors import DataError
from tacit.core.layout import Field, Layout
from tacit.core.shared import Shared, Total
from tacit.data.preparation import Preparation
from tacit.data.schema import Schema
from tacit.methods.heonn.exchange import Exchange, Units
from tacit.models.leastsquares import symmetric, upper

MAX_MEAN = 100.0  # of a column, in spreads: four of sixteen digits are lost then
STANDARD = Preparation(scale="standard")


def can_serve(components: Any) -> bool:
    """Return whether sums keep all digits and open at the coordinator, and rows are standardised."""
    protection, preparation = components.protection, components.preparation
    exact: bool = protection.promises.precision == 0 and protection.opens == "coordinator"
    return exact and preparation.scale == "standard" and preparation.missing == "refuse"


def layout(schema: Schema) -> Layout:
    """Return the layout: the upper triangle of XᵀX, and Xᵀd̄."""
    size = schema.features + 1
    return Layout(Field("gram", (size * (size + 1) // 2,)), Field("m", (size, schema.outputs)))


def solve(total: Total, shared: Shared, activation: str, exchange: Exchange) -> Shared:
    """Return shared values with scale and weights; unchanged if digits are lacking."""
    G = symmetric(total["gram"], shared.schema.features + 1)
    moments = {"rows": G[0, 0], "sum": G[0, 1:], "square": np.diagonal(G)[1:]}
    scaled = STANDARD.apply_moments(Total(moments, total.contributors), shared)
    centre, spread, varies = scaled["centre"], scaled["spread"], ~scaled["constant"]
    farthest = float(np.abs(centre / spread)[varies].max(initial=0.0))
    if not farthest <= MAX_MEAN:
        return shared
    T = np.diag(np.append(1.0, varies / spread))
    T[1:, 0] = -centre * np.diagonal(T)[1:]
    units = Units.of(activation, scaled, scaled["norms"])
    gram = upper(units.scale_gram(units.slope**2 * (T @ G @ T.T)))
    m = units.scale_m(units.slope**2 * (T @ total["m"]))
    sums = {"gram": gram[None, None, None], "m": m[None, None]}  # of one fold and one scale
    error = total.error * (1.0 + farthest**2)
    try:
        return scaled | exchange.solve(Total(sums, total.contributors, error, exact=True), scaled, units)
    except DataError:
        return shared
