"""Packing: many signed integers in one big one, such that adding the big ones adds each of them.

A vector v becomes M = Σ vᵢ·2^(width·i), itself a signed integer: a negative slot borrows from the next.
Sums and integer multiples of such M stay of this form as long as every slot total Sᵢ is shorter than
its slot, that is, below 2^(width-1) in size. Then all digits of M + Σ 2^(width-1)·2^(width·i) are in range,
and each is Sᵢ + 2^(width-1): no summand needs an offset of its own and no count is needed to decode.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import ArrayLike, NDArray

from tacit.core.errors import ConfigError, ProtectionError

MARGIN = 2  # bits of the modulus left free: every packed total is below a half of it


@dataclass(frozen=True)
class Packing:
    """How values are laid side by side: bits for a value, and bits for the growth of its sum.

    Parameters
    ----------
    value_bits : int
        Values are signed, ``|v| < 2**(value_bits - 1)``; 2 to 64.
    guard_bits : int
        Up to ``2**guard_bits`` summands may be added; 0 to 63.

    Examples
    --------
    >>> packing = Packing(value_bits=24, guard_bits=16)
    >>> packing.width, packing.slots(2048), packing.max_summands
    (40, 51, 65536)
    >>> modulus = 2**2047 + 9
    >>> [one] = packing.pack([-5, 0, 8_388_607], 2048)
    >>> packing.unpack([3 * one % modulus], 3, modulus, summands=3)
    array([     -15,        0, 25165821])
    """

    value_bits: int = 24
    guard_bits: int = 16

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("value_bits", self.value_bits, 2, 64),
            ("guard_bits", self.guard_bits, 0, 63),
        ):
            if type(value) is not int or not least <= value <= most:
                raise ConfigError(f"{name} is {value!r}: it must be a whole number from {least} to {most}")

    @property
    def width(self) -> int:
        """Bits per slot."""
        return self.value_bits + self.guard_bits

    @property
    def largest(self) -> int:
        """Largest magnitude of a value."""
        return (1 << (self.value_bits - 1)) - 1

    @property
    def max_summands(self) -> int:
        """Largest number of summands that the guard bits have room for."""
        return 1 << self.guard_bits

    def slots(self, modulus_bits: int) -> int:
        """Return how many values one ciphertext holds."""
        return (modulus_bits - MARGIN) // self.width

    def check_summands(self, summands: int) -> int:
        """Return the number of summands, or refuse what the guard bits cannot hold."""
        if summands > self.max_summands:
            raise ProtectionError(
                f"{summands:,} summands (weights count) and {self.guard_bits} guard bits hold "
                f"{self.max_summands:,}: raise guard_bits, or use smaller weights"
            )
        return summands

    def pack(self, values: ArrayLike, modulus_bits: int) -> list[mpz]:
        """Pack a vector into signed integers; the last one is filled up with zeros."""
        half, slots = 1 << (self.width - 1), self.slots(modulus_bits)
        offset = self._offset(slots)
        digits = [value + half for value in self._checked(values).tolist()]
        digits += [half] * (-len(digits) % slots)
        starts = range(0, len(digits), slots)
        return [gmpy2.pack(digits[start : start + slots], self.width) - offset for start in starts]

    def unpack(self, totals: Sequence[int], count: int, modulus: int, summands: int) -> NDArray[Any]:
        """Return the exact slot totals of ``count`` values: int64, or Python integers if wider than 64 bits.

        A total larger than ``summands`` values can make it is refused: some summand was not in range, and
        may have spilled over into its neighbour.
        """
        slots = self.slots(int(modulus).bit_length())
        half, offset, sums = 1 << (self.width - 1), self._offset(slots), list[int]()
        for total in totals:
            digits = gmpy2.unpack((total + offset) % modulus, self.width)  # without zeros at their end
            sums += [int(digit) - half for digit in digits] + [-half] * (slots - len(digits))
        bound = self.largest * summands
        spilled = len(sums) > slots * len(totals) or any(sums[count:])
        if spilled or max(sums, default=0) > bound or min(sums, default=0) < -bound:
            raise ProtectionError(_SPILLED)
        return np.array(sums[:count], np.int64 if self.width <= 64 else object)

    def _checked(self, values: ArrayLike) -> NDArray[np.int64]:
        """Check that values are whole numbers of one axis and in range; the value refused stays private."""
        numbers = np.asarray(values)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise ConfigError(
                f"values are {numbers.dtype}{list(numbers.shape)}: pass whole numbers of one axis "
                "(scale and round floats first)"
            )
        if numbers.size:
            low, high = int(numbers.min()), int(numbers.max())
            if max(-low, high) > self.largest:
                raise ProtectionError(
                    f"a value exceeds ±{self.largest:,}, the largest of {self.value_bits} value bits: "
                    "clip it, or raise value_bits",
                    private=f"values reach from {low:,} to {high:,}",
                )
        return numbers.astype(np.int64)

    def _offset(self, slots: int) -> int:
        """Return Σ 2^(width-1)·2^(width·i), which makes every digit non-negative."""
        ones = ((1 << (slots * self.width)) - 1) // ((1 << self.width) - 1)
        return ones << (self.width - 1)


_SPILLED = (
    "a slot total is larger than its summands allow: a contribution was made with other "
    "settings or values out of range, and its neighbours cannot be trusted; drop it and sum again"
)
