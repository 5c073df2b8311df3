"""Sums by secret sharing: clients deal sealed shares, holders add them, and partial sums give the total.

What peer-to-peer MPC (:mod:`tacit.protections.secret_sharing.shares`) and Two-Phase MPC (:mod:`tacit.protections.secret_sharing.committee`) have in
common; they differ in who holds shares. The coordinator relays: shares are sealed for their holder, and
partial sums, where totals open at the clients, under a key that all clients have and it has not.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tacit.core.client import over
from tacit.core.errors import ConfigError, OpeningError, ProtectionError
from tacit.core.events import Relayed
from tacit.core.layout import Layout
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import Place, Sum, Vector
from tacit.core.secret import Secret
from tacit.core.shared import Shared
from tacit.core.values import Blob
from tacit.crypto.channel import seal, unseal
from tacit.crypto.fixedpoint import FixedPoint
from tacit.protections.keys.authenticated import WRAPPED, run_of, sealing_key
from tacit.protections.keys.shared_key import ClientKeys
from tacit.protections.secret_sharing.share_round import (
    Dealing,
    Scheme,
    from_raw,
    joined,
    lines,
    partial_place,
    recovered,
    rows_of,
    to_raw,
)

OVERHEAD = 12 + 16  # of a sealed blob: nonce and tag
FIELD_BITS = 60  # of a value in the field, its sign apart


class Formed(NamedTuple):
    """Partial sums by holder, and whose shares they add up."""

    partials: dict[str, bytes]
    dealers: list[str]


@dataclass(frozen=True)
class Dealt(ClientKeys):
    """Base of sums by secret sharing: dealing, holding and opening; who holds is the subclass's."""

    restarts: ClassVar[bool] = True
    batch_bytes: ClassVar[int] = 1 << 27  # sealed shares that the coordinator keeps at a time

    scheme: Scheme = "shamir"
    opens: Place = "clients"
    bits: int = 32
    clip: bool = False

    def dealing(self, party: Party, fields: Mapping[str, Any]) -> Dealing:
        """Who holds shares, checked by this party: a coordinator could name its friends."""
        raise TypeError(f"{type(self).__name__} must say who holds shares")

    def news(self, pending: Sum, party: str) -> Mapping[str, Any]:
        """What a party has to be told before it deals or holds."""
        return {}

    # -- the clients' key --------------------------------------------------------------------------

    def generate(self, wishes: Mapping[str, Any]) -> tuple[Secret, Mapping[str, bytes]]:
        """Make the key under which partial sums go to all clients."""
        return Secret(os.urandom(32)), {"public": b""}

    def prepare(self, coordinator: Any, sums: int) -> None:
        """Give all clients their key, where totals open there; who misses it takes no part."""
        if len(coordinator.parties) < 2:
            raise ProtectionError(f"{self.name} protects nothing with a single client: have at least two")
        if self.opens == "coordinator":
            return
        super().prepare(coordinator, sums)
        maker = coordinator.memory["keys"]["maker"]
        taken = self._hand_out(coordinator, maker)
        coordinator.parties = tuple(name for name in coordinator.parties if name == maker or name in taken)

    def admit(self, coordinator: Any, names: Sequence[str]) -> None:
        """Give the clients' key to those that come later."""
        super().admit(coordinator, names)
        if self.opens == "clients":
            self._hand_out(coordinator, coordinator.memory["sealers"][names[0]])

    def _hand_out(self, coordinator: Any, sealer: str) -> set[str]:
        """Give the clients' key to all that lack it; gives those that have it now."""
        memory, keys = coordinator.memory, coordinator.memory["keys"]
        size = WRAPPED + len(keys["bundle"].data)
        for name in memory["wraps"]:
            coordinator.events.emit(Relayed(coordinator._waves + 1, sealer, name, size))
        # As a ticket: who comes late opens what there was before it does anything else.
        jobs = {name: {"ticket/wrap": wrap} for name, wrap in memory["wraps"].items()}
        call = over("ticket/", {**keys, "maker": sealer, "exchange": coordinator.directory[sealer]})
        taken = {name for name, _ in coordinator.ask(self.take_key, call, jobs)}
        memory["holders"] |= taken
        memory["wraps"] = {name: wrap for name, wrap in memory["wraps"].items() if name not in taken}
        return taken

    @step
    def take_key(self, party: Party, message: Message, shared: Shared | None) -> Message:
        """Say that the clients' key has come, which rode on the ask."""
        self.receive(party, {})
        return Message()

    # -- a client deals ----------------------------------------------------------------------------

    def protect(self, party: Party, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Cut this party's vector into shares, and seal each for its holder."""
        deal, run = self.dealing(party, ticket), run_of(party)
        pieces = deal.cut(party.id, self._code(layout, ticket["summands"]).encode(vector))
        sealed = []
        for name, signed, piece in zip(deal.holders, ticket["exchanges"], pieces, strict=True):
            if name == party.id:
                party.vault["own"], party.state["own"] = Secret(piece), deal.mark
            else:
                key = _peer_key(party, name, signed.tobytes())
                sealed.append(seal(key, piece, deal.share_place(run, party.id, name)))
        return Message(shares=Blob("sealed", b"".join(sealed)))

    def _code(self, layout: Layout, summands: int) -> FixedPoint:
        code = FixedPoint.of(layout, self.bits, summands, self.clip)
        if self.scheme == "shamir" and (needed := self.bits - 1 + code.guard_bits) > FIELD_BITS:
            raise ConfigError(
                f"{self.bits} bits a value and {summands:,} summands need {needed} bits and a sign, the "
                f"field holds {FIELD_BITS}: use at most {FIELD_BITS + 1 - code.guard_bits} bits"
            )
        return code

    # -- a holder adds -----------------------------------------------------------------------------

    @step
    def hold(self, party: Party, message: Message, shared: Shared | None) -> Message:
        """Add the shares of some dealers to those held before; with the last of them, tell the sum."""
        deal = self.dealing(party, message)
        if party.id not in deal.holders:
            raise ProtectionError(f"{party.id} was asked to hold shares, and is none of the holders")
        index, new = deal.holders.index(party.id), lines(message["dealers"])
        dealers, running = new, np.zeros(message["slots"], np.uint64)
        if party.state.get("held") == deal.mark:
            dealers = [*lines(party.state["dealers"]), *new]
            running = from_raw(party.vault["running"].reveal())
        if len(set(dealers)) < len(dealers):
            raise OpeningError(f"{party.id} was sent a client's shares twice: it would count double")
        running = deal.added(index, running, new, self._unsealed(party, deal, message, new))
        if not message["last"]:
            party.vault["running"] = Secret(to_raw(running))
            party.state.update({"held": deal.mark, "dealers": joined(dealers)})
            return Message()
        self.check_opening(party, len(dealers))
        # Once told, never again: two sums over different dealers differ by single clients.
        party.state["released"] = (deal.number, deal.lap)
        for done in ("own", "running"):
            party.vault.pop(done, None)
        if self.opens == "coordinator":
            return Message(partial=Blob("share", to_raw(running)))
        where = partial_place(run_of(party), deal.terms(dealers), index + 1)
        return Message(partial=Blob("sealed", seal(self.unlocked(party), to_raw(running), where)))

    def _unsealed(
        self, party: Party, deal: Dealing, message: Message, dealers: Sequence[str]
    ) -> Iterator[bytes]:
        index, run, raw, position = deal.holders.index(party.id), run_of(party), message["shares"].data, 0
        for name, signed in zip(dealers, message["exchanges"], strict=True):
            if name == party.id:
                if party.state.get("own") != deal.mark:
                    raise ProtectionError(f"{party.id} is named as a dealer, and dealt nothing in this sum")
                yield party.vault["own"].reveal()
                continue
            size = deal.length(name, index, message["slots"]) + OVERHEAD
            piece, position = raw[position : position + size], position + size
            key = _peer_key(party, name, signed.tobytes())
            try:
                yield unseal(key, piece, deal.share_place(run, name, party.id))
            except ProtectionError as error:
                raise ProtectionError(f"share that {name} dealt to {party.id}: {error.public}") from None

    # -- the coordinator relays --------------------------------------------------------------------

    def form(self, pending: Sum, deal: Dealing, gone: set[str]) -> Formed | None:
        """Let clients deal and holders add, as many clients at a time as fit.

        Gives None, before any partial sum was told, if fewer holders are left than can open the total.
        Clients that vanished join ``gone``.
        """
        slots = self._code(pending.layout, len(pending.parties)).slots
        asked = [name for name in pending.parties if name not in gone]
        sealed = sum(deal.length("", index, slots) + OVERHEAD for index in range(len(deal.holders)))
        many = max(1, self.batch_bytes // sealed)
        formed = Formed({}, [])
        for start in range(0, len(asked), many):
            last = start + many >= len(asked)
            mail = self._collected(pending, deal, asked[start : start + many], slots)
            gone.update(pending.failures)
            formed.dealers.extend(mail)
            if last:
                pending.check()
            holders = [name for name in deal.holders if name not in gone]
            if len(holders) < deal.threshold:
                return None
            replies = self._handed_on(pending, deal, holders, mail, slots, last)
            gone.update(set(holders) - replies.keys())
            if last:
                formed.partials.update(self._partials(pending, replies, slots))
        return formed

    def _collected(
        self, pending: Sum, deal: Dealing, batch: Sequence[str], slots: int
    ) -> dict[str, dict[str, bytes]]:
        """Sealed shares, by dealer and holder."""
        common: dict[str, Any] = {
            "holders": joined(deal.holders),
            "exchanges": rows_of(pending.directory, deal.holders),
            "lap": deal.lap,
            "summands": len(pending.parties),
        }
        tickets = {name: self.news(pending, name) for name in batch}
        mail: dict[str, dict[str, bytes]] = {}
        for party, message in pending.contributions(tickets, common, batch):
            others = [name for name in deal.holders if name != party]
            sizes = [deal.length(party, deal.holders.index(name), slots) + OVERHEAD for name in others]
            ends, blob = np.cumsum([0, *sizes]).tolist(), message.get("shares")
            if not isinstance(blob, Blob) or (blob.kind, len(blob.data)) != ("sealed", ends[-1]):
                pending.refuse(
                    party, f"no sealed share for each of {len(others)} holders where one was agreed"
                )
                continue
            mail[party] = {name: blob.data[ends[i] : ends[i + 1]] for i, name in enumerate(others)}
        return mail

    def _handed_on(
        self,
        pending: Sum,
        deal: Dealing,
        holders: Sequence[str],
        mail: Mapping[str, Mapping[str, bytes]],
        slots: int,
        last: bool,
    ) -> dict[str, Message]:
        """Hand holders their shares, and give their replies."""
        jobs: dict[str, Mapping[str, Any]] = {}
        for holder in holders:
            pieces = {dealer: shares[holder] for dealer, shares in mail.items() if dealer != holder}
            for dealer, piece in pieces.items():
                pending.relayed(dealer, holder, len(piece))
            jobs[holder] = {"shares": Blob("sealed", b"".join(pieces.values())), **self.news(pending, holder)}
        dealers = tuple(mail)
        common = {"sum": deal.number, "lap": deal.lap, "holders": joined(deal.holders), "slots": slots}
        common |= {"dealers": joined(dealers), "exchanges": rows_of(pending.directory, dealers), "last": last}
        return dict(pending.ask(self.hold, common, jobs))

    def _partials(self, pending: Sum, replies: Mapping[str, Message], slots: int) -> dict[str, bytes]:
        size = 8 * slots + (OVERHEAD if self.opens == "clients" else 0)
        found = {}
        for holder, reply in replies.items():
            blob = reply.get("partial")
            if isinstance(blob, Blob) and len(blob.data) == size:
                found[holder] = blob.data
            else:
                pending.refuse(holder, f"no partial sum of {slots} values")
        return found

    def total(self, pending: Sum, deal: Dealing, formed: Formed) -> dict[str, Any]:
        """The total, where the coordinator opens it; else what clients open it with."""
        points = [deal.holders.index(name) + 1 for name in formed.partials]
        raws, summands = list(formed.partials.values()), len(pending.parties)
        if self.opens == "coordinator":
            rows = [from_raw(raw) for raw in raws]
            return {
                "integers": recovered(self.scheme, points, rows, deal.threshold),
                "summands": summands,
            }
        for holder, raw in formed.partials.items():
            for name in pending.parties:
                if name != holder:
                    pending.relayed(holder, name, len(raw))
        told = {"summands": summands, "points": np.array(points), "partials": Blob("sealed", b"".join(raws))}
        return {**deal.terms(formed.dealers), **told}

    # -- opening -----------------------------------------------------------------------------------

    def open(self, holder: Any, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Put the partial sums together: at a client, with the clients' key."""
        code = self._code(layout, total["summands"])
        if self.opens == "coordinator":
            return code.decode(total["integers"])
        self.check_opening(holder, total["contributions"])
        if total["number"] <= holder.state.get("opened", 0):
            raise OpeningError(f"total of sum {total['number']}, which or a later one was opened: a replay")
        holder.state["opened"] = total["number"]
        points, raw, size = total["points"].tolist(), total["partials"].data, 8 * code.slots + OVERHEAD
        if len(set(points)) < max(total["threshold"], len(points)) or len(raw) != size * len(points):
            raise OpeningError(
                f"{len(raw) // size} partial sums of {len(points)} holders, {total['threshold']} open this "
                "total: it stays shut"
            )
        key, run = self.unlocked(holder), run_of(holder)
        rows = [
            from_raw(unseal(key, raw[i * size : (i + 1) * size], partial_place(run, total, point)))
            for i, point in enumerate(points)
        ]
        return code.decode(recovered(self.scheme, points, rows, total["threshold"]))


def _peer_key(party: Party, other: str, signed: bytes) -> Secret:
    """Sealing key of two parties; checking and agreeing it takes longer than sealing a short vector."""
    own = hashlib.sha256(party.vault["exchange"].reveal()).digest()
    cached = ("peer", party.id, own, other, signed)
    if cached not in party.cache:
        party.cache[cached] = sealing_key(party, other, signed)
    key: Secret = party.cache[cached]
    return key
