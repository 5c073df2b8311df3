"""Encrypted columns that add up, and can be multiplied by small matrices, with entries in coefficients.

A matrix M (features × outputs) becomes one polynomial: entry (j, o) is the coefficient of X^(oR + j), with R
features. Multiplied by the polynomial of a row a of the matrix A, Σ_j a_j X^(R-1-j), the coefficient of
X^(oR + R - 1) is Σ_j a_j M_jo: an entry of A M. A row's own products fill R·outputs coefficients, so that as
many rows as fit side by side are multiplied at once, and the other coefficients hold nothing of use. So
protocols of encrypted inference multiply (Huang, Lu, Hong, Ding, "Cheetah: lean and fast secure two-party
deep neural network inference", 2022): it takes no rotation keys. Against that stands one polynomial for every
few rows, so it is meant for small matrices (:func:`pieces`).

The ciphertexts are those of SEAL's CKKS, encrypted, added, multiplied (``multiply_plain``), rescaled and
decrypted by SEAL. Its encoder puts values into slots; here plaintexts are made of coefficients instead, and
since CKKS keeps polynomials in transformed form, SEAL's own transform over the same primes makes them (a BFV
context, which takes coefficients). Of a product only those coefficients travel that hold an entry of A M:
nobody, with the key or without, can open the others.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.errors import ConfigError, MessageError
from tacit.core.secret import Secret
from tacit.crypto.ckks.parameters import CLEARANCE, NOISE, CKKSRing, ParameterSet, ring_of
from tacit.crypto.seal import blob, seal
from tacit.crypto.seal.blob import LEAST, MOST, Form, Header
from tacit.crypto.seal.residues import Residues, from_seal, plain_from_seal, plain_to_seal, to_seal
from tacit.crypto.seal.ring import Ring, RingParameters, expand, make_ring

PARAMETERS = ParameterSet("coefficients", 4096, (50, 43, 16), 30)
DEGREE = PARAMETERS.degree
VALUE_BITS, MATRIX_BITS = 48, 43  # of totals, and of the absolute values of a row of the matrix together
SWITCHED = math.sqrt((1 + 2 * DEGREE / 3) / 12)  # noise of rescaling a product
TOGETHER = 16  # polynomials that SEAL transforms at once

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


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


def _fits_product(ring: Ring, header: Header) -> bool:
    fits = together(header.rows, header.outputs) > 0 and not header.seeded
    return fits and header.matrices > 0 and header.outputs % header.matrices == 0


COLUMNS = Form(
    5,
    lambda *_: 1,
    lambda *_: DEGREE,
    lambda ring, header: together(header.rows, header.outputs) > 0 and header.factor == 1,
)
PRODUCT = Form(
    6,
    lambda ring, header: pieces(header.rows, header.outputs, header.matrices) or 0,
    lambda ring, header: -(-header.rows * header.outputs // 8) * 8,
    _fits_product,
    spent=1,
    many=True,
)


def unit(header: Header) -> float:
    """Return the rounding unit of what is opened; its error is at most one."""
    return math.ldexp(scale(header), noise_bits(header))


def power(header: Header) -> int:
    """Return the power of two by which columns are multiplied."""
    return VALUE_BITS - math.ceil(math.log2(header.bound * header.summands))


def scale(header: Header) -> float:
    """Return what an opened integer is worth."""
    if header.form is COLUMNS:
        return math.ldexp(1.0, -power(header))
    return math.ldexp(header.factor * ring_of(PARAMETERS).primes[1], -MATRIX_BITS - power(header))


def noise_bits(header: Header) -> int:
    """Return how many of an opened integer's lowest bits are noise, and rounded away."""
    noise = NOISE * math.sqrt(header.summands)
    if header.form is PRODUCT:
        lost = PARAMETERS.prime_bits[1]
        # Rows of the matrix that meet the noise.
        held = min(header.rows, together(header.rows, header.outputs))
        carried = math.ldexp(noise * math.sqrt(held), MATRIX_BITS - lost)
        rounding = math.ldexp(math.sqrt(header.rows / 12), VALUE_BITS - lost)  # of the matrix
        noise = math.hypot(carried, SWITCHED, rounding)
    return math.ceil(math.log2(CLEARANCE * noise))


