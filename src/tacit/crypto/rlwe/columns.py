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
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.ckks.blob import KEY_ID_BYTES, refuse_overrun
from tacit.crypto.masking import SEED
from tacit.crypto.rlwe.blob import DEGREE, check_values, noise_bits
from tacit.crypto.rlwe.columns_blob import (
    KEPT_BITS,
    KINDS,
    MATRIX_BITS,
    VALUE_BITS,
    Header,
    kept,
    key_of,
    mask,
    packed,
    pieces,
    polynomials,
    read,
    together,
)
from tacit.crypto.rlwe.limbs import (
    DIGIT,
    LIMB,
    WORDS,
    Floats,
    Integers,
    Words,
    carried,
    cut,
    limbs_of,
    rounded,
    words_of,
)
from tacit.crypto.rlwe.ring import back, noise, secret_polynomial, transform

__all__ = ["Adder", "Cipher", "Header", "Multiplier", "key_id_of", "key_of", "pieces", "read", "together"]


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
        noise_bits(summands)  # refuses an impossible number of them
        check_values(values, bound)
        rows, outputs = values.shape
        share = float(reach / summands)
        header = Header("columns", True, 1, self.key_id, rows, outputs, 1, summands, share, 0.0)
        seed = os.urandom(SEED)
        limbs = -self._times_secret(mask(seed))
        limbs[0] += noise(DEGREE)
        limbs[0, : values.size] += np.rint(np.ldexp(values.T.reshape(-1), header.power)).astype(np.int64)
        return header.write(words_of(carried(limbs)).tobytes(), seed)

    def decrypt_columns(self, blob: bytes) -> Floats:
        """Decrypt a matrix (features × outputs): a sum of columns, or its product with a matrix."""
        header = read(self.key_id, blob, *KINDS)
        whole = self._product(header, blob) if header.kind == "product" else self._sum(header, blob)
        limit = 1 << (VALUE_BITS if header.kind == "columns" else VALUE_BITS + MATRIX_BITS - KEPT_BITS)
        noisy = header.noise_bits
        if np.abs(whole).max() > limit + (1 << noisy):  # nonsense is larger by far
            refuse_overrun(header.summands, header.bound)
        rounded = ((whole + (1 << (noisy - 1))) >> noisy) << noisy
        return np.asarray(rounded.reshape(header.outputs, header.rows).T * header.scale)

    def _sum(self, header: Header, blob: bytes) -> Integers:
        b, a = polynomials(header, blob)
        found = carried(self._times_secret(a) + cut(b))
        low = found[0] | found[1] << LIMB | found[2] << 2 * LIMB  # what it means fits into 64 bits
        return np.asarray(low[: header.rows * header.outputs])

    def _product(self, header: Header, blob: bytes) -> Integers:
        b, a = kept(header, blob)
        low = (a << 64 - LIMB) >> 64 - LIMB  # a = low + 2²⁴ high with a low limb of either sign
        high = (a - low) >> LIMB
        found = back(transform(np.stack([low, high])) * self._s)
        entries = _entries(header.rows, header.outputs, found[0] + (found[1] << LIMB), header.matrices)
        return ((b + entries) << 64 - KEPT_BITS) >> 64 - KEPT_BITS

    def _times_secret(self, words: Words) -> Integers:
        """Return the limbs of the product with the key's polynomial."""
        return back(transform(limbs_of(words)) * self._s)


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
        for own, more in zip(self._words, polynomials(header, blob), strict=True):
            own += more
        self._total = total
        self._count += header.count

    def total(self) -> bytes:
        """Return the encrypted total so far."""
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
        b, a = (rounded(transform(limbs_of(half)), transform(digits)) for half in polynomials(header, blob))
        entries = _entries(header.rows, header.outputs, b, len(stack))
        made = replace(header, kind="product", seeded=False, matrices=len(stack), factor=factor)
        return made.write(packed(entries), packed(a))


def key_id_of(secret: Secret) -> bytes:
    """Return the id of a key, which tells nothing of it."""
    return hashlib.sha256(b"tacit rlwe columns key id" + secret.reveal()).digest()[:KEY_ID_BYTES]


def _digits(stack: Floats, outputs: int) -> Floats:
    """Return the polynomials of the matrices' rows (digit × piece × DEGREE), in digits around zero."""
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


def _entries(rows: int, outputs: int, products: Integers, matrices: int) -> Integers:
    """Return the coefficients that hold an entry of the product, output by output."""
    held = together(rows, outputs)
    used = products.reshape(matrices, -1, DEGREE)[..., : held * rows * outputs]
    each = used.reshape(matrices, -1, outputs, rows)[:, :rows, :, rows - 1]
    output = np.arange(outputs)
    return np.asarray(each[output // (outputs // matrices), :, output].reshape(-1))
