"""Blinding an encrypted vector, so that not even the key holder can read it until the blinding is taken off.

A ciphertext of m times 1 + n R is one of m + R modulo n, since (1 + n)^R = 1 + n R modulo n². With R uniform
below n, m + R is uniform as well, and tells nothing of m.
"""

from __future__ import annotations

import secrets

from gmpy2 import mpz

from tacit.core.errors import ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.paillier.blob import read_ciphertexts, read_header, write_blob
from tacit.crypto.paillier.keys import PublicKey


def blind(key: PublicKey, blob: bytes) -> tuple[bytes, Secret]:
    """Return a blob that opens to something uniform, and what takes that off again.

    >>> from tacit.crypto.paillier import Packing, add_blobs, make_keys
    >>> key, packing = make_keys(2048), Packing(16, 8)
    >>> hidden, blinding = blind(key.public, key.encrypt([7, -7], packing))
    >>> total = add_blobs(key.public, hidden, key.encrypt([1, 2], packing))
    >>> key.decrypt(unblind(key.public, total, blinding))
    array([ 8, -5])
    """
    header, numbers = read_header(key, blob), read_ciphertexts(key, blob)
    randoms = [secrets.randbelow(int(key.modulus)) for _ in numbers]
    raw = b"".join(random.to_bytes(key.ciphertext_bytes, "little") for random in randoms)
    return write_blob(key, header, _multiplied(key, numbers, randoms)), Secret(raw)


def unblind(key: PublicKey, blob: bytes, blinding: Secret) -> bytes:
    """Return a blob, or what was added to it since, without its blinding."""
    header, numbers = read_header(key, blob), read_ciphertexts(key, blob)
    size, raw = key.ciphertext_bytes, blinding.reveal()
    if len(raw) != size * len(numbers):
        raise ProtectionError(f"a blinding of {len(raw) // size} ciphertexts, these are {len(numbers)}")
    randoms = [-int.from_bytes(raw[at : at + size], "little") for at in range(0, len(raw), size)]
    return write_blob(key, header, _multiplied(key, numbers, randoms))


def _multiplied(key: PublicKey, numbers: list[mpz], randoms: list[int]) -> list[mpz]:
    modulus, square = key.modulus, key.modulus_squared
    pairs = zip(numbers, randoms, strict=True)
    return [number * (1 + modulus * random) % square for number, random in pairs]
