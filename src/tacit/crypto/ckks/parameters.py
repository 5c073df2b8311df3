"""Parameter sets of CKKS, what they hold and how exact they are, and the SEAL contexts made from them.

CKKS (Cheon, Kim, Kim, Song, ASIACRYPT 2017) packs ``degree / 2`` real numbers into one ciphertext, each
times a ``scale``, as integers modulo a product of primes. What is left of the modulus above the scale is
the headroom: a total beyond it comes out as a wrong number, without a sign, so it is checked here. What
lies below the scale is lost in noise; values are therefore amplified by the power of two that the declared
bound and number of summands leave free, and rounded after decryption to a unit above the noise.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tacit.core.errors import ConfigError, nearest
from tacit.crypto.seal import seal
from tacit.crypto.seal.blob import LEAST, MOST
from tacit.crypto.seal.ring import MOST_SUMMANDS, Ring, RingParameters, make_ring

NOISE = 3.2  # standard deviation of SEAL's error distribution, per coefficient
CLEARANCE = 16.0  # rounding units are at least so many standard deviations of the noise
SAFE_PART = 0.99  # of the headroom: primes lie a little below their power of two, and noise is added
ENCODED_BITS = 60  # amplified values stay below this, where SEAL's encoder works on single words
FLOAT_BITS = 48  # of a total that survive SEAL's Fourier transforms in float64


@dataclass(frozen=True)
class ParameterSet:
    """A ring, its primes and a scale, with everything that follows from them.

    Examples
    --------
    >>> chosen = parameter_set("sum")
    >>> chosen.slots, chosen.headroom > 1e8, chosen.rounding_unit(bound=1.0, summands=20_000) < 1e-9
    (2048, True, True)
    >>> ring_of(ParameterSet("weak", 4096, (60, 60, 60), 40))
    Traceback (most recent call last):
    ...
    tacit.core.errors.ConfigError: parameter set 'weak' (degree 4,096, 180 bits of primes) is refused: ...
    """

    name: str  # up to 16 ASCII characters; stands in every blob
    degree: int  # of the ring's polynomials; half as many values fit into one ciphertext
    prime_bits: tuple[int, ...]  # the last one is SEAL's special prime, which ciphertexts do not use
    scale_bits: int  # values are multiplied by 2 to the power of this
    multiplies: bool = False  # whether a product with a plain matrix is possible; it takes the second prime

    @property
    def slots(self) -> int:
        """Values in one ciphertext."""
        return self.degree // 2

    @property
    def data_bits(self) -> tuple[int, ...]:
        """Sizes of the primes that ciphertexts use."""
        return self.prime_bits[:-1]

    @property
    def headroom(self) -> float:
        """Largest total that still decodes."""
        return math.ldexp(SAFE_PART, sum(self.data_bits) - self.scale_bits - 1)

    @property
    def product_headroom(self) -> float:
        """Largest number of summands that a product with a matrix can follow."""
        return math.ldexp(SAFE_PART, self.data_bits[0] - self.scale_bits - 1)

    def amplification(self, bound: float, summands: int) -> int:
        """Return the power of two by which values are multiplied: what bound and summands leave free.

        Refuses a total of so many values of this size that would not decode.
        """
        self.check_declared(bound, summands)
        total = bound * summands
        if total > self.headroom:
            fits = [name for name, other in PARAMETERS.items() if total <= other.headroom]
            raise ConfigError(
                f"{summands:,} values of up to {bound:g} add up to {total:.6g}, but set '{self.name}' "
                f"decodes totals up to {self.headroom:.6g}: scale the values down"
                + (f", or use set {' or '.join(fits)}" if fits else "")
            )
        free = math.floor(math.log2(self.headroom / total))
        return min(free, ENCODED_BITS - self.scale_bits - math.ceil(math.log2(bound)))

    def column_amplification(self, summands: int) -> int:
        """Return the power of two for a product's columns: a little over half of the free bits.

        The matrix gets the rest. Refuses a set that does not multiply, and a product of so many summands
        that would not decode.
        """
        self.check_declared(1.0, summands)
        if not self.multiplies:
            fits = [name for name, other in PARAMETERS.items() if other.multiplies]
            raise ConfigError(f"set '{self.name}' has no level for a product: use {' or '.join(fits)}")
        if summands > self.product_headroom:
            raise ConfigError(
                f"a product of {summands:,} summands does not decode with set '{self.name}', its limit is "
                f"{math.floor(self.product_headroom):,}: use fewer summands or a set with more headroom"
            )
        free = math.log2(self.product_headroom / summands)
        # Columns take on the noise of rotations, the matrix only rounding, 2⁶ times less: hence 3 bits more.
        return math.floor(min(free, free / 2 + 3))

    def matrix_reach(self, summands: int) -> float:
        """Return what the absolute values of each row of a product's matrix add up to, at most."""
        return 0.98 * self.product_headroom / math.ldexp(summands, self.column_amplification(summands))

    def check_declared(self, bound: float, summands: int) -> None:
        """Refuse a bound or a number of summands that means nothing."""
        if not LEAST < bound < MOST:
            raise ConfigError(f"bound is {bound!r}: give the largest absolute value that may occur, above 0")
        if summands != int(summands) or not 1 <= summands <= MOST_SUMMANDS:
            raise ConfigError(f"{summands:,} summands declared: from 1 to {MOST_SUMMANDS:,} are possible")

    def slot_unit(self, summands: int) -> float:
        """Return the rounding unit of a sum before it is scaled back: a power of two above all noise."""
        return _power_above(CLEARANCE * self.slot_noise * math.sqrt(summands))

    def rounding_unit(self, bound: float, summands: int) -> float:
        """Return the rounding unit of a decrypted sum; its error is at most one unit."""
        noise = math.ldexp(self.slot_unit(summands), -self.amplification(bound, summands))
        return max(noise, _power_above(math.ldexp(bound * summands, -FLOAT_BITS)))

    def product_unit(self, summands: int, gathering: float) -> float:
        """Return the rounding unit of a product's slots before they are scaled back.

        Noise is that of the summands and of the key switches after rotations, both times the matrix, and
        that of rescaling. A key switch multiplies the error in its key by the digits of a ciphertext (one
        per prime q) and divides by the special prime. SEAL's digits lie in [0, q) and not around zero: beside
        the random part they have the mean q / 2, which gathers in slots whose root is near 1.
        """
        slot = math.sqrt(self.degree / 2) / 2.0**self.scale_bits
        rounding = math.sqrt((1 + 2 * self.degree / 3) / 12)
        digits = math.sqrt(sum(4.0 ** (bits - self.prime_bits[-1]) for bits in self.data_bits))
        error = NOISE * digits * math.hypot(math.sqrt(self.degree / 12), gathering / 2)
        carried = math.hypot(self.slot_noise * math.sqrt(summands), math.hypot(rounding, error) * slot)
        return _power_above(CLEARANCE * (self.matrix_reach(summands) * carried + rounding * slot))

    @property
    def slot_noise(self) -> float:
        """Standard deviation of a fresh ciphertext's noise, in each slot."""
        return NOISE * math.sqrt(self.degree / 2) / 2.0**self.scale_bits


