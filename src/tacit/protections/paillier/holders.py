"""Who holds the key of Paillier sums beside the clients: a key server, or a leader.

The key server is a party without rows that opens totals for the coordinator. The leader is one client, drawn
as a committee of one is (:mod:`tacit.protections.secret_sharing.election`), by numbers to which all committed
before any was shown, and every client finds out by itself who was drawn. Either makes a key pair and signs
its public half; the others encrypt for it. A leader applies totals by itself, and tells what a method lets
others know of the result (``release``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tacit.core.client import check_opening
from tacit.core.errors import OpeningError, ProtectionError
from tacit.core.events import Noted
from tacit.core.link import Link
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.promises import Promises
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import sign_key
from tacit.crypto.paillier import PrivateKey, read_header
from tacit.protections.keys.authenticated import AuthenticatedClient, cipher_of, manifest_digest_of
from tacit.protections.secret_sharing.election import Election, Voter

if TYPE_CHECKING:
    from tacit.protections.paillier import Paillier

KEY_SERVER = "key-server"
DRAWS = 3  # of a leader: again if somebody withholds its number
KEY = "leader"  # of the secret key in the vault of who leads
PURPOSE = "leader key"  # of a signature

LEADER = Promises(
    opens="leader",
    keys={"leader, one of the clients": "the secret key", "coordinator, clients": "the public key"},
    sees={
        "coordinator": "ciphertexts it cannot open, and what is made of the total",
        "client": "what is made of the total",
        "leader": "the total, and what is made of it",
        "outsider": "nothing",
    },
    collusion="coordinator and leader together open every contribution; a leader is drawn by the numbers of "
    f"all clients, at most {DRAWS} times, so that one of the coordinator's choice leads about as often as "
    "chance has it. With other clients it opens nothing, but a coordinator that lies can hand the leader a "
    "single contribution as a total, and is told what is made of it: all its values, if it calls them "
    "scores. It can also have each client draw apart, so that a friend is likelier to lead for some",
    dropout="the sum goes on without the client, down to the quorum; without the leader the run ends",
    precision=0.0,
    bytes_per_value=0.0,
)


def publish(party: Party, purpose: str, public: bytes) -> Message:
    """Return the public half of a key, signed by its maker."""
    signed = sign_key(party.identity, purpose, party.id, manifest_digest_of(party), public)
    return Message(public=Blob("public", signed))


class KeyServer(AuthenticatedClient):
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


def elect_leader(link: Link, election: Election) -> str:
    """Have a leader drawn; who withholds its number takes no further part."""
    link.keep_only(election.elect(link.ask, link.parties))
    (leader,) = election.members
    link.events.emit(Noted("protection", f"{leader} was drawn to lead: totals open there alone"))
    return leader


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
        found: Secret = self._party.vault[KEY]
        return found
