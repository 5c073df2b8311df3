"""Paillier's public keys: what encrypts and adds.

P. Paillier: Public-key cryptosystems based on composite degree residuosity classes. EUROCRYPT 1999.
I. Damgård, M. Jurik, J. B. Nielsen: A generalization of Paillier's public-key system with applications
to electronic voting. Int. J. Inf. Secur. 9 (2010), section 4.2 ("DJN" below).

The generator is n + 1, so that a ciphertext is (1 + m·n)·ρ mod n² with a random n-th residue ρ:

* ``plain``: ρ = r^n with r uniform below n, as in 1999.
* ``djn``: ρ = (h^n)^α with h = -x² mod n and α uniform of half n's length. As hard as plain by DJN's
  theorem for that length.
* ``short-alpha``: the same form with an h of secret small order α | λ (Paillier 1999, scheme 3, the
  "improved Paillier" of PFMLP). Its g^(m + n·r) is (1 + m·n) times an element of the group that h^n
  generates. Decryption raises to α instead of λ. It rests on the partial discrete logarithm problem,
  which is less studied, and α's primes must be twice as long as the security wanted.
"""

import hashlib
import secrets
import struct
import warnings
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from functools import lru_cache
from typing import Literal, get_args

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import ArrayLike

from tacit.core.errors import ConfigError, MessageError
from tacit.crypto.paillier.blob import Header, Packing, write_blob
from tacit.crypto.paillier.numbers import SMALL_PRIMES, FixedBase, is_probably_prime, random_unit

Randomness = Literal["djn", "plain", "short-alpha"]

# Length of n: length of each of the two primes of a short α, twice the bits of security.
ALPHA_PRIME_BITS = {1024: 160, 2048: 224, 3072: 256, 4096: 304}
SHORT_KEY = 1024
EXTRA_BITS = 64  # an exponent so much longer than the order makes the power uniform but for 2^-64

_MAGIC, _VERSION = b"TPP", 1
_PREFIX = struct.Struct(">3sBBHH")
_KINDS: tuple[Randomness, ...] = get_args(Randomness)


class ShortKeyWarning(UserWarning):
    """A key that is too short to protect anything today."""


def check_bits(bits: int, allow_short: bool) -> None:
    """Refuse key lengths other than 2048, 3072, 4096 and, where allowed, 1024."""
    if bits not in ALPHA_PRIME_BITS or (bits == SHORT_KEY and not allow_short):
        raise ConfigError(
            f"key of {bits} bits: use 2048 (112 bits of security), 3072 (128) or 4096; 1024 is for "
            "reproducing papers only and needs allow_short=True"
        )


def check_randomness(randomness: Randomness) -> None:
    """Refuse unknown kinds of randomness."""
    if randomness not in _KINDS:
        raise ConfigError(f"randomness '{randomness}' is unknown: use one of {', '.join(_KINDS)}")


