"""Encrypted columns that add up, and can be multiplied once by a matrix, without the key.

A matrix M (features × outputs) becomes one polynomial: entry (j, o) is the coefficient of X^(oR + j), with R
features. Multiplied by the polynomial of a row a of the matrix A, Σ_j a_j X^(R-1-j), the coefficient of
X^(oR + R - 1) is Σ_j a_j M_jo: an entry of A M. A row's own products fill R·outputs coefficients, so that as
many rows as fit side by side are multiplied at once, and the other coefficients hold nothing of use. The
ciphertext is that of :mod:`tacit.crypto.rlwe` with a wider modulus,

    (b, a)   with   b = m + e - a·s   modulo 2⁹⁶,

which leaves room for 50 bits of M and 44 of A. A product is rounded to its upper 48 bits: that halves it,
and drowns what its noise tells of A. Only those coefficients of b travel that hold an entry of A M: nobody,
with the key or without, can open the others.

Against slots, which rotate what they multiply, this takes no rotation keys and a few milliseconds; against
that stands one polynomial a for every few rows, so it is meant for small matrices (:func:`pieces`).

**Security**: as in :mod:`tacit.crypto.rlwe`. At degree 4096 the Homomorphic Encryption Standard allows a
modulus of 109 bits for 128-bit security; this one has 96. Key holders who also know all that was
added up can tell A from the product, as under any scheme that does not hide the circuit.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.errors import ConfigError, MessageError, ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.ckks.blob import CHECKSUM_BYTES, KEY_ID_BYTES, checksum
from tacit.crypto.masking import SEED, expand
from tacit.crypto.rlwe.blob import CLEARANCE, DEGREE, MOST_SUMMANDS, NOISE
from tacit.crypto.rlwe.ring import Transformed, back, noise, secret_polynomial, transform

VALUE_BITS, MATRIX_BITS = 50, 44  # of totals, and of the absolute values of a row of the matrix together
LIMB, DIGIT = 24, 12  # bits of a ciphertext's limbs (four), and of a matrix's digits (four)
KEPT_BITS = 48  # of a product's 96
WORDS = 3  # of 32 bits, of a coefficient
SWITCHED = math.sqrt((1 + 2 * DEGREE / 3) / 12)  # noise of rounding b and a to fewer bits
KINDS = ("columns", "product")
_HEADER = struct.Struct("<4sBBH16sIIIIdd")
_MAGIC = b"TCP1"
_LOW = np.int64((1 << LIMB) - 1)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Words = NDArray[np.uint32]


def together(rows: int, outputs: int) -> int:
    """Rows of the matrix that one polynomial holds.

    >>> together(65, 10), together(500, 10)
    (6, 0)
    """
    return DEGREE // (rows * outputs)


def pieces(rows: int, outputs: int, matrices: int) -> int | None:
    """Polynomials of a product with so many matrices; None if the columns do not fit into one.

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
        return _HEADER.size + body + CHECKSUM_BYTES

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
        fixed = _HEADER.pack(_MAGIC, *known, self.count, self.summands, self.bound, self.factor)
        content = b"".join([fixed, *pieces])
        return content + checksum(content, _HEADER.size)


def read(key_id: bytes, blob: bytes, *kinds: str, whole: bool = True) -> Header:
    """Check a blob, and give its header; ``whole``: its checksum, too.

    Raises
    ------
    MessageError
        If it is damaged, truncated or no such blob at all.
    ProtectionError
        If it belongs to another key, or is of another kind.
    """
    if not isinstance(blob, bytes) or len(blob) < _HEADER.size + CHECKSUM_BYTES:
        raise MessageError("encrypted columns are shorter than their header: they are truncated")
    magic, kind, seeded, matrices, owner, rows, outputs, count, summands, bound, factor = _HEADER.unpack_from(
        blob
    )
    if magic != _MAGIC:
        raise ProtectionError("these bytes are no columns encrypted by coefficients, which are in use here")
    if kind >= len(KINDS) or seeded > 1 or not (rows and outputs and together(rows, outputs) and matrices):
        raise MessageError(f"encrypted columns of {rows:,} × {outputs:,} values: they are damaged")
    header = Header(KINDS[kind], bool(seeded), matrices, owner, rows, outputs, count, summands, bound, factor)
    if len(blob) != header.length:
        raise MessageError(f"encrypted columns of {rows:,} × {outputs:,} values have {len(blob):,} bytes")
    if whole and checksum(memoryview(blob)[:-CHECKSUM_BYTES], _HEADER.size) != blob[-CHECKSUM_BYTES:]:
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
    """Id of the key that a blob names, whichever that is."""
    return bytes(_HEADER.unpack_from(blob)[4]) if len(blob) >= _HEADER.size else b""


