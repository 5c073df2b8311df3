"""What sums by secret sharing have in common at the coordinator: it relays what it cannot read."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tacit.core.errors import ProtectionError
from tacit.core.fields import add_prefix
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.message import Message
from tacit.core.pending_sum import PendingSum
from tacit.core.protection import Vector
from tacit.core.values import Blob
from tacit.protections.keys.authenticated import AuthenticatedCoordinator, stack_rows
from tacit.protections.keys.key_relay import KeyRelay
from tacit.protections.secret_sharing import wire
from tacit.protections.secret_sharing.settings import SecretSharing
from tacit.protections.secret_sharing.share_holder import ShareHolder
from tacit.protections.secret_sharing.share_round import ShareRound, recover_total

Mail = Mapping[str, Mapping[str, bytes]]  # sealed shares, by dealer and holder


class PartialSums(NamedTuple):
    """Partial sums by holder, and whose shares they add up."""

    by_holder: dict[str, bytes]
    dealers: list[str]


class ShareRelay(AuthenticatedCoordinator):
    """Half of the coordinator: it relays the clients' key, sealed shares and partial sums."""

    batch_bytes: ClassVar[int] = 1 << 27  # sealed shares that the coordinator keeps at a time

    def __init__(self, settings: SecretSharing, link: Link) -> None:
        super().__init__(link)
        self.key_relay = KeyRelay(settings.terms, link, self.directory)
        self._settings = settings

    def ticket_fields(self, party: str) -> Mapping[str, Any]:
        """Return what a party has to be told before it deals or holds."""
        return {}

    def prepare(self, sums: int) -> None:
        """Give all clients their key, where totals open there; who misses it takes no part."""
        if len(self.link.parties) < 2:
            name = self._settings.name
            raise ProtectionError(f"{name} protects nothing with a single client: have at least two")
        if self._settings.opens == "clients":
            self.key_relay.prepare()
            taken = self._hand_out(self.link.parties)
            self.link.keep_only([self.key_relay.current_key.maker, *taken])

    def admit(self, names: Sequence[str]) -> None:
        if self._settings.opens == "clients":
            self.key_relay.admit(names)
            self._hand_out(names)

    def _hand_out(self, names: Sequence[str]) -> list[str]:
        common, own = self.key_relay.tickets_for(names)
        # As a ticket: who comes late opens what there was before it does anything else.
        jobs = {name: add_prefix("ticket/", fields) for name, fields in own.items()}
        asked = self.link.ask(ShareHolder.take_key, add_prefix("ticket/", common), jobs) if jobs else ()
        taken = [name for name, _ in asked]
        for name in taken:
            self.key_relay.mark_delivered(name)
        return taken

    def form(self, pending: PendingSum, share_round: ShareRound, gone: set[str]) -> PartialSums | None:
        """Let clients deal and holders add, as many clients at a time as fit; the vanished join ``gone``.

        Returns None, before any partial sum was told, if fewer holders are left than can open the total.
        """
        slots = self._settings.words(pending.layout, len(pending.parties))
        asked = [name for name in pending.parties if name not in gone]
        holders = share_round.holders
        sealed = sum(share_round.sealed_size("", index, slots) for index in range(len(holders)))
        many = max(1, self.batch_bytes // sealed)
        formed = PartialSums({}, [])
        for start in range(0, len(asked), many):
            last = start + many >= len(asked)
            mail = self._collect(pending, share_round, asked[start : start + many], slots)
            gone.update(pending.failures)
            formed.dealers.extend(mail)
            if last:
                pending.check()
            left = [name for name in holders if name not in gone]
            if len(left) < share_round.threshold:
                return None
            replies = self._hand_on(pending, share_round, left, mail, last)
            gone.update(set(left) - replies.keys())
            if last:
                formed.by_holder.update(self._read_partials(pending, replies, slots))
        return formed

    def _collect(
        self, pending: PendingSum, share_round: ShareRound, batch: Sequence[str], slots: int
    ) -> dict[str, dict[str, bytes]]:
        holders = share_round.holders
        common: dict[str, Any] = {
            "holders": wire.names_to_bytes(holders),
            "exchanges": stack_rows(self.directory, holders),
            "lap": share_round.lap,
            "summands": len(pending.parties),
        }
        tickets = {name: self.ticket_fields(name) for name in batch}
        mail: dict[str, dict[str, bytes]] = {}
        for party, message in pending.contributions(tickets, common, batch):
            others = [name for name in holders if name != party]
            sizes = [share_round.sealed_size(party, holders.index(name), slots) for name in others]
            ends, blob = np.cumsum([0, *sizes]).tolist(), message.get("shares")
            if not isinstance(blob, Blob) or (blob.kind, len(blob.data)) != ("sealed", ends[-1]):
                reason = f"no sealed share for each of {len(others)} holders where one was agreed"
                pending.refuse(party, reason)
                continue
            mail[party] = {name: blob.data[ends[i] : ends[i + 1]] for i, name in enumerate(others)}
        return mail

    def _hand_on(
        self, pending: PendingSum, share_round: ShareRound, holders: Sequence[str], mail: Mail, last: bool
    ) -> dict[str, Message]:
        slots = self._settings.words(pending.layout, len(pending.parties))
        jobs: dict[str, Mapping[str, Any]] = {}
        for holder in holders:
            pieces = {dealer: shares[holder] for dealer, shares in mail.items() if dealer != holder}
            for dealer, piece in pieces.items():
                self.link.record_relay(dealer, holder, len(piece))
            jobs[holder] = {"shares": Blob("sealed", b"".join(pieces.values())), **self.ticket_fields(holder)}
        dealers = tuple(mail)
        holding = wire.names_to_bytes(share_round.holders)
        common = {"sum": share_round.number, "lap": share_round.lap, "holders": holding, "slots": slots}
        exchanges = stack_rows(self.directory, dealers)
        common |= {"dealers": wire.names_to_bytes(dealers), "exchanges": exchanges, "last": last}
        return dict(pending.ask(ShareHolder.hold, common, jobs))

    def _read_partials(
        self, pending: PendingSum, replies: Mapping[str, Message], slots: int
    ) -> dict[str, bytes]:
        size = 8 * slots + (wire.OVERHEAD if self._settings.opens == "clients" else 0)
        found = {}
        for holder, reply in replies.items():
            blob = reply.get("partial")
            if isinstance(blob, Blob) and len(blob.data) == size:
                found[holder] = blob.data
            else:
                pending.refuse(holder, f"no partial sum of {slots} values")
        return found

    def make_total(self, pending: PendingSum, share_round: ShareRound, formed: PartialSums) -> dict[str, Any]:
        """Return the total, where the coordinator opens it; else what clients open it with."""
        points = [share_round.holders.index(name) + 1 for name in formed.by_holder]
        raws, summands = list(formed.by_holder.values()), len(pending.parties)
        if self._settings.opens == "coordinator":
            rows = [wire.words_from_bytes(raw) for raw in raws]
            integers, _ = recover_total(share_round.scheme, points, rows, share_round.threshold)
            return {"integers": integers, "summands": summands}
        receivers = share_round.holders if self._settings.announces else pending.parties
        for holder, raw in formed.by_holder.items():
            for name in receivers:
                if name != holder:
                    self.link.record_relay(holder, name, len(raw))
        told = {"summands": summands, "points": np.array(points), "partials": Blob("sealed", b"".join(raws))}
        return {**share_round.sum_terms(formed.dealers), **told}

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        return self._settings.code(layout, total["summands"]).decode(total["integers"])
