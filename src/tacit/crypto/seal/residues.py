"""Raw residues: packed into few bytes, and carried in and out of SEAL without its compression.

SEAL's Python form writes and reads by path only, and always compresses what it writes. Here a stream goes
through a file in memory, and what SEAL wrote is unpacked at once: what travels are the residues alone, each
with as many bits as its prime. That is smaller than SEAL's compression, takes no decompression of bytes
from others, and leaves no scale, level or size to lie about.
"""

import math
import os
import struct
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import MessageError, UnavailableError
from tacit.crypto.seal import seal
from tacit.crypto.seal.ring import Ring

Residues = NDArray[np.uint64]

SEED_BYTES = 64
_SEAL_HEADER = struct.Struct("<HBBBBHQ")  # magic, header size, version (2), compression, reserved, size
_CIPHERTEXT = struct.Struct("<4QBQQQdQ")  # parms_id, NTT form, polynomials, degree, primes, scale, correction
_PLAINTEXT = struct.Struct("<4QQd")  # parms_id, coefficients, scale
_MAGIC = 0xA15E
_OTHER_FORM = "this version of SEAL writes ciphertexts in another form: install tenseal 0.3.18"
_BLAKE2XB = 1


def packed_width(bits: int, exact: bool) -> int:
    """Return the bits that a residue takes on the wire.

    Where bytes count, exactly as many as the prime has, if a residue and its offset in a byte fit into one
    word. Full ciphertexts that are added by the thousand take whole bytes.
    """
    if exact:
        return bits if bits + 8 - math.gcd(bits, 8) <= 64 else 64
    return -(-bits // 8) * 8


def pack(residues: Residues, width: int) -> bytes:
    """Write residues with ``width`` bits each, lowest bits first."""
    flat = residues.reshape(-1)
    if width == 64:
        return flat.astype("<u8", copy=False).tobytes()
    together = 8 // math.gcd(width, 8)  # so many residues end on a byte
    size = width * together // 8
    words = np.zeros((flat.size // together, -(-size // 8)), dtype="<u8")
    for index in range(together):
        word, shift = divmod(width * index, 64)
        column = flat[index::together]
        words[:, word] |= column << np.uint64(shift)
        if shift + width > 64:
            words[:, word + 1] |= column >> np.uint64(64 - shift)
    return np.ndarray(len(words), f"V{size}", words, 0, (words.shape[1] * 8,)).tobytes()


def unpack(blob: bytes, offset: int, count: int, width: int, room: Residues | None = None) -> Residues:
    """Read ``count`` residues, into ``room`` if given; at least seven bytes must follow them in ``blob``."""
    if width == 64:
        return np.frombuffer(blob, "<u8", count, offset)
    mask = np.uint64((1 << width) - 1)
    found = np.empty(count, np.uint64) if room is None else room
    if width % 8 == 0:  # one pass: words that overlap
        np.bitwise_and(np.ndarray(count, "<u8", blob, offset, (width // 8,)), mask, out=found)
        return found
    together = 8 // math.gcd(width, 8)
    for index in range(together):
        first, shift = divmod(width * index, 8)
        words = np.ndarray(count // together, "<u8", blob, offset + first, (width * together // 8,))
        np.right_shift(words, np.uint64(shift), out=found[index::together])
    np.bitwise_and(found, mask, out=found)
    return found


class _Memory(threading.local):
    """A file in memory for each thread and process: a new one at each use would cost as much as the rest."""

    process: int = -1
    descriptor: int = -1
    path: str = ""

    def open(self) -> tuple[int, str]:
        if self.process != os.getpid():
            self.process, self.descriptor = os.getpid(), os.memfd_create("tacit-seal")
            self.path = f"/proc/self/fd/{self.descriptor}"
        return self.descriptor, self.path


# What is written over need not be cut off before: a stream says how long it is.
_to_seal, _from_seal = _Memory(), _Memory()


@contextmanager
def private_file() -> Iterator[Path]:
    """Yield the path of a file that only this user can read, for systems without files in memory."""
    with tempfile.TemporaryDirectory(prefix="tacit-") as folder:  # mode 0700
        yield Path(folder) / "seal"


def save(item: Any) -> bytes:
    """Return the bytes that SEAL writes for one of its objects."""
    if not hasattr(os, "memfd_create"):
        with private_file() as file:
            item.save(str(file))
            return file.read_bytes()
    descriptor, path = _from_seal.open()
    item.save(path)
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def load(item: Any, ring: Ring, *pieces: bytes | memoryview) -> None:
    """Let one of SEAL's objects read and check a stream."""
    try:
        if not hasattr(os, "memfd_create"):
            with private_file() as file:
                file.write_bytes(b"".join(pieces))
                item.load(ring.context, str(file))
                return
        descriptor, path = _to_seal.open()
        if os.pwritev(descriptor, pieces, 0) != sum([memoryview(piece).nbytes for piece in pieces]):
            raise UnavailableError("no room in memory for a file of SEAL's: free some, and run again")
        item.load(ring.context, path)
    except (RuntimeError, ValueError, IndexError) as error:
        raise MessageError(f"SEAL refuses what was sent: {error}") from None


def to_seal(ring: Ring, residues: Residues, seed: bytes = b"", *, in_ntt_form: bool | None = None) -> Any:
    """Make a ciphertext of residues (polynomials × primes × degree); a seed may be its second polynomial."""
    data = np.ascontiguousarray(residues)
    polynomials, primes, _ = residues.shape
    form = ring.in_ntt_form if in_ntt_form is None else in_ntt_form
    prefix = _prefix(ring, 2 if seed else polynomials, primes, form)
    prefix += _array_header(data.nbytes)
    tail = _seal_header(1 + SEED_BYTES) + bytes([_BLAKE2XB]) + seed if seed else b""
    ciphertext = seal.Ciphertext()
    whole = _seal_header(len(prefix) + data.nbytes + len(tail))
    load(ciphertext, ring, whole + prefix, data.data, tail)
    return ciphertext


def from_seal(
    ring: Ring,
    primes: int,
    ciphertext: Any,
    *,
    seeded: bool = False,
    polynomials: int = 2,
    in_ntt_form: bool | None = None,
) -> tuple[Residues, bytes]:
    """Take residues (polynomials × primes × degree) and seed out of a ciphertext of our own."""
    shape = (1 if seeded else polynomials, primes, ring.degree)
    length = 8 * math.prod(shape)
    form = ring.in_ntt_form if in_ntt_form is None else in_ntt_form
    prefix = _prefix(ring, polynomials, primes, form) + _array_header(length)
    tail = _SEAL_HEADER.size + 1 + SEED_BYTES if seeded else 0
    stream = save(ciphertext)
    content = _decompress(stream, len(prefix) + length + tail)
    # The seed's block is checked by its size and kind; everything else has exactly one form.
    marks = _seal_header(1 + SEED_BYTES) + bytes([_BLAKE2XB]) if seeded else b""
    if content[: len(prefix)] != prefix or content[len(prefix) + length :][: len(marks)] != marks:
        raise UnavailableError(_OTHER_FORM)
    residues = np.frombuffer(content, "<u8", length // 8, len(prefix)).reshape(shape)
    return residues, content[len(content) - SEED_BYTES :] if seeded else b""


@lru_cache(maxsize=64)
def _seal_header(size: int) -> bytes:
    known = seal.Serialization.SEALHeader()  # carries the version of the library
    version = (known.version_major, known.version_minor)
    return _SEAL_HEADER.pack(_MAGIC, _SEAL_HEADER.size, *version, 0, 0, _SEAL_HEADER.size + size)


@lru_cache(maxsize=64)
def _prefix(ring: Ring, polynomials: int, primes: int, in_ntt_form: bool) -> bytes:
    """Return what stands before a ciphertext's residues: everything about it, all known beforehand."""
    sizes = (polynomials, ring.degree, primes)
    return _CIPHERTEXT.pack(*ring.parms_id(primes), in_ntt_form, *sizes, ring.scale(primes), 1)


@lru_cache(maxsize=64)
def _array_header(length: int) -> bytes:
    return _seal_header(8 + length) + struct.pack("<Q", length // 8)


def plain_to_seal(ring: Ring, words: Residues) -> Any:
    """Make a plaintext of BFV's coefficients, or of a transformed polynomial's residues (primes × degree)."""
    data, primes = np.ascontiguousarray(words), len(words) if words.ndim == 2 else 0
    level = ring.parms_id(primes) if primes else (0, 0, 0, 0)
    scale = ring.scale(primes) if primes else 1.0
    prefix = _PLAINTEXT.pack(*level, data.size, scale) + _array_header(data.nbytes)
    plain = seal.Plaintext()
    load(plain, ring, _seal_header(len(prefix) + data.nbytes) + prefix, data.data)
    return plain


def plain_from_seal(plain: Any) -> Residues:
    """Take the coefficients, or residues, out of a plaintext of our own."""
    count = plain.coeff_count()
    start = _PLAINTEXT.size + _SEAL_HEADER.size + 8
    content = _decompress(save(plain), start + 8 * count)
    if _PLAINTEXT.unpack_from(content)[4] != count or content[start - 8 : start] != struct.pack("<Q", count):
        raise UnavailableError(_OTHER_FORM)
    return np.frombuffer(content, "<u8", count, start)


def _decompress(stream: bytes, size: int) -> bytes:
    """Undo the compression with which SEAL wrote: only ever on objects of our own."""
    compression = _SEAL_HEADER.unpack_from(stream)[4]
    body = memoryview(stream)[_SEAL_HEADER.size :]
    if compression == 2:
        import pyarrow

        content: bytes = pyarrow.decompress(body, size, codec="zstd", asbytes=True)
        return content
    return zlib.decompress(body) if compression == 1 else bytes(body)
