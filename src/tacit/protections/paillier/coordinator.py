"""Paillier sums at the coordinator: it adds what it cannot open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.core.errors import ProtectionError
from tacit.core.fields import BLOB, INTEGERS, check_fields
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.pending_sum import PendingSum
from tacit.core.protection import Vector
from tacit.core.values import Blob
from tacit.crypto.channel import checked_key
from tacit.crypto.paillier import Adder, Packing, PublicKey, read_header
from tacit.protections.blobs import cipher_of
from tacit.protections.keys.authenticated import AuthenticatedCoordinator
from tacit.protections.keys.key_relay import KeyRelay
from tacit.protections.keys.key_server import KEY_SERVER, KeyServer
from tacit.protections.keys.leader import DRAWS, PURPOSE, Leadership, elect_leader
from tacit.protections.keys.proved_totals import TAG, add_tags
from tacit.protections.secret_sharing.election import Election

if TYPE_CHECKING:
    from tacit.protections.paillier import Paillier


class PaillierCoordinator(AuthenticatedCoordinator):
    """Adds ciphertexts that it cannot open; the clients hold the secret key, a leader or a key server does.

    ``relay`` passes the clients' key on, and ``election`` has a leader drawn; they are None where others hold
    the key.
    """

    def __init__(self, settings: Paillier, link: Link) -> None:
        super().__init__(link)
        self.relay = KeyRelay(settings.terms, link, self.channels) if settings.shared_key else None
        self.election = Election(link, 1, DRAWS) if settings.holder == "leader" else None
        self.signed = b""  # the public key of the key server or the leader, with its signature
        self._settings, self._served_key = settings, b""

    @property
    def public(self) -> bytes:
        """The public key."""
        return self.relay.current_key.public if self.relay else self._served_key

    def prepare(self, sums: int) -> None:
        """Let one client or the key server make the key."""
        if self.relay:
            self.relay.prepare()
            return
        make: Callable[..., Any] = KeyServer.serve_key
        owner, purpose, evidence = KEY_SERVER, "paillier", dict[str, Any]()
        if self.election:
            self.leader = elect_leader(self.link, self.election)
            make, evidence = Leadership.lead, self.election.evidence
            owner, purpose = self.leader, PURPOSE
        for _, reply in self.link.ask(make, evidence, parties=[owner]):
            check_fields(reply, {"public": BLOB})
            self.signed = reply["public"].data
            pinned, run = self.link.pinned(owner), self.link.manifest.digest
            self._served_key = checked_key(self.signed, pinned, purpose, owner, run)

    def welcome(self, party: str, fields: Mapping[str, Any]) -> None:
        """Open a channel to a party, and keep its commitment for the draw of a leader."""
        super().welcome(party, fields)
        if self.election:
            self.election.welcome(party, fields)

    def admit(self, names: Sequence[str]) -> None:
        """Let a client hand on the key, where clients share it."""
        if self.relay:
            self.relay.admit(names)

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        """Add ciphertexts; if there is a key server, let it open the total."""
        total = self._add_up(pending)
        if self.relay or self.election:
            return total
        opened = dict(self.link.ask(KeyServer.open_total, total, parties=[KEY_SERVER]))[KEY_SERVER]
        check_fields(opened, {"integers": INTEGERS})
        return {"integers": opened["integers"], "summands": total["summands"]}

    def _add_up(self, pending: PendingSum) -> dict[str, Any]:
        """Return the encrypted total of all that contribute."""
        summands, tickets = len(pending.parties), dict[str, Mapping[str, Any]]()
        common: dict[str, Any] = {"signed": Blob("public", self.signed)}
        if self.relay:
            common, tickets = self.relay.tickets(pending)
        if self.election:
            tickets = {
                name: {} if name in self.election.informed else self.election.evidence
                for name in pending.parties
            }
        key = PublicKey.from_bytes(self.public)
        code = self._settings.code(pending.layout, summands)
        packing = Packing(self._settings.bits, code.guard_bits)
        adder, tags = Adder(key, packing=packing), dict[str, Any]()
        for party, message in pending.contributions(tickets, {"summands": summands, **common}):
            try:
                added = {TAG: add_tags(*filter(None, [tags, message]))} if self.relay else tags
                header = read_header(key, blob := cipher_of(message), packing)
                if header.summands != 1 or header.count != code.slots:
                    raise ProtectionError(
                        f"{header.count} values as {header.summands} contributions, agreed were "
                        f"{code.slots} as one"
                    )
                adder.add(blob)
            except ProtectionError as error:
                pending.refuse(party, str(error))
                continue
            tags = added
            if self.relay:
                self.relay.mark_delivered(party)
            if self.election:
                self.election.informed.add(party)
        pending.check()
        return {"cipher": Blob("cipher", adder.total()), "summands": summands, **tags}

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Decode what the key server has opened."""
        return self._settings.code(layout, total["summands"]).decode(total["integers"])
