"""One time that shares are dealt: who holds which share, how shares are cut, added and put together again.

An additive share is uniform, so 32 bytes of seed stand for it; only one share of a dealer has the vector's
length, and a dealer that holds a share itself keeps that one. Shamir's shares all have the vector's length.

Where clients open totals, the tag of a vector is shared with it, as one word more, in its own field: added up
in any other way, tags would tell who has the clients' key more than that of the total.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tacit.core.message import Message
from tacit.core.secret import Secret
from tacit.crypto.channel import place
from tacit.crypto.field import PRIME, Integers, Ring, from_field, multiply, to_field
from tacit.crypto.masking import SEED, add_masks, expand, new_seed
from tacit.crypto.sharing import add_shares, recover, share_rows
from tacit.protections.secret_sharing import wire

Scheme = Literal["additive", "shamir"]
_LOW32, _3, _32 = np.uint64((1 << 32) - 1), np.uint64(3), np.uint64(32)


@dataclass(frozen=True)
class ShareRound:
    """One time that shares are dealt: for which sum, and to whom."""

    scheme: Scheme
    number: int  # of the sum
    lap: int  # rises whenever the sum starts again, or with each committee
    holders: tuple[str, ...]  # the first has point 1
    threshold: int  # how many of them open the total

    @cached_property
    def digest(self) -> str:
        """What all shares of this round are bound to."""
        holders = wire.names_to_bytes(self.holders)
        return Message(sum=self.number, lap=self.lap, threshold=self.threshold, holders=holders).digest()

    def share_place(self, run: str, dealer: str, holder: str) -> bytes:
        """Return where a sealed share belongs."""
        return place(run, self.number, f"share {self.digest}", dealer, holder)

    def sum_terms(self, dealers: Iterable[str]) -> dict[str, Any]:
        """Return what all partial sums over these dealers are bound to."""
        names = sorted(dealers)
        digest = hashlib.sha256(self.digest.encode() + wire.names_to_bytes(names)).hexdigest()
        counts = {"contributions": len(names), "threshold": self.threshold, "holders": len(self.holders)}
        return {"number": self.number, "mark": digest, **counts}

    def full_share_index(self, dealer: str) -> int:
        """Return whose additive share has the vector's length, by index: the dealer's, if it holds one."""
        return self.holders.index(dealer) if dealer in self.holders else 0

    def sealed_size(self, dealer: str, holder: int, slots: int) -> int:
        """Return the bytes of a sealed share, by the holder's index."""
        full = self.scheme == "shamir" or holder == self.full_share_index(dealer)
        return (8 * slots if full else SEED) + wire.OVERHEAD

    def cut(self, dealer: str, integers: Integers, tag: int) -> list[bytes]:
        """Cut a vector and its tag into shares, in the order of the holders."""
        if self.scheme == "shamir":
            words = np.append(to_field(integers), np.uint64(tag))
            return [wire.words_to_bytes(row) for row in share_rows(words, len(self.holders), self.threshold)]
        masks = [(new_seed(), -1) for _ in self.holders[1:]]
        rest = np.append(np.asarray(integers, np.int64).view(np.uint64), np.uint64(0))
        rest[-1] = (tag + add_masks(rest[:-1], masks)) % PRIME
        pieces = [seed.reveal() for seed, _ in masks]
        pieces.insert(self.full_share_index(dealer), wire.words_to_bytes(rest))
        return pieces

    def add(self, holder: int, running: Ring, dealers: Sequence[str], pieces: Iterable[bytes]) -> Ring:
        """Add the shares of these dealers, at the holder of that index, to a running sum."""
        if self.scheme == "shamir":
            rows = [running, *(wire.words_from_bytes(piece) for piece in pieces)]
            return add_shares(rows)
        values, tag = running[:-1], int(running[-1])
        for dealer, piece in zip(dealers, pieces, strict=True):
            if self.full_share_index(dealer) == holder:
                words = wire.words_from_bytes(piece)
                values += words[:-1]
                tag += int(words[-1])
            else:
                tag += add_masks(values, [(Secret(piece), 1)])
        running[-1] = tag % PRIME
        return running


def recover_total(
    scheme: Scheme, points: Sequence[int], rows: Sequence[Ring], threshold: int
) -> tuple[Integers, int]:
    """Return the total of partial sums and its tag; Shamir's beyond the threshold must fit."""
    if scheme == "additive":
        total: Ring = np.stack(rows).sum(axis=0, dtype=np.uint64)
        return total[:-1].view(np.int64), sum(int(row[-1]) for row in rows) % PRIME
    _check_fit(points, rows, threshold)
    words = recover(rows[:threshold], points[:threshold], threshold)
    return from_field(words[:-1]), int(words[-1])


def _check_fit(points: Sequence[int], rows: Sequence[Ring], threshold: int) -> None:
    """Check by a random combination of all values that shares lie on one polynomial: sure but for 2^-61."""
    weights, combined = expand(new_seed(), len(rows[0])) >> _3, []
    for row in rows:
        products = multiply(row, weights)
        value = (int((products >> _32).sum()) << 32) + int((products & _LOW32).sum())
        combined.append(np.array([value % PRIME], np.uint64))
    recover(combined, points, threshold)


def partial_place(run: str, terms: Mapping[str, Any], point: int) -> bytes:
    """Return where a sealed partial sum belongs."""
    told = f"{terms['contributions']} dealt, {terms['threshold']} of {terms['holders']} open, {terms['mark']}"
    return place(run, terms["number"], f"partial sum: {told}", str(point), "clients")
