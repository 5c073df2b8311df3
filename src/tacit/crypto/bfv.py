"""BFV by Microsoft SEAL: encrypted vectors of integers that add up exactly, without the key.

Key holders encrypt and decrypt (:class:`Cipher`), the coordinator adds. Encryption is symmetric and seeded:
the second polynomial of a ciphertext is pseudorandom, and its seed travels instead. Integers lie in the
coefficients of the plaintext, and of the first polynomial only those coefficients travel that hold one.

**Totals come out exactly.** A fresh ciphertext hides m, modulo t, as ⌈q m / t⌋ + e with noise e from -21 to
21 (SEAL's centred binomial distribution; its alternative is cut at 19.2). The sum of k ciphertexts decrypts
to the sum of their m exactly as long as all noise and rounding together, k (21 + ½) at the worst, stays below
q / 2t. That is what :meth:`Parameters.check` asks, with 22 in place of 21½ for SEAL's own rounding when it
decrypts: a bound on every possible outcome, not on probable ones. So what is opened tells nothing of noise or
key. All values lie in coefficients, so that t may be any number: a power of two as large as the totals. What
is left of q has room for the noise, and its primes are as small as that allows.

**Security**, and what BFV does not stand up to: docs/bfv.md.

Reference: Fan, Vercauteren, "Somewhat practical fully homomorphic encryption", 2012; Bajard, Eynard, Hasan,
Zucca, "A full RNS variant of FV like somewhat homomorphic encryption schemes", 2016, which SEAL implements.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, log2, prod

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, MessageError, ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.seal import blob, seal
from tacit.crypto.seal import ring as rings
from tacit.crypto.seal.blob import Form, Header, all_residues, ciphertexts_of, write_encrypted
from tacit.crypto.seal.residues import Residues, plain_from_seal, plain_to_seal
from tacit.crypto.seal.ring import MOST_SUMMANDS, KeyHolder, Ring, RingParameters

Integers = NDArray[np.int64]

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
    """A ring, and what it holds."""

    degree: int  # of the ring's polynomials: so many integers fit into one ciphertext
    modulus_bits: int  # of q, so of each coefficient that travels
    plain_bits: int  # totals are known modulo 2 to the power of this

    @classmethod
    def holding(cls, values: int, plain_bits: int, summands: int) -> "Parameters":
        """Return the smallest ring for totals of so many vectors and bits; refuse what no ring holds."""
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
    def named(cls, name: str) -> "Parameters":
        """Return the parameters of a name that came in a blob."""
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


def ring_of(parameters: Parameters) -> Ring:
    """Return the context of a ring, made once per process."""
    primes = PRIMES.get(parameters.modulus_bits, (parameters.modulus_bits,))
    degree, plain_bits = parameters.degree, parameters.plain_bits
    return rings.ring_of(RingParameters("BFV", parameters.name, degree, primes, plain_bits))


@lru_cache(maxsize=256)
def _room(parameters: Parameters) -> int:
    """Return how many summands' noise stays below q / 2t, at the worst."""
    return (prod(ring_of(parameters).primes) - 1) // (2 * NOISE << parameters.plain_bits)


_NAMED = Parameters(2048, 52, 32)  # whichever rings are used, keys are named by this one's

INTEGERS = Form(
    code=4,
    chunks=lambda ring, header: -(-header.rows // ring.degree),
    kept=lambda ring, header: -(-header.rows // 8) * 8,
    sound=lambda ring, header: (header.outputs, header.bound, header.factor) == (1, 1.0, 1.0),
)


class Cipher(KeyHolder):
    """Encrypts and decrypts for those who hold the key."""

    def __init__(self, secret: Secret) -> None:
        super().__init__(secret, ring_of(_NAMED))

    def encrypt(self, integers: Integers, parameters: Parameters, summands: int) -> bytes:
        """Encrypt integers for a sum of ``summands`` at most, known modulo 2^plain_bits, around zero."""
        parameters.check(summands)
        values = np.asarray(integers)
        if values.ndim != 1 or not values.size or values.dtype != np.int64:
            raise ConfigError(
                f"{values.dtype} of shape {values.shape} to encrypt: give int64s in one dimension"
            )
        top = 1 << (parameters.plain_bits - 1)
        if values.min() < -top or values.max() >= top:
            raise MessageError(
                f"an integer to encrypt needs more than the {parameters.plain_bits} bits of its ring, its "
                "sign included: take a larger plain modulus"
            )
        ring = ring_of(parameters)
        header = Header(INTEGERS, True, self.key_id, values.size, 1, 1, summands)
        words = (values & ((1 << parameters.plain_bits) - 1)).view(np.uint64)
        starts = range(0, values.size, ring.degree)
        plains = (plain_to_seal(ring, words[first : first + ring.degree]) for first in starts)
        return write_encrypted(ring, header, self.expanded(ring).encryptor, plains)

    def decrypt(self, encrypted: bytes, parameters: Parameters) -> Integers:
        """Decrypt a sum, exactly."""
        header = read(parameters, self.key_id, encrypted)
        return self.open(header, all_residues(ring_of(parameters), header, encrypted), parameters)

    def open(self, header: Header, residues: Mapping[int, Residues], parameters: Parameters) -> Integers:
        """Decrypt the residues of a sum that was read and checked."""
        ring = ring_of(parameters)
        decryptor = self.expanded(ring).decryptor
        words, plain = np.zeros(header.rows, np.uint64), seal.Plaintext()
        for number, ciphertext in enumerate(ciphertexts_of(ring, header, residues)):
            decryptor.decrypt(ciphertext, plain)
            chunk = words[ring.degree * number : ring.degree * (number + 1)]
            if plain.coeff_count() > chunk.size:  # what lies beyond means nothing
                plain.resize(chunk.size)
            coefficients = plain_from_seal(plain)  # without zeros at its end
            chunk[: coefficients.size] = coefficients
        unused = 64 - parameters.plain_bits
        return (words << np.uint64(unused)).view(np.int64) >> unused


def read(parameters: Parameters, key_id: bytes, encrypted: bytes) -> Header:
    """Check a blob, and that its ring has room for the summands that it declares; return its header."""
    header = blob.read(ring_of(parameters), key_id, encrypted, INTEGERS)
    parameters.check(header.summands)
    return header
