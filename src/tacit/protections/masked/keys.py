"""Keys of masked sums: what clients show each other, and how they come to agree in two waves."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, comb, inf, log2
from typing import Any, NamedTuple

from tacit.core.errors import ProtectionError
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import NONCE
from tacit.crypto.neighbours import neighbours_for
from tacit.protections.keys.authenticated import run_of
from tacit.protections.masked.neighbours import Tree, circle, place_of
from tacit.protections.masked.wire import HASH, KEY, SHARE, TAG, Batch, Jobs, commitment

# -- what a client knows, and what it shows -------------------------------------------------------------


def new_number(party: Party) -> bytes:
    """Draw a number that places a client on the circle, and give a commitment to it."""
    number = os.urandom(KEY)
    party.vault["mask/number"] = Secret(number)
    return commitment("draw", run_of(party), party.id, 0, number)


class Seat(NamedTuple):
    """What a client knows of its place in a batch."""

    first: int
    sums: int
    clients: int
    root: bytes
    names: list[str]

    @classmethod
    def of(cls, party: Party) -> Seat:
        """Read it from the party's state."""
        state = party.state
        names = state["mask/names"].decode().split("\n") if "mask/names" in state else []
        first, sums, clients, root = (state[f"mask/{name}"] for name in cls._fields[:-1])
        return cls(first, sums, clients, root, names)

    def order(self, own: str) -> list[str]:
        """All that hold shares of this client's secrets, itself included: the n-th holds the n-th share."""
        return sorted([own, *self.names])


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
        """Bytes to be shown, and bound into the keys under which shares are sealed."""
        return _OFFER.pack(*self[:-1]) + self.publics

    @classmethod
    def from_bytes(cls, raw: bytes, root: bytes, first: int, sums: int) -> Offer:
        """Read an offer for this batch, or refuse it."""
        if len(raw) != _OFFER.size + KEY * sums:
            raise ProtectionError(f"an offer of {len(raw)} bytes, agreed were keys for {sums} sums")
        offer = cls._make((*_OFFER.unpack_from(raw), raw[_OFFER.size :]))
        if (offer.root, offer.first, offer.sums) != (root, first, sums):
            raise ProtectionError("an offer for another batch of sums: somebody was told something else")
        return offer


# -- the coordinator lets clients agree ------------------------------------------------------------------


@dataclass
class Agreement:
    """Two waves after which clients hold each other's keys and shares, and the coordinator a batch.

    Parameters
    ----------
    protection : MaskedClient
        Whose steps are asked.
    ask : callable
        The coordinator's or the sum's way of asking parties.
    refuse : callable
        Told whose replies cannot be used, and why.
    memory : dict
        The coordinator's, with ``run`` and the commitments for the draw in ``draws``.
    """

    protection: Any
    ask: Callable[..., Iterator[tuple[str, Message]]]
    refuse: Callable[[str, str], None]
    memory: dict[str, Any]

    def reach(self, parties: Sequence[str], count: int) -> Batch | None:
        """Prepare sums among these parties; if too many vanish meanwhile, among those that are left."""
        names = list(parties)
        while len(names) > 1:
            neighbours, threshold = self.protection.sizing(len(names))
            first = self.memory.get("next", 1)
            self.memory["next"] = first + count
            tree = Tree({name: self.memory["draws"][name] for name in names})
            sparse = neighbours < len(names) - 1
            offers = self._offers(names, tree.root, first, count, sparse)
            left = list(offers)
            if len(left) > neighbours or (left and not sparse):
                places = {name: place_of(tree.root, offer.number) for name, (offer, _) in offers.items()}
                publics = {name: offer.publics for name, (offer, _) in offers.items()}
                batch = Batch(
                    self.memory["run"], len(names), threshold, first, count, circle(places, neighbours)
                )
                batch.publics.update(publics)
                self._deals(batch, {name: raw for name, (_, raw) in offers.items()}, tree if sparse else None)
                left = batch.joined(names)
                if left and batch.holds(left, left):
                    return batch
            names = left
        return None

    def _offers(
        self, names: list[str], root: bytes, first: int, count: int, sparse: bool
    ) -> dict[str, tuple[Offer, bytes]]:
        """First wave: who takes part, with which keys, and with numbers that were committed to."""
        run, draws, offers = self.memory["run"], self.memory["draws"], {}
        common = {"first": first, "sums": count, "clients": len(names), "root": root}
        for party, reply in self.ask(self.protection.offer, common, None, names):
            try:
                raw = data_of(reply, "offer", "public")
                offer = Offer.from_bytes(raw, root, first, count)
                committed, draws[party] = draws[party], offer.next
                if sparse and commitment("draw", run, party, 0, offer.number) != committed:
                    raise ProtectionError("its number for the draw is not the one that it committed to")
            except ProtectionError as error:
                self.refuse(party, f"{type(error).__name__}: {error}")
                continue
            offers[party] = offer, raw
        return offers

    def _deals(self, batch: Batch, offers: Mapping[str, bytes], tree: Tree | None) -> None:
        """Second wave: everyone gets its neighbours' keys, and deals them its shares."""
        proofs = {name: tree.proof(name) for name in offers} if tree else {}

        def job(party: str) -> dict[str, Any]:
            others = batch.neighbours(party)
            fields = {
                "names": "\n".join(others).encode(),
                "offers": b"".join(offers[name] for name in others),
            }
            return fields | ({"proofs": b"".join(proofs[name] for name in others)} if tree else {})

        length = NONCE + 2 * SHARE * batch.count + TAG
        for party, reply in self.ask(self.protection.deal, None, Jobs(list(offers), job), list(offers)):
            others = batch.neighbours(party)
            try:
                shares, commits = data_of(reply, "shares", "sealed"), data_of(reply, "commits", "public")
                if len(shares) != length * len(others) or len(commits) != HASH * batch.count:
                    raise ProtectionError("its shares have another length than agreed")
            except ProtectionError as error:
                self.refuse(party, f"{type(error).__name__}: {error}")
                continue
            batch.commits[party] = commits
            for index, name in enumerate(others):
                batch.sealed.setdefault(name, {})[party] = shares[length * index : length * (index + 1)]


def worth(protection: Any, clients: int) -> float:
    """Bits of a bound on the probability that some client has too many corrupt neighbours, or is cut off."""
    count, threshold = protection.sizing(clients)
    corrupt = ceil(protection.corrupt_share * clients - 1e-9)
    if protection.neighbours is None:
        settings = protection.corrupt_share, protection.dropout_share
        return neighbours_for(clients, *settings, active=protection.active).security_bits
    held = range(threshold, count + 1)
    bad = clients * sum(comb(corrupt, x) * comb(clients - 1 - corrupt, count - x) for x in held)
    # Set by hand, the circle may also fall apart: two stretches of count/2 that are corrupt or missing.
    gone = min(corrupt + ceil(protection.dropout_share * clients - 1e-9), clients)
    apart = clients * (clients - count - 1) * comb(gone, count) / (2 * comb(clients, count))
    share = bad / comb(clients - 1, count) + apart
    return max(-log2(share), 0.0) if share else inf


def data_of(reply: Message, name: str, kind: str) -> bytes:
    """Bytes of a blob that was agreed, or a refusal."""
    blob = reply.get(name)
    if not isinstance(blob, Blob) or blob.kind != kind:
        raise ProtectionError(f"no {name} where they were agreed")
    return blob.data
