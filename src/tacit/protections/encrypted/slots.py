"""How the values of a layout become the integers that a ciphertext holds, each in a slot.

Each value is divided by its bound and takes one slot, as a whole number of a unit; a value without a known
bound, or one that is needed more finely than that unit, is cut into digits that take several. An opened total
is exactly the sum of the integers that clients encrypted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError, ProtectionError
from tacit.core.protection import Vector
from tacit.crypto.fixedpoint import (
    FINE_BITS,
    WIDE_BITS,
    Integers,
    fine_digits,
    from_fine_digits,
    from_wide_digits,
    wide_digits,
)


def largest_total(
    rounded: bool, digits: bool, reach: float, unit_bits: int, digit_bits: int, summands: int
) -> int:
    """Return the largest absolute total of a slot, with rounded values and digits or without."""
    # Where less than all bounds together is reached, rounding by each client may still add half a unit.
    values = ceil(reach * 2.0**unit_bits) + (summands // 2 + 1 if reach < summands else 0)
    return max(values if rounded else 0, summands << digit_bits if digits else 0)


@dataclass(frozen=True, eq=False)
class Slots:
    """How a layout's values become slots: by their bound, or as digits.

    ``cut`` are the bounded values that become digits of ``digit_bits``, as those without a bound do. The
    others are divided by their bound and rounded to ``unit``, a power of two; their totals are ``reach`` at
    most.
    ``summands``: how many vectors are summed, at most.
    """

    bounds: Vector
    cut: NDArray[np.bool_]
    reach: float
    unit: float
    digit_bits: int
    summands: int

    @cached_property
    def _groups(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        known = np.isfinite(self.bounds)
        return known & ~self.cut, ~known

    @cached_property
    def _cuts(self) -> list[int]:
        """Where the slots of rounded, of cut and of unbounded values end."""
        narrow, wide = (int(group.sum()) for group in self._groups)
        fine = -(-FINE_BITS // self.digit_bits) * int(self.cut.sum())
        return [narrow, narrow + fine, narrow + fine + -(-WIDE_BITS // self.digit_bits) * wide]

    @property
    def count(self) -> int:
        """Slots that a vector takes."""
        return self._cuts[-1]

    @property
    def unit_bits(self) -> int:
        """Power of two of the unit."""
        return round(log2(self.unit))

    @property
    def largest_total(self) -> int:
        """The largest absolute value of a slot's total."""
        rounded, _, end = self._cuts
        return largest_total(
            rounded > 0, end > rounded, self.reach, -self.unit_bits, self.digit_bits, self.summands
        )

    def error(self, contributions: int) -> float:
        """Return the typical error of a total, as a share of its values' bound: each client rounds."""
        return (self.unit if self._cuts[0] else 2.0**-FINE_BITS) * sqrt(contributions / 12)

    def encode(self, vector: Vector) -> Integers:
        """Return the integers of a client's vector."""
        if not np.isfinite(vector).all():
            raise DataError("NaN or infinite values cannot be encrypted: look for them in the data")
        if (beyond := np.abs(vector) > self.bounds).any():
            first = int(np.argmax(beyond))
            raise DataError(
                f"value {first} of the vector exceeds its bound of {self.bounds[first]:g}: scale it, or "
                "declare a wider bound",
                private=f"it is {vector[first]:g}",
            )
        narrow, wide = self._groups
        bounds = self.bounds[narrow]
        shares = np.divide(vector[narrow], bounds, out=np.zeros(bounds.shape), where=bounds > 0)
        rounded = np.rint(np.ldexp(shares, -self.unit_bits)).astype(np.int64)
        if narrow.all():
            return rounded
        digits = [
            fine_digits(vector[self.cut], self.bounds[self.cut], self.digit_bits).reshape(-1),
            wide_digits(vector[wide], self.digit_bits).reshape(-1),
        ]
        return np.concatenate([rounded, *digits])

    def decode(self, integers: Integers) -> Vector:
        """Return the values of an opened total."""
        if integers.size != self.count:
            raise ProtectionError(
                f"total of {integers.size} slots does not belong to {self.bounds.size} values"
            )
        narrow, wide = self._groups
        vector = np.empty(self.bounds.shape)
        small, fine, large = np.split(integers, self._cuts[:2])
        vector[narrow] = np.ldexp(small.astype(np.float64), self.unit_bits) * self.bounds[narrow]
        if len(fine):
            bounds = self.bounds[self.cut]
            vector[self.cut] = from_fine_digits(fine.reshape(-1, len(bounds)), bounds, self.digit_bits)
        if len(large):
            vector[wide] = from_wide_digits(large.reshape(-1, int(wide.sum())), self.digit_bits)
        return vector
