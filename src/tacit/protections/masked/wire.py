"""What travels in masked sums: commitments, offers, shares, seeds and uploads."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import MessageError, OpeningError, ProtectionError
from tacit.core.message import Message
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import exchanged
from tacit.crypto.field import Ring
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.masking import Words, pair_seed
from tacit.crypto.sharing import Share, recover_vector

HASH = KEY = 32
ELEMENTS = 5  # field elements that a key or seed takes, seven bytes each
SHARE = 8 * ELEMENTS
TAG = 16  # bytes by which a sealed message is longer, after its nonce

Flags = NDArray[np.bool_]


def commit(purpose: str, run: str, owner: str, number: int, secret: bytes) -> bytes:
    """Return a commitment to a random value, for one purpose, owner and time."""
    return hash_pieces(purpose.encode(), run.encode(), owner.encode(), number.to_bytes(8, "little"), secret)


def hash_pieces(*pieces: bytes) -> bytes:
    """Return the hash of byte strings, each with its length, so that none run together."""
    return sha256(b"".join([len(piece).to_bytes(4, "little") + piece for piece in pieces])).digest()


_OFFER = struct.Struct("<32s32s32s32sQI")


class Offer(NamedTuple):
    """What a client shows for a batch of sums: its keys, its number for the draw, and the next commitment."""

    exchange: bytes
    root: bytes
    number: bytes
    next: bytes
    first: int
    sums: int
    publics: bytes

    def to_bytes(self) -> bytes:
        """Return the bytes to be shown, and bound into the keys under which shares are sealed."""
        return _OFFER.pack(*self[:-1]) + self.publics

    @classmethod
    def from_bytes(cls, raw: bytes, root: bytes, first: int, sums: int) -> Offer:
        """Return an offer for this batch, or refuse it."""
        if len(raw) != _OFFER.size + KEY * sums:
            raise ProtectionError(f"an offer of {len(raw)} bytes, agreed were keys for {sums} sums")
        offer = cls._make((*_OFFER.unpack_from(raw), raw[_OFFER.size :]))
        if (offer.root, offer.first, offer.sums) != (root, first, sums):
            raise ProtectionError("an offer for another batch of sums: somebody was told something else")
        return offer


# -- what is shared and uploaded ---------------------------------------------------------------------------


def to_elements(secrets: bytes) -> Ring:
    """Return keys and seeds as field elements to be shared, one row each.

    >>> to_elements(bytes(64)).shape
    (2, 5)
    """
    rows = np.frombuffer(secrets, np.uint8).reshape(-1, KEY)
    padded = np.zeros((len(rows), ELEMENTS * 7), np.uint8)
    padded[:, :KEY] = rows
    words = np.zeros((len(rows), ELEMENTS, 8), np.uint8)
    words[:, :, :7] = padded.reshape(len(rows), ELEMENTS, 7)
    return words.view("<u8")[:, :, 0].astype(np.uint64)


def recover_secret(
    shares: Sequence[Share], threshold: int, is_right: Callable[[Secret], bool], owner: str
) -> Secret:
    """Return a key or seed that can be recognised; one wrong share is found if there is one to spare."""
    if len(shares) < threshold:
        raise OpeningError(
            f"{len(shares)} shares of the masks of {owner}, {threshold} are needed: too many of its "
            "neighbours vanished before unmasking, and the sum stays shut"
        )
    for window in windows(shares, threshold):
        words = recover_vector(window, threshold).astype("<u8").view(np.uint8).reshape(-1, 8)
        raw = words[:, :7].tobytes()
        secret = Secret(raw[:KEY])
        if not words[:, 7].any() and not any(raw[KEY:]) and is_right(secret):
            return secret
    raise ProtectionError(
        f"the shares of the masks of {owner} do not give what it committed to: {owner} dealt wrong ones, "
        "or several holders sent others than they were dealt; the sum stays shut"
    )


def windows(shares: Sequence[Share], threshold: int) -> Iterator[list[Share]]:
    """Return choices of as many shares as are needed: if there is one to spare, any is left out by some."""
    if len(shares) >= threshold:
        for start in range(len(shares) if len(shares) > threshold else 1):
            yield [shares[(start + i) % len(shares)] for i in range(threshold)]


def derive_mask_seeds(
    private: Secret, publics: Mapping[str, bytes], run: str, call: bytes, slot: int, owner: str
) -> dict[str, Secret]:
    """Return the seeds of the masks between one client, whose key this is, and others.

    They are bound to what all were asked: whoever was told something else has other seeds.
    """
    secrets, told = exchanged(private, publics.values()), f"{run} {call.hex()}"
    return {name: pair_seed(raw, told, slot, owner, name) for name, raw in zip(publics, secrets, strict=True)}


def digest_names(names: Sequence[str]) -> bytes:
    """Return the digest of a list of clients."""
    return hash_pieces(b"list", *(name.encode() for name in sorted(names)))


def digest_members(names: bytes) -> bytes:
    """Return the root of a batch in which all mask with all: a digest of everybody's names, in one line each.

    >>> len(digest_members(b"ann\\nbob"))
    32
    """
    return hash_pieces(b"members", names)


def pack_flags(flags: Sequence[bool] | Flags) -> bytes:
    """Return truth values packed, eight to a byte."""
    return np.packbits(np.asarray(flags, bool)).tobytes()


def unpack_flags(raw: Any, count: int) -> Flags:
    """Return truth values that were packed, or refuse bytes of another length."""
    if not isinstance(raw, bytes) or len(raw) != -(-count // 8):
        raise MessageError(f"flags for {count} clients are missing or of another length")
    return np.unpackbits(np.frombuffer(raw, np.uint8), count=count).astype(bool)


def read_blob(reply: Message, name: str, kind: str) -> bytes:
    """Return the bytes of a blob that was agreed, or refuse the reply."""
    blob = reply.get(name)
    if not isinstance(blob, Blob) or blob.kind != kind:
        raise ProtectionError(f"no {name} where they were agreed")
    return blob.data


_UPLOAD = struct.Struct("<4sBxxxIQ32s32s")
_MAGIC = b"TMK1"


@dataclass(frozen=True)
class Encoding:
    """Words of an upload: each value, then a one by which the coordinator counts contributions.

    Arithmetic is modulo 2^32 or 2^64, but only as many bytes of a word travel as the sum needs.
    """

    code: FixedPoint

    @property
    def size(self) -> int:
        """Bytes of a word that travel."""
        return -(-(self.code.bits + self.code.guard_bits) // 8)

    @property
    def words(self) -> int:
        """Words of an upload."""
        return self.code.slots + 1

    @property
    def kind(self) -> np.dtype[Any]:
        """Type of the words while they are masked and added."""
        return np.dtype(np.uint32 if self.size <= 4 else np.uint64)

    def encode(self, vector: NDArray[np.float64]) -> Words:
        """Return the words of a vector, not masked yet."""
        words = np.empty(self.words, self.kind)
        words[:-1] = self.code.encode(vector).astype(self.kind)
        words[-1] = 1
        return words

    def write(self, words: Words, run: str, slot: int, call: bytes) -> bytes:
        """Return an upload of masked words, with where they belong and the digest of what was asked."""
        header = _UPLOAD.pack(_MAGIC, self.size, len(words), slot, bytes.fromhex(run), call)
        raw = words.astype(self.kind.newbyteorder("<"), copy=False).view(np.uint8)
        return header + raw.reshape(len(words), -1)[:, : self.size].tobytes()

    def read(self, blob: Any, run: str, slot: int) -> tuple[Words, bytes]:
        """Return the masked words of an upload, and the digest of what its sender was asked."""
        if not isinstance(blob, Blob) or blob.kind != "masked" or len(blob.data) < _UPLOAD.size:
            raise ProtectionError("no masked vector where one was agreed")
        found = _UPLOAD.unpack_from(blob.data)
        agreed = (_MAGIC, self.size, self.words, slot, bytes.fromhex(run))
        if found[:-1] != agreed or len(blob.data) != _UPLOAD.size + self.size * self.words:
            raise ProtectionError(
                f"a masked vector of {found[2]} words of {found[1]} bytes for sum {found[3]}, agreed were "
                f"{self.words} of {self.size} for sum {slot} of this run"
            )
        raw, kind = np.frombuffer(blob.data, np.uint8, offset=_UPLOAD.size), self.kind.newbyteorder("<")
        if self.size < kind.itemsize:
            wide = np.zeros((self.words, kind.itemsize), np.uint8)
            wide[:, : self.size] = raw.reshape(self.words, self.size)
            raw = wide.reshape(-1)
        return raw.view(kind).astype(self.kind, copy=False), found[-1]

    def decode(self, total: Words, contributions: int) -> NDArray[np.int64]:
        """Return the integers of an unmasked total; masks that did not cancel are noticed."""
        spare = np.uint64(64 - 8 * self.size)
        signed = (total.astype(np.uint64) << spare).view(np.int64) >> np.int64(spare)
        integers, counted = signed[:-1], int(signed[-1])
        largest = contributions << (self.code.bits - 1)
        if counted != contributions or (integers.size and np.abs(integers).max() > largest):
            raise ProtectionError(
                f"masks did not cancel over {contributions} contributions: clients were told different "
                "things, or one uploaded what does not fit its keys; this total means nothing"
            )
        return np.ascontiguousarray(integers)
