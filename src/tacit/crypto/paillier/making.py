"""Making Paillier keys from the operating system's randomness."""

from __future__ import annotations

import gmpy2
from gmpy2 import mpz

from tacit.crypto.paillier.keys import (
    ALPHA_PRIME_BITS,
    PublicKey,
    Randomness,
    check_bits,
    check_randomness,
    default_exponent_bits,
)
from tacit.crypto.paillier.numbers import combine, random_prime, random_unit
from tacit.crypto.paillier.private import PrivateKey, far_apart


def make_keys(
    bits: int = 2048,
    *,
    randomness: Randomness = "djn",
    exponent_bits: int | None = None,
    allow_short: bool = False,
) -> PrivateKey:
    """Make a key pair from the operating system's randomness.

    Parameters
    ----------
    bits : {2048, 3072, 4096}
        Length of n; 1024 with ``allow_short`` only.
    randomness : {"djn", "plain", "short-alpha"}
        How ciphertexts are randomised. A short α, Paillier's scheme 3, decrypts four times faster on a
        less studied assumption.
    exponent_bits : int, optional
        Length of DJN's random exponent: half of n's by default; shorter, 256 at least, is a heuristic.
    allow_short : bool
        Allow 1024 bits, with a :class:`~tacit.crypto.paillier.keys.ShortKeyWarning`.

    Examples
    --------
    >>> make_keys(2048, randomness="short-alpha").public.exponent_bits
    512
    >>> make_keys(1536)
    Traceback (most recent call last):
    ...
    tacit.core.errors.ConfigError: key of 1536 bits: use 2048 (112 bits of security), 3072 (128) ...
    """
    check_bits(bits, allow_short)
    length = default_exponent_bits(bits, randomness) if exponent_bits is None else exponent_bits
    check_randomness(bits, randomness, length)
    orders, short = (mpz(1), mpz(1)), randomness == "short-alpha"
    if short:
        orders = random_prime(ALPHA_PRIME_BITS[bits]), random_prime(ALPHA_PRIME_BITS[bits])
    while True:
        p, q = random_prime(bits // 2, orders[0]), random_prime(bits // 2, orders[1])
        if p > q:
            (p, q), orders = (q, p), (orders[1], orders[0])
        if gmpy2.gcd(p - 1, q - 1) == 2 and far_apart(p, q):
            break
    public = PublicKey(p * q, _random_base(p, q, orders, randomness), randomness, length, allow_short)
    return PrivateKey(public, (p, q), orders if short else None)


def _random_base(p: mpz, q: mpz, orders: tuple[mpz, mpz], randomness: Randomness) -> mpz:
    if randomness == "plain":
        return mpz(0)
    if randomness == "djn":
        return -(random_unit(p * q) ** 2) % (p * q)
    parts = []
    for prime, order in ((p, orders[0]), (q, orders[1])):
        part = mpz(1)
        while part == 1:
            part = gmpy2.powmod(random_unit(prime), (prime - 1) // order, prime)
        parts.append(part)
    return combine(parts[0], parts[1], (p, q), gmpy2.invert(q, p))
