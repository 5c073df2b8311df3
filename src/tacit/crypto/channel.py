"""Identities, exchange keys and sealed channels between parties that the coordinator only relays.

Every site has an Ed25519 *identity*, pinned by the others beforehand. For each run it makes a fresh X25519
*exchange key* and signs it, so that the relay cannot swap it. Two parties derive a key from their
exchange keys (X25519 → HKDF-SHA256) and seal with ChaCha20-Poly1305, bound to run, sum, step, sender
and receiver: a blob moved to another place or time does not open.
"""

import hmac
import os
from collections.abc import Sequence
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from nacl.bindings import crypto_sign_open
from nacl.exceptions import CryptoError

from tacit.core.errors import ProtectionError
from tacit.core.secret import Secret

NONCE = 12
SIGNATURE = 64


def identity_public(identity: Secret) -> bytes:
    """Return the public half of an identity: what others pin."""
    return Ed25519PrivateKey.from_private_bytes(identity.reveal()).public_key().public_bytes_raw()


def new_exchange() -> tuple[Secret, bytes]:
    """Make a fresh exchange key: the private half, and the public one."""
    private = X25519PrivateKey.generate()
    return Secret(private.private_bytes_raw()), private.public_key().public_bytes_raw()


def exchange_public(private: Secret) -> bytes:
    """Return the public half of an exchange key."""
    return X25519PrivateKey.from_private_bytes(private.reveal()).public_key().public_bytes_raw()


def sign_key(identity: Secret, purpose: str, owner: str, run: str, public: bytes) -> bytes:
    """Sign a public key for a purpose in a run: the signature followed by the key."""
    private = Ed25519PrivateKey.from_private_bytes(identity.reveal())
    return private.sign(bound(purpose, owner, run, public)) + public


def checked_key(signed: bytes, pinned: bytes, purpose: str, owner: str, run: str) -> bytes:
    """Return a public key if the pinned identity signed it for this purpose, owner and run; refuse others."""
    signature, public = signed[:SIGNATURE], signed[SIGNATURE:]
    try:
        # libsodium checks a signature in half the time of OpenSSL, and a client checks one of each neighbour.
        crypto_sign_open(signature + bound(purpose, owner, run, public), pinned)
    except (CryptoError, ValueError):
        raise ProtectionError(
            f"the {purpose} key of {owner} is not signed by its pinned identity: the relay or a stranger "
            "swapped it; do not go on"
        ) from None
    return public


def pair_key(private: Secret, peer: bytes, purpose: str, run: str) -> Secret:
    """Derive the key that two parties share for one purpose in one run."""
    return pair_keys(private, [peer], purpose, run)[0]


def pair_keys(
    private: Secret, peers: Sequence[bytes], purpose: str, run: str, known: Sequence[bytes] = ()
) -> list[Secret]:
    """Derive what one party, whose key is read once, shares with others, bound to what is ``known``."""
    own = X25519PrivateKey.from_private_bytes(private.reveal())
    try:
        raws = [own.exchange(X25519PublicKey.from_public_bytes(peer)) for peer in peers]
    except ValueError:
        raise ProtectionError("an exchange key that gives no secret (a point of small order)") from None
    info, more = bound(purpose, run), known or [b""] * len(peers)
    return [Secret(derive_key(raw + extra, info)) for raw, extra in zip(raws, more, strict=True)]


def derive_key(secret: bytes, info: bytes) -> bytes:
    """Derive a key for a purpose: HKDF-SHA256 (RFC 5869) without salt, one block, so two calls of HMAC."""
    return hmac.digest(hmac.digest(bytes(32), secret, "sha256"), info + b"\x01", "sha256")


def bound(*pieces: str | bytes) -> bytes:
    """Join names and values into one byte string, each after its length, so that none run together."""
    found = list[bytes]()
    for piece in pieces:
        raw = piece.encode() if isinstance(piece, str) else piece
        found += (len(raw).to_bytes(4, "little"), raw)
    return b"".join(found)


def hash_pieces(*pieces: str | bytes) -> bytes:
    """Return the hash of names and values, each with its length, so that none run together."""
    return sha256(bound(*pieces)).digest()


def place(run: str, number: int, step: str, sender: str, receiver: str) -> bytes:
    """Return the context to which a sealed blob is bound: run, number, step, sender and receiver."""
    return bound("place", run, str(number), step, sender, receiver)


def seal(key: Secret, raw: bytes, where: bytes) -> bytes:
    """Encrypt for the other holder of the key, bound to its place."""
    nonce = os.urandom(NONCE)
    return nonce + ChaCha20Poly1305(key.reveal()).encrypt(nonce, raw, where)


def unseal(key: Secret, sealed: bytes, where: bytes) -> bytes:
    """Decrypt what was sealed for this place; refuse what was changed or belongs to another."""
    try:
        return ChaCha20Poly1305(key.reveal()).decrypt(sealed[:NONCE], sealed[NONCE:], where)
    except (InvalidTag, ValueError):
        raise ProtectionError(
            "a sealed message does not open: it was changed, or belongs to another run, sum, step or party"
        ) from None
