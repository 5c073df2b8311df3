"""BFV sums: clients hold the key, the coordinator adds and sees no total (:mod:`tacit.crypto.bfv`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, log2, prod, sqrt
from typing import ClassVar

import numpy as np

from tacit.core.errors import ConfigError
from tacit.core.layout import Layout
from tacit.core.promises import Promises
from tacit.core.protection import FINE
from tacit.crypto.bfv import INTEGERS, Cipher, Parameters, ring_of
from tacit.crypto.fixedpoint import FINE_BITS, WIDE_BITS, Integers
from tacit.crypto.seal.adder import Adder
from tacit.crypto.seal.blob import Header, set_of
from tacit.crypto.seal.residues import Residues
from tacit.crypto.seal.ring import Ring
from tacit.protections.encrypted import Encrypted
from tacit.protections.encrypted.slots import Slots, largest_total

BITS = range(8, 51)
DIGIT_BITS = range(8, 31)
FINE_UNIT_BITS = round(-np.log2(FINE)) + 2  # Gram matrices of real tables need a little more than promised


@dataclass(frozen=True)
class BFV(Encrypted):
    """BFV ciphertexts, by SEAL, added by a coordinator that holds no key; exact totals open at the clients.

    Parameters
    ----------
    bits : int
        Bits of a value in fixed point, its sign included: 8 to 50. A value takes some 5 bytes at 32 bits and
        8 clients, 7 at 100 clients, 9 at 20,000.
    """

    name = "bfv"
    cipher: ClassVar[type[Cipher]] = Cipher

    bits: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits not in BITS:
            raise ConfigError(f"bits is {self.bits}: fixed point works with 8 to 50 bits a value")

    def slots(self, layout: Layout, summands: int) -> "ExactSlots":
        return _slots(layout, summands, self.bits)

    def adder(self, key_id: bytes, blob: bytes) -> Adder:
        return Adder(ring_of(Parameters.named(set_of(blob))), key_id, INTEGERS)

    @cached_property
    def promises(self) -> Promises:
        size = Parameters.holding(1 << 20, _plain_bits(100 << (self.bits - 1)), 100)
        return self.promised(2.0 ** (1 - self.bits), size.bytes_per_value + 0.1)


@dataclass(frozen=True, eq=False)
class ExactSlots(Slots):
    """Slots in the coefficients of BFV, in a ring as small as their totals allow."""

    form = product = INTEGERS
    bound: ClassVar[float] = 1.0  # that blobs declare: none, since the ring itself says it

    @cached_property
    def parameters(self) -> Parameters:
        """The ring that has room for the totals."""
        return Parameters.holding(self.count, _plain_bits(self.largest_total), self.summands)

    @property
    def ring(self) -> Ring:
        """SEAL's context of it."""
        return ring_of(self.parameters)

    def encrypt(self, cipher: Cipher, integers: Integers) -> bytes:
        """Encrypt the integers of a vector."""
        return cipher.encrypt(integers, self.parameters, self.summands)

    def decrypt(self, cipher: Cipher, header: Header, residues: Mapping[int, Residues]) -> Integers:
        """Decrypt the residues of a total that was read and checked."""
        return cipher.open(header, residues, self.parameters)


# Clients of one process share layouts: what follows from one is found once for all of them.
@lru_cache(maxsize=8)
def _slots(layout: Layout, summands: int, bits: int) -> ExactSlots:
    # Coefficients wrap around, so that a total without room for it could not be told from a small one.
    counts, reach = [0, 0, 0], float(summands) if layout.grows else layout.reach(summands)
    for each in layout.fields:
        counts[2 if each.bound is None else int(each.fine)] += prod(each.shape or ())
    cuts_fine, cuts_all, unit_bits, digit_bits = _choose(tuple(counts), reach, summands, bits)
    cut = np.isfinite(layout.bounds) if cuts_all else layout.fine & cuts_fine
    return ExactSlots(layout.bounds, cut, reach, 2.0**-unit_bits, digit_bits, summands)


def _plain_bits(largest: int) -> int:
    return 1 + largest.bit_length()


@lru_cache(maxsize=64)
def _choose(counts: tuple[int, ...], reach: float, summands: int, bits: int) -> tuple[bool, bool, int, int]:
    """Choose what is cut into digits, by numbers of ordinary, fine and unbounded values.

    Return whether fine values are cut, and all bounded ones, the bits of the unit, and those of a digit. A
    fine value takes one slot of a wide ring or several of a small one, whichever takes less: work grows with
    the coefficients of all ciphertexts, each of which costs about as much as sending two bytes.
    """
    ordinary, fine, unbounded = counts
    found, refusal = [], None
    for cuts_fine, cuts_all in ((False, False), (True, False), (True, True)):
        cut = (ordinary if cuts_all else 0) + (fine if cuts_fine else 0)
        rounded = ordinary + fine - cut
        finest = fine and not cuts_fine
        # Each client rounds: together they lose half of the bits of their number.
        finer = max(FINE_UNIT_BITS, ceil(log2(sqrt(summands / 12) / FINE)))
        unit_bits = max(bits - 1, finer) if finest else bits - 1
        for digit_bits in DIGIT_BITS if cut or unbounded else DIGIT_BITS[-1:]:
            count = rounded + -(-FINE_BITS // digit_bits) * cut + -(-WIDE_BITS // digit_bits) * unbounded
            largest = largest_total(rounded > 0, count > rounded, reach, unit_bits, digit_bits, summands)
            try:
                ring = Parameters.holding(count, _plain_bits(largest), summands)
            except ConfigError as error:
                refusal = refusal or error
                continue
            work = ring.chunks(count) * ring.degree * ring.prime_count
            cost = 2 * work + count * ring.bytes_per_value
            spare = ring.room_bits(summands) if finest and count == rounded else 0  # costs nothing
            found.append((cost, (cuts_fine, cuts_all, min(unit_bits + spare, FINE_BITS), digit_bits)))
    if not found:
        assert refusal is not None
        raise refusal
    return min(found)[1]
