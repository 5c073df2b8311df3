"""What masked sums are made of: commitments, shares, seeds, uploads, and what the coordinator keeps."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from tacit.core.errors import MessageError, OpeningError, ProtectionError
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


def commitment(purpose: str, run: str, owner: str, number: int, secret: bytes) -> bytes:
    """Commit to a random value, for one purpose, owner and time."""
    return hashed(purpose.encode(), run.encode(), owner.encode(), number.to_bytes(8, "little"), secret)


def hashed(*pieces: bytes) -> bytes:
    """Hash byte strings, each with its length, so that none run together."""
    digest = sha256()
    for piece in pieces:
        digest.update(len(piece).to_bytes(4, "little") + piece)
    return digest.digest()


# -- what is shared and uploaded ---------------------------------------------------------------------------


def to_elements(secrets: bytes) -> Ring:
    """Keys and seeds as field elements to be shared, one row each.

    >>> to_elements(bytes(64)).shape
    (2, 5)
    """
    rows = np.frombuffer(secrets, np.uint8).reshape(-1, KEY)
    padded = np.zeros((len(rows), ELEMENTS * 7), np.uint8)
    padded[:, :KEY] = rows
    words = np.zeros((len(rows), ELEMENTS, 8), np.uint8)
    words[:, :, :7] = padded.reshape(len(rows), ELEMENTS, 7)
    return words.view("<u8")[:, :, 0].astype(np.uint64)


def recovered(shares: Sequence[Share], threshold: int, right: Callable[[Secret], bool], owner: str) -> Secret:
    """Recover a key or seed that can be recognised; one wrong share is found if there is one to spare."""
    if len(shares) < threshold:
        raise OpeningError(
            f"{len(shares)} shares of the masks of {owner}, {threshold} are needed: too many of its "
            "neighbours vanished before unmasking, and the sum stays shut"
        )
    for start in range(len(shares) if len(shares) > threshold else 1):
        window = [shares[(start + i) % len(shares)] for i in range(threshold)]
        words = recover_vector(window, threshold).astype("<u8").view(np.uint8).reshape(-1, 8)
        raw = words[:, :7].tobytes()
        secret = Secret(raw[:KEY])
        if not words[:, 7].any() and not any(raw[KEY:]) and right(secret):
            return secret
    raise ProtectionError(
        f"the shares of the masks of {owner} do not give what it committed to: {owner} dealt wrong ones, "
        "or several holders sent others than they were dealt; the sum stays shut"
    )


def mask_seeds(
    private: Secret, publics: Mapping[str, bytes], run: str, call: bytes, slot: int, owner: str
) -> dict[str, Secret]:
    """Seeds of the masks between one client, whose key this is, and others, by their public keys.

    They are bound to what all were asked: whoever was told something else has other seeds.
    """
    secrets, told = exchanged(private, publics.values()), f"{run} {call.hex()}"
    return {name: pair_seed(raw, told, slot, owner, name) for name, raw in zip(publics, secrets, strict=True)}


def public_of(private: Secret) -> bytes:
    """Public half of a key."""
    return X25519PrivateKey.from_private_bytes(private.reveal()).public_key().public_bytes_raw()


def listed(names: Sequence[str]) -> bytes:
    """Digest of a list of clients."""
    return hashed(b"list", *(name.encode() for name in sorted(names)))


def to_flags(flags: Sequence[bool] | Flags) -> bytes:
    """Pack truth values, eight to a byte."""
    return np.packbits(np.asarray(flags, bool)).tobytes()


def from_flags(raw: Any, count: int) -> Flags:
    """Unpack truth values, or refuse bytes of another length."""
    if not isinstance(raw, bytes) or len(raw) != -(-count // 8):
        raise MessageError(f"flags for {count} clients are missing or of another length")
    return np.unpackbits(np.frombuffer(raw, np.uint8), count=count).astype(bool)


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
        """Words of a vector, not masked yet."""
        words = np.empty(self.words, self.kind)
        words[:-1] = self.code.encode(vector).astype(self.kind)
        words[-1] = 1
        return words

    def write(self, words: Words, run: str, slot: int, call: bytes) -> bytes:
        """Upload of masked words, with where they belong and the digest of what was asked."""
        header = _UPLOAD.pack(_MAGIC, self.size, len(words), slot, bytes.fromhex(run), call)
        raw = words.astype(self.kind.newbyteorder("<"), copy=False).view(np.uint8)
        return header + raw.reshape(len(words), -1)[:, : self.size].tobytes()

    def read(self, blob: Any, run: str, slot: int) -> tuple[Words, bytes]:
        """Masked words of an upload, and the digest of what its sender was asked."""
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
        """Integers of an unmasked total; masks that did not cancel are noticed."""
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


# -- what the coordinator keeps -------------------------------------------------------------------------


@dataclass
class Batch:
    """Public keys, relayed shares and the graph of a batch of prepared sums: nothing secret."""

    run: str
    clients: int
    threshold: int
    first: int
    count: int
    order: Mapping[str, tuple[str, ...]]  # client -> itself and its neighbours, who hold its shares
    publics: dict[str, bytes] = field(default_factory=dict)
    commits: dict[str, bytes] = field(default_factory=dict)
    sealed: dict[str, dict[str, bytes]] = field(default_factory=dict)  # receiver -> dealer -> its shares
    used: int = 0

    def neighbours(self, party: str) -> list[str]:
        """Those around a client, without itself."""
        return [name for name in self.order[party] if name != party]

    def joined(self, parties: Sequence[str]) -> list[str]:
        """Those that have dealt their shares."""
        return [party for party in parties if party in self.commits]

    def holds(self, owners: Sequence[str], holders: Sequence[str]) -> bool:
        """Whether enough holders are left for the secrets of these owners; those around none need none."""
        left = set(holders)
        found = (len(left.intersection(self.order[owner])) for owner in owners)
        return all(count == 0 or count >= self.threshold for count in found)

    def piece(self, table: Mapping[str, bytes], owner: str, slot: int) -> bytes:
        """What belongs to one sum in a client's public keys or commitments."""
        start = KEY * (slot - self.first)
        return table[owner][start : start + KEY]


class Jobs(Mapping[str, Mapping[str, Any]]):
    """Fields for each party, made when they are sent: thousands of proofs need not be held at once."""

    def __init__(self, parties: Sequence[str], make: Callable[[str], Mapping[str, Any]]) -> None:
        self._parties, self._make = dict.fromkeys(parties), make

    def __getitem__(self, party: str) -> Mapping[str, Any]:
        self._parties[party]
        return self._make(party)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parties)

    def __len__(self) -> int:
        return len(self._parties)


def chunks(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Cut an iterator into lists."""
    while part := list(islice(items, size)):
        yield part
