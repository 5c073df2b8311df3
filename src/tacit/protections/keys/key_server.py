"""The key server of Paillier sums: a party without rows that holds the secret key and opens totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.core.client import check_opening
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.values import Blob
from tacit.crypto.channel import sign_key
from tacit.crypto.paillier import PrivateKey, read_header
from tacit.protections.blobs import cipher_of
from tacit.protections.keys.authenticated import AuthenticatedClient, manifest_digest_of

if TYPE_CHECKING:
    from tacit.protections.paillier import Paillier

KEY_SERVER = "key-server"


class KeyServer(AuthenticatedClient):
    """A party without rows that holds the secret key."""

    def __init__(self, settings: Paillier, party: Party) -> None:
        super().__init__(party)
        self._settings = settings

    @step
    def serve_key(self, message: Message) -> Message:
        """Make the key and publish its signed public half."""
        secret, public = self._settings.generate()
        self.party.vault["paillier"] = secret
        own, run = self.party, manifest_digest_of(self.party)
        signed = sign_key(own.identity, "paillier", own.id, run, public)
        return Message(public=Blob("public", signed))

    @step(replies="aggregate")
    def open_total(self, message: Message) -> Message:
        """Open a total over enough contributions, and hand it to the coordinator."""
        blob = cipher_of(message)
        private = PrivateKey.from_secret(self.party.vault["paillier"])
        check_opening(self.party, self._settings, read_header(private.public, blob).summands)
        return Message(integers=private.decrypt(blob))
