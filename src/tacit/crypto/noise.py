"""Clipping, coins and noise for differential privacy.

Sums that are masked, shared or encrypted are sums of integers, so their noise is the discrete Gaussian
N_Z(0, σ²), P[x] ∝ exp(-x²/2σ²), of Canonne, Kamath and Steinke (2020): no rounding, so none of the attacks
on floating-point noise (Mironov 2012). Sums of floats are rounded to a fine grid first (``add_noise``).

It is drawn exactly, and by digits as Karney does ("Sampling exactly from the normal distribution", 2016). The
only random decisions are "uniform below s", "true with probability exp(-γ)", γ rational, and how many of
some chances a uniform number is below. The latter two compare in floating point and, where numbers are
closer than any rounding error could be, go on in decimals of rising precision with further random bits:
fast, and exact. Random words are AES-256-CTR under a fresh key of the operating system for every call; a
generator is for tests and repeatable experiments, because whoever knows its seed can take the noise away.
"""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate
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


def clip_l2(vector: Vector, bound: float) -> Vector:
    """Shorten a vector to a Euclidean length; shorter ones stay as they are."""
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
    """Return the length of a clipped vector scaled and rounded to integers, by up to a half each."""
    return _positive("bound", bound) * _positive("scale", scale) + math.sqrt(values) / 2


def flip_coins(probability: float, size: int, rng: np.random.Generator | None = None) -> NDArray[np.bool_]:
    """Return for each of ``size`` units whether it is drawn (Poisson sampling)."""
    # Words as numbers between 0 and 1, neither included.
    return ((_source(rng)(size) >> np.uint64(12)) + 0.5) * 2.0**-52 < probability


def add_noise(
    total: Vector, bound: float, multiplier: float, rng: np.random.Generator | None = None
) -> Vector:
    """Return a sum of clipped vectors on a grid, with discrete Gaussian noise.

    One summand of length ``bound`` more or less changes each of the d rounded values by up to one unit more
    than it should, and errors of floating point by less than another: Δ = bound/u + 2√d units. The grid is
    so fine, u ≤ bound / (4096 √d), that this is within 0.05 % of the bound. The noise's standard deviation is
    ``multiplier`` · Δ.
    """
    root = math.sqrt(max(1, len(total)))
    unit = 2.0 ** math.floor(math.log2(_positive("bound", bound) / (FINENESS * root)))
    deviation = _positive("multiplier", multiplier) * (bound / unit + 2 * root)
    whole: Vector = np.rint(total / unit)
    return (whole + discrete_gaussian(deviation**2, len(total), rng)) * unit


