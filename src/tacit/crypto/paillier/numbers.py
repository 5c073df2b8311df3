"""Number theory under Paillier: random primes, powers of a fixed base, Chinese remainders, threads.

Nothing here is constant in time: GMP's side-channel-quiet power is 40 % slower and keeps Python's
lock. Keys belong on machines that their holder does not share with an adversary.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

import gmpy2
from gmpy2 import mpz

from tacit.core.errors import ConfigError

Item = TypeVar("Item")
Result = TypeVar("Result")

WINDOW = 8  # bits of an exponent that one multiplication handles
MAX_WINDOW = 12
# GMP runs the Baillie-PSW test (no composite is known to pass it) and then rounds − 24 Miller-Rabin rounds.
ROUNDS = 64
SMALL_PRIMES = gmpy2.primorial(2000)  # one gcd with it rules out nine candidates of ten


class FixedBase:
    """Powers of one base by table: one multiplication per window of the exponent, no squarings.

    Parameters
    ----------
    base, modulus : int
        What is raised, and modulo what.
    exponent_bits : int
        Longest exponent.
    window : int
        Bits per table row: a row holds ``2**window`` powers. Eight bits with a 1024-bit exponent
        modulo 4096 bits make 32,768 numbers or about 18 MB, and 0.15 s of work to fill.

    Examples
    --------
    >>> table = FixedBase(3, 1_000_003, exponent_bits=20, window=4)
    >>> int(table.power(777_777)) == pow(3, 777_777, 1_000_003)
    True
    """

    __slots__ = ("_exponent_bits", "_modulus", "_rows", "_window")

    def __init__(self, base: int, modulus: int, exponent_bits: int, window: int = WINDOW) -> None:
        check_window(window)
        self._modulus, self._exponent_bits, self._window = mpz(modulus), exponent_bits, window
        self._rows: list[list[mpz]] = []
        step = mpz(base) % self._modulus
        for _ in range(-(-exponent_bits // window)):
            row = [mpz(1)]
            for _ in range((1 << window) - 1):
                row.append(row[-1] * step % self._modulus)
            self._rows.append(row)
            step = row[-1] * step % self._modulus

    def power(self, exponent: int) -> mpz:
        """Raise the base to an exponent of at most the promised length."""
        if not 0 <= exponent < 1 << self._exponent_bits:
            raise ConfigError(f"exponent outside 0 … 2^{self._exponent_bits} - 1: build a longer table")
        modulus, result = self._modulus, mpz(1)
        digits: Sequence[int]
        if self._window == 8:  # the bytes of a number are its digits
            digits = int(exponent).to_bytes(len(self._rows), "little")
        else:
            digits = gmpy2.unpack(mpz(exponent), self._window)
        for row, digit in zip(self._rows, digits, strict=False):  # leading zeros may be left out
            result = result * row[digit] % modulus
        return result


def check_window(window: int) -> None:
    """Refuse windows whose table would be useless or enormous."""
    if not 1 <= window <= MAX_WINDOW:
        raise ConfigError(
            f"window is {window}, it must be 1 to {MAX_WINDOW}: 4 takes 2 MB, 8 takes 18 MB at 2048 bits"
        )


def random_prime(bits: int, factor: int = 1) -> mpz:
    """Draw a prime p ≡ 3 (mod 4) from the operating system's randomness, its two top bits set.

    Parameters
    ----------
    bits : int
        Exact length; with the two top bits set, a product of two such primes has exactly twice as many.
    factor : int
        Odd divisor of p - 1.

    Examples
    --------
    >>> p = random_prime(64, factor=1_000_003)
    >>> p.bit_length(), int(p % 4), int((p - 1) % 1_000_003)
    (64, 3, 0)
    """
    while True:
        drawn = mpz(secrets.randbits(bits) | 3 << (bits - 2))
        half = (drawn // (2 * factor) | 1) * factor  # odd, so that 2·half + 1 ≡ 3 (mod 4)
        candidate = 2 * half + 1
        if candidate >> (bits - 2) == 3 and is_probably_prime(candidate):
            return candidate


def is_probably_prime(number: int) -> bool:
    """Whether a number is prime, as far as Baillie-PSW and 40 rounds of Miller-Rabin can tell.

    >>> is_probably_prime(2**127 - 1), is_probably_prime(2**128 + 1)
    (True, False)
    """
    if number > SMALL_PRIMES and gmpy2.gcd(number, SMALL_PRIMES) != 1:
        return False
    return bool(gmpy2.is_prime(mpz(number), ROUNDS))


def random_unit(modulus: int) -> mpz:
    """Draw a number uniformly from those below the modulus that are invertible.

    >>> int(random_unit(2))
    1
    """
    while True:
        drawn = mpz(secrets.randbelow(int(modulus)))
        if gmpy2.gcd(drawn, modulus) == 1:
            return drawn


def combine(first: mpz, second: mpz, moduli: tuple[mpz, mpz], inverse: mpz) -> mpz:
    """Join two remainders into one (Garner); ``inverse`` is that of the second modulus modulo the first.

    >>> int(combine(mpz(2), mpz(3), (mpz(5), mpz(7)), mpz(3)))
    17
    """
    return second + moduli[1] * ((first - second) * inverse % moduli[0])


def in_threads(function: Callable[[Item], Result], items: Sequence[Item], workers: int = 1) -> list[Result]:
    """Apply a function to all items, in order, on several threads.

    GMP can give up Python's lock while it multiplies, so that threads do run at the same time and
    no key has to travel to another process.

    >>> in_threads(abs, [-3, 1, -2], workers=2)
    [3, 1, 2]
    """
    if workers < 1:
        raise ConfigError(f"workers is {workers}: 1 works in this thread, 2 uses two threads")
    workers = min(workers, len(items))
    if workers <= 1:
        return list(map(function, items))
    size = -(-len(items) // workers)
    pieces = [items[start : start + size] for start in range(0, len(items), size)]

    def work(piece: Sequence[Item]) -> list[Result]:
        with gmpy2.context(gmpy2.get_context(), allow_release_gil=True):  # holds for this thread only
            return list(map(function, piece))

    with ThreadPoolExecutor(len(pieces)) as pool:
        return list(chain.from_iterable(pool.map(work, pieces)))
