"""Paillier sums at a client: it encrypts, and opens totals where it has the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tacit.core.client import check_opening
from tacit.core.fields import MOST_SUMMANDS, read_integer
from tacit.core.layout import Layout
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import Vector
from tacit.core.values import Blob
from tacit.crypto.channel import checked_key
from tacit.crypto.field import PRIME
from tacit.crypto.paillier import Packing, PrivateKey, PublicKey, read_header
from tacit.protections.blobs import cipher_of
from tacit.protections.keys.authenticated import manifest_digest_of
from tacit.protections.keys.key_server import KEY_SERVER
from tacit.protections.keys.leader import PURPOSE, Leadership
from tacit.protections.keys.proved_totals import TAG, ProvedTotals
from tacit.protections.keys.shared_key import SharedKeyClient

if TYPE_CHECKING:
    from tacit.protections.paillier import Paillier


class PaillierClient(SharedKeyClient):
    """Encrypts; where clients share the key, also opens totals."""

    def __init__(self, settings: Paillier, party: Party) -> None:
        super().__init__(settings.terms, party)
        self._settings = settings
        self._proved = ProvedTotals(party, self.key)
        self._leads = Leadership(party, settings.generate)

    @property
    def step_owners(self) -> tuple[object, ...]:
        """The draw of a leader has steps, or the shared key does."""
        return (
            (self, self._leads, self._leads.voter)
            if self._settings.holder == "leader"
            else super().step_owners
        )

    def introduce(self, greeting: Mapping[str, Any]) -> dict[str, Any]:
        """Open a channel to the coordinator, and commit to a number for the draw of a leader."""
        committed = {"commitment": self._leads.voter.commit()} if self._settings.holder == "leader" else {}
        return {**super().introduce(greeting), **committed}

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Encrypt this party's vector; tag it, where clients open the total."""
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
        """Open with the shared key, and check whose contributions it is of; or with that of who leads."""
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
