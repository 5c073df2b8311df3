"""Fixed point: real vectors as signed integers that can be added exactly, and back.

A value with a known bound b becomes one integer, round(x · (2^(bits-1) - 1) / b). A value without one,
such as Σx² before anything is scaled, uses the *wide* encoding: sixty bits before and sixty after the
binary point, cut into digits of the same size, so that every slot of the vector looks alike to the
protection. A *fine* value has a bound but is needed to more digits than one slot holds: it is cut, too.
Guard bits for the number of summands are counted in, and totals are decoded as integers: a detour through
floats would be wrong beyond 2^53.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, DataError, OpeningError, TooLargeError
from tacit.core.layout import Layout

WIDE_FRACTION = 60
WIDE_BITS = 120
FINE_BITS = 52  # of a fine value, its sign not counted

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DigitCuts:
    """Which values of a vector become one integer each, and which are cut into digits.

    The integers of a vector are: one for each *narrow* value, then the digits of fine values (``fine``, of
    those with a bound), then the digits of *wide* ones, which have no bound.
    """

    bounds: Vector
    fine: NDArray[np.bool_]
    digit_bits: int

    @cached_property
    def narrow(self) -> NDArray[np.bool_] | slice:
        """Which values are neither fine nor wide."""
        found = np.isfinite(self.bounds) & ~self.fine
        # Mostly all values are of this kind; a slice then selects them without copying any.
        return slice(None) if found.all() else found

    @cached_property
    def wide(self) -> NDArray[np.bool_]:
        """Which values have no bound."""
        return ~np.isfinite(self.bounds)

    @cached_property
    def ends(self) -> tuple[int, int, int]:
        """Where the integers of narrow, fine and wide values end."""
        fine, wide = int(self.fine.sum()), int(self.wide.sum())
        narrow = len(self.bounds) - fine - wide
        digits = narrow + -(-FINE_BITS // self.digit_bits) * fine
        return narrow, digits, digits + -(-WIDE_BITS // self.digit_bits) * wide

    def check(self, vector: Vector, way_out: str) -> None:
        """Refuse values that are not finite, or beyond their bound."""
        if not np.isfinite(vector).all():
            raise DataError("NaN or infinite values cannot be encoded: look for them in the data")
        if (beyond := np.abs(vector) > self.bounds).any():
            first = int(np.argmax(beyond))
            raise DataError(
                f"value {first} of the vector exceeds its bound of {self.bounds[first]:g}: {way_out}",
                private=f"it is {vector[first]:g}",
            )

    def join(self, narrow: Integers, vector: Vector) -> Integers:
        """Return the integers of narrow values with the digits of all others."""
        if isinstance(self.narrow, slice):
            return narrow
        fine = fine_digits(vector[self.fine], self.bounds[self.fine], self.digit_bits)
        wide = wide_digits(vector[self.wide], self.digit_bits)
        return np.concatenate([narrow, fine.reshape(-1), wide.reshape(-1)])

    def split(self, totals: Integers) -> tuple[Integers, Vector]:
        """Return the totals of narrow values, and a vector in which only all others are filled in."""
        narrow, fine, wide = np.split(totals, self.ends[:2])
        values = np.empty(self.bounds.shape)
        if len(fine):
            bounds = self.bounds[self.fine]
            values[self.fine] = from_fine_digits(fine.reshape(-1, len(bounds)), bounds, self.digit_bits)
        if len(wide):
            values[self.wide] = from_wide_digits(wide.reshape(-1, int(self.wide.sum())), self.digit_bits)
        return narrow, values


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """How a vector becomes integers.

    Parameters
    ----------
    bounds : ndarray
        Largest absolute value of each entry; infinite where none is known.
    bits : int
        Bits of an integer, its sign included: 8 to 50, or fewer for whole numbers.
    summands : int
        How many vectors will be added at the most.
    clip : bool
        Cut values at their bound instead of refusing them.
    fine : ndarray of bool, optional
        Which of the bounded values are cut into digits.
    reach : float, optional
        Largest total in units of a value's bound, where that is known to be less than the summands.
    whole_numbers : bool
        Whether values stand for themselves (see :meth:`whole`).
    """

    bounds: Vector
    bits: int
    summands: int
    clip: bool = False
    fine: NDArray[np.bool_] | None = None
    reach: float | None = None
    whole_numbers: bool = False

    @classmethod
    @lru_cache(maxsize=8)  # clients of one process share layouts
    def of(
        cls, layout: Layout, bits: int, summands: int, clip: bool = False, *, tight: bool = False
    ) -> "FixedPoint":
        """Return the encoding of a layout's vectors; a ``tight`` one leaves no room beyond known totals."""
        fine = layout.fine if any(field.fine for field in layout.fields) else None
        # Digits of values that are cut add up like those of any others.
        tight = tight and fine is None and not layout.grows and bool(np.isfinite(layout.bounds).all())
        reach, top = layout.reach(summands), (1 << (bits - 1)) - 1
        if (layout.bounds != top).any():  # else whole numbers stand for themselves, and nothing is rounded
            reach = min(float(summands), reach + (summands / 2 + 1) / top)
        return cls(layout.bounds, bits, summands, clip, fine, reach if tight else None)

    @classmethod
    @lru_cache(maxsize=8)
    def whole(cls, layout: Layout, summands: int) -> "FixedPoint":
        """Return the encoding of whole numbers as themselves, with no bit more than their sum needs.

        >>> from tacit.core.layout import Field, Layout
        >>> code = FixedPoint.whole(Layout(Field("count", (2,), bound=5.0, whole=True)), 100)
        >>> code.encode(np.array([5.0, 3.0])).tolist(), code.bits + code.guard_bits
        ([5, 3], 10)
        """
        largest = layout.largest_whole
        assert largest is not None
        top = (1 << largest.bit_length()) - 1
        bounds = np.full(layout.size, float(top))
        reach = (summands * largest + 1) / (top + 1)  # a sum of 2^k does not fit k bits and a sign
        return cls(bounds, largest.bit_length() + 1, summands, reach=reach, whole_numbers=True)

    def __post_init__(self) -> None:
        if not (2 if self.whole_numbers else 8) <= self.bits <= 50:
            raise ConfigError(f"bits is {self.bits}: fixed point works with 8 to 50 bits a value")
        if self.summands < 1:
            raise ConfigError(f"summands is {self.summands}: at least one vector is summed")
        if self.bits + self.guard_bits > 63:
            raise ConfigError(
                f"{self.bits} bits a value and {self.guard_bits} guard bits for {self.summands:,} summands "
                f"exceed 63: use at most {63 - self.guard_bits} bits"
            )

    @property
    def guard_bits(self) -> int:
        """Bits that the sum may grow by."""
        return (ceil(self.summands if self.reach is None else self.reach) - 1).bit_length()

    @cached_property
    def _cuts(self) -> DigitCuts:
        fine = np.zeros(self.bounds.shape, bool) if self.fine is None else self.fine
        return DigitCuts(self.bounds, fine & np.isfinite(self.bounds), self.bits - 1)

    @cached_property
    def _scale(self) -> Vector:
        bound = self.bounds[self._cuts.narrow]
        top = float((1 << (self.bits - 1)) - 1)
        return np.divide(top, bound, out=np.zeros_like(bound), where=bound > 0)

    @property
    def slots(self) -> int:
        """Integers that a vector takes."""
        return self._cuts.ends[-1]

    def encode(self, vector: Vector) -> Integers:
        """Turn a vector into integers; refuse (or clip) what exceeds its bound."""
        if vector.shape != self.bounds.shape:
            raise DataError(f"vector of {vector.size} values, agreed were {self.bounds.size}")
        if self.clip and np.isfinite(vector).all():
            vector = np.clip(vector, -self.bounds, self.bounds)
        self._cuts.check(vector, "scale it, declare a wider bound, or set clip")
        narrow = np.rint(vector[self._cuts.narrow] * self._scale).astype(np.int64)
        return self._cuts.join(narrow, vector)

    def decode(self, totals: Integers) -> Vector:
        """Turn added integers back into real values."""
        if totals.shape != (self.slots,):
            raise DataError(f"total of {totals.size} integers, the encoding has {self.slots}")
        self._check_range(totals)
        narrow, values = self._cuts.split(totals)
        values[self._cuts.narrow] = np.divide(
            narrow, self._scale, out=np.zeros(len(narrow)), where=self._scale > 0
        )
        return values

    def _check_range(self, totals: Integers) -> None:
        most = self.summands << (self.bits - 1)
        largest = max(-int(totals.min()), int(totals.max())) if totals.size else 0
        if largest > most:
            raise OpeningError(
                f"a total that {self.summands} contributions within their bounds cannot have: one broke its "
                "bound, or the total was changed on the way",
                private=f"{largest / most:.3g} times as large as it may be",
            )


