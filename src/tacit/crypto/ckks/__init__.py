"""CKKS by Microsoft SEAL: encrypted vectors that add up without the key, and are multiplied by a matrix once.

Key holders encrypt and decrypt (:class:`Cipher`), the coordinator adds and multiplies (:func:`multiply`).
Encryption is symmetric and seeded: half of a ciphertext is pseudorandom, and its seed travels instead.
Decryptions are rounded to a unit above the noise, because noise tells of the key (Li and Micciancio,
EUROCRYPT 2021). CKKS does not stand up to ciphertexts made to be decrypted: key holders decrypt only what
came through an authentic channel.

Values lie in coefficients. A matrix M (features × outputs) becomes one polynomial: entry (j, o) is the
coefficient of X^(oR + j), with R features. Multiplied by the polynomial of a row a of the matrix A,
Σ_j a_j X^(R-1-j), the coefficient of X^(oR + R - 1) is Σ_j a_j M_jo: an entry of A M. A row's own products
fill R·outputs coefficients, so that as many rows as fit side by side are multiplied at once. So protocols of
encrypted inference multiply (Huang, Lu, Hong, Ding, "Cheetah: lean and fast secure two-party deep neural
network inference", 2022): it takes no rotation keys. Of a product only those coefficients travel that hold an
entry of A M: nobody, with the key or without, can open the others.

SEAL's encoder puts values into slots; plaintexts are made of coefficients instead, by SEAL's own transform
over the same primes (a BFV context, which takes coefficients).

Reference: Cheon, Kim, Kim, Song, "Homomorphic encryption for arithmetic of approximate numbers", 2017.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.errors import ConfigError, MessageError, ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.ckks import rings
from tacit.crypto.seal import blob, seal
from tacit.crypto.seal.blob import LEAST, MOST, Header, all_residues, ciphertexts_of
from tacit.crypto.seal.residues import Residues, from_seal, plain_from_seal, to_seal
from tacit.crypto.seal.ring import MOST_SUMMANDS, KeyHolder, Ring, ring_of

Floats = NDArray[np.float64]


class Cipher(KeyHolder):
    """Encrypts and decrypts for those who hold the key."""

    def __init__(self, secret: Secret) -> None:
        super().__init__(secret, ring_of(rings.SUMS))

    def encrypt(self, values: ArrayLike, *, bound: float, summands: int, total: float | None = None) -> bytes:
        """Encrypt values of at most ``bound``: a vector, or a matrix (features × outputs) to be multiplied.

        It will be added to others, ``summands`` at most, and their total is ``total`` at most.
        """
        given = np.asarray(values, dtype=np.float64)
        if not LEAST < bound < MOST:
            raise ConfigError(f"bound is {bound!r}: give the largest absolute value that may occur, above 0")
        if summands != int(summands) or not 1 <= summands <= MOST_SUMMANDS:
            raise ConfigError(f"{summands:,} summands declared: from 1 to {MOST_SUMMANDS:,} are possible")
        reach = bound * summands if total is None else total
        rows, outputs = given.shape if given.ndim == 2 else (given.size, 1)
        form, used = (rings.COLUMN, rings.COLUMNS) if given.ndim == 2 else (rings.SUM, rings.SUMS)
        fits = given.size and given.ndim in (1, 2) and (form is rings.SUM or rings.together(rows, outputs))
        if not fits or not bound <= reach <= bound * summands:
            raise ConfigError(f"values of shape {given.shape} and totals of up to {reach:g} for {bound:g}")
        if not (largest := np.abs(given).max()) <= bound:  # or NaN
            raise MessageError(
                f"a value to encrypt is not finite or beyond the declared bound {bound:g}: clip it",
                private=f"the largest is {largest:g}",
            )
        ring = ring_of(used)
        header = Header(form, True, self.key_id, rows, outputs, 1, summands, float(reach / summands))
        whole = np.zeros(header.chunks(ring) * rings.DEGREE, np.int64)
        whole[: given.size] = np.rint(np.ldexp(given.T.reshape(-1), rings.power(header)))
        plains = (rings.encode(ring, chunk) for chunk in whole.reshape(-1, rings.DEGREE))
        return blob.write_encrypted(ring, header, self.expanded(ring).encryptor, plains)

    def decrypt(self, encrypted: bytes) -> Floats:
        """Decrypt a sum of vectors or matrices, or a product of the latter."""
        used = rings.SUMS if blob.set_of(encrypted) == rings.SUMS.name else rings.COLUMNS
        ring, forms = ring_of(used), (rings.SUM,) if used is rings.SUMS else (rings.COLUMN, rings.PRODUCT)
        header = blob.read(ring, self.key_id, encrypted, *forms)
        return self.open(header, all_residues(ring, header, encrypted))

    def open(self, header: Header, residues: Mapping[int, Residues]) -> Floats:
        """Decrypt the residues of a sum, or of a product, that was read and checked."""
        ring = ring_of(rings.SUMS if header.form is rings.SUM else rings.COLUMNS)
        if header.form is rings.PRODUCT:
            return self._rounded(header, self._product(ring, header, *residues.values()))
        ciphertexts = ciphertexts_of(ring, header, residues)
        for ciphertext in ciphertexts if len(ring.primes) > 1 else ():
            ring.evaluator.mod_switch_to_next_inplace(ciphertext)  # totals fit into the first prime
        return self._rounded(header, self._opened(ring, ciphertexts).reshape(-1))

    def _rounded(self, header: Header, whole: rings.Integers) -> Floats:
        noisy = rings.noise_bits(header)
        if np.abs(whole).max() > 1.001 * 2.0 ** rings.value_bits(header):  # nonsense is larger by far
            raise ProtectionError(
                f"a decrypted value is beyond what {header.summands:,} summands of up to {header.bound:g} "
                "can give: a client overran its bound, or the ciphertext was forged"
            )
        values = whole[: header.rows * header.outputs]
        rounded = (((values + (1 << (noisy - 1))) >> noisy) << noisy).astype(np.float64) * rings.scale(header)
        return rounded if header.form is rings.SUM else rounded.reshape(header.outputs, header.rows).T

    def _product(self, ring: Ring, header: Header, flat: Residues) -> rings.Integers:
        places, kept = rings.entries(header), rings.PRODUCT.kept(ring, header)
        halves = np.zeros((2, header.chunks(ring), rings.DEGREE), np.uint64)
        halves[0].reshape(-1)[places] = flat[: places.size]
        halves[1] = flat[kept:].reshape(halves[1].shape)
        # SEAL knows no ciphertext of zero under a key that is zero itself: such rows of A are zero.
        held = halves[1].any(axis=1)
        found = np.zeros((len(held), rings.DEGREE), np.int64)
        ciphertexts = []
        for index in held.nonzero()[0]:
            ciphertexts.append(to_seal(ring, halves[:, index, None], in_ntt_form=False))
            ring.evaluator.transform_to_ntt_inplace(ciphertexts[-1])
        if ciphertexts:
            found[held] = self._opened(ring, ciphertexts)
        return found.reshape(-1)[places]

    def _opened(self, ring: Ring, ciphertexts: list[Any]) -> rings.Integers:
        plain, opened = seal.Plaintext(), []
        for ciphertext in ciphertexts:
            self.expanded(ring).decryptor.decrypt(ciphertext, plain)
            opened.append(plain_from_seal(plain))
        parts = (opened[first : first + rings.TOGETHER] for first in range(0, len(opened), rings.TOGETHER))
        found = [rings.coefficients(ring, np.stack(part)) for part in parts]
        whole = np.concatenate(found).astype(np.int64)
        return np.where(whole > ring.primes[0] // 2, whole - ring.primes[0], whole)


def multiply(key_id: bytes, matrix: ArrayLike, encrypted: bytes) -> bytes:
    """Multiply an encrypted matrix by a plain one, without any key.

    That is one matrix (features × features) for all outputs, or a stack: one for every few.
    """
    ring = ring_of(rings.COLUMNS)
    header = blob.read(ring, key_id, encrypted, rings.COLUMN)
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
    whole = np.rint(stack * (math.ldexp(1.0, rings.MATRIX_BITS) / factor)).astype(np.int64)
    (ciphertext,) = ciphertexts_of(ring, header, all_residues(ring, header, encrypted))
    made = replace(header, form=rings.PRODUCT, seeded=False, matrices=len(stack), factor=factor)
    halves = [_multiplied(ring, ciphertext, row) for row in rings.polynomials(whole, header.outputs)]
    first, second = np.stack(halves, axis=1)
    kept, places = np.zeros(rings.PRODUCT.kept(ring, made), np.uint64), rings.entries(made)
    kept[: places.size] = first.reshape(-1)[places]
    return blob.write(ring, made, [np.concatenate([kept, second.reshape(-1)])])


def _multiplied(ring: Ring, ciphertext: Any, row: rings.Integers) -> Residues:
    if not row.any():
        return np.zeros((2, rings.DEGREE), np.uint64)
    result = seal.Ciphertext()
    ring.evaluator.multiply_plain(ciphertext, rings.encode(ring, row), result)
    ring.evaluator.rescale_to_next_inplace(result)
    ring.evaluator.transform_from_ntt_inplace(result)
    return from_seal(ring, 1, result, in_ntt_form=False)[0][:, 0]
