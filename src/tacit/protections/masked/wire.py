"""What travels in masked sums: commitments, offers, shares, seeds and uploads."""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256, shake_256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import MessageError, OpeningError, ProtectionError
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import SIGNATURE, bound, checked_key, hash_pieces
from tacit.crypto.field import Integers, Ring
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.masking import Words
from tacit.crypto.sharing import interpolate

HASH = KEY = 32
COMMIT = 16  # bytes of a commitment to a key or seed: whoever deals gains nothing from two that look alike
ELEMENTS = 3  # field elements from which a key or seed follows: 183 bits
SHARE = 8 * ELEMENTS
TAG = 16  # bytes by which a sealed message is longer, after its nonce

Flags = NDArray[np.bool_]


def commit(purpose: str, run: str, owner: str, number: int, secret: bytes) -> bytes:
    """Return a commitment to a random value, for one purpose, owner and time."""
    return hash_pieces(purpose, run, owner, number.to_bytes(8, "little"), secret)


_OFFER = struct.Struct("<32s32s32s32sQI")
SIGNED_OFFER = SIGNATURE + _OFFER.size
OFFERED = "offered"  # what a signature of an offer is for


class Offer(NamedTuple):
    """What a client shows for a batch of sums: a key, its number for the draw, and the next commitment."""

    exchange: bytes
    root: bytes
    number: bytes
    next: bytes
    first: int
    sums: int

    def to_bytes(self) -> bytes:
        """Return the bytes to be signed and shown, and bound into the keys under which shares are sealed."""
        return _OFFER.pack(*self)

    @classmethod
    def from_signed(
        cls, signed: bytes, pinned: bytes, owner: str, run: str, batch: tuple[bytes, int, int]
    ) -> "Offer":
        """Return an offer that its owner has signed for this batch, or refuse it."""
        raw = checked_key(signed, pinned, OFFERED, owner, run)
        if len(raw) != _OFFER.size:
            raise ProtectionError(f"an offer of {len(raw)} bytes, agreed were {_OFFER.size}")
        offer = cls._make(_OFFER.unpack(raw))
        if (offer.root, offer.first, offer.sums) != batch:
            raise ProtectionError("an offer for another batch of sums: somebody was told something else")
        return offer


def share_place(run: str, first: int) -> Callable[[str, str], bytes]:
    """Return where shares of a batch belong that one client deals to another: the same as ``place`` says."""
    start = bound("place", run, str(first), "shares")
    return lambda sender, receiver: start + bound(sender, receiver)


def derive_share(channel: Secret, where: bytes, size: int) -> bytes:
    """Return the bytes from which a share follows, by the key of two clients, for one place: none travel."""
    return shake_256(b"tacit share" + channel.reveal() + where).digest(size)


