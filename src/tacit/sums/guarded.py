"""What protections with keys have in common: pinned identities, tagged messages, keys held by clients.

At enrolment coordinator and party show each other signed exchange keys; from then on every ask and reply
between them carries a tag (see :mod:`tacit.core.authentic`), and two parties can seal messages that the
coordinator only relays.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from tacit.core.errors import MessageError, OpeningError, ProtectionError, QuorumError
from tacit.core.message import Blob, Message
from tacit.core.parts import step
from tacit.core.party import Party
from tacit.core.protection import Protection, Sum
from tacit.core.replica import agreed_minimum, enrolled_digest
from tacit.core.secret import Secret
from tacit.core.shared import Shared
from tacit.crypto.channel import checked_key, new_exchange, pair_key, place, seal, sign_key, unseal

WRAPPED = 12 + 32 + 16  # a sealed content key: nonce, key, tag
COORDINATOR = "coordinator"
SHARED_KEY = (
    "all clients share one decryption key: the coordinator together with any single client opens every "
    "client's contribution"
)


@dataclass(frozen=True)
class Guarded(Protection):
    """Base of protections whose messages are authenticated."""

    guarded: ClassVar[bool] = True

    def greet(self, desk: Any) -> dict[str, Any]:
        """Coordinator half of an introduction: its signed exchange key."""
        private, public = new_exchange()
        desk.vault["exchange"] = private
        return {"exchange": sign_key(desk.identity, "exchange", COORDINATOR, desk.manifest.digest, public)}

    def introduce(self, party: Party, greeting: Mapping[str, Any]) -> dict[str, Any]:
        """Party half: check the coordinator's key, make one's own, and share a channel."""
        run = run_of(party)
        signed = _signed(greeting, COORDINATOR)
        peer = checked_key(signed, party.pinned(COORDINATOR), "exchange", COORDINATOR, run)
        private, public = new_exchange()
        party.vault["exchange"] = private
        party.vault["channel"] = pair_key(private, peer, "channel", run)
        return {"exchange": sign_key(party.identity, "exchange", party.id, run, public)}

    def welcome(self, desk: Any, party: str, fields: Mapping[str, Any]) -> None:
        """Coordinator half: check the party's key, and share a channel."""
        run, signed = desk.manifest.digest, _signed(fields, party)
        peer = checked_key(signed, desk.pinned(party), "exchange", party, run)
        desk.vault[f"channel/{party}"] = pair_key(desk.vault["exchange"], peer, "channel", run)
        desk.directory[party] = signed


def _signed(fields: Mapping[str, Any], owner: str) -> bytes:
    """Signed exchange key of an introduction, or a refusal."""
    signed = fields.get("exchange")
    if not isinstance(signed, bytes):
        raise ProtectionError(f"{owner} showed no signed exchange key where one was agreed")
    return signed


def sealing_key(party: Party, other: str, signed: bytes) -> Secret:
    """Key for sealing to (or from) another party whose signed exchange key was relayed.

    The relay has a signed exchange key, too: a message sealed for it would be no secret from it.
    """
    if other in (COORDINATOR, party.id):
        raise ProtectionError(f"{party.id} was told to seal for {other}: only other clients are sealed for")
    run = run_of(party)
    peer = checked_key(signed, party.pinned(other), "exchange", other, run)
    return pair_key(party.vault["exchange"], peer, "seal", run)


def run_of(party: Party) -> str:
    """Digest of the manifest that a party enrolled under: what its keys and seals are bound to."""
    run = enrolled_digest(party)
    if run is None:
        raise ProtectionError(f"{party.id} has not enrolled")
    return run


