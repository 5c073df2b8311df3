"""Keys of masked sums at the coordinator: how it lets clients agree on them, and what it keeps of that."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ProtectionError
from tacit.core.message import Message
from tacit.core.secret import Secret
from tacit.core.transport import Jobs
from tacit.crypto.channel import NONCE, new_exchange, pair_key
from tacit.crypto.field import Ring
from tacit.crypto.masking import GIVEN, cover
from tacit.protections.keys.authenticated import read_blob
from tacit.protections.masked import Masked, wire
from tacit.protections.masked.dealing import Dealer
from tacit.protections.masked.neighbours import MerkleTree, assign_holders, find_place
from tacit.protections.masked.rules import Rules

Replies = Iterator[tuple[str, Message]]
Ask = Callable[..., Replies]
Refuse = Callable[[str, str], None]


@dataclass
class Batch:
    """What a batch of prepared sums leaves with the coordinator, and its graph: nothing secret.

    A *slot* is the number of a prepared sum. ``holders`` are, for each client, itself and its neighbours, who
    hold shares of its secrets; ``commits`` are to its key and its seed of each slot; ``deposits`` have, by
    slot, its pair seed with each neighbour, under its key; ``sealed`` has the shares that it dealt to those
    neighbours whose shares do not follow from keys; ``waiting`` are those that were not handed theirs yet.
    """

    run: str
    clients: int
    rules: Rules
    root: bytes
    first: int
    count: int
    holders: Mapping[str, tuple[str, ...]]
    commits: dict[str, bytes] = field(default_factory=dict)
    deposits: dict[str, bytes] = field(default_factory=dict)
    sealed: dict[str, bytes] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    used: int = 0

    def take_slot(self) -> int:
        """Return the slot of the next sum, and count it as used."""
        self.used += 1
        return self.first + self.used - 1

    def neighbours(self, party: str) -> list[str]:
        """Return those around a client, without itself."""
        return [name for name in self.holders[party] if name != party]

    @cached_property
    def seats(self) -> dict[str, int]:
        """Number of each client in the order of names."""
        return {name: number for number, name in enumerate(sorted(self.holders))}

    @cached_property
    def graph(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """For each client, by seats, the seats of its holders, and the place that it has among theirs."""
        around = np.array([[self.seats[name] for name in self.holders[own]] for own in self.seats], np.int64)
        size, width = around.shape
        edges = (np.arange(size)[:, None] * size + around).reshape(-1)  # in order, as seats and holders are
        places = np.searchsorted(edges, around * size + np.arange(size)[:, None]) - around * width
        return around.astype(np.int32), places.astype(np.int32)

    @cached_property
    def own_places(self) -> NDArray[np.int32]:
        """For each client, by seats, its place among its own holders."""
        around, places = self.graph
        return np.asarray(places[around == np.arange(len(around))[:, None]])

    def rows_for(
        self, party: str, rows: NDArray[Any], present: wire.Flags
    ) -> tuple[NDArray[np.intp], NDArray[Any]]:
        """Return which holders of a client are present, by their places, and what each has for it in rows."""
        around, places = (table[self.seats[party]] for table in self.graph)
        found = np.flatnonzero(present[around])
        return found, rows[around[found], places[found]]

    def shares_of(self, owner: str, rows: Ring, present: wire.Flags) -> tuple[NDArray[np.intp], Ring]:
        """Return the shares that holders have given of a client, with their points, in order."""
        found, given = self.rows_for(owner, rows, present)
        points = wire.share_points(int(self.own_places[self.seats[owner]]), found)
        order = np.argsort(points)
        return points[order], given[order]

    @property
    def sealed_size(self) -> int:
        """Bytes of the sealed shares that one client deals to another."""
        return NONCE + 2 * wire.SHARE * self.count + wire.TAG

    def handed(self, party: str) -> None:
        """Forget the sealed shares once all have theirs."""
        self.waiting.discard(party)
        if not self.waiting:
            self.sealed.clear()

    def find_shares(self, party: str) -> tuple[list[bool], list[bool], list[bytes]]:
        """Return which holders dealt a client shares, whose follow from keys, and the others, sealed."""
        around, places = (table[self.seats[party]] for table in self.graph)
        numbers = places - (places > self.own_places[around])  # among the neighbours of each
        follow, size = self.rules.threshold - 1, self.sealed_size
        dealt, derived, sealed = list[bool](), list[bool](), list[bytes]()
        for name, number in zip(self.holders[party], numbers.tolist(), strict=True):
            dealt.append(name in self.commits)
            derived.append(dealt[-1] and name != party and number < follow)
            if dealt[-1] and name != party and number >= follow:
                start = size * (number - follow)
                sealed.append(self.sealed[name][start : start + size])
        return dealt, derived, sealed

    def select_dealers(self, parties: Sequence[str]) -> list[str]:
        """Return those of the parties that have dealt their shares."""
        return [party for party in parties if party in self.commits]

    def can_mask(self, parties: Sequence[str]) -> bool:
        """Return whether each of these parties finds enough of the others to mask with."""
        left = set(parties)
        found = (len(left.intersection(self.holders[party])) for party in parties)
        return all(count >= self.rules.partners for count in found)

    def can_recover(self, owners: Sequence[str], present: Sequence[str]) -> bool:
        """Return whether enough holders are left for these secrets, which none around needs."""
        left = set(present)
        found = (len(left.intersection(self.holders[owner])) for owner in owners)
        return all(count == 0 or count >= self.rules.threshold for count in found)

    def serves(self, willing: Sequence[str], needed: int) -> bool:
        """Return whether a sum is left in which enough of these parties can take part."""
        asked = self.select_dealers(willing)
        return self.used < self.count and len(asked) >= needed and self.can_mask(asked)

    def commitment(self, owner: str, slot: int, is_seed: bool) -> bytes:
        """Return a client's commitment to its seed or its key of one sum."""
        start = wire.COMMIT * (2 * (slot - self.first) + is_seed)
        return self.commits[owner][start : start + wire.COMMIT]

    def pair_seeds(self, owner: str, slot: int, key: Secret, around: Set[str]) -> dict[str, bytes]:
        """Return a client's pair seeds of one sum with those of its neighbours, by its key."""
        others = self.neighbours(owner)
        start = GIVEN * len(others) * (slot - self.first)
        given = cover(key, self.deposits[owner][start : start + GIVEN * len(others)])
        return {
            name: given[GIVEN * index : GIVEN * (index + 1)]
            for index, name in enumerate(others)
            if name in around
        }


