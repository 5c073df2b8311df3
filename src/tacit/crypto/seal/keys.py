"""Keys of SEAL's from a secret of 32 bytes.

SEAL draws a secret key from a random generator. Here that generator starts from the 32 secret bytes, so that
each key holder expands the very same key by itself: SEAL's own form of it has 60 to 180 kB. All other
randomness (encryption, rotation keys) comes fresh from the operating system.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from dataclasses import dataclass
from typing import Any

from tacit.core.errors import ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.seal.ring import Ring

SECRET_BYTES = 32
KEY_ID_BYTES = 16


@dataclass(frozen=True, eq=False)
class Expanded:
    """A secret key in the form that SEAL works with."""

    key: Any
    encryptor: Any
    decryptor: Any
    key_id: bytes

    def __repr__(self) -> str:
        return "Expanded(hidden)"


def new_secret() -> Secret:
    """Draw a secret from the operating system."""
    return Secret(secrets.token_bytes(SECRET_BYTES))


def expand(ring: Ring, secret: Secret) -> Expanded:
    """Expand a secret: 3 to 5 ms, and no secret stays behind in a cache of this module.

    Each ring makes a key of its own from it.
    """
    import tenseal.sealapi as seal

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
    encryptor, decryptor = seal.Encryptor(ring.context, key), seal.Decryptor(ring.context, key)
    return Expanded(key, encryptor, decryptor, key_id)
