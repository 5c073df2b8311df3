"""What dealt sums are made of: who holds which share, how shares are cut, added and put together again.

An additive share is uniform, so 32 bytes of seed stand for it; only one share of a dealer has the vector's
length, and a dealer that holds a share itself keeps that one. Shamir's shares all have the vector's length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.message import Message
from tacit.core.secret import Secret
from tacit.crypto.channel import place
from tacit.crypto.field import PRIME, Integers, Ring, from_field, multiply, to_field
from tacit.crypto.masking import SEED, add_mask, add_masks, expand, new_seed
from tacit.crypto.sharing import (
    Share,
    add_shares,
    additive_total,
    as_ring,
    as_signed,
    recover_vector,
    share_vector,
)

Scheme = Literal["additive", "shamir"]
_LOW32, _3, _32 = np.uint64((1 << 32) - 1), np.uint64(3), np.uint64(32)


@dataclass(frozen=True)
class Dealing:
    """One time that shares are dealt: for which sum, and to whom, in the order of their points.

    Examples
    --------
    >>> deal = Dealing("additive", 1, 1, ("ann", "bob", "eve"), 3)
    >>> pieces = deal.cut("bob", np.array([7, -1]))
    >>> [len(piece) for piece in pieces]
    [32, 16, 32]
    >>> rows = [deal.added(i, np.zeros(2, np.uint64), ["bob"], [piece]) for i, piece in enumerate(pieces)]
    >>> recovered("additive", [1, 2, 3], rows, 3).tolist()
    [7, -1]
    """

    scheme: Scheme
    number: int
    lap: int
    holders: tuple[str, ...]
    threshold: int

    @cached_property
    def mark(self) -> str:
        """What all shares of this dealing are bound to."""
        holders = joined(self.holders)
        return Message(sum=self.number, lap=self.lap, threshold=self.threshold, holders=holders).digest()

    def share_place(self, run: str, dealer: str, holder: str) -> bytes:
        """Where a sealed share belongs."""
        return place(run, self.number, f"share {self.mark}", dealer, holder)

    def terms(self, dealers: Iterable[str]) -> dict[str, Any]:
        """What all partial sums over these dealers are bound to."""
        names = sorted(dealers)
        mark = hashlib.sha256(self.mark.encode() + joined(names)).hexdigest()
        counts = {"contributions": len(names), "threshold": self.threshold, "holders": len(self.holders)}
        return {"number": self.number, "mark": mark, **counts}

    def long(self, dealer: str) -> int:
        """Index of the holder whose additive share has the vector's length: the dealer, if it can be."""
        return self.holders.index(dealer) if dealer in self.holders else 0

    def length(self, dealer: str, holder: int, slots: int) -> int:
        """Bytes of a share, by the holder's index."""
        return 8 * slots if self.scheme == "shamir" or holder == self.long(dealer) else SEED

    def cut(self, dealer: str, integers: Integers) -> list[bytes]:
        """Cut a vector into shares, in the order of the holders."""
        if self.scheme == "shamir":
            shares = share_vector(to_field(integers), len(self.holders), self.threshold)
            return [to_raw(share.values) for share in shares]
        seeds = [new_seed() for _ in self.holders[1:]]
        rest = as_ring(integers).copy()
        add_masks(rest, [(seed, -1) for seed in seeds])
        pieces = [seed.reveal() for seed in seeds]
        pieces.insert(self.long(dealer), to_raw(rest))
        return pieces

    def added(self, holder: int, running: Ring, dealers: Sequence[str], pieces: Iterable[bytes]) -> Ring:
        """Add the shares of these dealers, at the holder of that index, to a running sum."""
        if self.scheme == "shamir":
            rows = [running, *(from_raw(piece) for piece in pieces)]
            return add_shares([Share(holder + 1, row) for row in rows]).values
        for dealer, piece in zip(dealers, pieces, strict=True):
            if self.long(dealer) == holder:
                running += from_raw(piece)
            else:
                add_mask(running, Secret(piece))
        return running


def recovered(scheme: Scheme, points: Sequence[int], rows: Sequence[Ring], threshold: int) -> Integers:
    """Put partial sums together.

    Raises
    ------
    ProtectionError
        If more than ``threshold`` of Shamir's are there and they do not fit together.
    """
    if scheme == "additive":
        return as_signed(additive_total(np.stack(rows)))
    shares = [Share(point, row) for point, row in zip(points, rows, strict=True)]
    _check_fit(shares, threshold)
    return from_field(recover_vector(shares[:threshold], threshold))


def _check_fit(shares: Sequence[Share], threshold: int) -> None:
    """Check that all shares lie on one polynomial, for all values at once by a random combination of them.

    A holder that added wrongly stays unnoticed once in 2^61 times, if a share beyond the threshold is there.
    """
    weights = expand(new_seed(), len(shares[0].values)) >> _3
    combined = []
    for share in shares:
        products = multiply(share.values, weights)
        value = (int((products >> _32).sum()) << 32) + int((products & _LOW32).sum())
        combined.append(Share(share.point, np.array([value % PRIME], np.uint64)))
    recover_vector(combined, threshold)


def partial_place(run: str, terms: Mapping[str, Any], point: int) -> bytes:
    """Where a sealed partial sum belongs."""
    told = f"{terms['contributions']} dealt, {terms['threshold']} of {terms['holders']} open, {terms['mark']}"
    return place(run, terms["number"], f"partial sum: {told}", str(point), "clients")


def to_raw(values: Ring) -> bytes:
    """Words as bytes, the same on every machine."""
    return values.astype("<u8", copy=False).tobytes()


def from_raw(raw: bytes) -> Ring:
    """Read what :func:`to_raw` wrote."""
    return np.frombuffer(raw, "<u8").astype(np.uint64)


def joined(names: Iterable[str]) -> bytes:
    """Names as bytes: thousands of them fit no message's header."""
    return "\n".join(names).encode()


def lines(raw: bytes) -> list[str]:
    """Read what :func:`joined` wrote.

    >>> lines(joined(["ann", "bob"])), lines(joined([]))
    (['ann', 'bob'], [])
    """
    return raw.decode().split("\n") if raw else []


def rows_of(signed: Mapping[str, bytes], names: Sequence[str]) -> NDArray[np.uint8]:
    """Signed keys of parties, one a row."""
    raw = b"".join(signed[name] for name in names)
    return np.frombuffer(raw, np.uint8).reshape(len(names), len(raw) // max(len(names), 1))
