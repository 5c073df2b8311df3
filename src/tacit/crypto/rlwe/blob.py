"""The bytes of vectors encrypted by coefficients, how exact their sums are, and their addition without a key.

header, 44 bytes | b, 8 bytes a value | seed of a (32 bytes), or a itself (totals) | checksum, 16
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, MessageError, ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.ckks.blob import CHECKSUM_BYTES, KEY_ID_BYTES, checksum
from tacit.crypto.masking import SEED, expand

DEGREE = 4096
TOTAL_BITS = 62  # of the 64: a total uses no more, so that nonsense shows
NOISE_BITS = 21  # the difference of so many coins and so many others: variance 10.5
NOISE = math.sqrt(NOISE_BITS / 2)
CLEARANCE = 16.0  # rounding units are at least so many standard deviations of the noise
MOST_SUMMANDS = 1 << 24
MOST_VALUES = 1 << 27
_HEADER = struct.Struct("<4sB3x16sIIId")
_MAGIC = b"TCR1"

Words = NDArray[np.uint64]


def power(total: float) -> int:
    """Return the power of two by which values are multiplied, for totals of at most ``total``.

    >>> power(1.0), power(20_000.0)
    (62, 47)
    """
    if not 1e-100 < total < 1e100:
        raise ConfigError(f"totals of up to {total!r}: give the largest absolute value, above 0")
    return TOTAL_BITS - math.ceil(math.log2(total))


def noise_bits(summands: int) -> int:
    """Return how many of a total's lowest bits are noise, and rounded away."""
    if not 1 <= summands <= MOST_SUMMANDS:
        raise ConfigError(f"{summands:,} summands declared: from 1 to {MOST_SUMMANDS:,} are possible")
    return math.ceil(math.log2(CLEARANCE * NOISE * math.sqrt(summands)))


def check_values(values: NDArray[np.float64], bound: float) -> None:
    """Refuse values that are not finite or beyond their declared bound."""
    if not (largest := np.abs(values).max()) <= bound:  # or NaN
        raise MessageError(
            f"a value to encrypt is not finite or beyond the declared bound {bound:g}: clip it",
            private=f"the largest is {largest:g}",
        )


def rounding_unit(bound: float, summands: int) -> float:
    """Return the unit to which totals are rounded; a power of two.

    >>> rounding_unit(1.0, 20_000) < 1e-9
    True
    """
    own = math.ldexp(1.0, noise_bits(summands) - power(bound * summands))
    return max(own, math.ldexp(1.0, math.ceil(math.log2(bound * summands)) - 52))  # of float64


@dataclass(frozen=True, slots=True)
class Header:
    """What is known of an encrypted vector without its key.

    ``rows`` values are the sum of ``count`` out of at most ``summands`` vectors, which add up to at most
    ``bound * summands``. ``seeded``: a seed stands for a.
    """

    seeded: bool
    key_id: bytes
    rows: int
    count: int
    summands: int
    bound: float

    @property
    def outputs(self) -> int:
        """One column."""
        return 1

    @property
    def masks(self) -> int:
        """Coefficients of a."""
        return -(-self.rows // DEGREE) * DEGREE

    @property
    def length(self) -> int:
        """Bytes of the whole blob."""
        a = SEED if self.seeded else 8 * self.masks
        return _HEADER.size + 8 * self.rows + a + CHECKSUM_BYTES

    def write(self, b: Words, a: bytes) -> bytes:
        """Make a blob."""
        known = (self.seeded, self.key_id, self.rows, self.count, self.summands, self.bound)
        content = b"".join([_HEADER.pack(_MAGIC, *known), b.tobytes(), a])
        return content + checksum(content, _HEADER.size)


def read(key_id: bytes, blob: bytes, whole: bool = True) -> Header:
    """Check a blob, and return its header; ``whole``: its checksum, too.

    Raise MessageError if it is damaged, ProtectionError if it is something else or belongs to another key.
    """
    if not isinstance(blob, bytes) or len(blob) < _HEADER.size + CHECKSUM_BYTES:
        raise MessageError("an encrypted vector is shorter than its header: it is truncated")
    magic, seeded, owner, rows, count, summands, bound = _HEADER.unpack_from(blob)
    if magic != _MAGIC:
        raise ProtectionError("these bytes are no vector encrypted by coefficients, which is in use here")
    header = Header(bool(seeded), owner, rows, count, summands, bound)
    if seeded > 1 or not 0 < rows <= MOST_VALUES or len(blob) != header.length:
        raise MessageError(f"an encrypted vector of {rows:,} values has {len(blob):,} bytes: it is damaged")
    if whole and checksum(memoryview(blob)[:-CHECKSUM_BYTES], _HEADER.size) != blob[-CHECKSUM_BYTES:]:
        raise MessageError("an encrypted vector is damaged: its checksum is wrong")
    if owner != key_id:
        raise ProtectionError(f"a vector is encrypted under key {owner.hex()}, in use is {key_id.hex()}")
    if not (1 <= count <= summands <= MOST_SUMMANDS and 1e-100 < bound < 1e100) or (seeded and count > 1):
        raise MessageError("counts or bounds in the header of an encrypted vector contradict each other")
    return header


def key_of(blob: bytes) -> bytes:
    """Id of the key under which a blob says it is encrypted."""
    return blob[8 : 8 + KEY_ID_BYTES]


def words_of(header: Header, blob: bytes) -> tuple[Words, Words]:
    """Return b and a of a blob that was read."""
    b = np.frombuffer(blob, "<u8", header.rows, _HEADER.size)
    start = _HEADER.size + 8 * header.rows
    if header.seeded:
        return b, expand(Secret(blob[start : start + SEED]), header.masks, np.uint64)
    return b, np.frombuffer(blob, "<u8", header.masks, start)


class Adder:
    """Adds encrypted vectors as they come in, without any key; one that is refused changes nothing."""

    def __init__(self, key_id: bytes) -> None:
        self._key_id = key_id
        self._total: Header | None = None
        self._count = 0
        self._b = self._a = np.zeros(0, np.uint64)

    def add(self, blob: bytes) -> None:
        """Check a blob and add it."""
        header = read(self._key_id, blob)
        if (total := self._total) is None:
            total = header
            self._b, self._a = np.zeros(header.rows, np.uint64), np.zeros(header.masks, np.uint64)
        if (header.rows, header.summands, header.bound) != (total.rows, total.summands, total.bound):
            raise ProtectionError(
                "encrypted vectors differ in size, bound or declared summands: every client has to encrypt "
                f"alike (first {total.rows} of {total.summands}, now {header.rows} of {header.summands})"
            )
        if self._count + header.count > total.summands:
            raise ProtectionError(
                f"{self._count + header.count:,} encrypted vectors, but {total.summands:,} were declared at "
                "encryption: declare as many summands as there are clients"
            )
        b, a = words_of(header, blob)
        self._b += b
        self._a += a
        self._total = total
        self._count += header.count

    def total(self) -> bytes:
        """Return the encrypted total so far."""
        if self._total is None:
            raise ConfigError("nothing was added: an encrypted total needs at least one vector")
        total = replace(self._total, seeded=False, count=self._count)
        return total.write(self._b, self._a.tobytes())
