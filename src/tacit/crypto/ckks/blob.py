"""The bytes of encrypted vectors: a header in the clear, packed residues, seeds, a checksum.

    header, 96 bytes | residues modulo the first prime | … the second | seeds, 64 bytes each | checksum, 16

A header binds the blob to its parameters, key and kind, and says how many vectors of which bound are in it.
It is checked as a whole against the length of the blob before anything is allocated. The checksum detects
damage; who sent a blob is the business of the channel that carries it. It is AES-GMAC under the header's
SHA-256, because a hash over everything would take longer than all the rest of adding a ciphertext.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit.core.errors import MessageError, ProtectionError
from tacit.crypto.ckks.packing import columns
from tacit.crypto.ckks.parameters import LEAST, MOST, MOST_SUMMANDS, Ring
from tacit.crypto.ckks.residues import SEED_BYTES, Residues, pack, packed_width, to_seal, unpack

CHECKSUM_BYTES = 16
KEY_ID_BYTES = 16
MOST_BYTES = 1 << 31  # what one checksum may cover; some 50 million values
_HEADER = struct.Struct("<4sBBBB16s16s16sIIIIIIdd")
_MAGIC = b"TCK1"


class Kind(IntEnum):
    """What a blob holds."""

    SUM = 1
    COLUMNS = 2
    PRODUCT = 3


@dataclass(frozen=True, slots=True)
class Header:
    """What is known of an encrypted vector without its key.

    ``rows`` × ``outputs`` values of at most ``bound`` are the sum of ``count`` out of at most ``summands``
    vectors; ``factor`` is the public constant by which the matrix of a product was divided.
    """

    kind: Kind
    seeded: bool
    key_id: bytes
    rows: int
    outputs: int
    count: int
    summands: int
    bound: float
    factor: float = 1.0

    @property
    def terms(self) -> tuple[Kind, int, int, int, float, float]:
        """What has to agree between blobs that are added."""
        return self.kind, self.rows, self.outputs, self.summands, self.bound, self.factor

    def primes(self, ring: Ring) -> int:
        """Return the number of primes of its ciphertexts: a product has used one up."""
        return len(ring.primes) - (self.kind is Kind.PRODUCT)

    def chunks(self, ring: Ring) -> int:
        """Return the number of ciphertexts that it takes."""
        slots = ring.parameters.slots
        if self.kind is Kind.SUM:
            return -(-self.rows // slots)
        return -(-self.outputs // columns(slots, self.rows))

    def sections(self, ring: Ring) -> list[tuple[int, int]]:
        """Return how many residues there are for each prime, and the bits of each."""
        count = self.chunks(ring) * (1 if self.seeded else 2) * ring.parameters.degree
        sizes = ring.parameters.data_bits[: self.primes(ring)]
        return [(count, packed_width(bits, self.seeded)) for bits in sizes]

    def length(self, ring: Ring) -> int:
        """Return the bytes of the whole blob, or refuse if they are too many."""
        residues = sum(count * width // 8 for count, width in self.sections(ring))
        length = _HEADER.size + residues + self.seeded * self.chunks(ring) * SEED_BYTES + CHECKSUM_BYTES
        if length > MOST_BYTES:
            raise MessageError(
                f"CKKS blob of {length:,} bytes, the limit is {MOST_BYTES:,}: encrypt in parts"
            )
        return length


def write(ring: Ring, header: Header, residues: Sequence[Residues], seeds: bytes = b"") -> bytes:
    """Make a blob of residues, one array per prime (chunks × polynomials × degree)."""
    kind = (header.kind, header.seeded, header.primes(ring), 0, ring.parameters.name.encode(), ring.digest)
    counts = (header.rows, header.outputs, header.chunks(ring), header.count, header.summands, 0)
    start = _HEADER.pack(_MAGIC, *kind, header.key_id, *counts, header.bound, header.factor)
    widths = [width for _, width in header.sections(ring)]
    body = [pack(part, width) for part, width in zip(residues, widths, strict=True)]
    content = b"".join([start, *body, seeds])
    return content + checksum(content, len(start))


def read(ring: Ring, key_id: bytes, blob: bytes, *kinds: Kind) -> Header:
    """Check everything about a blob but its residues, and return its header.

    Raise MessageError if it is damaged, ProtectionError if it belongs to other parameters, key or use.
    """
    if not isinstance(blob, bytes) or len(blob) < _HEADER.size + CHECKSUM_BYTES:
        raise MessageError("not a CKKS blob: shorter than its header")
    header, length = _parse(ring, key_id, blob[: _HEADER.size])
    if len(blob) != length:
        raise MessageError(f"CKKS blob of {len(blob):,} bytes, its header asks for {length:,}")
    if checksum(memoryview(blob)[:-CHECKSUM_BYTES], _HEADER.size) != blob[-CHECKSUM_BYTES:]:
        raise MessageError("CKKS blob is damaged: its checksum does not match; send it again")
    if header.kind not in kinds:
        wanted = " or ".join(kind.name.lower() for kind in kinds)
        raise ProtectionError(f"blob of kind {header.kind.name.lower()}, expected was {wanted}")
    return header


def key_of(blob: bytes) -> bytes:
    """Return the id of the key under which a blob says that it is; nothing else is looked at."""
    return blob[40 : 40 + KEY_ID_BYTES]  # after magic, four bytes, set and digest


# Clients of one sum send equal headers: 20,000 of them are understood once.
@lru_cache(maxsize=64)
def _parse(ring: Ring, key_id: bytes, start: bytes) -> tuple[Header, int]:
    """Check a header, and return it with the length of its blob."""
    name = ring.parameters.name
    magic, kind, seeded, primes, zero, theirs, digest, key, *sizes = _HEADER.unpack(start)
    rows, outputs, chunks, count, summands, blank, bound, factor = sizes
    if magic != _MAGIC or zero or blank or kind not in tuple(Kind) or seeded > 1:
        raise MessageError("not a CKKS blob of this release: its first bytes are wrong")
    if theirs != name.encode().ljust(16, b"\0") or digest != ring.digest:
        shown = theirs.rstrip(b"\0").decode("ascii", "replace")
        raise ProtectionError(f"blob of parameters {shown!r} where '{name}' is in use: agree on one set")
    if key != key_id:
        raise ProtectionError(
            f"blob under key {key.hex()}, in use is {key_id.hex()}: share one key, then encrypt"
        )
    header = Header(Kind(kind), bool(seeded), key, rows, outputs, count, summands, bound, factor)
    _check_terms(ring, header, primes, chunks)
    return header, header.length(ring)


def _check_terms(ring: Ring, header: Header, primes: int, chunks: int) -> None:
    parameters = ring.parameters
    single = header.kind is Kind.SUM
    sound = (
        header.rows
        and (header.outputs == 1 if single else parameters.multiplies and header.rows <= parameters.slots)
        and header.outputs
        and header.primes(ring) == primes
        and header.chunks(ring) == chunks
        and 1 <= header.count <= header.summands <= MOST_SUMMANDS
        and (header.count == 1 or not header.seeded)
        and not (header.seeded and header.kind is Kind.PRODUCT)
        and LEAST < header.factor < MOST
        and (header.kind is Kind.PRODUCT or header.factor == 1)
        and LEAST < header.bound < MOST
        and (header.bound * header.summands if single else 0) <= parameters.headroom
        and (single or header.summands <= parameters.product_headroom)
    )
    if not sound:
        raise MessageError(
            "CKKS blob is damaged: sizes, counts or bounds in its header contradict each other"
        )


def residues_of(
    ring: Ring, header: Header, blob: bytes, room: Sequence[Residues | None] = ()
) -> list[Residues]:
    """Read the residues, one array per prime (chunks × polynomials × degree), each below its prime.

    Arrays given as ``room`` are written over, where the residues do not lie in the blob as they are.
    """
    position, found = _HEADER.size, []
    for index, (count, width) in enumerate(header.sections(ring)):
        residues = unpack(blob, position, count, width, room[index] if room else None)
        if residues.max() >= np.uint64(ring.primes[index]):
            raise MessageError("CKKS blob holds residues beyond its modulus: it was not made by encryption")
        found.append(residues.reshape(header.chunks(ring), -1, ring.parameters.degree))
        position += count * width // 8
    return found


def seeds_of(ring: Ring, header: Header, blob: bytes) -> list[bytes]:
    """Read the seed of each chunk; empty ones if the ciphertexts are full."""
    if not header.seeded:
        return [b""] * header.chunks(ring)
    start = len(blob) - CHECKSUM_BYTES - SEED_BYTES * header.chunks(ring)
    return [blob[at : at + SEED_BYTES] for at in range(start, len(blob) - CHECKSUM_BYTES, SEED_BYTES)]


def ciphertexts_of(ring: Ring, header: Header, blob: bytes) -> list[Any]:
    """Make SEAL ciphertexts of a blob that was read; SEAL expands seeds and checks once more."""
    by_prime = residues_of(ring, header, blob)
    return [
        to_seal(ring, np.stack([part[chunk] for part in by_prime], axis=1), seed)
        for chunk, seed in enumerate(seeds_of(ring, header, blob))
    ]


def refuse_overrun(summands: int, bound: float) -> NoReturn:
    """Refuse a decrypted value that honest summands do not give."""
    raise ProtectionError(
        f"a decrypted value is beyond what {summands:,} summands of up to {bound:g} can give: a client "
        "overran its bound, or the ciphertext was forged"
    )


def checksum(content: bytes | memoryview, header: int) -> bytes:
    """Return sixteen bytes that change with any bit of the content.

    >>> checksum(b"header and body", 6) == checksum(b"header and bodY", 6)
    False
    """
    key = hashlib.sha256(content[:header]).digest()
    # Key and nonce are public: this is a checksum, not a promise of who wrote it.
    return AESGCM(key).encrypt(bytes(12), b"", memoryview(content)[header:])
