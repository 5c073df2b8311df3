"""How the values of a layout become the integers that a ciphertext holds, each in a slot.

Each value is divided by its bound and takes one slot, as a whole number of a unit; a value without a known
bound, or one that is needed more finely than that unit, is cut into digits that take several. An opened total
is exactly the sum of the integers that clients encrypted.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2, sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ProtectionError
from tacit.core.protection import Vector
from tacit.crypto.fixedpoint import FINE_BITS, DigitCuts, Integers
from tacit.crypto.seal.blob import Form


def largest_total(
    rounded: bool, digits: bool, reach: float, unit_bits: int, digit_bits: int, summands: int
) -> int:
    """Return the largest absolute total of a slot, with rounded values and digits or without."""
    # Where less than all bounds together is reached, rounding by each client may still add half a unit.
    values = ceil(reach * 2.0**unit_bits) + (summands // 2 + 1 if reach < summands else 0)
    return max(values if rounded else 0, summands << digit_bits if digits else 0)


@dataclass(frozen=True, eq=False)
class Slots:
    """How a layout's values become slots: by their bound, or as digits."""

    bounds: Vector
    cut: NDArray[np.bool_]  # bounded values that become digits, as those without a bound do
    reach: float  # the largest total of the others, in units of their bound
    unit: float  # to which the others are rounded, once divided by their bound: a power of two
    digit_bits: int
    summands: int  # how many vectors are summed, at most

    form: ClassVar[Form]  # of blobs, by the scheme that encrypts the slots
    product: ClassVar[Form]  # the same of totals that the coordinator has multiplied, if it can

    @cached_property
    def _cuts(self) -> DigitCuts:
        return DigitCuts(self.bounds, self.cut, self.digit_bits)

    @property
    def count(self) -> int:
        """Slots that a vector takes."""
        return self._cuts.ends[-1]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and outputs that blobs declare."""
        return self.count, 1

    @property
    def unit_bits(self) -> int:
        """Power of two of the unit."""
        return round(log2(self.unit))

    @property
    def largest_total(self) -> int:
        """The largest absolute value of a slot's total."""
        rounded, _, end = self._cuts.ends
        return largest_total(
            rounded > 0, end > rounded, self.reach, -self.unit_bits, self.digit_bits, self.summands
        )

    def error(self, contributions: int) -> float:
        """Return the typical error of a total, as a share of its values' bound: each client rounds."""
        return (self.unit if self._cuts.ends[0] else 2.0**-FINE_BITS) * sqrt(contributions / 12)

    def encode(self, vector: Vector) -> Integers:
        """Return the integers of a client's vector."""
        self._cuts.check(vector, "scale it, or declare a wider bound")
        bounds = self.bounds[self._cuts.narrow]
        shares = np.divide(vector[self._cuts.narrow], bounds, out=np.zeros(bounds.shape), where=bounds > 0)
        rounded = np.rint(np.ldexp(shares, -self.unit_bits)).astype(np.int64)
        return self._cuts.join(rounded, vector)

    def decode(self, integers: Integers) -> Vector:
        """Return the values of an opened total."""
        if integers.size != self.count:
            raise ProtectionError(
                f"total of {integers.size} slots does not belong to {self.bounds.size} values"
            )
        rounded, vector = self._cuts.split(integers)
        narrow = self._cuts.narrow
        vector[narrow] = np.ldexp(rounded.astype(np.float64), self.unit_bits) * self.bounds[narrow]
        return vector