def polynomials(stack: Integers, outputs: int) -> Integers:
    """Return the polynomials (piece × DEGREE) of the matrices' rows."""
    rows = stack.shape[-1]
    held = together(rows, outputs)
    count = -(-rows // held)
    padded = np.zeros((len(stack), count * held, rows * outputs), np.int64)
    padded[:, :rows, :rows] = stack[..., ::-1]  # a_j is the coefficient of X^(R-1-j)
    whole = np.zeros((len(stack) * count, DEGREE), np.int64)
    whole[:, : held * rows * outputs] = padded.reshape(len(whole), -1)
    return whole


def entries(header: Header) -> NDArray[np.intp]:
    """Return which coefficients of all pieces hold an entry of the product, output by output."""
    rows, outputs, matrices = header.rows, header.outputs, header.matrices
    held, count = together(rows, outputs), pieces(rows, outputs, matrices) or 0
    places = np.arange(count * DEGREE).reshape(matrices, -1, DEGREE)[..., : held * rows * outputs]
    each = places.reshape(matrices, -1, outputs, rows)[:, :rows, :, rows - 1]
    output = np.arange(outputs)
    return each[output // (outputs // matrices), :, output].reshape(-1)


class Cipher:
    """Encrypts and decrypts for those who hold the key.

    Examples
    --------
    >>> key = Secret(bytes(32))
    >>> cipher = Cipher(key)
    >>> sent = cipher.encrypt_columns(np.array([[1.0], [2.0]]), bound=2.0, summands=1)
    >>> product = Multiplier(cipher.key_id).apply(np.array([[0.0, 1.0], [1.0, 1.0]]), sent)
    >>> cipher.decrypt_columns(product).round(2)
    array([[2.], [3.]])
    """

    def __init__(self, secret: Secret) -> None:
        self._ring = ring_of(PARAMETERS)
        self._expanded = expand(self._ring, secret)
        self.key_id = self._expanded.key_id

    def __repr__(self) -> str:
        return "Cipher(coefficients)"

    def encrypt_columns(
        self, matrix: ArrayLike, *, bound: float, summands: int, total: float | None = None
    ) -> bytes:
        """Encrypt a matrix (features × outputs) of values of at most ``bound``.

        It will be added to others, ``summands`` at most, and their total is ``total`` at most.
        """
        values = np.asarray(matrix, dtype=np.float64)
        reach = bound * summands if total is None else total
        PARAMETERS.check_declared(reach / summands, summands)
        if values.ndim != 2 or not values.size or not together(*values.shape) or reach < bound:
            raise ConfigError(f"columns of shape {values.shape} and totals of up to {reach:g} for {bound:g}")
        if not (largest := np.abs(values).max()) <= bound:  # or NaN
            raise MessageError(
                f"a value to encrypt is not finite or beyond the declared bound {bound:g}: clip it",
                private=f"the largest is {largest:g}",
            )
        rows, outputs = values.shape
        header = Header(COLUMNS, True, self.key_id, rows, outputs, 1, summands, float(reach / summands))
        whole = np.zeros(DEGREE, np.int64)
        whole[: values.size] = np.rint(np.ldexp(values.T.reshape(-1), power(header)))
        return blob.write_encrypted(
            self._ring, header, self._expanded.encryptor, [_encoded(self._ring, whole)]
        )

    def decrypt_columns(self, encrypted: bytes) -> Floats:
        """Decrypt a matrix (features × outputs): a sum of columns, or its product with a matrix."""
        header = blob.read(self._ring, self.key_id, encrypted, COLUMNS, PRODUCT)
        whole = self._product(header, encrypted) if header.form is PRODUCT else self._sum(header, encrypted)
        noisy = noise_bits(header)
        if np.abs(whole).max() > 1.001 * 2.0**VALUE_BITS:  # a test for nonsense, which is larger by far
            blob.refuse_overrun(header.summands, header.bound)
        rounded = ((whole + (1 << (noisy - 1))) >> noisy) << noisy
        return np.asarray(rounded.reshape(header.outputs, header.rows).T * scale(header))

    def _sum(self, header: Header, encrypted: bytes) -> Integers:
        (ciphertext,) = blob.ciphertexts_of(
            self._ring, header, blob.all_residues(self._ring, header, encrypted)
        )
        self._ring.evaluator.mod_switch_to_next_inplace(ciphertext)  # totals fit into the first prime
        return self._opened([ciphertext])[0, : header.rows * header.outputs]

    def _product(self, header: Header, encrypted: bytes) -> Integers:
        (flat,) = blob.residues_of(self._ring, header, encrypted)
        places = entries(header)
        kept = PRODUCT.kept(self._ring, header)
        halves = np.zeros((2, header.chunks(self._ring), DEGREE), np.uint64)
        halves[0].reshape(-1)[places] = flat[: places.size]
        halves[1] = flat[kept:].reshape(halves[1].shape)
        # SEAL knows no ciphertext of zero under a key that is zero itself: such rows of A are zero.
        held = halves[1].any(axis=1)
        found = np.zeros((len(held), DEGREE), np.int64)
        ciphertexts = []
        for index in held.nonzero()[0]:
            ciphertexts.append(to_seal(self._ring, halves[:, index, None], in_ntt_form=False))
            self._ring.evaluator.transform_to_ntt_inplace(ciphertexts[-1])
        if ciphertexts:
            found[held] = self._opened(ciphertexts)
        return found.reshape(-1)[places]

    def _opened(self, ciphertexts: list[Any]) -> Integers:
        """Decrypt ciphertexts modulo the first prime, and return their coefficients around zero."""
        plain, opened = seal.Plaintext(), []
        for ciphertext in ciphertexts:
            self._expanded.decryptor.decrypt(ciphertext, plain)
            opened.append(plain_from_seal(plain))
        found = [
            _coefficients(self._ring, np.stack(opened[first : first + TOGETHER]))
            for first in range(0, len(opened), TOGETHER)
        ]
        prime = self._ring.primes[0]
        whole = np.concatenate(found).astype(np.int64)
        return np.where(whole > prime // 2, whole - prime, whole)


class Multiplier:
    """Multiplies encrypted columns by matrices, without any key."""

    def __init__(self, key_id: bytes) -> None:
        self._key_id = key_id

    def apply(self, matrix: ArrayLike, encrypted: bytes) -> bytes:
        """Multiply: one matrix (features × features) for all outputs, or a stack: one for every few."""
        ring = ring_of(PARAMETERS)
        header = blob.read(ring, self._key_id, encrypted, COLUMNS)
        values = np.asarray(matrix, dtype=np.float64)
        stack = values[None] if values.ndim == 2 else values
        square = (header.rows, header.rows)
        if stack.ndim != 3 or stack.shape[1:] != square or header.outputs % len(stack):
            raise ConfigError(
                f"matrix of shape {values.shape} for {header.rows} features and {header.outputs} outputs: "
                f"give {square}, or one for every few outputs"
            )
        factor = float(np.abs(stack).sum(axis=-1).max())
        if not LEAST < factor < MOST:
            raise ConfigError("the matrix of a product holds NaN or infinity, or nothing but zeros")
        whole = np.rint(stack * (math.ldexp(1.0, MATRIX_BITS) / factor)).astype(np.int64)
        (ciphertext,) = blob.ciphertexts_of(ring, header, blob.all_residues(ring, header, encrypted))
        made = replace(header, form=PRODUCT, seeded=False, matrices=len(stack), factor=factor)
        halves = [_multiplied(ring, ciphertext, row) for row in polynomials(whole, header.outputs)]
        first, second = np.stack(halves, axis=1)
        kept, places = np.zeros(PRODUCT.kept(ring, made), np.uint64), entries(made)
        kept[: places.size] = first.reshape(-1)[places]
        return blob.write(ring, made, [np.concatenate([kept, second.reshape(-1)])])


@lru_cache(maxsize=1)
def _transforming() -> Ring:
    """Return a ring over the same primes whose plaintexts are coefficients, which SEAL transforms."""
    ring = make_ring(RingParameters("BFV", "transform", DEGREE, PARAMETERS.prime_bits, 59))
    assert ring.primes == ring_of(PARAMETERS).primes
    return ring


def _encoded(ring: CKKSRing, whole: Integers) -> Any:
    helper = _transforming()
    plain = plain_to_seal(helper, (whole & ((1 << 59) - 1)).view(np.uint64))
    helper.evaluator.transform_to_ntt_inplace(plain, list(helper.parms_id(len(helper.primes))))
    return plain_to_seal(ring, plain_from_seal(plain).reshape(len(ring.primes), -1))


def _coefficients(ring: CKKSRing, transformed: Residues) -> Residues:
    """Return the coefficients of transformed polynomials (polynomials × degree) modulo the first prime."""
    # SEAL transforms back what a ciphertext holds, and a ciphertext holds two polynomials at least.
    padded = transformed if len(transformed) > 1 else np.repeat(transformed, 2, axis=0)
    together = to_seal(ring, padded[:, None])
    ring.evaluator.transform_from_ntt_inplace(together)
    found, _ = from_seal(ring, 1, together, polynomials=len(padded), in_ntt_form=False)
    return found[: len(transformed), 0]


def _multiplied(ring: CKKSRing, ciphertext: Any, row: Integers) -> Residues:
    """Return the two polynomials (by coefficients) of a ciphertext's product with a plain polynomial."""
    if not row.any():
        return np.zeros((2, DEGREE), np.uint64)
    result = seal.Ciphertext()
    ring.evaluator.multiply_plain(ciphertext, _encoded(ring, row), result)
    ring.evaluator.rescale_to_next_inplace(result)
    ring.evaluator.transform_from_ntt_inplace(result)
    return from_seal(ring, 1, result, in_ntt_form=False)[0][:, 0]