def share_points(own: int, places: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the points of a client's shares: the first is its own, then its neighbours' in order."""
    return np.where(places == own, 1, places + 1 + (places < own))


def key_of(elements: Ring) -> Secret:
    """Return the key or seed that follows from random elements of the field: these are what is shared."""
    return Secret(sha256(elements.astype("<u8").tobytes()).digest())


def recover_secret(
    points: NDArray[np.intp], rows: Ring, threshold: int, is_right: Callable[[Secret], bool], owner: str
) -> Secret:
    """Return a key or seed that can be recognised; one wrong share is found if there is one to spare."""
    if len(points) < threshold:
        raise OpeningError(
            f"{len(points)} shares of the masks of {owner}, {threshold} are needed: too many of its "
            "neighbours vanished before unmasking, and the sum stays shut"
        )
    for some in windows(len(points), threshold):
        secret = key_of(interpolate(rows[some], tuple(points[some].tolist())))
        if is_right(secret):
            return secret
    raise ProtectionError(
        f"the shares of the masks of {owner} do not give what it committed to: {owner} dealt wrong ones, "
        "or several holders sent others than they were dealt; the sum stays shut"
    )


def windows(shares: int, threshold: int) -> Iterator[list[int]]:
    """Return choices of as many shares as are needed: if there is one to spare, any is left out by some."""
    if shares >= threshold:
        for start in range(shares if shares > threshold else 1):
            yield [(start + i) % shares for i in range(threshold)]


def digest_names(names: Sequence[str]) -> bytes:
    """Return the digest of a list of clients."""
    return hash_pieces("list", *sorted(names))


def digest_members(names: bytes) -> bytes:
    """Return the root of a batch in which all mask with all: a digest of everybody's names."""
    return hash_pieces(b"members", names)


def pack_flags(flags: Sequence[bool] | Flags) -> bytes:
    """Return truth values packed, eight to a byte."""
    return np.packbits(np.asarray(flags, bool)).tobytes()


def unpack_flags(raw: Any, count: int) -> Flags:
    """Return truth values that were packed, or refuse bytes of another length."""
    if not isinstance(raw, bytes) or len(raw) != -(-count // 8):
        raise MessageError(f"flags for {count} clients are missing or of another length")
    return np.unpackbits(np.frombuffer(raw, np.uint8), count=count).astype(bool)


_UPLOAD = struct.Struct("<4sBxxxIQ32s32s")
_MAGIC = b"TMK2"


@dataclass(frozen=True)
class Encoding:
    """Words of an upload: each value, then a one by which the coordinator counts.

    Arithmetic is modulo 2^32 or 2^64, but only as many bytes of a word travel as the sum needs; if it is
    ``packed``, only as many bits: whole bytes, word by word, and then of all words the few bits above these.
    Values are shifted to the left by ``shift`` bits (``tacit.crypto.pads`` says why).
    """

    code: FixedPoint
    shift: int = 0
    packed: bool = False

    @property
    def bits(self) -> int:
        """Bits of a word that travel."""
        needed = self.code.bits + self.code.guard_bits + self.shift
        return needed if self.packed else -(-needed // 8) * 8

    def size(self, words: int) -> int:
        """Bytes that so many words take."""
        return words * (self.bits // 8) + -(-words * (self.bits % 8) // 8)

    @property
    def words(self) -> int:
        """Words of an upload."""
        return self.code.slots + 1

    @property
    def kind(self) -> np.dtype[Any]:
        """Type of the words while they are masked and added."""
        return np.dtype(np.uint32 if self.bits <= 32 else np.uint64)

    def write_words(self, integers: Integers) -> Words:
        """Return the words of a vector in fixed point, not masked yet."""
        words = np.empty(self.words, self.kind)
        words[:-1] = integers.astype(self.kind) << self.kind.type(self.shift)
        words[-1] = 1
        return words

    def pack(self, words: Words) -> bytes:
        """Return the bytes that travel of words."""
        whole, above = divmod(self.bits, 8)
        raw = words.astype(self.kind.newbyteorder("<"), copy=False).view(np.uint8).reshape(len(words), -1)
        packed = raw[:, :whole].tobytes()
        if above:
            packed += np.packbits(np.unpackbits(raw[:, whole, None], axis=1)[:, 8 - above :]).tobytes()
        return packed

    def unpack(self, raw: bytes | memoryview, count: int) -> Words:
        """Return words from their bytes, or refuse bytes of another length."""
        if len(raw) != self.size(count):
            raise ProtectionError(f"{len(raw)} bytes, agreed were {count} words of {self.bits} bits")
        (whole, above), kind = divmod(self.bits, 8), self.kind.newbyteorder("<")
        found, wide = np.frombuffer(raw, np.uint8), np.zeros((count, kind.itemsize), np.uint8)
        wide[:, :whole] = found[: whole * count].reshape(count, whole)
        if above:
            flags = np.zeros((count, 8), np.uint8)
            packed = np.unpackbits(found[whole * count :], count=above * count)
            flags[:, 8 - above :] = packed.reshape(count, above)
            wide[:, whole] = np.packbits(flags)
        return wide.reshape(-1).view(kind).astype(self.kind, copy=False)

    def write(self, words: Words, run: str, slot: int, call: bytes) -> bytes:
        """Return an upload of masked words, with where they belong and the digest of what was asked."""
        return _UPLOAD.pack(_MAGIC, self.bits, len(words), slot, bytes.fromhex(run), call) + self.pack(words)

    def read(self, blob: Any, run: str, slot: int) -> tuple[Words, bytes]:
        """Return the masked words of an upload, and the digest of what its sender was asked."""
        if not isinstance(blob, Blob) or blob.kind != "masked" or len(blob.data) < _UPLOAD.size:
            raise ProtectionError("no masked vector where one was agreed")
        found = _UPLOAD.unpack_from(blob.data)
        agreed = (_MAGIC, self.bits, self.words, slot, bytes.fromhex(run))
        if found[:-1] != agreed or len(blob.data) != _UPLOAD.size + self.size(self.words):
            raise ProtectionError(
                f"a masked vector of {found[2]} words of {found[1]} bits for sum {found[3]}, agreed were "
                f"{self.words} of {self.bits} for sum {slot} of this run"
            )
        return self.unpack(memoryview(blob.data)[_UPLOAD.size :], self.words), found[-1]

    def read_total(self, total: Words, contributions: int) -> Words:
        """Return the words of a total without masks; masks that did not cancel are noticed by its count."""
        if int(total[-1]) & ((1 << self.bits) - 1) != contributions:
            raise ProtectionError(
                f"masks did not cancel over {contributions} contributions: clients were told different "
                "things, or one uploaded what does not fit its keys; this total means nothing"
            )
        return total[:-1]

    def read_integers(self, words: Words, contributions: int) -> Integers:
        """Return the integers of a total, in the clear; refuse what no such total can be."""
        spare, shift = np.uint64(64 - self.bits), np.int64(self.shift)
        signed = (words.astype(np.uint64) << spare).view(np.int64) >> np.int64(spare)
        integers = signed >> shift
        largest = contributions << (self.code.bits - 1)
        if (integers << shift != signed).any() or (integers.size and np.abs(integers).max() > largest):
            raise ProtectionError(
                f"a total that {contributions} contributions cannot have: one uploaded what does not fit its "
                "keys or its bounds, or the total was changed; it means nothing"
            )
        return np.ascontiguousarray(integers)
