"""A ring of SEAL's: its context, its primes, the digest by which blobs name it; and secret keys in it.

SEAL draws a secret key from a random generator. Here that generator starts from 32 secret bytes, so that each
key holder expands the very same key by itself: SEAL's own form of it has 60 to 180 kB. All other randomness
(that of encryption) comes fresh from the operating system.
"""

import hashlib
import secrets
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.seal import seal

MOST_SUMMANDS = 1 << 24
SECRET_BYTES = 32
KEY_ID_BYTES = 16


@dataclass(frozen=True)
class RingParameters:
    """What makes a ring.

    ``prime_bits`` are the sizes of its primes; if there are several, the last one is SEAL's special prime,
    which ciphertexts do not use. ``plain_bits``: log₂ of BFV's plain modulus; 0 for CKKS. ``name``: up to 16
    ASCII characters, which stand in every blob.
    """

    scheme: Literal["BFV", "CKKS"]
    name: str
    degree: int
    prime_bits: tuple[int, ...]
    plain_bits: int = 0

    @property
    def data_bits(self) -> tuple[int, ...]:
        """Sizes of the primes that ciphertexts use."""
        return self.prime_bits[:-1] if len(self.prime_bits) > 1 else self.prime_bits

    def for_seal(self) -> Any:
        """Return SEAL's own parameter object."""
        made = seal.EncryptionParameters(getattr(seal.SCHEME_TYPE, self.scheme))
        made.set_poly_modulus_degree(self.degree)
        made.set_coeff_modulus(seal.CoeffModulus.Create(self.degree, list(self.prime_bits)))
        if self.plain_bits:
            made.set_plain_modulus(1 << self.plain_bits)
        return made


@dataclass(frozen=True, eq=False)
class Ring:
    """A SEAL context and what is asked of it again and again."""

    ring_parameters: RingParameters
    context: Any
    evaluator: Any
    primes: tuple[int, ...]
    digest: bytes

    @property
    def degree(self) -> int:
        """Coefficients of a polynomial."""
        return self.ring_parameters.degree

    @property
    def in_ntt_form(self) -> bool:
        """Whether ciphertexts hold transformed polynomials, as SEAL keeps them under CKKS."""
        return self.ring_parameters.scheme == "CKKS"

    def parms_id(self, primes: int) -> tuple[int, ...]:
        """Return SEAL's name for the level at which ciphertexts have so many primes."""
        full = primes == len(self.primes)
        return tuple(self.context.first_parms_id() if full else self.context.last_parms_id())

    def scale(self, primes: int) -> float:
        """Return the scale that SEAL notes in CKKS' ciphertexts of that level; nothing here depends on it."""
        if not self.in_ntt_form:
            return 1.0
        return 2.0**30 if primes == len(self.primes) else 2.0**60 / self.primes[-1]


# One context costs milliseconds and megabytes: all clients of a process share it.
@lru_cache(maxsize=64)
def ring_of(parameters: RingParameters) -> Ring:
    """Return a context, made once per process; refuses what gives less than 128 bits of security."""
    try:
        context = seal.SEALContext(parameters.for_seal(), True, seal.SEC_LEVEL_TYPE.TC128)
        refusal = "" if context.parameters_set() else context.parameters_error_message()
    except (ValueError, RuntimeError) as error:
        refusal = str(error)
    if not refusal and not 0 < len(parameters.name.encode()) <= 16:
        refusal = "a name has 1 to 16 characters"
    if not refusal:
        modulus = context.first_context_data().parms().coeff_modulus()
        primes = tuple(int(prime.value()) for prime in modulus)
        if len(primes) != len(parameters.data_bits):
            refusal = f"SEAL gives its ciphertexts {len(primes)} primes, not {len(parameters.data_bits)}"
    if refusal:
        raise ConfigError(
            f"parameter set '{parameters.name}' (degree {parameters.degree:,}, "
            f"{sum(parameters.prime_bits)} bits of primes) is refused: {refusal}"
        )
    pinned = ("tacit-seal-1", parameters, primes, tuple(context.key_parms_id()))
    digest = hashlib.sha256(repr(pinned).encode()).digest()[:16]
    return Ring(parameters, context, seal.Evaluator(context), primes, digest)


@dataclass(frozen=True, eq=False, repr=False)
class Expanded:
    """A secret key in the form that SEAL works with."""

    encryptor: Any
    decryptor: Any
    key_id: bytes


def new_secret() -> Secret:
    """Draw a secret from the operating system."""
    return Secret(secrets.token_bytes(SECRET_BYTES))


def expand(ring: Ring, secret: Secret) -> Expanded:
    """Expand a secret, in each ring to a key of its own, in 3 to 5 ms; none stays in a cache here."""
    raw, scheme = secret.reveal(), ring.ring_parameters.scheme
    if len(raw) != SECRET_BYTES:
        raise ProtectionError(f"a {scheme} secret has {SECRET_BYTES} bytes, this one has another length")
    seed = hashlib.sha512(b"tacit-seal-secret-key" + ring.digest + raw).digest()
    seeded = ring.ring_parameters.for_seal()
    seeded.set_random_generator(seal.Blake2xbPRNGFactory(list(struct.unpack("<8Q", seed))))
    key = seal.KeyGenerator(seal.SEALContext(seeded, False, seal.SEC_LEVEL_TYPE.TC128)).secret_key()
    # Residues of the key go into its name: a SEAL that expands a secret otherwise makes a foreign key.
    data = key.data()
    sample = struct.pack("<64Q", *(data[index] for index in range(64)))
    key_id = hashlib.sha256(b"tacit-seal-key-id" + ring.digest + raw + sample).digest()[:KEY_ID_BYTES]
    # From the plain context: the seeded one would draw the encryptions' noise from the secret, too.
    return Expanded(seal.Encryptor(ring.context, key), seal.Decryptor(ring.context, key), key_id)


class KeyHolder:
    """Has a secret, and expands it for each ring that it is used in; the key is named by one of them."""

    def __init__(self, secret: Secret, named: Ring) -> None:
        self._secret = secret
        self._expanded: dict[bytes, Expanded] = {}
        self.key_id = self.expanded(named).key_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(hidden)"

    def expanded(self, ring: Ring) -> Expanded:
        """Return the key in that ring."""
        if ring.digest not in self._expanded:
            self._expanded[ring.digest] = expand(ring, self._secret)
        return self._expanded[ring.digest]
