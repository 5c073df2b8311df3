"""Number theory under Paillier: random primes, powers of a fixed base, Chinese remainders.

Nothing here is constant in time: GMP's side-channel-quiet power is 40 % slower. Keys belong on machines
that their holder does not share with an adversary.
"""

import secrets

import gmpy2
from gmpy2 import mpz

from tacit.core.errors import ConfigError

# GMP runs the Baillie-PSW test (no composite is known to pass it) and then rounds − 24 Miller-Rabin rounds.
ROUNDS = 64
SMALL_PRIMES = gmpy2.primorial(2000)  # one gcd with it rules out nine candidates of ten


class FixedBase:
    """Powers of one base by table (18 MB at 4096 bits): one multiplication per byte of the exponent."""

    __slots__ = ("_exponent_bits", "_modulus", "_rows")

    def __init__(self, base: int, modulus: int, exponent_bits: int) -> None:
        self._modulus, self._exponent_bits = mpz(modulus), exponent_bits
        self._rows: list[list[mpz]] = []
        step = mpz(base) % self._modulus
        for _ in range(-(-exponent_bits // 8)):
            row = [mpz(1)]
            for _ in range(255):
                row.append(row[-1] * step % self._modulus)
            self._rows.append(row)
            step = row[-1] * step % self._modulus

    def power(self, exponent: int) -> mpz:
        """Raise the base to an exponent of at most the promised length."""
        if not 0 <= exponent < 1 << self._exponent_bits:
            raise ConfigError(f"exponent outside 0 … 2^{self._exponent_bits} - 1: build a longer table")
        modulus, result = self._modulus, mpz(1)
        digits = int(exponent).to_bytes(len(self._rows), "little")
        for row, digit in zip(self._rows, digits, strict=True):
            result = result * row[digit] % modulus
        return result


def random_prime(bits: int, factor: int = 1) -> mpz:
    """Draw a prime p ≡ 3 (mod 4), two top bits set, with an odd ``factor`` of p - 1."""
    while True:
        drawn = mpz(secrets.randbits(bits) | 3 << (bits - 2))
        half = (drawn // (2 * factor) | 1) * factor  # odd, so that 2·half + 1 ≡ 3 (mod 4)
        candidate = 2 * half + 1
        if candidate >> (bits - 2) == 3 and is_probably_prime(candidate):
            return candidate


def is_probably_prime(number: int) -> bool:
    """Return whether a number is prime, as far as Baillie-PSW and 40 rounds of Miller-Rabin can tell."""
    if number > SMALL_PRIMES and gmpy2.gcd(number, SMALL_PRIMES) != 1:
        return False
    return bool(gmpy2.is_prime(mpz(number), ROUNDS))


def random_unit(modulus: int) -> mpz:
    """Draw a number uniformly from those below the modulus that are invertible."""
    while True:
        drawn = mpz(secrets.randbelow(int(modulus)))
        if gmpy2.gcd(drawn, modulus) == 1:
            return drawn


def combine(first: mpz, second: mpz, moduli: tuple[mpz, mpz], inverse: mpz) -> mpz:
    """Join two remainders into one (Garner); ``inverse`` is that of the second modulus modulo the first."""
    return second + moduli[1] * ((first - second) * inverse % moduli[0])