class Cipher:
    """Encrypts and decrypts for those who hold the key.

    Examples
    --------
    >>> key = Secret(bytes(32))
    >>> cipher = Cipher(key)
    >>> blob = cipher.encrypt_columns(np.array([[1.0], [2.0]]), bound=2.0, summands=1)
    >>> product = Multiplier(cipher.key_id).apply(np.array([[0.0, 1.0], [1.0, 1.0]]), blob)
    >>> cipher.decrypt_columns(product).round(2)
    array([[2.], [3.]])
    """

    def __init__(self, secret: Secret) -> None:
        self._s = secret_polynomial(secret, b"tacit rlwe columns key")
        self.key_id = key_id_of(secret)

    def __repr__(self) -> str:
        return "Cipher(columns)"

    def encrypt_columns(
        self, matrix: ArrayLike, *, bound: float, summands: int, total: float | None = None
    ) -> bytes:
        """Encrypt a matrix (features × outputs) of values of at most ``bound``.

        It will be added to others, ``summands`` at most, and their total is ``total`` at most.
        """
        values = np.asarray(matrix, dtype=np.float64)
        reach = bound * summands if total is None else total
        if values.ndim != 2 or not values.size or not together(*values.shape) or reach < bound:
            raise ConfigError(f"columns of shape {values.shape} and totals of up to {reach:g} for {bound:g}")
        if not 1 <= summands <= MOST_SUMMANDS:
            raise ConfigError(f"{summands:,} summands declared: from 1 to {MOST_SUMMANDS:,} are possible")
        if not (largest := np.abs(values).max()) <= bound:  # or NaN
            raise MessageError(
                f"a value to encrypt is not finite or beyond the declared bound {bound:g}: clip it",
                private=f"the largest is {largest:g}",
            )
        rows, outputs = values.shape
        share = float(reach / summands)
        header = Header("columns", True, 1, self.key_id, rows, outputs, 1, summands, share, 0.0)
        seed = os.urandom(SEED)
        limbs = -self._times_secret(_mask(seed))
        limbs[0] += noise(DEGREE)
        limbs[0, : values.size] += np.rint(np.ldexp(values.T.reshape(-1), header.power)).astype(np.int64)
        return header.write(_words(_carried(limbs)).tobytes(), seed)

    def decrypt_columns(self, blob: bytes) -> Floats:
        """Decrypt a matrix (features × outputs): a sum of columns, or its product with a matrix."""
        header = read(self.key_id, blob, *KINDS)
        whole = self._product(header, blob) if header.kind == "product" else self._sum(header, blob)
        limit = 1 << (VALUE_BITS if header.kind == "columns" else VALUE_BITS + MATRIX_BITS - KEPT_BITS)
        noisy = header.noise_bits
        if np.abs(whole).max() > limit + (1 << noisy):  # nonsense is larger by far
            raise ProtectionError(
                f"a decrypted value is beyond what {header.summands:,} summands of up to {header.bound:g} "
                "can give: a client overran its bound, or the ciphertext was forged"
            )
        rounded = ((whole + (1 << (noisy - 1))) >> noisy) << noisy
        return np.asarray(rounded.reshape(header.outputs, header.rows).T * header.scale)

    def _sum(self, header: Header, blob: bytes) -> Integers:
        b, a = _polynomials(header, blob)
        found = _carried(self._times_secret(a) + _cut(b))
        low = found[0] | found[1] << LIMB | found[2] << 2 * LIMB  # what it means fits into 64 bits
        return np.asarray(low[: header.rows * header.outputs])

    def _product(self, header: Header, blob: bytes) -> Integers:
        b, a = _kept(header, blob)
        low = (a << 64 - LIMB) >> 64 - LIMB  # a = low + 2²⁴ high with a low limb of either sign
        high = (a - low) >> LIMB
        found = back(transform(np.stack([low, high])) * self._s)
        entries = _entries(header.rows, header.outputs, found[0] + (found[1] << LIMB), header.matrices)
        return ((b + entries) << 64 - KEPT_BITS) >> 64 - KEPT_BITS

    def _times_secret(self, words: Words) -> Integers:
        """Limbs of the product with the key's polynomial."""
        return back(transform(_limbs(words)) * self._s)


