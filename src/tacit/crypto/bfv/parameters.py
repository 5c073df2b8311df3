"""Rings of BFV, chosen by what is to be summed, and the proof that their noise cannot reach a total.

A fresh ciphertext hides m, modulo t, as ⌈q m / t⌋ + e with noise e from -21 to 21 (SEAL's centred binomial
distribution; its alternative is cut at 19.2). The sum of k ciphertexts decrypts to the sum of their m exactly
as long as all noise and rounding together, k (21 + ½) at the worst, stays below q / 2t. That is what
:meth:`Parameters.check` asks, with 22 in place of 21½ for SEAL's own rounding when it decrypts: a bound on
every possible outcome, not on probable ones.

All values lie in coefficients, so that t may be any number: a power of two as large as the totals. What is
left of q has room for the noise, and its primes are as small as that allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, log2, prod

from tacit.core.errors import ConfigError, ProtectionError
from tacit.crypto.seal.ring import MOST_SUMMANDS, Ring, RingParameters, make_ring

NOISE = 22  # of a fresh ciphertext, its rounding included: never more
MOST_PLAIN_BITS = 59  # SEAL's plain moduli have up to 60 bits, and ours is a power of two
SMALL, USUAL = 2048, 4096  # degrees
SMALL_BITS = 52  # of the small degree's one prime; SEAL's limit for 128-bit security is 54
PRIMES = {  # of the usual degree, by the bits of q; the last of three is SEAL's special one
    **{bits: (bits,) for bits in range(24, 61, 4)},
    **{2 * bits: (bits, bits, 109 - 2 * bits) for bits in (36, 40, 44)},
}


@dataclass(frozen=True)
class Parameters:
    """A ring, and what it holds.

    Examples
    --------
    >>> chosen = Parameters.holding(values=4_000, plain_bits=39, summands=100)
    >>> chosen, chosen.name
    (Parameters(degree=4096, modulus_bits=52, plain_bits=39), '4096-52-39')
    >>> Parameters.holding(4_000, plain_bits=47, summands=20_000).bytes_per_value
    9.0
    """

    degree: int  # of the ring's polynomials: so many integers fit into one ciphertext
    modulus_bits: int  # of q, so of each coefficient that travels
    plain_bits: int  # totals are known modulo 2 to the power of this

    @classmethod
    def holding(cls, values: int, plain_bits: int, summands: int) -> Parameters:
        """Return the smallest ring that holds the total of so many vectors, whose values need so many bits.

        Refuses what no ring holds.
        """
        if not 1 <= summands <= MOST_SUMMANDS:
            raise ConfigError(f"{summands:,} summands declared: from 1 to {MOST_SUMMANDS:,} are possible")
        needed = _bits_needed(plain_bits, summands)
        fits = [bits for bits in PRIMES if bits > needed]
        if plain_bits > MOST_PLAIN_BITS or not fits:
            most = min(MOST_PLAIN_BITS, max(PRIMES) - ceil(needed - plain_bits))
            raise ConfigError(
                f"totals of {plain_bits} bits over {summands:,} summands do not fit: BFV has room for {most} "
                f"bits there beside the noise, so use at most {most - (summands - 1).bit_length()} bits a "
                "value, or fewer summands"
            )
        small = values <= SMALL and fits[0] <= SMALL_BITS
        return cls(SMALL if small else USUAL, fits[0], plain_bits)

    @classmethod
    def named(cls, name: str) -> Parameters:
        """Return the parameters of a name that came in a blob.

        >>> Parameters.named("4096-52-39") == Parameters(4096, 52, 39)
        True
        """
        parts = name.split("-")
        if len(parts) == 3 and all(part.isdecimal() and len(part) < 5 for part in parts):
            found = cls(*map(int, parts))
            known = found.degree in (SMALL, USUAL) and found.modulus_bits in PRIMES
            if known and 1 < found.plain_bits <= MOST_PLAIN_BITS and found.name == name:
                return found
        raise ProtectionError(
            f"blob of parameters {name!r}, which are none of BFV's: agree on one protection"
        )

    @property
    def name(self) -> str:
        """What stands for it in blobs."""
        return f"{self.degree}-{self.modulus_bits}-{self.plain_bits}"

    @property
    def prime_count(self) -> int:
        """Primes of a ciphertext."""
        return 1 if self.modulus_bits <= 60 else 2

    @property
    def bytes_per_value(self) -> float:
        """Upload for one integer; seed and header come to it."""
        return self.modulus_bits / 8

    def chunks(self, values: int) -> int:
        """Return how many ciphertexts so many integers take."""
        return -(-values // self.degree)

    def room_bits(self, summands: int) -> int:
        """Return how many bits more the totals of so many vectors could have in a ring of this modulus.

        >>> Parameters(4096, 60, 44).room_bits(100)
        3
        """
        spare = floor(self.modulus_bits - _bits_needed(self.plain_bits, summands))
        return min(spare, MOST_PLAIN_BITS - self.plain_bits)

    def check(self, summands: int) -> None:
        """Refuse more summands than this ring's noise budget is for."""
        if (room := _room(self)) < summands:
            raise ConfigError(
                f"the noise of {summands:,} summands may exceed the budget of ring '{self.name}', which has "
                f"room for {room:,}: take the ring that Parameters.holding gives for so many"
            )


def _bits_needed(plain_bits: int, summands: int) -> float:
    """Return how many bits q needs; its primes lie a little below powers of two."""
    return plain_bits + log2(2 * NOISE * summands) + 2**-10


# One context costs milliseconds and megabytes: all clients of a process share it.
@lru_cache(maxsize=32)
def ring_of(parameters: Parameters) -> Ring:
    """Return the context of a ring, made once per process."""
    primes = PRIMES.get(parameters.modulus_bits, (parameters.modulus_bits,))
    degree, plain_bits = parameters.degree, parameters.plain_bits
    return make_ring(RingParameters("BFV", parameters.name, degree, primes, plain_bits))


@lru_cache(maxsize=256)
def _room(parameters: Parameters) -> int:
    """Return how many summands' noise stays below q / 2t, at the worst."""
    return (prod(ring_of(parameters).primes) - 1) // (2 * NOISE << parameters.plain_bits)
