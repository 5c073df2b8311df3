"""The bytes of encrypted vectors: a header in the clear, packed residues, seeds, a checksum.

    header, 96 bytes | residues modulo the first prime | … the second | seeds, 64 bytes each | checksum, 16

A ciphertext has two polynomials. Of the first, those coefficients travel that its *form* keeps; the second is
uniform, and mostly its seed travels instead. A header binds the blob to its ring, key and form, and
says how many vectors of which bound are in it. It is checked as a whole against the length of the blob before
anything is allocated. The checksum detects damage; who sent a blob is the business of the channel that
carries it. It is AES-GMAC under the header's SHA-256, because a hash over everything would take longer than
all the rest of adding a ciphertext.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit.core.errors import MessageError, ProtectionError
from tacit.crypto.seal.residues import SEED_BYTES, Residues, from_seal, pack, packed_width, to_seal, unpack
from tacit.crypto.seal.ring import KEY_ID_BYTES, MOST_SUMMANDS, Ring

CHECKSUM_BYTES = 16
MOST_BYTES = 1 << 31  # what one checksum may cover; some 50 million values
LEAST, MOST = 1e-100, 1e100  # public constants lie between: far from what float64 cannot hold
_HEADER = struct.Struct("<4sBBBB16s16s16sIIIIIIdd")
_MAGIC = b"TSE1"
KINDS = {1: "sum", 4: "integers", 5: "columns", 6: "product"}  # by code of a form


@dataclass(frozen=True)
class Form:
    """What a blob holds, and in how many residues.

    ``chunks`` counts its ciphertexts, ``kept`` the residues of their first polynomials that travel, for each
    prime (a multiple of 8); ``sound`` says whether a header is possible. ``spent`` primes are used up.
    ``many``: whether there can be products with several matrices.
    """

    code: int
    chunks: "Callable[[Any, Header], int]"
    kept: "Callable[[Any, Header], int]"
    sound: "Callable[[Any, Header], bool]"
    spent: int = 0
    many: bool = False

    @property
    def name(self) -> str:
        """A word for it in messages."""
        return KINDS[self.code]


@dataclass(frozen=True, slots=True)
class Header:
    """What is known of an encrypted vector without its key.

    ``rows`` × ``outputs`` values of at most ``bound`` are the sum of ``count`` out of at most ``summands``
    vectors; ``factor`` is the public constant by which the ``matrices`` of a product were divided.
    """

    form: Form
    seeded: bool
    key_id: bytes
    rows: int
    outputs: int
    count: int
    summands: int
    bound: float = 1.0
    factor: float = 1.0
    matrices: int = 1

    @property
    def terms(self) -> tuple[str, int, int, int, float, float]:
        """What has to agree between blobs that are added."""
        return self.form.name, self.rows, self.outputs, self.summands, self.bound, self.factor

    def primes(self, ring: Ring) -> int:
        """Return the number of primes of its ciphertexts: a product has used one up."""
        return len(ring.primes) - self.form.spent

    def chunks(self, ring: Ring) -> int:
        """Return the number of ciphertexts that it takes."""
        return self.form.chunks(ring, self)

    def sections(self, ring: Ring) -> list[tuple[int, int]]:
        """Return how many residues there are for each prime, and the bits of each."""
        count = self.form.kept(ring, self)
        if not self.seeded:
            count += self.chunks(ring) * ring.degree
        sizes = ring.ring_parameters.data_bits[: self.primes(ring)]
        return [(count, packed_width(bits, self.seeded or self.form.many)) for bits in sizes]

    def length(self, ring: Ring) -> int:
        """Return the bytes of the whole blob, or refuse if they are too many."""
        residues = sum(count * width // 8 for count, width in self.sections(ring))
        length = _HEADER.size + residues + self.seeded * self.chunks(ring) * SEED_BYTES + CHECKSUM_BYTES
        if length > MOST_BYTES:
            raise MessageError(
                f"encrypted vector of {length:,} bytes, the limit is {MOST_BYTES:,}: encrypt in parts"
            )
        return length


def write(ring: Ring, header: Header, residues: Sequence[Residues], seeds: bytes = b"") -> bytes:
    """Make a blob of residues: for each prime those kept of all first polynomials, then the second ones."""
    name = ring.ring_parameters.name.encode()
    kind = (header.form.code, header.seeded, header.primes(ring), 0, name, ring.digest)
    sizes = (header.rows, header.outputs, header.chunks(ring))
    counts = (header.count, header.summands, header.matrices)
    start = _HEADER.pack(_MAGIC, *kind, header.key_id, *sizes, *counts, header.bound, header.factor)
    widths = [width for _, width in header.sections(ring)]
    body = [pack(part, width) for part, width in zip(residues, widths, strict=True)]
    content = b"".join([start, *body, seeds])
    return content + checksum(content, len(start))


def write_encrypted(ring: Ring, header: Header, encryptor: Any, plains: Iterable[Any]) -> bytes:
    """Encrypt plaintexts, one for each chunk, into a blob in which seeds stand for second polynomials."""
    header.length(ring)  # refuses what is too long before any work
    made = [
        from_seal(ring, len(ring.primes), encryptor.encrypt_symmetric(plain), seeded=True) for plain in plains
    ]
    kept = np.concatenate([residues[0] for residues, _ in made], axis=1)[:, : header.form.kept(ring, header)]
    return write(ring, header, list(kept), b"".join([seed for _, seed in made]))


def read(ring: Ring, key_id: bytes, blob: bytes, *forms: Form, whole: bool = True) -> Header:
    """Check everything about a blob but its residues, and return its header; ``whole``: its checksum, too.

    Raise MessageError if it is damaged, ProtectionError if it belongs to other parameters, key or use.
    """
    scheme = ring.ring_parameters.scheme
    if not isinstance(blob, bytes) or len(blob) < _HEADER.size + CHECKSUM_BYTES:
        raise MessageError(f"not a {scheme} blob: shorter than its header")
    header, length = _parse(ring, key_id, blob[: _HEADER.size], forms)
    if len(blob) != length:
        raise MessageError(f"{scheme} blob of {len(blob):,} bytes, its header asks for {length:,}")
    if whole and checksum(memoryview(blob)[:-CHECKSUM_BYTES], _HEADER.size) != blob[-CHECKSUM_BYTES:]:
        raise MessageError(f"{scheme} blob is damaged: its checksum does not match; send it again")
    return header


def set_of(blob: bytes) -> str:
    """Return the parameter set that a blob names; nothing else is looked at."""
    return blob[8:24].rstrip(b"\0").decode("ascii", "replace")


def key_of(blob: bytes) -> bytes:
    """Return the id of the key under which a blob says that it is; nothing else is looked at."""
    return blob[40 : 40 + KEY_ID_BYTES]  # after magic, four bytes, set and digest


def summands_of(blob: bytes) -> int:
    """Return for how many summands a blob says that it was made; nothing else is looked at."""
    if len(blob) < _HEADER.size:
        raise MessageError("not an encrypted vector: shorter than its header")
    summands: int = _HEADER.unpack_from(blob)[12]
    if not 1 <= summands <= MOST_SUMMANDS:
        raise MessageError(f"encrypted vector for {summands:,} summands: from 1 to {MOST_SUMMANDS:,} exist")
    return summands


# Clients of one sum send equal headers: 20,000 of them are understood once.
@lru_cache(maxsize=64)
def _parse(ring: Ring, key_id: bytes, start: bytes, forms: tuple[Form, ...]) -> tuple[Header, int]:
    scheme, name = ring.ring_parameters.scheme, ring.ring_parameters.name
    magic, code, seeded, primes, zero, theirs, digest, key, *sizes = _HEADER.unpack(start)
    rows, outputs, chunks, count, summands, matrices, bound, factor = sizes
    if magic != _MAGIC or zero or seeded > 1:
        raise MessageError(f"not a {scheme} blob of this release: its first bytes are wrong")
    if theirs != name.encode().ljust(16, b"\0") or digest != ring.digest:
        shown = theirs.rstrip(b"\0").decode("ascii", "replace")
        raise ProtectionError(f"blob of parameters {shown!r} where '{name}' is in use: agree on one set")
    if key != key_id:
        raise ProtectionError(
            f"blob under key {key.hex()}, in use is {key_id.hex()}: share one key, then encrypt"
        )
    form = next((form for form in forms if form.code == code), None)
    if form is None:
        wanted = " or ".join(dict.fromkeys(form.name for form in forms))
        raise ProtectionError(f"blob of kind {KINDS.get(code, code)}, expected was {wanted}")
    header = Header(form, bool(seeded), key, rows, outputs, count, summands, bound, factor, matrices)
    sound = (
        header.rows
        and header.outputs
        and 1 <= header.count <= header.summands <= MOST_SUMMANDS
        and (header.count == 1 or not header.seeded)
        and (header.matrices == 1 or form.many)
        and LEAST < header.factor < MOST
        and LEAST < header.bound < MOST
        and header.primes(ring) == primes
        and form.sound(ring, header)
        and header.chunks(ring) == chunks
    )
    if not sound:
        raise MessageError(
            f"{scheme} blob is damaged: sizes, counts or bounds in its header contradict each other"
        )
    return header, header.length(ring)


def residues_of(
    ring: Ring, header: Header, blob: bytes, room: Sequence[Residues | None] = ()
) -> list[Residues]:
    """Read the residues, one array per prime, each below its prime; ``room`` may be written over."""
    position, found = _HEADER.size, []
    for index, (count, width) in enumerate(header.sections(ring)):
        residues = unpack(blob, position, count, width, room[index] if room else None)
        if residues.max() >= np.uint64(ring.primes[index]):
            raise MessageError(
                f"{ring.ring_parameters.scheme} blob holds residues beyond its modulus: it was not made by "
                "encryption"
            )
        found.append(residues)
        position += count * width // 8
    return found


def expand_seeds(ring: Ring, header: Header, blob: bytes) -> list[Any]:
    """Make ciphertexts whose second polynomials SEAL expands from the seeds of a blob; the first are zero."""
    blank, end = _blank(header.primes(ring), ring.degree), len(blob) - CHECKSUM_BYTES
    starts = range(end - SEED_BYTES * header.chunks(ring), end, SEED_BYTES)
    return [to_seal(ring, blank, blob[start : start + SEED_BYTES]) for start in starts]


@lru_cache(maxsize=8)
def _blank(primes: int, degree: int) -> Residues:
    return np.zeros((1, primes, degree), np.uint64)


def all_residues(ring: Ring, header: Header, blob: bytes) -> dict[int, Residues]:
    """Read the residues of both polynomials by their prime, ordered as in a total; SEAL expands seeds."""
    found = residues_of(ring, header, blob)
    if header.seeded:
        second = [from_seal(ring, len(found), item)[0][1] for item in expand_seeds(ring, header, blob)]
        found = [np.concatenate([part, *(two[at] for two in second)]) for at, part in enumerate(found)]
    return dict(zip(ring.primes, found, strict=False))  # a product has used one prime up


def ciphertexts_of(ring: Ring, header: Header, residues: Mapping[int, Residues]) -> list[Any]:
    """Make SEAL ciphertexts of all residues; coefficients that did not travel are zero and mean nothing."""
    chunks, kept = header.chunks(ring), header.form.kept(ring, header)
    whole = np.zeros((2, len(residues), chunks * ring.degree), np.uint64)
    for prime, flat in enumerate(residues.values()):
        whole[0, prime, :kept], whole[1, prime] = flat[:kept], flat[kept:]
    parts = whole.reshape(2, len(residues), chunks, ring.degree)
    return [to_seal(ring, parts[:, :, chunk]) for chunk in range(chunks)]


def checksum(content: bytes | memoryview, header: int) -> bytes:
    """Return sixteen bytes that change with any bit of the content."""
    key = hashlib.sha256(content[:header]).digest()
    # Key and nonce are public: this is a checksum, not a promise of who wrote it.
    return AESGCM(key).encrypt(bytes(12), b"", memoryview(content)[header:])
