"""Masked sums at the coordinator: it adds uploads of noise, and removes the masks from their sum."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import OpeningError, ProtectionError
from tacit.core.events import Noted
from tacit.core.exposure import COORDINATOR
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.pending_sum import PendingSum
from tacit.core.protection import Vector
from tacit.core.secret import Secret
from tacit.core.transport import Jobs
from tacit.core.values import Blob
from tacit.crypto.channel import place
from tacit.crypto.field import PRIME, Ring
from tacit.crypto.masking import Words, add_masks, bind_seeds, sign_for
from tacit.protections.keys.authenticated import AuthenticatedCoordinator, read_blob
from tacit.protections.keys.key_relay import KeyRelay
from tacit.protections.masked import Masked, wire
from tacit.protections.masked.client import MaskedClient
from tacit.protections.masked.confirming import CONFIRM, unlock
from tacit.protections.masked.keys import Batch, KeyAgreement
from tacit.protections.masked.totals import read_tag, write_total

LAZY_SUMS = 8  # prepared at most when more are summed than were announced
STREAMS = 64  # masks expanded side by side


class MaskedCoordinator(AuthenticatedCoordinator):
    """Lets clients agree on masks, adds what they upload, and removes the masks from the sum."""

    def __init__(self, settings: Masked, link: Link) -> None:
        super().__init__(link)
        self.settings = settings
        self.relay = KeyRelay(settings.terms, link, self.directory)  # of the key that opens totals at clients
        self.keys = KeyAgreement(settings, link.manifest.digest, link.pinned)  # how clients agree on masks
        self.announced = 0  # sums that the run was said to have; 0 before that
        self.batch: Batch | None = None  # of prepared sums, the one in use

        self._at_clients = settings.opens == "clients"

    def greet(self) -> dict[str, Any]:
        return {**super().greet(), **(self.relay.greet() if self._at_clients else {})}

    def welcome(self, party: str, fields: Mapping[str, Any]) -> None:
        super().welcome(party, fields)
        if self._at_clients:
            self.relay.welcome(party, fields)
        draw = fields.get("draw")
        if not isinstance(draw, bytes) or len(draw) != wire.HASH:
            raise ProtectionError(f"{party} committed to no number for the draw of neighbours")
        self.keys.draws[party] = draw

    def prepare(self, sums: int) -> None:
        self.announced, clients = max(1, sums), len(self.link.parties)
        rules = self.settings.rules(clients)
        self.settings.check_totals(clients)
        if self._at_clients:
            self.relay.prepare()
        if not rules.complete:
            bits = self.settings.security_bits(clients)
            most = f"2^-{bits:.0f}" if isfinite(bits) else "0"
            text = (
                f"each of {clients} clients masks with {rules.neighbours} others, {rules.threshold} shares "
                f"open a mask; with {rules.colluders} colluders around each, any total is over at least "
                f"{rules.fewest_honest} honest clients; if {self.settings.corrupt_share:.0%} of all collude, "
                f"some client is exposed with a probability of at most {most}"
            )
            self.link.events.emit(Noted("protection", text, "warning" if bits < 40 else "info"))
            if self.settings.neighbours is None:
                self.link.events.emit(Noted("protection", self.settings.sparse_graph_warning, "warning"))
        if clients >= self.link.min_contributions:  # or the first sum says why it cannot be
            self._agree(self.link.parties, self.announced)

    def admit(self, names: Sequence[str]) -> None:
        self._check_prepared()
        if self._at_clients:
            self.relay.admit(names)
        left = self.announced if self.batch is None else max(1, self.batch.count - self.batch.used)
        self._agree((*self.link.parties, *names), left)

    def _check_prepared(self) -> None:
        if not self.announced:
            raise ProtectionError("masks were not agreed on: prepare the protection before the first sum")

    def discard_unused_keys(self) -> None:
        self.batch = None

    def _agree(self, parties: Sequence[str], count: int) -> None:
        self.batch = self.keys.reach(parties, count, self.link.ask, self.link.record_failure)

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        """Add up what arrives, and clear the sum of its masks; begin again if too few are left for that."""
        while True:
            batch, asked = self._find_batch(pending)
            encoding = self.settings.encoding(pending.layout, batch.clients)
            masked = MaskedSum(pending, batch, batch.take_slot(), asked, self._at_clients)
            keys = self.relay.tickets(pending) if self._at_clients else ({}, {})
            total, tag, arrived = masked.collect(encoding, *keys)
            for party in arrived if self._at_clients else ():
                self.relay.mark_delivered(party)
            pending.check()
            if batch.can_recover(asked, list(arrived)):
                break
            # Nothing of this sum was opened, and with the next batch clients forget its secrets.
            self.batch = None
            pending.restart()
        tag = masked.remove_masks(total, tag, arrived)
        values = encoding.read_total(total, len(arrived))
        if not self._at_clients:
            return {"integers": encoding.read_integers(values, len(arrived)), "summands": batch.clients}
        call = next(iter(arrived.values()))
        where = {"root": batch.root, "slot": masked.slot, "summands": batch.clients, "call": call}
        return write_total(encoding, values, tag, where)

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        return self.settings.encoding(layout, total["summands"]).code.decode(total["integers"])

    def _find_batch(self, pending: PendingSum) -> tuple[Batch, list[str]]:
        self._check_prepared()
        willing = [party for party in pending.parties if party not in pending.failures]
        needed = self.link.transport.quorum_of(len(pending.parties))
        if self.batch is None or not self.batch.serves(willing, needed):
            pending.check(willing)
            used_up = self.batch is not None and self.batch.used == self.batch.count
            count = min(self.announced, LAZY_SUMS) if used_up else 1
            self.batch = self.keys.reach(willing, count, pending.ask, pending.refuse)
        asked = [] if self.batch is None else self.batch.select_dealers(willing)
        for party in willing:
            if party not in asked and party not in pending.failures:
                why = f": {pending.lost[party]}" if party in pending.lost else ""
                pending.refuse(party, f"it took no part when masks were agreed on{why}")
        if self.batch is None:
            pending.check(asked)
            raise OpeningError("too few clients are left to agree on masks: wait for more")
        return self.batch, asked


@dataclass
class MaskedSum:
    """A sum under way in one slot: uploads of the clients that are asked, and removal of their masks."""

    pending: PendingSum
    batch: Batch
    slot: int
    asked: Sequence[str]
    tagged: bool  # whether uploads have tags

    def collect(
        self, encoding: wire.Encoding, key: Mapping[str, Any], keys: Mapping[str, Mapping[str, Any]]
    ) -> tuple[Words, int, dict[str, bytes]]:
        """Return the sums of uploads and tags, and who arrived, with the digest of what each was asked."""
        total, tags, arrived = np.zeros(encoding.words, encoding.kind), 0, {}
        common, tickets = {"slot": self.slot, **key}, self._write_tickets(keys)
        for party, message in self.pending.contributions(tickets, common, self.asked):
            self.batch.handed(party)
            try:
                tag = read_tag(message) if self.tagged else 0
                words, arrived[party] = encoding.read(message.get("masked"), self.batch.run, self.slot)
            except ProtectionError as error:
                self.pending.refuse(party, str(error))
                continue
            total += words
            tags += tag
        if len(set(arrived.values())) > 1:
            raise ProtectionError(
                f"clients were asked different things in sum {self.slot}, by the digests in their uploads: "
                "their masks do not cancel, and nothing is opened"
            )
        return total, tags, arrived

    def _write_tickets(self, keys: Mapping[str, Mapping[str, Any]]) -> Jobs:
        members, batch = set(self.asked), self.batch
        for party in filter(batch.waiting.__contains__, self.asked):
            if pieces := len(batch.find_shares(party)[-1]):
                self.pending.link.record_relay("", party, pieces * batch.sealed_size, pieces)

        def ticket(party: str) -> dict[str, Any]:
            partners = [name in members for name in batch.holders[party]]
            told: dict[str, Any] = {"partners": wire.pack_flags(partners)}
            if party in batch.waiting:
                dealt, derived, sealed = batch.find_shares(party)
                told |= {"dealt": wire.pack_flags(dealt), "derived": wire.pack_flags(derived)}
                told["shares"] = Blob("sealed", b"".join(sealed))
            return {**told, **keys.get(party, {})}

        return ticket

    def remove_masks(self, total: Words, tag: int, arrived: Mapping[str, bytes]) -> int:
        """Take the masks off the total, in place, and off its tag, which is returned."""
        masks = self._recover_masks(*self.request_shares(arrived), arrived)
        while some := list(islice(masks, STREAMS)):
            tag += add_masks(total, some)
        return tag % PRIME

    def request_shares(self, arrived: Mapping[str, bytes]) -> tuple[Ring, wire.Flags]:
        """Return, from the last wave, what clients gave by seats, a row for each holder; and who gave any."""
        holders, names, seats = self.batch.holders, list(arrived), self.batch.seats
        common = {"slot": self.slot, "survivors": len(names)}

        def alive(party: str) -> dict[str, Any]:
            return {"alive": wire.pack_flags([name in arrived for name in holders[party]])}

        locked, shape = dict[str, bytes](), self.batch.graph[0].shape
        given = np.zeros((*shape, CONFIRM), np.uint8)
        released = np.zeros((*shape, wire.ELEMENTS), np.uint64)
        confirmed, gave = np.zeros(len(seats), bool), np.zeros(len(seats), bool)
        for party, reply in self.pending.ask(MaskedClient.unmask, common, alive, names):
            try:
                shares, confirms = read_blob(reply, "shares", "share"), read_blob(reply, "confirms", "public")
            except ProtectionError:
                continue  # as if it had vanished: others hold shares, too
            if len(confirms) == CONFIRM * len(holders[party]) < len(shares):
                locked[party], confirmed[seats[party]] = shares, True
                given[seats[party]] = np.frombuffer(confirms, np.uint8).reshape(-1, CONFIRM)
        members = np.zeros(len(seats), bool)
        members[[seats[party] for party in self.asked]] = True
        for party in list(locked):
            pads = self.batch.rows_for(party, given, confirmed)
            owners = members[self.batch.graph[0][seats[party]]]
            if (rows := self._unlock(party, locked.pop(party), *pads, int(owners.sum()))) is not None:
                released[seats[party], owners], gave[seats[party]] = rows, True
        return released, gave

    def _unlock(
        self, party: str, locked: bytes, found: NDArray[np.intp], pads: NDArray[np.uint8], owners: int
    ) -> Ring | None:
        """Return the shares that a client gave, if enough of its holders have confirmed the same."""
        raws = [row.tobytes() for row in pads]
        where, holders = place(self.batch.run, self.slot, "release", party, COORDINATOR), self.batch.holders
        confirms = dict(zip(found.tolist(), raws, strict=True))
        raw = unlock(locked, len(holders[party]), confirms, self.batch.rules.threshold, where)
        if raw is None or len(raw) != wire.SHARE * owners:
            return None
        rows = np.frombuffer(raw, "<u8").reshape(-1, wire.ELEMENTS)
        return rows if rows.max() < PRIME else None

    def _recover_masks(
        self, released: Ring, gave: wire.Flags, arrived: Mapping[str, bytes]
    ) -> Iterator[tuple[Secret, int]]:
        batch, call, members = self.batch, next(iter(arrived.values())), set(arrived)
        for owner in self.asked:
            around = members.intersection(batch.holders[owner])
            if not around:  # it vanished, and so did all that masked with it
                continue
            is_right = self._recogniser(owner, owner in members)
            shares = batch.shares_of(owner, released, gave)
            secret = wire.recover_secret(*shares, batch.rules.threshold, is_right, owner)
            if owner in members:
                yield secret, -1
                continue
            given = batch.pair_seeds(owner, self.slot, secret, around)
            seeds = bind_seeds(b"".join(given.values()), call)
            yield from ((seed, sign_for(owner, name)) for name, seed in zip(given, seeds, strict=True))

    def _recogniser(self, owner: str, is_seed: bool) -> Callable[[Secret], bool]:
        run, slot, purpose = self.batch.run, self.slot, "self" if is_seed else "key"
        expected = self.batch.commitment(owner, slot, is_seed)
        return lambda key: wire.commit(purpose, run, owner, slot, key.reveal())[: wire.COMMIT] == expected