@dataclass(frozen=True, repr=False)
class PublicKey:
    """A public key, checked as far as one can without its factors; the last four in use keep their tables."""

    modulus: mpz  # n
    base: mpz  # h, or 0 for plain randomness
    randomness: Randomness  # where the random n-th residues come from
    allow_short: InitVar[bool] = False  # accept 1024 bits, with a ShortKeyWarning
    modulus_squared: mpz = field(init=False, compare=False)
    key_id: bytes = field(init=False, compare=False)

    def __post_init__(self, allow_short: bool) -> None:
        object.__setattr__(self, "modulus", mpz(self.modulus))
        object.__setattr__(self, "base", mpz(self.base))
        check_bits(self.bits, allow_short)
        check_randomness(self.randomness)
        self._check_modulus()
        self._check_base()
        if self.bits == SHORT_KEY:
            warnings.warn(
                "a Paillier key of 1024 bits protects nothing today (80 bits of security): use it to "
                "reproduce papers, never with real data",
                ShortKeyWarning,
                stacklevel=4,
            )
        object.__setattr__(self, "modulus_squared", self.modulus**2)
        fingerprint = hashlib.sha256(b"tacit paillier key " + self.to_bytes()).digest()[:16]
        object.__setattr__(self, "key_id", fingerprint)

    def _check_modulus(self) -> None:
        n = self.modulus
        if gmpy2.gcd(n, SMALL_PRIMES) != 1:
            raise ConfigError("n has a small prime factor: it is no product of two large primes")
        if gmpy2.is_power(n) or is_probably_prime(n):
            raise ConfigError("n is a prime or a power: it is no product of two different primes")

    def _check_base(self) -> None:
        n, h = self.modulus, self.base
        if self.randomness == "plain":
            if h:
                raise ConfigError("plain randomness has no base: pass 0")
            return
        if not 1 < h < n - 1 or gmpy2.gcd(h, n) != 1 or gmpy2.jacobi(h, n) != 1:
            raise ConfigError("h is not an invertible number between 1 and n - 1 with Jacobi symbol 1")

    @property
    def bits(self) -> int:
        """Length of n."""
        return int(self.modulus.bit_length())

    @property
    def exponent_bits(self) -> int:
        """Length of the random exponent: half of n's by DJN, a little over the order's for a short α."""
        if self.randomness == "plain":
            return 0
        return self.bits // 2 if self.randomness == "djn" else 2 * ALPHA_PRIME_BITS[self.bits] + EXTRA_BITS

    @property
    def ciphertext_bytes(self) -> int:
        """Length of one ciphertext."""
        return self.bits // 4

    def __repr__(self) -> str:
        return f"PublicKey({self.bits} bits, {self.randomness}, {self.key_id.hex()})"

    def to_bytes(self) -> bytes:
        """Encode: one encoding per key, the same on every machine."""
        size = self.bits // 8
        prefix = _PREFIX.pack(_MAGIC, _VERSION, _KINDS.index(self.randomness), self.bits, self.exponent_bits)
        base = b"" if self.randomness == "plain" else self.base.to_bytes(size, "big")
        return prefix + bytes(self.modulus.to_bytes(size, "big")) + bytes(base)

    @staticmethod
    def from_bytes(raw: bytes, *, allow_short: bool = False) -> "PublicKey":
        """Decode and check; the last keys are remembered, for the test of n takes milliseconds."""
        if not isinstance(raw, bytes):
            raise MessageError(f"a public key is bytes, not {type(raw).__name__}")
        return _decoded(raw, allow_short)

    def randomiser(self) -> mpz:
        """Draw a random n-th residue: an encryption of zero."""
        if self.randomness == "plain":
            return gmpy2.powmod(random_unit(self.modulus), self.modulus, self.modulus_squared)
        return _table(self).power(secrets.randbits(self.exponent_bits))

    def encrypt(self, values: ArrayLike, packing: Packing) -> bytes:
        """Encrypt a vector of whole numbers of any length, each within the packing's range."""
        return seal(self, self.randomiser, values, packing)


def seal(key: PublicKey, randomiser: Callable[[], mpz], values: ArrayLike, packing: Packing) -> bytes:
    """Encrypt a vector with residues from the given source: (1 + m·n)·ρ mod n²."""
    vector = np.asarray(values)
    plaintexts = packing.pack(vector, key.bits)
    n, square = key.modulus, key.modulus_squared
    numbers = [(1 + plain * n) * randomiser() % square for plain in plaintexts]
    return write_blob(key, Header(key.key_id, packing, vector.size, 1), numbers)


@lru_cache(maxsize=4)
def _table(key: PublicKey) -> FixedBase:
    step = gmpy2.powmod(key.base, key.modulus, key.modulus_squared)
    return FixedBase(step, key.modulus_squared, key.exponent_bits)


@lru_cache(maxsize=16)
def _decoded(raw: bytes, allow_short: bool) -> PublicKey:
    if len(raw) < _PREFIX.size:
        raise MessageError(f"public key is truncated: {len(raw)} bytes")
    magic, version, kind, bits, exponent_bits = _PREFIX.unpack_from(raw)
    if magic != _MAGIC or version != _VERSION or kind >= len(_KINDS):
        raise MessageError(f"not a Paillier public key of version {_VERSION}: it starts with {raw[:5]!r}")
    check_bits(bits, allow_short)
    randomness, size = _KINDS[kind], bits // 8
    numbers = raw[_PREFIX.size :]
    expected = size if randomness == "plain" else 2 * size
    if len(numbers) != expected:
        raise MessageError(f"public key has {len(numbers)} bytes of numbers, {bits} bits take {expected}")
    modulus, base = mpz.from_bytes(numbers[:size]), mpz.from_bytes(numbers[size:])
    if modulus.bit_length() != bits:
        raise MessageError(f"public key announces {bits} bits, its n has {modulus.bit_length()}")
    key = PublicKey(modulus, base, randomness, allow_short)
    if exponent_bits != key.exponent_bits:
        raise MessageError(
            f"public key announces exponents of {exponent_bits} bits, its kind has {key.exponent_bits}"
        )
    return key
