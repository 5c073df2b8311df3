"""Paillier sums: the coordinator adds what it cannot open; clients encrypt; who has the key opens.

That is a key server, a party without rows; the clients; or a leader, one client that is drawn as a committee
of one is (:mod:`tacit.protections.secret_sharing.election`). A key server or leader signs its public key. A
leader applies totals by itself, and tells what a method lets others know of the result (``release``).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tacit.core.client import check_opening
from tacit.core.errors import OpeningError, ProtectionError
from tacit.core.events import Noted
from tacit.core.fields import BLOB, INTEGERS, MOST_SUMMANDS, check_fields, read_integer
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.pending_sum import PendingSum
from tacit.core.protection import Vector
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import checked_key, sign_key
from tacit.crypto.field import PRIME
from tacit.crypto.paillier import Adder, Packing, PrivateKey, PublicKey, read_header
from tacit.protections.keys import authenticated
from tacit.protections.keys.authenticated import cipher_of, manifest_digest_of
from tacit.protections.keys.key_relay import KeyRelay
from tacit.protections.keys.proved_totals import TAG, ProvedTotals, add_tags
from tacit.protections.keys.shared_key import SharedKeyClient
from tacit.protections.paillier import DRAWS, KEY_SERVER, Paillier
from tacit.protections.secret_sharing.election import Election, Voter

KEY = "leader"  # of the secret key in the vault of who leads
PURPOSE = "leader key"  # of a signature


class PaillierCoordinator(authenticated.AuthenticatedCoordinator):
    """Adds ciphertexts that it cannot open; the clients hold the secret key, a leader or a key server."""

    def __init__(self, settings: Paillier, link: Link) -> None:
        super().__init__(link)
        self.relay = KeyRelay(settings.terms, link, self.directory) if settings.shared_key else None
        self.election = Election(link, 1, DRAWS) if settings.holder == "leader" else None
        self.signed = b""  # the public key of the key server or the leader, with its signature
        self._settings, self._served_key = settings, b""

    @property
    def public(self) -> bytes:
        """The public key."""
        return self.relay.current_key.public if self.relay else self._served_key

    def prepare(self, sums: int) -> None:
        if self.relay:
            self.relay.prepare()
            return
        make: Callable[..., Any] = KeyServer.serve_key
        owner, purpose, evidence = KEY_SERVER, "paillier", dict[str, Any]()
        if self.election:
            # Who withholds its number takes no further part.
            self.link.keep_only(self.election.elect(self.link.ask, self.link.parties))
            (self.leader,) = self.election.members
            drawn = f"{self.leader} was drawn to lead: totals open there alone"
            self.link.events.emit(Noted("protection", drawn))
            make, evidence = Leadership.lead, self.election.evidence
            owner, purpose = self.leader, PURPOSE
        for _, reply in self.link.ask(make, evidence, parties=[owner]):
            check_fields(reply, {"public": BLOB})
            self.signed = reply["public"].data
            pinned, run = self.link.pinned(owner), self.link.manifest.digest
            self._served_key = checked_key(self.signed, pinned, purpose, owner, run)

    def welcome(self, party: str, fields: Mapping[str, Any]) -> None:
        super().welcome(party, fields)
        if self.election:
            self.election.welcome(party, fields)

    def admit(self, names: Sequence[str]) -> None:
        if self.relay:
            self.relay.admit(names)

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        total = self._add_up(pending)
        if self.relay or self.election:
            return total
        opened = dict(self.link.ask(KeyServer.open_total, total, parties=[KEY_SERVER]))[KEY_SERVER]
        check_fields(opened, {"integers": INTEGERS})
        return {"integers": opened["integers"], "summands": total["summands"]}

    def _add_up(self, pending: PendingSum) -> dict[str, Any]:
        summands, tickets = len(pending.parties), dict[str, Mapping[str, Any]]()
        common: dict[str, Any] = {"signed": Blob("public", self.signed)}
        if self.relay:
            common, tickets = self.relay.tickets(pending)
        if self.election:
            tickets = {name: self.election.ticket_fields(name) for name in pending.parties}
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
        return self._settings.code(layout, total["summands"]).decode(total["integers"])


class PaillierClient(SharedKeyClient):
    """Encrypts; where clients share the key, also opens totals."""

    def __init__(self, settings: Paillier, party: Party) -> None:
        super().__init__(settings.terms, party)
        self._settings = settings
        self._proved = ProvedTotals(party, self.key)
        self._leads = Leadership(party, settings.generate)

    @property
    def step_owners(self) -> tuple[object, ...]:
        leads = self._settings.holder == "leader"
        return (self, self._leads, self._leads.voter) if leads else super().step_owners

    def introduce(self, greeting: Mapping[str, Any]) -> dict[str, Any]:
        committed = {"commitment": self._leads.voter.commit()} if self._settings.holder == "leader" else {}
        return {**super().introduce(greeting), **committed}

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        code = self._settings.code(layout, read_integer(ticket, "summands", 1, MOST_SUMMANDS))
        integers = code.encode(vector)
        packing = Packing(self._settings.bits, code.guard_bits)
        tag = {TAG: self._proved.tag(ticket, layout, integers)} if self._settings.proves(layout) else {}
        return Message(cipher=Blob("cipher", self._encryption_key(ticket).encrypt(integers, packing)), **tag)

    def _encryption_key(self, ticket: Mapping[str, Any]) -> Any:
        if self._settings.shared_key:
            return self.key.cached("private", PrivateKey.from_secret)
        owner, purpose = KEY_SERVER, "paillier"
        if self._settings.holder == "leader":
            owner, purpose = self._leads.find_leader(ticket), PURPOSE
        pinned, run = self.party.pinned(owner), manifest_digest_of(self.party)
        return PublicKey.from_bytes(checked_key(ticket["signed"].data, pinned, purpose, owner, run))

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        code = self._settings.code(layout, read_integer(total, "summands", 1, MOST_SUMMANDS))
        blob = cipher_of(total)
        if self._settings.holder == "leader":
            private = PrivateKey.from_secret(self._leads.secret)
            check_opening(self.party, self._settings, read_header(private.public, blob).summands)
            return code.decode(private.decrypt(blob))
        age, header = self.key.find_key(
            "private", PrivateKey.from_secret, lambda key: read_header(key.public, blob)
        )
        check_opening(self.party, self._settings, header.summands)
        integers = self.key.cached("private", PrivateKey.from_secret, age).decrypt(blob)
        self._proved.check(total, layout, total["summands"], {PRIME: integers}, age)
        return code.decode(integers)


def publish(party: Party, purpose: str, public: bytes) -> Message:
    """Return the public half of a key, signed by its maker."""
    signed = sign_key(party.identity, purpose, party.id, manifest_digest_of(party), public)
    return Message(public=Blob("public", signed))


class KeyServer(authenticated.AuthenticatedClient):
    """A party without rows that holds the secret key."""

    def __init__(self, settings: Paillier, party: Party) -> None:
        super().__init__(party)
        self._settings = settings

    @step
    def serve_key(self, message: Message) -> Message:
        """Make the key and publish its signed public half."""
        self.party.vault["paillier"], public = self._settings.generate()
        return publish(self.party, "paillier", public)

    @step(replies="aggregate")
    def open_total(self, message: Message) -> Message:
        """Open a total over enough contributions, and hand it to the coordinator."""
        blob = cipher_of(message)
        private = PrivateKey.from_secret(self.party.vault["paillier"])
        check_opening(self.party, self._settings, read_header(private.public, blob).summands)
        return Message(integers=private.decrypt(blob))


class Leadership:
    """A client's part: it draws, finds who leads, and makes the key if it is the one."""

    def __init__(self, party: Party, generate: Callable[[], tuple[Secret, bytes]]) -> None:
        self._party, self._generate = party, generate
        self.voter = Voter(party, 1, DRAWS)

    @step
    def lead(self, message: Message) -> Message:
        """Make the key, if this client finds itself drawn, and publish its signed public half."""
        own = self._party
        if own.id != self.find_leader(message):
            raise ProtectionError(f"{own.id} was asked to lead, and was not drawn")
        if KEY in own.vault:
            raise ProtectionError(f"{own.id} leads already, and makes one key")
        own.vault[KEY], public = self._generate()
        return publish(own, PURPOSE, public)

    def find_leader(self, fields: Mapping[str, Any]) -> str:
        """Return the client that this one found drawn, by the numbers of all."""
        members, _ = self.voter.find_committee(fields)
        if len(members) != 1:
            raise ProtectionError(f"{self._party.id} was shown no draw of a leader")
        return members[0]

    @property
    def secret(self) -> Secret:
        """The key, at the client that leads."""
        if KEY not in self._party.vault:
            raise OpeningError(f"{self._party.id} does not lead: totals open at the leader alone")
        return self._party.vault[KEY]