class Adder:
    """Adds encrypted columns as they come in, without any key; what is refused changes nothing."""

    def __init__(self, key_id: bytes) -> None:
        self._key_id = key_id
        self._total: Header | None = None
        self._count = 0
        self._words = np.zeros((2, WORDS, DEGREE), np.uint64)  # room for 2³² summands before carrying

    def add(self, blob: bytes) -> None:
        """Check a blob and add it."""
        header = read(self._key_id, blob, "columns")
        total = self._total or replace(header, seeded=False)
        if replace(header, seeded=False, count=total.count) != total:
            raise ProtectionError(
                "encrypted columns differ in size, bound or declared summands: every client has to encrypt "
                f"alike (first {total.rows} × {total.outputs} of {total.summands}, now {header.rows} × "
                f"{header.outputs} of {header.summands})"
            )
        if self._count + header.count > total.summands:
            raise ProtectionError(
                f"{self._count + header.count:,} encrypted matrices, but {total.summands:,} were declared at "
                "encryption: declare as many summands as there are clients"
            )
        for own, more in zip(self._words, _polynomials(header, blob), strict=True):
            own += more
        self._total = total
        self._count += header.count

    def total(self) -> bytes:
        """Give the encrypted total so far."""
        if self._total is None:
            raise ConfigError("nothing was added: an encrypted total needs at least one summand")
        words = self._words.copy()
        for low in range(WORDS - 1):
            words[:, low + 1] += words[:, low] >> np.uint64(32)
        total = replace(self._total, count=self._count)
        return total.write(words.astype(np.uint32).tobytes())


class Multiplier:
    """Multiplies encrypted columns by matrices, without any key."""

    def __init__(self, key_id: bytes) -> None:
        self._key_id = key_id

    def apply(self, matrix: ArrayLike, blob: bytes) -> bytes:
        """Multiply: one matrix (features × features) for all outputs, or a stack: one for every few."""
        header = read(self._key_id, blob, "columns")
        values = np.asarray(matrix, dtype=np.float64)
        stack = values[None] if values.ndim == 2 else values
        square = (header.rows, header.rows)
        if stack.ndim != 3 or stack.shape[1:] != square or header.outputs % len(stack):
            raise ConfigError(
                f"matrix of shape {values.shape} for {header.rows} features and {header.outputs} outputs: "
                f"give {square}, or one for every few outputs"
            )
        factor = float(np.abs(stack).sum(axis=-1).max())
        if not 1e-100 < factor < 1e100:
            raise ConfigError("the matrix of a product holds NaN or infinity, or nothing but zeros")
        digits = _digits(np.rint(stack * (math.ldexp(1.0, MATRIX_BITS) / factor)), header.outputs)
        b, a = (_rounded(transform(_limbs(half)), transform(digits)) for half in _polynomials(header, blob))
        entries = _entries(header.rows, header.outputs, b, len(stack))
        made = replace(header, kind="product", seeded=False, matrices=len(stack), factor=factor)
        return made.write(_packed(entries), _packed(a))


def key_id_of(secret: Secret) -> bytes:
    """Name of a key, which tells nothing of it."""
    return hashlib.sha256(b"tacit rlwe columns key id" + secret.reveal()).digest()[:KEY_ID_BYTES]


# -- the product ---------------------------------------------------------------------------------------


