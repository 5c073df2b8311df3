"""What protections with keys have in common: pinned identities, tagged messages, sealed channels.

At enrolment coordinator and party show each other signed exchange keys; from then on every ask and reply
between them carries a tag (see :mod:`tacit.core.tags`), and two parties can seal messages that the
coordinator only relays. Keys that all clients share are in :mod:`tacit.protections.keys.shared_key`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tacit.core.client import enrolled_digest
from tacit.core.errors import ProtectionError
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.secret import Secret
from tacit.crypto.channel import checked_key, new_exchange, pair_key, sign_key

WRAPPED = 12 + 32 + 16  # a sealed content key: nonce, key, tag
COORDINATOR = "coordinator"
SHARED_KEY = (
    "all clients share one decryption key: the coordinator together with any single client opens every "
    "client's contribution; 'masked' hides it from that pair, too"
)


@dataclass(frozen=True)
class Guarded(Protection):
    """Base of protections whose messages are authenticated."""

    guarded: ClassVar[bool] = True
    field_names: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("exchange", "exchanges"), "signed exchange keys"),
        "names": "names of the clients",
    }

    def greet(self, coordinator: Any) -> dict[str, Any]:
        """Coordinator half of an introduction: its signed exchange key."""
        private, public = new_exchange()
        coordinator.vault["exchange"] = private
        return {
            "exchange": sign_key(
                coordinator.identity, "exchange", COORDINATOR, coordinator.manifest.digest, public
            )
        }

    def introduce(self, party: Party, greeting: Mapping[str, Any]) -> dict[str, Any]:
        """Party half: check the coordinator's key, make one's own, and share a channel."""
        run = run_of(party)
        signed = _signed(greeting, COORDINATOR)
        peer = checked_key(signed, party.pinned(COORDINATOR), "exchange", COORDINATOR, run)
        private, public = new_exchange()
        party.vault["exchange"] = private
        party.vault["channel"] = pair_key(private, peer, "channel", run)
        return {"exchange": sign_key(party.identity, "exchange", party.id, run, public)}

    def welcome(self, coordinator: Any, party: str, fields: Mapping[str, Any]) -> None:
        """Coordinator half: check the party's key, and share a channel."""
        run, signed = coordinator.manifest.digest, _signed(fields, party)
        peer = checked_key(signed, coordinator.pinned(party), "exchange", party, run)
        coordinator.vault[f"channel/{party}"] = pair_key(coordinator.vault["exchange"], peer, "channel", run)
        coordinator.directory[party] = signed


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
