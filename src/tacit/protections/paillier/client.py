"""What the Paillier star does at a client, and at the key server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tacit.core.client import check_opening
from tacit.core.layout import Layout
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import Vector
from tacit.core.values import Blob
from tacit.crypto.channel import checked_key, sign_key
from tacit.protections.blobs import cipher_of
from tacit.protections.keys.authenticated import AuthenticatedClient, run_of
from tacit.protections.keys.shared_key import SharedKey

if TYPE_CHECKING:
    from tacit.protections.paillier import Paillier


KEY_SERVER = "key-server"


class PaillierClient(AuthenticatedClient):
    """Encrypts; where clients share the key, also opens totals."""

    def __init__(self, settings: Paillier, party: Party) -> None:
        super().__init__(party)
        self.key = SharedKey(settings.terms, party)
        self._settings = settings

    @property
    def step_owners(self) -> tuple[object, ...]:
        """The shared key has steps."""
        return self, self.key

    def receive(self, ticket: Mapping[str, Any]) -> None:
        """Take the shared key."""
        self.key.receive(ticket)

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Encrypt this party's vector."""
        from tacit.crypto.paillier import Packing

        code = self._settings.code(layout, ticket["summands"])
        integers = code.encode(vector)
        packing = Packing(self._settings.bits, code.guard_bits)
        return Message(cipher=Blob("cipher", self._encryption_key(ticket).encrypt(integers, packing)))

    def _encryption_key(self, ticket: Mapping[str, Any]) -> Any:
        from tacit.crypto.paillier import PrivateKey, PublicKey

        if self._settings.holder == "clients":
            return self.key.cached(PrivateKey.from_secret)
        party, signed = self.party, ticket["signed"].data
        if ("paillier", signed) not in party.cache:
            raw = checked_key(signed, party.pinned(KEY_SERVER), "paillier", KEY_SERVER, run_of(party))
            party.cache["paillier", signed] = PublicKey.from_bytes(raw)
        return party.cache["paillier", signed]

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Open with the shared key."""
        from tacit.crypto.paillier import PrivateKey, read_header

        code = self._settings.code(layout, total["summands"])
        blob = cipher_of(total)
        private, header = self.key.fitting(PrivateKey.from_secret, lambda key: read_header(key.public, blob))
        check_opening(self.party, self._settings, header.summands)
        return code.decode(private.decrypt(blob))


class KeyServer(AuthenticatedClient):
    """A party without rows that holds the secret key."""

    def __init__(self, settings: Paillier, party: Party) -> None:
        super().__init__(party)
        self._settings = settings

    @step
    def serve_key(self, message: Message) -> Message:
        """Make the key and publish its signed public half."""
        secret, made = self._settings.generate(message)
        self.party.vault["paillier"] = secret
        own, run = self.party, run_of(self.party)
        signed = sign_key(own.identity, "paillier", own.id, run, made["public"])
        return Message(public=Blob("public", signed))

    @step(replies="aggregate")
    def open_total(self, message: Message) -> Message:
        """Open a total over enough contributions, and hand it to the coordinator."""
        from tacit.crypto.paillier import PrivateKey, read_header

        blob = cipher_of(message)
        private = PrivateKey.from_secret(self.party.vault["paillier"])
        check_opening(self.party, self._settings, read_header(private.public, blob).summands)
        return Message(integers=private.decrypt(blob))
