"""What one column looks like: a distribution of scipy by name and parameters, or levels with their shares."""

import math
import warnings
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tacit.core.errors import DataError

Vector = NDArray[np.float64]
FAMILIES = (
    *("norm", "expon", "uniform", "laplace", "logistic", "gumbel_r", "gumbel_l", "cauchy", "rayleigh", "t"),
    *("maxwell", "halfnorm", "halflogistic", "hypsecant", "gamma", "lognorm", "beta", "chi2", "pareto"),
    *("fisk", "weibull_min", "weibull_max", "triang", "invgauss", "powerlaw", "genextreme"),
)
LEVELS = "levels"
MOST = 500  # values that a distribution is fitted to: more take long, and change little
FEWEST = 5  # rows of a level that is told: fewer would show single rows
TAIL = 5e-4  # of a distribution on each side that is not drawn from: some have no mean there


class Marginal(msgspec.Struct, frozen=True, array_like=True):
    """Family and parameters of one column; of levels the values, then their shares."""

    family: str
    parameters: list[float]

    def draw(self, uniform: Vector) -> Vector:
        """Return the quantiles at numbers between 0 and 1."""
        if self.family == LEVELS:
            values, shares = np.reshape(self.parameters, (2, -1))
            return np.asarray(values[np.searchsorted(np.cumsum(shares)[:-1], uniform)])
        if self.family not in FAMILIES:
            raise ValueError("no such distribution")
        found = getattr(stats, self.family).ppf(np.clip(uniform, TAIL, 1 - TAIL), *self.parameters)
        return np.asarray(found, dtype=np.float64)


def describe(
    values: Vector, families: Sequence[str], levels: float, digits: int, rng: np.random.Generator
) -> Marginal:
    """Return the levels of a column that has few, else the nearest family (Kolmogorov-Smirnov distance).

    Parameters are rounded to ``digits`` (0: not) before, locations to a part of the spread.
    """
    found, counts = np.unique(values, return_counts=True)
    kept = counts >= min(FEWEST, counts.max())
    covered = counts[kept].sum() >= 0.9 * len(values) and counts.max() >= FEWEST
    if len(found) == 1 or levels == math.inf or (len(found) <= levels and covered):
        return Marginal(LEVELS, [*found[kept].tolist(), *(counts[kept] / counts[kept].sum()).tolist()])
    centre, spread = values.mean(), values.std()
    sample, unit = np.sort(rng.permutation(values)[:MOST]), 10.0 ** math.floor(math.log10(spread))
    fits: list[tuple[float, str, list[float]]] = []
    for family in families:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                *shapes, location, scale = getattr(stats, family).fit((sample - centre) / spread)
                told = [float(f"{value:.{digits or 17}g}") for value in (*shapes, scale * spread)]
                location = float(location * spread + centre)
                told.insert(-1, round(location / unit, digits) * unit if digits else location)
                above = getattr(stats, family).cdf(sample, *told) - np.arange(len(sample)) / len(sample)
            except (ValueError, ArithmeticError, RuntimeError):
                continue
        if np.isfinite(above).all():
            fits.append((float(np.maximum(above, 1 / len(sample) - above).max()), family, told))
    if not fits:
        raise DataError(f"none of {', '.join(families)} can be fitted to it: give more families")
    return Marginal(*min(fits)[1:])
