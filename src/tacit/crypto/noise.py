"""Clipping, coins and noise for differential privacy.

Sums that are masked, shared or encrypted are sums of integers, so their noise is the discrete Gaussian
N_Z(0, σ²), P[x] ∝ exp(-x²/2σ²), drawn by the exact sampler of Canonne, Kamath and Steinke (2020, algorithms 1
to 3): no rounding, so none of the attacks on floating-point noise (Mironov 2012). Sums of floats are rounded
to a fine grid first (``add_noise``).

The sampler's only random decisions are "uniform below t" and "true with probability exp(-γ)", γ rational.
The latter compares a uniform number with exp(-γ) in floating point and, if they are closer than any
rounding error could be, goes on in decimals of rising precision with further random bits: fast, and
exact. Random words are AES-256-CTR under a fresh key of the operating system for every call; a generator is
for tests and repeatable experiments, because whoever knows its seed can take the noise away.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, DataError
from tacit.crypto.masking import expand, new_seed

LEAST_VARIANCE, LARGEST_VARIANCE = Fraction(1, 1 << 20), 1 << 80
# Variance of a client's part below which a sum is not yet like one discrete Gaussian; from 4 on, the
# difference is below 10^-15 (Kairouz, Liu and Steinke 2021).
LEAST_PART = 4
FINENESS = 4096  # of the grid for sums of floats: a clipped vector's length over unit and √d
_MARGIN = 2.0**-40  # thousands of times the error of the floating-point comparison

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Source = Callable[[int], Words]


# -- clipping -----------------------------------------------------------------------------------------


def clip_l2(vector: Vector, bound: float) -> Vector:
    """Shorten a vector to a Euclidean length; shorter ones stay as they are.

    >>> clip_l2(np.array([3.0, 4.0]), 1.0).round(6).tolist()
    [0.6, 0.8]
    """
    _positive("bound", bound)
    values = np.asarray(vector, np.float64)
    if not np.isfinite(values).all():
        raise DataError("NaN or infinite values cannot be clipped: look for them in the data")
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0:
        return values.copy()
    # Scaled by the largest value, so that squares neither overflow nor vanish.
    length = largest * float(np.linalg.norm(values / largest))
    if length <= bound:
        return values.copy()
    # One part in 10^15 shorter, so that rounding does not leave it longer than the bound.
    return values / largest * (bound / (length / largest) * (1 - 1e-15))


def integer_sensitivity(bound: float, scale: float, values: int) -> float:
    """Euclidean length that a clipped vector may have once it is scaled and rounded to integers.

    Rounding moves each value by up to a half: bound · scale + √values / 2.

    >>> integer_sensitivity(1.0, 1000.0, 100)
    1005.0
    """
    return _positive("bound", bound) * _positive("scale", scale) + math.sqrt(values) / 2


# -- sums of floats -----------------------------------------------------------------------------------


def flip_coins(probability: float, size: int, rng: np.random.Generator | None = None) -> NDArray[np.bool_]:
    """Return for each of ``size`` units whether it is drawn (Poisson sampling)."""
    drawn: NDArray[np.bool_] = _uniform(_source(rng)(size)) < probability
    return drawn


def add_noise(
    total: Vector, bound: float, multiplier: float, rng: np.random.Generator | None = None
) -> Vector:
    """Return a sum of clipped vectors on a grid, with discrete Gaussian noise.

    One summand of length ``bound`` more or less changes each of the d rounded values by up to one unit more
    than it should, and errors of floating point by less than another: Δ = bound/u + 2√d units. The grid is
    so fine, u ≤ bound / (4096 √d), that this is within 0.05 % of the bound. The noise's standard deviation is
    ``multiplier`` · Δ.

    >>> noisy = add_noise(np.zeros(50_000), 2.0, 3.0, np.random.default_rng(0))
    >>> bool(abs(noisy.std() - 6.0) < 0.1)
    True
    """
    root = math.sqrt(max(1, len(total)))
    unit = 2.0 ** math.floor(math.log2(_positive("bound", bound) / (FINENESS * root)))
    deviation = _positive("multiplier", multiplier) * (bound / unit + 2 * root)
    whole: Vector = np.rint(total / unit)
    return (whole + discrete_gaussian(deviation**2, len(total), rng)) * unit


# -- the discrete Gaussian ----------------------------------------------------------------------------


def discrete_gaussian(
    variance: Fraction | float, size: int, rng: np.random.Generator | None = None
) -> Integers:
    """Draw exactly from the discrete Gaussian (Canonne, Kamath and Steinke, algorithm 3).

    The variance σ², from 2^-20 to 2^80, is taken exactly as it is given (a float is a fraction too).

    >>> draws = discrete_gaussian(9, 10_000, np.random.default_rng(0))
    >>> draws.dtype.name, bool(abs(draws.var() - 9) < 0.5)
    ('int64', True)
    """
    sigma2 = _variance(variance)
    words = _source(rng)
    scale = math.isqrt(sigma2.numerator // sigma2.denominator) + 1  # t = ⌊σ⌋ + 1
    centre, twice = float(sigma2 / scale), float(2 * sigma2)
    result = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        candidates = _discrete_laplace(scale, int((size - filled) * 1.5) + 16, words)
        magnitude = np.abs(candidates)

        def exact(index: int, magnitude: Integers = magnitude) -> Fraction:
            return (int(magnitude[index]) - sigma2 / scale) ** 2 / (2 * sigma2)

        accepted = candidates[_below_exp((magnitude - centre) ** 2 / twice, exact, words)]
        taken = accepted[: size - filled]
        result[filled : filled + len(taken)] = taken
        filled += len(taken)
    return result


def _discrete_laplace(scale: int, size: int, words: Source) -> Integers:
    """Draw about ``size`` integers with P[x] ∝ exp(-|x|/scale) (algorithm 2; those rejected are left out)."""
    rest = _uniform_below(scale, int(size * 1.6) + 16, words)

    def share(index: int, rest: Integers = rest) -> Fraction:
        return Fraction(int(rest[index]), scale)

    rest = rest[_below_exp(rest / scale, share, words)]
    # How often exp(-1) comes true in a row: everyone who succeeded tries once more.
    whole = np.zeros(len(rest), np.int64)
    trying = np.arange(len(rest))
    while trying.size:
        trying = trying[_below_exp(np.ones(trying.size), lambda _: Fraction(1), words)]
        whole[trying] += 1
    magnitude = rest + scale * whole
    negative = (words(len(rest)) & np.uint64(1)).astype(bool)
    kept = ~(negative & (magnitude == 0))  # or zero would come twice as often
    signed: Integers = np.where(negative, -magnitude, magnitude)[kept]
    return signed


def _below_exp(gamma: Vector, exact: Callable[[int], Fraction], words: Source) -> NDArray[np.bool_]:
    """Decide with probability exp(-gamma) each; ``exact(index)`` gives the gamma that is meant."""
    drawn = words(len(gamma))
    distance = np.exp(-gamma) - drawn * 2.0**-64
    result: NDArray[np.bool_] = distance > 0
    for index in np.flatnonzero(np.abs(distance) < _MARGIN):
        result[index] = _decide(int(drawn[index]), exact(int(index)), words)
    return result


def _decide(drawn: int, gamma: Fraction, words: Source) -> bool:
    """Whether a uniform number that begins with these 64 bits is below exp(-gamma), beyond doubt."""
    bits = 64
    while True:
        with localcontext(prec=bits // 3 + 20) as context:
            # Decimal's exp is correctly rounded; dividing before it costs gamma units in the last place.
            value = (-Decimal(gamma.numerator) / gamma.denominator).exp()
            doubt = Decimal(10) ** -(context.prec - 10)
            if Decimal(drawn + 1) / 2**bits <= value - doubt:
                return True
            if Decimal(drawn) / 2**bits >= value + doubt:
                return False
        drawn, bits = (drawn << 64) | int(words(1)[0]), bits + 64


def _uniform_below(limit: int, size: int, words: Source) -> Integers:
    """Uniform integers from 0 to below the limit; words from the uneven end are left out, not folded."""
    drawn = words(size)
    uneven = (1 << 64) % limit
    if uneven:
        drawn = drawn[drawn < np.uint64((1 << 64) - uneven)]
    return (drawn % np.uint64(limit)).astype(np.int64)


# -- randomness and refusals --------------------------------------------------------------------------


def _source(rng: np.random.Generator | None) -> Source:
    if rng is None:
        return lambda count: expand(new_seed(), count)
    return lambda count: rng.integers(0, 1 << 64, count, dtype=np.uint64)


def _uniform(words: Words) -> Vector:
    """Numbers between 0 and 1, neither included."""
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _positive(name: str, value: Any) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} is {value}: it must be a number above 0")
    return float(value)


def _variance(value: Fraction | float) -> Fraction:
    _positive("variance", value)
    if not LEAST_VARIANCE <= value <= LARGEST_VARIANCE:
        raise ConfigError(
            f"variance is {float(value):g}, it goes from 2^-20 to 2^80: use another scale in fixed point"
        )
    return Fraction(value)