@dataclass(frozen=True)
class ClientKeys(Guarded):
    """Base of protections whose decryption key the clients hold and the coordinator never sees.

    The first party makes the key, encrypts it once under a content key, and seals that content key for
    every other party. The coordinator relays; it keeps only what is public.
    """

    def generate(self) -> tuple[Secret, bytes]:
        """Make a key: the secret half, and what the coordinator may have."""
        raise TypeError(f"{type(self).__name__} must say how keys are made")

    @step
    def make_keys(self, party: Party, message: Message, shared: Shared | None) -> Message:
        """Make the federation's key and seal it for every party."""
        names: list[str] = message["names"].decode().split("\n")
        signed = (row.tobytes() for row in message["exchanges"])
        keys = {name: sealing_key(party, name, key) for name, key in zip(names, signed, strict=True)}
        return Message(self.new_keys(party, keys))

    def new_keys(self, party: Party, keys: Mapping[str, Secret]) -> dict[str, Blob]:
        """Make a key and seal it for the others, each under the key that the maker shares with it."""
        secret, public = self.generate()
        content = Secret(os.urandom(32))
        nonce = os.urandom(12)
        run = run_of(party)
        bundle = nonce + ChaCha20Poly1305(content.reveal()).encrypt(nonce, secret.reveal(), run.encode())
        wraps = [seal(key, content.reveal(), key_place(run, party.id, name)) for name, key in keys.items()]
        self._keep(party, content, Blob("sealed", bundle))
        return {
            "bundle": Blob("sealed", bundle),
            "wraps": Blob("sealed", b"".join(wraps)),
            "public": Blob("public", public),
        }

    def prepare(self, desk: Any, sums: int) -> None:
        """Let one party make the key; if it cannot, the next one does, down to the quorum."""
        if len(desk.parties) < 2:
            raise ProtectionError(f"{self.name} protects nothing with a single client: have at least two")
        spare = len(desk.parties) - max(2, ceil(desk.manifest.quorum * len(desk.parties) - 1e-9))
        for tried, maker in enumerate(desk.parties):
            try:
                self._made(desk, maker)
                break
            except (QuorumError, MessageError):
                if tried >= spare:
                    raise

    def _made(self, desk: Any, maker: str) -> None:
        others = [name for name in desk.parties if name != maker]
        exchanges = np.frombuffer(b"".join(desk.directory[name] for name in others), dtype=np.uint8)
        common = {"names": "\n".join(others).encode(), "exchanges": exchanges.reshape(len(others), -1)}
        for _, reply in desk.ask(self.make_keys, common, parties=[maker]):
            self.taken(desk, maker, others, reply)

    def taken(self, desk: Any, maker: str, others: Sequence[str], made: Mapping[str, Any]) -> None:
        """Coordinator half: keep what a maker of keys sent, for the others and of what is public."""
        bundle, wraps, public = (made.get(name) for name in ("bundle", "wraps", "public"))
        if not (
            isinstance(bundle, Blob)
            and isinstance(public, Blob)
            and isinstance(wraps, Blob)
            and len(wraps.data) == len(others) * WRAPPED
        ):
            desk.failures[maker] = "MessageError: keys that are not what was agreed"
            raise MessageError(f"{maker} made keys that are not what was agreed")
        # Clients never take a public key from the coordinator, which could put its own there.
        desk.memory["public"] = public.data
        desk.memory["keys"] = {"bundle": bundle, "maker": maker}
        desk.memory["wraps"] = {
            name: Blob("sealed", wraps.data[i * WRAPPED : (i + 1) * WRAPPED]) for i, name in enumerate(others)
        }

    def tickets(self, pending: Sum) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]]]:
        """What has to ride on the ask: the key for those who do not have it yet."""
        memory = pending.memory
        wraps: dict[str, Blob] = memory["wraps"]
        lacking: dict[str, Mapping[str, Any]] = {
            name: {"wrap": wraps[name]} for name in pending.parties if name in wraps
        }
        if not lacking:
            return {}, {}
        keys = memory["keys"]
        common = {**keys, "exchange": pending.directory[keys["maker"]]}
        for name in lacking:
            pending.relayed(keys["maker"], name, WRAPPED + len(keys["bundle"].data))
        return common, lacking

    def delivered(self, pending: Sum, party: str) -> None:
        """Remember that a party has its key."""
        pending.memory["wraps"].pop(party, None)

    def receive(self, party: Party, ticket: Mapping[str, Any]) -> None:
        """Unseal the key that rode on the ask, if any."""
        if "wrap" not in ticket:
            return
        maker = ticket["maker"]
        key = self.makers_key(party, maker, ticket)
        content = unseal(key, ticket["wrap"].data, key_place(run_of(party), maker, party.id))
        self._keep(party, Secret(content), ticket["bundle"])

    def makers_key(self, party: Party, maker: str, ticket: Mapping[str, Any]) -> Secret:
        """Key that this party shares with the maker of the federation's key."""
        return sealing_key(party, maker, ticket["exchange"])

    def _keep(self, party: Party, content: Secret, bundle: Blob) -> None:
        # The bundle is the same for all and needs no hiding: in state it is one object for 20,000 parties.
        party.vault["content"] = content
        party.state["bundle"] = bundle

    def check_opening(self, party: Party, contributions: int) -> None:
        """Refuse to open what says of itself that it is no total over enough contributions."""
        if contributions < (least := self.fewest(agreed_minimum(party))):
            raise OpeningError(
                f"total over {contributions} contributions, agreed were at least {least}: it stays shut"
            )

    def unlocked(self, party: Party) -> Secret:
        """Give the federation's key to a party that holds it."""
        if "content" not in party.vault:
            raise ProtectionError(f"{party.id} has no key of {self.name}: it must be sent one first")
        raw: bytes = party.state["bundle"].data
        content = ChaCha20Poly1305(party.vault["content"].reveal())
        try:
            return Secret(content.decrypt(raw[:12], raw[12:], run_of(party).encode()))
        except (InvalidTag, ValueError):
            raise ProtectionError("the federation's key does not open: it was changed on its way") from None

    def cached(self, party: Party, make: Callable[[Secret], Any]) -> Any:
        """What is made from the federation's key, once per process and key."""
        content = (
            hashlib.sha256(party.vault["content"].reveal()).digest() if "content" in party.vault else b""
        )
        key = (self.name, party.state.get("bundle"), content)
        if key not in party.cache:
            party.cache[key] = make(self.unlocked(party))
        return party.cache[key]


def key_place(run: str, maker: str, receiver: str) -> bytes:
    """Where a sealed key belongs."""
    return place(run, 0, "key", maker, receiver)
