"""Authenticated messages: pinned identities, signed exchange keys, and channels between two parties.

At enrolment coordinator and party show each other signed exchange keys; from then on every ask and reply
between them carries a tag (:mod:`tacit.core.tags`), and two parties can seal messages that the coordinator
only relays.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.client import manifest_of
from tacit.core.errors import MessageError, ProtectionError
from tacit.core.exposure import COORDINATOR
from tacit.core.fields import BYTES, NAMES, ROWS, Kind
from tacit.core.link import Link
from tacit.core.party import Party
from tacit.core.protection import ClientHalf, CoordinatorHalf
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import checked_key, new_exchange, pair_key, sign_key

FIELD_NAMES = {  # words for fields of messages, in an exposure report
    **dict.fromkeys(("exchange", "exchanges"), "signed exchange keys"),
    "names": "names of the clients",
}

FIELD_KINDS: Mapping[str, Kind] = {"exchange": BYTES, "exchanges": ROWS, "names": NAMES}


class AuthenticatedCoordinator(CoordinatorHalf):
    """Half of a protection whose parties have channels to the coordinator."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.directory: dict[str, bytes] = {}  # signed exchange keys of the parties, by name

    def greet(self) -> dict[str, Any]:
        self.link.vault["exchange"], public = new_exchange()
        run, identity = self.link.manifest.digest, self.link.identity
        return {"exchange": sign_key(identity, "exchange", COORDINATOR, run, public)}

    def welcome(self, party: str, fields: Mapping[str, Any]) -> None:
        """Check a party's signed exchange key, and open a channel to it."""
        run, signed = self.link.manifest.digest, _signed(fields, party)
        peer = checked_key(signed, self.link.pinned(party), "exchange", party, run)
        channel = pair_key(self.link.vault["exchange"], peer, "channel", run)
        self.link.transport.channels[party] = channel
        self.directory[party] = signed


class AuthenticatedClient(ClientHalf):
    """Half of a protection whose clients (or services) have a channel to the coordinator."""

    def introduce(self, greeting: Mapping[str, Any]) -> dict[str, Any]:
        return open_channel(self.party, greeting)


def open_channel(party: Party, greeting: Mapping[str, Any]) -> dict[str, Any]:
    """Check the coordinator's key, open a channel to it, and return the party's own signed key."""
    run, signed = manifest_digest_of(party), _signed(greeting, COORDINATOR)
    peer = checked_key(signed, party.pinned(COORDINATOR), "exchange", COORDINATOR, run)
    private, public = new_exchange()
    party.vault["exchange"] = private
    party.vault["channel"] = pair_key(private, peer, "channel", run)
    return {"exchange": sign_key(party.identity, "exchange", party.id, run, public)}


def signer(greeting: Mapping[str, Any], run: str, identities: Iterable[bytes]) -> bytes:
    """Return which of some identities signed the coordinator's exchange key, and so the manifest."""
    signed = greeting.get("exchange")
    if isinstance(signed, bytes):
        for identity in identities:
            with suppress(ProtectionError):
                checked_key(signed, identity, "exchange", COORDINATOR, run)
                return identity
    found = "is signed by nobody whom this site has pinned" if isinstance(signed, bytes) else "is not signed"
    raise ProtectionError(
        f"manifest {run[:12]}… {found}: ask as the coordinator of its roster.toml, or let its owner name "
        "your identity in [accept] operators"
    )


def _signed(fields: Mapping[str, Any], owner: str) -> bytes:
    signed = fields.get("exchange")
    if not isinstance(signed, bytes):
        raise ProtectionError(f"{owner} showed no signed exchange key where one was agreed")
    return signed


def stack_rows(signed: Mapping[str, bytes], names: Sequence[str]) -> NDArray[np.uint8]:
    """Return what these parties have signed, one a row."""
    raw = b"".join(signed[name] for name in names)
    return np.frombuffer(raw, np.uint8).reshape(len(names), len(raw) // max(len(names), 1))


def read_exchanges(fields: Mapping[str, Any], names: Sequence[str]) -> list[tuple[str, bytes]]:
    """Return these parties with the signed exchange keys that came for them; one is needed of each."""
    rows: NDArray[np.uint8] = fields["exchanges"]
    if len(rows) != len(names):
        raise MessageError(f"{len(rows)} exchange keys of {len(names)} clients: give one of each")
    return [(name, row.tobytes()) for name, row in zip(names, rows, strict=True)]


def sealing_key(party: Party, other: str, signed: bytes) -> Secret:
    """Return the key for sealing to (or from) another party whose signed exchange key was relayed.

    The relay has a signed exchange key, too: a message sealed for it would be no secret from it.
    """
    check_other(party, other)
    run = manifest_digest_of(party)
    peer = checked_key(signed, party.pinned(other), "exchange", other, run)
    return pair_key(party.vault["exchange"], peer, "seal", run)


def check_other(party: Party, other: str) -> None:
    """Refuse to seal for anybody but another client."""
    if other in (COORDINATOR, party.id):
        raise ProtectionError(f"{party.id} was told to seal for {other}: only other clients are sealed for")


def manifest_digest_of(party: Party) -> str:
    """Return the digest of the manifest that a party enrolled under: what keys and seals are bound to."""
    if "manifest" not in party.state:
        raise ProtectionError(f"{party.id} has not enrolled")
    return manifest_of(party).digest


def cipher_of(fields: Mapping[str, Any]) -> bytes:
    """Return the ciphertext in a message, or refuse it."""
    return read_blob(fields, "cipher", "cipher", "ciphertext")


def read_blob(fields: Mapping[str, Any], name: str, kind: str, what: str = "") -> bytes:
    """Return the bytes of a blob that was agreed, or refuse the message."""
    blob = fields.get(name)
    if not isinstance(blob, Blob) or blob.kind != kind:
        raise ProtectionError(f"no {what or f'{name} of that kind'} where one was agreed")
    return blob.data
