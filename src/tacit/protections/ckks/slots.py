"""How the values of a layout become slots of CKKS ciphertexts.

Each value is divided by its bound and takes one slot; a value without a known bound, or one that is needed
more finely than one slot is at so many clients, is cut into digits that take several. Slots are whole numbers
of the unit to which totals are rounded: a decrypted total is then exactly the sum of what clients encrypted,
as long as its noise is below half a unit, which is at least 8 of its standard deviations.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log2

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError, ProtectionError
from tacit.core.layout import Layout
from tacit.core.protection import FINE, Vector
from tacit.crypto.fixedpoint import (
    FINE_BITS,
    WIDE_BITS,
    Integers,
    fine_digits,
    from_fine_digits,
    from_wide_digits,
    wide_digits,
)
from tacit.protections.ckks.schemes import Scheme


@dataclass(frozen=True, eq=False)
class Slots:
    """How a layout's values become slots in [-1, 1]: by their bound, or as digits.

    ``reach`` is the largest total of a slot, ``unit`` what slots and totals are rounded to, a power of two.
    """

    bounds: Vector
    fine: NDArray[np.bool_]
    reach: float
    unit: float
    digit_bits: int

    @classmethod
    def of(cls, layout: Layout, summands: int, used: Scheme) -> Slots:
        """Choose digits only for what one slot cannot hold."""
        bounds = layout.bounds
        digit_bits = min(24, floor(-log2(used.rounding_unit(1.0, summands))) - 4)
        reach = layout.reach(summands) if np.isfinite(bounds).all() else float(summands)
        unit = used.rounding_unit(reach / summands, summands)
        fine = layout.fine & (unit > FINE)
        if fine.any():  # digits add up like any other values
            reach = float(summands)
        return cls(bounds, fine, reach, used.rounding_unit(reach / summands, summands), digit_bits)

    @property
    def _groups(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        known = np.isfinite(self.bounds)
        return known & ~self.fine, ~known

    @property
    def _cuts(self) -> list[int]:
        """Where narrow, fine and wide slots end."""
        narrow, wide = (int(group.sum()) for group in self._groups)
        fine = -(-FINE_BITS // self.digit_bits) * int(self.fine.sum())
        return [narrow, narrow + fine, narrow + fine + -(-WIDE_BITS // self.digit_bits) * wide]

    @property
    def count(self) -> int:
        """Slots that a vector takes."""
        return self._cuts[-1]

    @property
    def unit_bits(self) -> int:
        """The power of two that the unit is."""
        return round(log2(self.unit))

    def to_values(self, integers: Integers) -> Vector:
        """Return slots as they are encrypted, from whole numbers of units."""
        return np.ldexp(integers.astype(np.float64), self.unit_bits)

    def to_integers(self, slots: Vector) -> Integers:
        """Return slots in units; no total has more than 2^52 of them."""
        return np.rint(np.ldexp(slots, -self.unit_bits)).astype(np.int64)

    def encode(self, vector: Vector) -> Integers:
        """Return slots of a client's vector, in units."""
        if not np.isfinite(vector).all():
            raise DataError("NaN or infinite values cannot be encrypted: look for them in the data")
        narrow, wide = self._groups
        bounds = self.bounds[narrow]
        slots = np.divide(vector[narrow], bounds, out=np.zeros(bounds.shape), where=bounds > 0)
        if narrow.all():
            return self.to_integers(slots)
        digits = [
            fine_digits(vector[self.fine], self.bounds[self.fine], self.digit_bits).reshape(-1),
            wide_digits(vector[wide], self.digit_bits).reshape(-1),
        ]
        # A digit is a whole number of units: they are finer than its lowest bit.
        whole = np.concatenate(digits).astype(np.int64) << (-self.unit_bits - self.digit_bits)
        return np.concatenate([self.to_integers(slots), whole])

    def decode(self, integers: Integers) -> Vector:
        """Return the values of an opened total."""
        if integers.size != self.count:
            raise ProtectionError(
                f"total of {integers.size} slots does not belong to {self.bounds.size} values"
            )
        narrow, wide = self._groups
        slots = self.to_values(integers)
        vector = np.empty(self.bounds.shape)
        small, fine, large = np.split(slots, self._cuts[:2])
        vector[narrow] = small * self.bounds[narrow]
        if len(fine):
            bounds = self.bounds[self.fine]
            vector[self.fine] = from_fine_digits(self._whole(fine, len(bounds)), bounds, self.digit_bits)
        if len(large):
            vector[wide] = from_wide_digits(self._whole(large, int(wide.sum())), self.digit_bits)
        return vector

    def _whole(self, slots: Vector, values: int) -> NDArray[np.int64]:
        return np.rint(np.ldexp(slots, self.digit_bits)).astype(np.int64).reshape(-1, values)
