"""The bytes of an encrypted vector.

    b"TPV" version | key id | value bits | guard bits | 2 zeros | count, uint64 | summands, uint64
    | ciphertexts, each as long as n² | SHA-256 of all that

Little-endian throughout. The checksum tells damage from a foreign key; it proves nothing about who
sent the bytes, which is for the channel that carries them. ``summands`` counts what was added,
each with its weight, so that the guard bits cannot overflow unnoticed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gmpy2
from gmpy2 import mpz

from tacit.core.errors import ConfigError, MessageError, ProtectionError
from tacit.crypto.paillier.packing import Packing

if TYPE_CHECKING:
    from tacit.crypto.paillier.keys import PublicKey

MAGIC, VERSION = b"TPV", 1
_HEADER = struct.Struct("<3sB16sBBHQQ")
_CHECKSUM = 32


@dataclass(frozen=True)
class Header:
    """What a blob says of itself: under which key, how packed, how many values, how many summands."""

    key_id: bytes
    packing: Packing
    count: int
    summands: int


def write_blob(key: PublicKey, header: Header, ciphertexts: Sequence[mpz]) -> bytes:
    """Encode a header and its ciphertexts."""
    packing = header.packing
    bits = (packing.value_bits, packing.guard_bits)
    head = _HEADER.pack(MAGIC, VERSION, header.key_id, *bits, 0, header.count, header.summands)
    size = key.ciphertext_bytes
    body = b"".join([head, *(number.to_bytes(size, "little") for number in ciphertexts)])
    return body + hashlib.sha256(body).digest()


def read_header(key: PublicKey, blob: bytes, packing: Packing | None = None) -> Header:
    """Read and check everything but the ciphertexts' values, before anything is allocated."""
    if not isinstance(blob, bytes):
        raise MessageError(f"an encrypted vector is bytes, not {type(blob).__name__}")
    if len(blob) < _HEADER.size + _CHECKSUM:
        raise MessageError(
            f"encrypted vector is truncated: {len(blob)} bytes, it has {_HEADER.size + _CHECKSUM} at least"
        )
    magic, version, key_id, value_bits, guard_bits, zeros, count, summands = _HEADER.unpack_from(blob)
    if magic != MAGIC or version != VERSION or zeros:
        raise MessageError(f"not an encrypted vector of version {VERSION}: it starts with {blob[:4]!r}")
    try:
        found = Packing(value_bits, guard_bits)
    except ConfigError as error:
        raise MessageError(f"encrypted vector with an impossible packing: {error.public}") from None
    # A foreign key may have another length: intact bytes are told apart by key before their length is judged.
    intact = hashlib.sha256(memoryview(blob)[:-_CHECKSUM]).digest() == blob[-_CHECKSUM:]
    if key_id != key.key_id and intact:
        raise ProtectionError(
            f"encrypted under key {key_id.hex()}, this is key {key.key_id.hex()}: "
            "use the key of this federation, or ask the sender to encrypt again"
        )
    expected = _HEADER.size + -(-count // found.slots(key.bits)) * key.ciphertext_bytes + _CHECKSUM
    if len(blob) != expected:
        raise MessageError(
            f"encrypted vector is {'truncated' if len(blob) < expected else 'too long'}: "
            f"{len(blob):,} bytes, {count:,} values take {expected:,}"
        )
    if not intact:
        raise MessageError("encrypted vector is damaged: its checksum does not fit; ask for it again")
    if packing is not None and packing != found:
        raise ProtectionError(
            f"encrypted vector is packed as {found.value_bits}+{found.guard_bits} bits, expected "
            f"{packing.value_bits}+{packing.guard_bits}: all parties must use the same packing"
        )
    if not 1 <= summands <= found.max_summands:
        raise MessageError(f"encrypted vector of {summands:,} summands: 1 to {found.max_summands:,} fit")
    return Header(key_id, found, count, summands)


def read_ciphertexts(key: PublicKey, blob: bytes) -> list[mpz]:
    """Read the ciphertexts of a blob whose header was read: each in range and none a multiple of n.

    A number that shares only one of the primes with n would pass; making it takes the factors of n.
    :func:`check_invertible` finds that too.
    """
    size, read = key.ciphertext_bytes, mpz.from_bytes
    body = memoryview(blob)[_HEADER.size : -_CHECKSUM]
    numbers = [read(body[start : start + size], "little") for start in range(0, len(body), size)]
    if numbers and max(numbers) >= key.modulus_squared:
        raise MessageError(
            f"ciphertext {numbers.index(max(numbers))} is n² or more: it was not made with this key"
        )
    modulus, divisible = key.modulus, gmpy2.is_divisible
    for index, number in enumerate(numbers):
        if divisible(number, modulus):
            raise MessageError(f"ciphertext {index} is zero or a multiple of n: no encryption gives that")
    return numbers


def check_invertible(key: PublicKey, numbers: Sequence[mpz]) -> None:
    """Refuse ciphertexts that are not invertible; a product is invertible if all its factors are."""
    modulus, product = key.modulus, mpz(1)
    for number in numbers:
        product = product * number % modulus
    if gmpy2.gcd(product, modulus) != 1:
        raise MessageError("a ciphertext is not invertible modulo n: no encryption gives that")