PARAMETERS = {
    chosen.name: chosen
    for chosen in (
        ParameterSet("product", 8192, (60, 40, 60), 40, multiplies=True),
        ParameterSet("product-small", 4096, (40, 29, 40), 29, multiplies=True),
        ParameterSet("sum", 4096, (36, 36, 37), 44),
        ParameterSet("sum-compact", 4096, (54, 55), 36),
    )
}


def parameter_set(name: str) -> ParameterSet:
    """Look up a parameter set by its name.

    >>> parameter_set("sun")
    Traceback (most recent call last):
    ...
    tacit.core.errors.ConfigError: unknown CKKS parameter set 'sun': did you mean 'sum'? ...
    """
    if name not in PARAMETERS:
        raise ConfigError(f"unknown CKKS parameter set '{name}': {nearest(name, PARAMETERS)}")
    return PARAMETERS[name]


@dataclass(frozen=True, eq=False)
class CKKSRing(Ring):
    """A ring with the parameters that it was made for, and SEAL's encoder; use :func:`ring_of`."""

    parameters: ParameterSet
    encoder: Any

    def scale(self, primes: int) -> float:
        """Return the scale at that level: rescaling divides the product of two scales by the lost prime."""
        scale = 2.0**self.parameters.scale_bits
        return scale if primes == len(self.primes) else scale * scale / self.primes[-1]


# One context costs milliseconds and megabytes: all clients of a process share it.
@lru_cache(maxsize=16)
def ring_of(parameters: ParameterSet) -> CKKSRing:
    """Return the context of a parameter set, made once per process.

    Refuses what SEAL refuses: among others, parameters that give less than 128 bits of security.
    """
    if parameters.multiplies and len(parameters.data_bits) != 2:
        raise ConfigError(
            f"parameter set '{parameters.name}' is refused: it has {len(parameters.data_bits)} primes beside "
            "the special one, and a product takes exactly two"
        )
    made = make_ring(RingParameters("CKKS", parameters.name, parameters.degree, parameters.prime_bits))
    # The scale is part of what blobs are bound to.
    digest = hashlib.sha256(made.digest + repr(parameters).encode()).digest()[:16]
    known = (made.ring_parameters, made.context, made.evaluator, made.primes, digest)
    return CKKSRing(*known, parameters, seal.CKKSEncoder(made.context))


def _power_above(value: float) -> float:
    return 2.0 ** math.ceil(math.log2(value))