def _digits(stack: Floats, outputs: int) -> Floats:
    """Polynomials of the matrices' rows (digit × piece × DEGREE), in digits around zero."""
    rows = stack.shape[-1]
    held = together(rows, outputs)
    count = -(-rows // held)
    padded = np.zeros((len(stack), count * held, rows * outputs))
    padded[:, :rows, :rows] = stack[..., ::-1]  # a_j is the coefficient of X^(R-1-j)
    whole = np.zeros((len(stack) * count, DEGREE), np.int64)
    whole[:, : held * rows * outputs] = padded.reshape(len(whole), -1)
    found = []
    for _ in range(4):
        digit = (whole + (1 << DIGIT - 1) & (1 << DIGIT) - 1) - (1 << DIGIT - 1)
        found.append(digit)
        whole = whole - digit >> DIGIT
    return np.stack(found).astype(np.float64)


def _rounded(limbs: Transformed, digits: Transformed) -> Integers:
    """Upper 48 bits of the products (piece × DEGREE) of a polynomial with each piece."""
    found = np.zeros((len(limbs), digits.shape[1], DEGREE), np.int64)
    for unit in range(2 * len(limbs)):  # of 2¹²; what is beyond 2⁹⁶ vanishes
        pairs = [((unit - place) // 2, place) for place in range(unit % 2, min(unit + 1, len(digits)), 2)]
        value = back(sum(limbs[limb] * digits[place] for limb, place in pairs))
        found[unit // 2] += value << (unit % 2 * DIGIT)
    found[1] += 1 << LIMB - 1
    found = _carried(found)
    return np.asarray(found[2] | found[3] << LIMB)


def _entries(rows: int, outputs: int, products: Integers, matrices: int) -> Integers:
    """Coefficients that hold an entry of the product, output by output."""
    held = together(rows, outputs)
    used = products.reshape(matrices, -1, DEGREE)[..., : held * rows * outputs]
    each = used.reshape(matrices, -1, outputs, rows)[:, :rows, :, rows - 1]
    output = np.arange(outputs)
    return np.asarray(each[output // (outputs // matrices), :, output].reshape(-1))


# -- limbs and words -----------------------------------------------------------------------------------


def _mask(seed: bytes) -> Words:
    """The polynomial a that a seed stands for."""
    return expand(Secret(seed), WORDS * DEGREE, np.uint32).reshape(WORDS, DEGREE)


def _polynomials(header: Header, blob: bytes) -> tuple[Words, Words]:
    """b and a of columns, as words."""
    size = 4 * WORDS * DEGREE
    b = np.frombuffer(blob, "<u4", WORDS * DEGREE, _HEADER.size).reshape(WORDS, DEGREE)
    start = _HEADER.size + size
    if header.seeded:
        return b, _mask(blob[start : start + SEED])
    return b, np.frombuffer(blob, "<u4", WORDS * DEGREE, start).reshape(WORDS, DEGREE)


def _cut(words: Words) -> Integers:
    """Four limbs of 24 bits out of three words of 32."""
    low, middle, high = words.astype(np.int64)
    cut = [low, low >> 24 | middle << 8, middle >> 16 | high << 16, high >> 8]
    return np.stack(cut) & _LOW


def _words(limbs: Integers) -> Words:
    """Three words of 32 bits out of four limbs of 24."""
    first, second, third, fourth = limbs
    return np.stack([first | second << 24, second >> 8 | third << 16, third >> 16 | fourth << 8]).astype(
        np.uint32
    )


def _limbs(words: Words) -> Floats:
    """Limbs around zero, as numbers to be transformed."""
    limbs = _cut(words)
    for place in range(4):
        over = limbs[place] >> LIMB - 1
        limbs[place] -= over << LIMB
        if place < 3:
            limbs[place + 1] += over
    return limbs.astype(np.float64)


def _carried(limbs: Integers) -> Integers:
    """Limbs from 0 to 2²⁴ - 1; what is beyond 2⁹⁶ vanishes."""
    for place in range(3):
        limbs[place + 1] += limbs[place] >> LIMB
    return limbs & _LOW


def _packed(values: Integers) -> bytes:
    """Six bytes each."""
    return values.astype("<i8").reshape(-1, 1).view(np.uint8)[:, : KEPT_BITS // 8].tobytes()


def _kept(header: Header, blob: bytes) -> tuple[Integers, Integers]:
    """b (one value for each entry) and a (piece × DEGREE) of a product."""
    wire = np.frombuffer(blob, np.uint8, len(blob) - _HEADER.size - CHECKSUM_BYTES, _HEADER.size)
    room = np.zeros((len(wire) // 6, 8), np.uint8)
    room[:, :6] = wire.reshape(-1, 6)
    values = room.view("<i8").reshape(-1)
    entries = header.rows * header.outputs
    return values[:entries], values[entries:].reshape(-1, DEGREE)