def fine_digits(values: Vector, bounds: Vector, digit_bits: int) -> Integers:
    """Cut bounded values into signed digits of ``digit_bits`` bits, the lowest first; (digits, values).

    >>> digits = fine_digits(np.array([-0.3, 1.0]), np.array([1.0, 2.0]), 23)
    >>> digits.shape, from_fine_digits(digits, np.array([1.0, 2.0]), 23).round(14).tolist()
    ((3, 2), [-0.3, 1.0])
    """
    shares = np.divide(values, bounds, out=np.zeros(values.shape), where=bounds > 0)
    # A bit less than all, so that a value at its bound does not need one more digit.
    whole = np.rint(np.ldexp(np.abs(shares), FINE_BITS)).astype(np.int64)
    np.minimum(whole, (1 << FINE_BITS) - 1, out=whole)
    count = -(-FINE_BITS // digit_bits)
    digits = np.stack([(whole >> (digit_bits * place)) & ((1 << digit_bits) - 1) for place in range(count)])
    return np.where(shares < 0, -digits, digits)


def from_fine_digits(digits: NDArray[Any], bounds: Vector, digit_bits: int) -> Vector:
    """Join (added) digits to values: each digit's total is exact in floating point, only their sum rounds."""
    shares = np.zeros(digits.shape[1])
    for place, row in enumerate(digits):
        shares += np.ldexp(row.astype(np.float64), digit_bits * place - FINE_BITS)
    return np.asarray(shares * bounds)


def wide_digits(values: Vector, digit_bits: int) -> Integers:
    """Cut values into signed digits of ``digit_bits`` bits, the lowest first; shape (digits, values)."""
    rest = np.ldexp(np.abs(values), WIDE_FRACTION)
    if (rest >= 2.0**WIDE_BITS).any():
        raise TooLargeError(
            f"a value without a known bound exceeds 2^{WIDE_BITS - WIDE_FRACTION}: give it in millions, say",
            private=f"it is {np.abs(values).max():g}",
        )
    count = -(-WIDE_BITS // digit_bits)
    digits = np.empty((count, len(values)), dtype=np.int64)
    for place in range(count - 1, 0, -1):
        # Dividing by a power of two and taking the top bits away are both exact in floating point.
        digit = np.floor(np.ldexp(rest, -digit_bits * place))
        rest = rest - np.ldexp(digit, digit_bits * place)
        digits[place] = digit
    digits[0] = np.rint(rest)
    return np.where(values < 0, -digits, digits)


def from_wide_digits(digits: NDArray[Any], digit_bits: int) -> Vector:
    """Join (added) digits to values, exactly rounded."""
    places = digit_bits * np.arange(len(digits))[:, None] - WIDE_FRACTION
    # A digit's total is a whole number below 2⁵³, or it is cut in two that are: fsum then loses nothing.
    whole = digits.astype(np.int64)
    low = whole & ((1 << 32) - 1)
    terms = np.ldexp(np.concatenate([whole - low, low]).astype(np.float64), np.concatenate([places, places]))
    return np.array([fsum(column) for column in terms.T.tolist()])