def discrete_gaussian(
    variance: Fraction | float, size: int, rng: np.random.Generator | None = None
) -> Integers:
    """Draw exactly from the discrete Gaussian.

    The variance σ², from 2^-20 to 2^80, is taken exactly as it is given (a float is a fraction too).

    With s = ⌊σ⌋ + 1, a magnitude is s·k + j. Of k ≥ 0, drawn with P[k] ∝ exp(-s²k²/2σ²), and a uniform j < s
    those pairs are kept that exp(-(2skj + j²)/2σ²) allows, about 7 in 10: their product is what is wanted.
    """
    _positive("variance", variance)
    if not LEAST_VARIANCE <= variance <= LARGEST_VARIANCE:
        raise ConfigError(
            f"variance is {float(variance):g}, it goes from 2^-20 to 2^80: use another scale in fixed point"
        )
    sigma2 = Fraction(variance)
    words = _source(rng)
    scale = math.isqrt(sigma2.numerator // sigma2.denominator) + 1
    rate = scale**2 / (2 * sigma2)
    result = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        rest = _uniform_below(scale, int((size - filled) * 1.45) + 16, words)
        whole = _draw_steps(rate, len(rest), words)
        share = rest / scale

        def exact(index: int, rest: Integers = rest, whole: Integers = whole) -> Fraction:
            j = int(rest[index])
            return (2 * scale * int(whole[index]) * j + j * j) / (2 * sigma2)

        magnitude = whole * scale + rest
        negative = (words(len(rest)) & np.uint64(1)).astype(bool)
        kept = _below_exp(float(rate) * (2 * whole + share) * share, exact, words)
        kept &= ~(negative & (magnitude == 0))  # or zero would come twice as often
        accepted = np.where(negative, -magnitude, magnitude)[kept]
        taken = accepted[: size - filled]
        result[filled : filled + len(taken)] = taken
        filled += len(taken)
    return result


def _draw_steps(rate: Fraction, size: int, words: Source) -> Integers:
    """Draw integers k ≥ 0 with P[k] ∝ exp(-rate·k²), by comparing a uniform number with P[≥ k]."""
    bounds = np.array([float(value) for value in _tails(rate, 30)])[::-1]
    drawn = words(size)
    uniform = drawn * 2.0**-64
    found: Integers = len(bounds) - np.searchsorted(bounds - _MARGIN, uniform, side="right")
    doubtful = found != len(bounds) - np.searchsorted(bounds + _MARGIN, uniform, side="right")
    for index in np.flatnonzero(doubtful):
        found[index] = _count_above(int(drawn[index]), partial(_tails, rate), words)
    return found


def _count_above(drawn: int, chances: Callable[[int], Sequence[Decimal]], words: Source) -> int:
    """Return how many of some chances, told to so many digits, a number that begins so is below."""
    bits = 64
    while True:
        digits = bits // 3 + 20
        with localcontext(prec=digits):
            found, doubt = chances(digits), Decimal(10) ** -(digits - 10)
            low, high = Decimal(drawn) / 2**bits, Decimal(drawn + 1) / 2**bits
            below = len([chance for chance in found if high <= chance - doubt])
            if below == len([chance for chance in found if low < chance + doubt]):
                return below
        drawn, bits = (drawn << 64) | int(words(1)[0]), bits + 64


@lru_cache(maxsize=64)
def _tails(rate: Fraction, digits: int) -> tuple[Decimal, ...]:
    """Return P[≥ k] of ``_draw_steps`` for k from 1 on, to so many digits, as far as they are not 0."""
    with localcontext(prec=digits):
        last = math.isqrt(int(digits * 2.31 / rate)) + 2
        power = -Decimal(rate.numerator) / rate.denominator
        weights = [(power * k * k).exp() for k in range(last + 1)]
        sums = list(accumulate(reversed(weights)))[::-1]
        return tuple(part / sums[0] for part in sums[1:])


def _below_exp(gamma: Vector, exact: Callable[[int], Fraction], words: Source) -> NDArray[np.bool_]:
    """Decide with probability exp(-gamma) each; ``exact(index)`` gives the gamma that is meant."""
    drawn = words(len(gamma))
    distance = np.exp(-gamma) - drawn * 2.0**-64
    result: NDArray[np.bool_] = distance > 0
    for index in np.flatnonzero(np.abs(distance) < _MARGIN):
        gamma_meant = partial(_exp, exact(int(index)))
        result[index] = _count_above(int(drawn[index]), gamma_meant, words)
    return result


def _exp(gamma: Fraction, digits: int) -> Sequence[Decimal]:
    with localcontext(prec=digits):
        # Decimal's exp is correctly rounded; dividing before it costs gamma units in the last place.
        return [(-Decimal(gamma.numerator) / gamma.denominator).exp()]


def _uniform_below(limit: int, size: int, words: Source) -> Integers:
    """Draw uniform integers from 0 to below the limit; words from the uneven end are left out, not folded."""
    drawn = words(size)
    if uneven := (1 << 64) % limit:
        drawn = drawn[drawn < np.uint64((1 << 64) - uneven)]
    return (drawn % np.uint64(limit)).astype(np.int64)


def _source(rng: np.random.Generator | None) -> Source:
    if rng is None:
        return lambda count: expand(new_seed(), count)
    return lambda count: rng.integers(0, 1 << 64, count, dtype=np.uint64)


def _positive(name: str, value: Any) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} is {value}: it must be a number above 0")
    return float(value)
