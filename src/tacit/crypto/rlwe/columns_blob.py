"""The bytes of encrypted columns and of their products, and how exact these are.

header, 56 bytes | columns: b, 12 bytes a coefficient, then the seed of a or a itself
                 | product: b, 6 bytes an entry, then a, 6 bytes a coefficient   | checksum, 16
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import numpy as np

from tacit.core.errors import MessageError, ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.ckks.blob import CHECKSUM_BYTES, checksum
from tacit.crypto.masking import SEED, expand
from tacit.crypto.rlwe.blob import CLEARANCE, DEGREE, MOST_SUMMANDS, NOISE
from tacit.crypto.rlwe.limbs import WORDS, Integers, Words

VALUE_BITS, MATRIX_BITS = 50, 44  # of totals, and of the absolute values of a row of the matrix together
KEPT_BITS = 48  # of a product's 96
SWITCHED = math.sqrt((1 + 2 * DEGREE / 3) / 12)  # noise of rounding b and a to fewer bits
KINDS = ("columns", "product")
HEADER = struct.Struct("<4sBBH16sIIIIdd")
_MAGIC = b"TCP1"


def together(rows: int, outputs: int) -> int:
    """Return how many rows of the matrix one polynomial holds.

    >>> together(65, 10), together(500, 10)
    (6, 0)
    """
    return DEGREE // (rows * outputs)


def pieces(rows: int, outputs: int, matrices: int) -> int | None:
    """Count the polynomials of a product with so many matrices; None if the columns do not fit into one.

    >>> pieces(65, 10, 1), pieces(65, 10, 10), pieces(500, 10, 1)
    (11, 110, None)
    """
    held = together(rows, outputs)
    return matrices * -(-rows // held) if held else None


@dataclass(frozen=True, slots=True)
class Header:
    """What is known of encrypted columns without their key.

    ``rows × outputs`` values are the sum of ``count`` out of at most ``summands`` matrices, which add up to
    at most ``bound * summands``. ``factor``: what the rows of a product's matrices added up to; 0 before.
    """

    kind: str
    seeded: bool
    matrices: int
    key_id: bytes
    rows: int
    outputs: int
    count: int
    summands: int
    bound: float
    factor: float

    @property
    def length(self) -> int:
        """Bytes of the whole blob."""
        if self.kind == "product":
            polynomials = pieces(self.rows, self.outputs, self.matrices) or 0
            body = KEPT_BITS // 8 * (self.rows * self.outputs + polynomials * DEGREE)
        else:
            body = 4 * WORDS * DEGREE + (SEED if self.seeded else 4 * WORDS * DEGREE)
        return HEADER.size + body + CHECKSUM_BYTES

    @property
    def power(self) -> int:
        """Power of two by which columns are multiplied."""
        return VALUE_BITS - math.ceil(math.log2(self.bound * self.summands))

    @property
    def scale(self) -> float:
        """What an opened integer is worth."""
        if self.kind == "columns":
            return math.ldexp(1.0, -self.power)
        return math.ldexp(self.factor, KEPT_BITS - MATRIX_BITS - self.power)

    @property
    def noise_bits(self) -> int:
        """Lowest bits of an opened integer that are noise, and rounded away."""
        fresh = NOISE * math.sqrt(self.summands)
        if self.kind == "product":
            held = together(self.rows, self.outputs)
            carried = math.ldexp(fresh * math.sqrt(held), MATRIX_BITS - KEPT_BITS)
            digits = math.ldexp(math.sqrt(self.rows / 12), VALUE_BITS - KEPT_BITS)
            fresh = math.hypot(carried, SWITCHED, digits)
        return math.ceil(math.log2(CLEARANCE * fresh))

    @property
    def unit(self) -> float:
        """Rounding unit of what is opened; its error is at most one."""
        return math.ldexp(self.scale, self.noise_bits)

    def write(self, *pieces: bytes) -> bytes:
        """Make a blob."""
        known = (KINDS.index(self.kind), self.seeded, self.matrices, self.key_id, self.rows, self.outputs)
        fixed = HEADER.pack(_MAGIC, *known, self.count, self.summands, self.bound, self.factor)
        content = b"".join([fixed, *pieces])
        return content + checksum(content, HEADER.size)


def read(key_id: bytes, blob: bytes, *kinds: str, whole: bool = True) -> Header:
    """Check a blob, and return its header; ``whole``: its checksum, too.

    Raise MessageError if it is damaged, ProtectionError if it belongs to another key or is of another kind.
    """
    if not isinstance(blob, bytes) or len(blob) < HEADER.size + CHECKSUM_BYTES:
        raise MessageError("encrypted columns are shorter than their header: they are truncated")
    magic, kind, seeded, matrices, owner, rows, outputs, count, summands, bound, factor = HEADER.unpack_from(
        blob
    )
    if magic != _MAGIC:
        raise ProtectionError("these bytes are no columns encrypted by coefficients, which are in use here")
    if kind >= len(KINDS) or seeded > 1 or not (rows and outputs and together(rows, outputs) and matrices):
        raise MessageError(f"encrypted columns of {rows:,} × {outputs:,} values: they are damaged")
    header = Header(KINDS[kind], bool(seeded), matrices, owner, rows, outputs, count, summands, bound, factor)
    if len(blob) != header.length:
        raise MessageError(f"encrypted columns of {rows:,} × {outputs:,} values have {len(blob):,} bytes")
    if whole and checksum(memoryview(blob)[:-CHECKSUM_BYTES], HEADER.size) != blob[-CHECKSUM_BYTES:]:
        raise MessageError("encrypted columns are damaged: their checksum is wrong")
    if owner != key_id:
        raise ProtectionError(f"columns are encrypted under key {owner.hex()}, in use is {key_id.hex()}")
    if header.kind not in kinds:
        raise ProtectionError(f"a blob of kind {header.kind}, expected was {' or '.join(kinds)}")
    known = 1 <= count <= summands <= MOST_SUMMANDS and 1e-100 < bound < 1e100 and outputs % matrices == 0
    product = header.kind == "product" and not seeded and 1e-100 < factor < 1e100
    if not (known and (product or (factor == 0 and matrices == 1)) and not (seeded and count > 1)):
        raise MessageError("counts or bounds in the header of encrypted columns contradict each other")
    return header


def key_of(blob: bytes) -> bytes:
    """Return the id of the key that a blob names, whichever that is."""
    return bytes(HEADER.unpack_from(blob)[4]) if len(blob) >= HEADER.size else b""


def mask(seed: bytes) -> Words:
    """Expand a seed into the polynomial a that it stands for."""
    return expand(Secret(seed), WORDS * DEGREE, np.uint32).reshape(WORDS, DEGREE)


def polynomials(header: Header, blob: bytes) -> tuple[Words, Words]:
    """Return b and a of columns, as words."""
    size = 4 * WORDS * DEGREE
    b = np.frombuffer(blob, "<u4", WORDS * DEGREE, HEADER.size).reshape(WORDS, DEGREE)
    start = HEADER.size + size
    if header.seeded:
        return b, mask(blob[start : start + SEED])
    return b, np.frombuffer(blob, "<u4", WORDS * DEGREE, start).reshape(WORDS, DEGREE)


def kept(header: Header, blob: bytes) -> tuple[Integers, Integers]:
    """Return b (one value for each entry) and a (piece × DEGREE) of a product."""
    wire = np.frombuffer(blob, np.uint8, len(blob) - HEADER.size - CHECKSUM_BYTES, HEADER.size)
    room = np.zeros((len(wire) // 6, 8), np.uint8)
    room[:, :6] = wire.reshape(-1, 6)
    values = room.view("<i8").reshape(-1)
    entries = header.rows * header.outputs
    return values[:entries], values[entries:].reshape(-1, DEGREE)


def packed(values: Integers) -> bytes:
    """Write values as their lowest six bytes each."""
    return values.astype("<i8").reshape(-1, 1).view(np.uint8)[:, : KEPT_BITS // 8].tobytes()