@dataclass
class KeyAgreement:
    """Two waves after which clients hold each other's keys and shares, and the coordinator a batch."""

    settings: Masked
    run: str  # digest of the manifest
    pinned: Callable[[str], bytes]  # identity of a client
    draws: dict[str, bytes] = field(default_factory=dict)  # commitments to numbers for the next draw
    next_slot: int = 1  # number of the next sum that is prepared: none is prepared twice

    def reach(self, parties: Sequence[str], count: int, ask: Ask, refuse: Refuse) -> Batch | None:
        """Prepare so many sums among these parties, or those left (None: nobody); refuse bad replies."""
        names = list(parties)
        while len(names) > 1:
            rules, first = self.settings.rules(len(names)), self.next_slot
            self.next_slot += count
            members = "\n".join(sorted(names)).encode()
            tree = None if rules.complete else MerkleTree({name: self.draws[name] for name in names})
            root = wire.digest_members(members) if tree is None else tree.root
            common: dict[str, Any] = {"first": first, "sums": count, "clients": len(names), "root": root}
            if tree is None:
                common["members"] = members
            replies = ask(Dealer.offer, common, None, names)
            offers, shown = self._read_offers(replies, refuse, root, first, count, tree is not None)
            left = list(offers)
            if len(left) >= (rules.partners if rules.complete else rules.neighbours + 1):
                places = {
                    name: find_place(root, offer.number) if tree else 0 for name, offer in offers.items()
                }
                holders = assign_holders(places, rules.neighbours)
                batch = Batch(self.run, len(names), rules, root, first, count, holders)
                jobs = _deal_jobs(batch, shown, tree)
                _read_deals(batch, ask(Dealer.deal, None, jobs, left), refuse)
                left = batch.select_dealers(names)
                if left and batch.can_mask(left):
                    return batch
            names = left
        return None

    def _read_offers(
        self, replies: Replies, refuse: Refuse, root: bytes, first: int, count: int, sparse: bool
    ) -> tuple[dict[str, wire.Offer], dict[str, bytes]]:
        offers, shown, probe = dict[str, wire.Offer](), dict[str, bytes](), new_exchange()[0]
        for party, reply in replies:
            try:
                signed, batch = read_blob(reply, "offer", "public"), (root, first, count)
                offer = wire.Offer.from_signed(signed, self.pinned(party), party, self.run, batch)
                pair_key(probe, offer.exchange, "probe", self.run)
                committed, self.draws[party] = self.draws[party], offer.next
                if sparse and wire.commit("draw", self.run, party, 0, offer.number) != committed:
                    raise ProtectionError("its number for the draw is not the one that it committed to")
            except ProtectionError as error:
                refuse(party, f"{type(error).__name__}: {error}")
                continue
            offers[party], shown[party] = offer, signed
        return offers, shown


def _deal_jobs(batch: Batch, shown: Mapping[str, bytes], tree: MerkleTree | None) -> Jobs:
    proofs = {name: tree.prove(name) for name in shown} if tree else {}

    def job(party: str) -> dict[str, Any]:
        others = batch.neighbours(party)
        fields = {"names": "\n".join(others).encode(), "offers": b"".join(shown[name] for name in others)}
        return fields | ({"proofs": b"".join(proofs[name] for name in others)} if tree else {})

    return job


def _read_deals(batch: Batch, replies: Replies, refuse: Refuse) -> None:
    for party, reply in replies:
        others = len(batch.holders[party]) - 1
        pieces = others - batch.rules.threshold + 1
        agreed = [batch.sealed_size * pieces, 2 * wire.COMMIT * batch.count, GIVEN * others * batch.count]
        try:
            kinds = (("shares", "sealed"), ("commits", "public"), ("deposits", "sealed"))
            shares, commits, deposits = found = [read_blob(reply, *kind) for kind in kinds]
            if [len(raw) for raw in found] != agreed:
                raise ProtectionError("its shares have another length than agreed")
        except ProtectionError as error:
            refuse(party, f"{type(error).__name__}: {error}")
            continue
        batch.commits[party], batch.deposits[party], batch.sealed[party] = commits, deposits, shares
        batch.waiting.add(party)
