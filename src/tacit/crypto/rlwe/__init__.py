"""Encrypted vectors that add up without the key: the additive half of CKKS, with values in coefficients.

Who only adds needs neither slots nor a chain of primes. A vector of integers m is the list of coefficients
of a polynomial modulo X⁴⁰⁹⁶ + 1, and its ciphertext is

    (b, a)   with   b = m + e - a·s   modulo 2⁶⁴,

where s is the secret (coefficients -1, 0, 1), e is small noise and a is uniform. Sums of ciphertexts are
ciphertexts of sums, and b + a·s gives m back with the noise of all summands. Against slots this holds twice
as many values, needs no Fourier transform of what is encrypted, and sums wrap around in machine words. Three
things make it small and fast:

* a is expanded from a seed of 32 bytes by AES-256 in counter mode (as FrodoKEM expands its matrix);
* coefficients of b that carry no value do not travel: eight bytes a value, and nothing else;
* a·s is exact in float64: a is cut into two halves of 32 bits, whose products with s stay below 2⁴⁴.

**Security** rests on ring learning with errors at degree 4096 with a ternary secret: the Homomorphic
Encryption Standard allows a modulus of 109 bits there for 128-bit security, ours has 64. The noise is
centred binomial of variance 10.5 (σ = 3.24), as is usual. As in :mod:`tacit.crypto.ckks`, an opened total is
rounded above its noise, because noise tells of the key, and key holders open only what came through an
authentic channel.

Reference: Cheon, Kim, Kim, Song, "Homomorphic encryption for arithmetic of approximate numbers", 2017;
Lyubashevsky, Peikert, Regev, "On ideal lattices and learning with errors over rings", 2010.
"""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.errors import ConfigError
from tacit.core.secret import Secret
from tacit.crypto.ckks.blob import KEY_ID_BYTES, refuse_overrun
from tacit.crypto.masking import SEED, expand, new_seed
from tacit.crypto.rlwe.blob import (
    DEGREE,
    MOST_VALUES,
    TOTAL_BITS,
    Adder,
    Header,
    Words,
    check_values,
    key_of,
    noise_bits,
    power,
    read,
    rounding_unit,
    words_of,
)
from tacit.crypto.rlwe.ring import back, noise, secret_polynomial, transform

__all__ = ["Adder", "Cipher", "Header", "key_of", "make_key", "read", "rounding_unit"]

LIMIT = (1 << TOTAL_BITS) + (1 << 52)  # of honest totals and their noise; nonsense is larger by far

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def make_key() -> tuple[Secret, bytes]:
    """Draw a key: a secret for the key holders, and its id, which tells nothing of it, for everyone."""
    secret = new_seed()
    return secret, _key_id(secret)


class Cipher:
    """Encrypts and decrypts for those who hold the key.

    Examples
    --------
    >>> secret, key_id = make_key()
    >>> cipher, adder = Cipher(secret), Adder(key_id)
    >>> for client in range(3):
    ...     adder.add(cipher.encrypt([0.5, -client], bound=2.0, summands=10))
    >>> cipher.decrypt(adder.total()).tolist()
    [1.5, -3.0]
    >>> cipher
    Cipher(coefficients)
    """

    def __init__(self, secret: Secret) -> None:
        self._s = secret_polynomial(secret, b"tacit rlwe secret key")
        self.key_id = _key_id(secret)

    def __repr__(self) -> str:
        return "Cipher(coefficients)"

    def encrypt(self, vector: ArrayLike, *, bound: float, summands: int, total: float | None = None) -> bytes:
        """Encrypt finite values of at most ``bound``, to be added to others: ``summands`` at the most.

        ``total`` is the largest absolute value of their sum, from ``bound`` to ``bound * summands``.
        """
        return self.encrypt_noisily(vector, new_seed(), bound=bound, summands=summands, total=total)[0]

    def encrypt_noisily(
        self, vector: ArrayLike, seed: Secret, *, bound: float, summands: int, total: float | None = None
    ) -> tuple[bytes, Integers]:
        """Encrypt as :meth:`encrypt` does, by a seed of this vector alone; return the noise, too.

        Noise adds up as the values do. Who knows that of a total notices any change of the ciphertext.
        """
        values = np.asarray(vector, dtype=np.float64)
        reach = bound * summands if total is None else total
        noise_bits(summands)
        if values.ndim != 1 or not 0 < values.size <= MOST_VALUES or reach < bound:
            raise ConfigError(f"values of shape {values.shape} and totals of up to {reach:g} for {bound:g}")
        check_values(values, bound)
        header = Header(True, self.key_id, values.size, 1, summands, float(reach / summands))
        public, private = (hmac.digest(seed.reveal(), what, "sha256")[:SEED] for what in (b"a", b"e"))
        b = np.rint(np.ldexp(values, power(header.bound * summands))).astype(np.int64)
        b += (drawn := noise(values.size, Secret(private)))
        masks = self._times_secret(expand(Secret(public), header.masks, np.uint64))
        return header.write(b.view(np.uint64) - masks[: values.size], public), drawn

    def decrypt(self, blob: bytes) -> Floats:
        """Decrypt a sum, rounded to the unit that its bound and summands allow."""
        header = read(self.key_id, blob)
        noisy, places = noise_bits(header.summands), power(header.bound * header.summands)
        return np.ldexp(self.decrypt_noisily(blob, noisy - places)[0].astype(np.float64), noisy - places)

    def decrypt_noisily(self, blob: bytes, unit_bits: int) -> tuple[Integers, Integers]:
        """Decrypt a sum to whole numbers of a unit, two to ``unit_bits``, and the noise beside them."""
        header = read(self.key_id, blob)
        b, a = words_of(header, blob)
        whole = (b + self._times_secret(a)[: header.rows]).view(np.int64)
        if not (whole.max() <= LIMIT and whole.min() >= -LIMIT):
            refuse_overrun(header.summands, header.bound)
        noisy = unit_bits + power(header.bound * header.summands)
        rounded = (whole + (1 << (noisy - 1))) >> noisy
        return rounded, whole - (rounded << noisy)

    def _times_secret(self, a: Words) -> Words:
        """Return a·s modulo X^DEGREE + 1 and 2⁶⁴, for each stretch of DEGREE coefficients."""
        halves = a.view(np.int32).reshape(-1, DEGREE, 2)
        low = halves[:, :, 0].astype(np.float64)
        high = halves[:, :, 1] + (low < 0.0)  # a = low + 2³² high with a low half of either sign
        whole = back(transform(np.stack([low, high])) * self._s)
        words: Words = (whole[0] + (whole[1] << 32)).reshape(-1).view(np.uint64)
        return words


def _key_id(secret: Secret) -> bytes:
    return hashlib.sha256(b"tacit rlwe key id" + secret.reveal()).digest()[:KEY_ID_BYTES]
