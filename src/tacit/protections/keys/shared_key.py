"""Keys that all clients share and the coordinator never sees: made, handed on, renewed.

One client makes the key, encrypts it once under a *content key*, and seals the content key for every other
client. The coordinator relays; it keeps only what is public. A client that comes later gets the content key
from any client that has it, so nobody is needed for ever. A new key carries the ones before it in its
bundle: totals that were formed under them can still be opened, by those who may open the new ones.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from tacit.core.client import agreed_minimum
from tacit.core.errors import ConfigError, MessageError, OpeningError, ProtectionError, QuorumError
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import Sum
from tacit.core.secret import Secret
from tacit.core.shared import Shared
from tacit.core.values import Blob
from tacit.crypto.channel import place, seal, unseal
from tacit.protections.keys.authenticated import Guarded, run_of, sealing_key
from tacit.protections.keys.key_relay import hand_on, riding, take_keys


@dataclass(frozen=True)
class ClientKeys(Guarded):
    """Base of protections whose decryption key the clients hold and the coordinator never sees."""

    key_fields: ClassVar[Collection[str]] = ("bundle", "wrap", "wraps")
    field_names: ClassVar[Mapping[str, str]] = {
        **Guarded.field_names,
        **dict.fromkeys(key_fields, "the federation's key"),
        "public": "public key",
    }

    # -- what a protection says of its keys ----------------------------------------------------------

    def generate(self, wishes: Mapping[str, Any]) -> tuple[Secret, Mapping[str, bytes]]:
        """Make a key: the secret, and by name what the coordinator may have (``public`` at least)."""
        raise TypeError(f"{type(self).__name__} must say how keys are made")

    def wishes(self, coordinator: Any) -> Mapping[str, Any]:
        """What the coordinator asks of a new key beside the public half."""
        return {}

    @property
    def chosen_maker(self) -> str:
        """The client that the federation chose to make keys; empty: the first that can."""
        return ""

    @property
    def lifetime(self) -> int:
        """After how many sums a new key is made; 0 for never within a run."""
        return 0

    # -- clients -------------------------------------------------------------------------------------

    @step
    def make_keys(self, party: Party, message: Message, shared: Shared | None) -> Message:
        """Make the federation's key, or a new one, and seal it for every party."""
        if self.chosen_maker not in ("", party.id):
            raise ProtectionError(f"{party.id} was asked for keys, the federation chose {self.chosen_maker}")
        return Message(self.new_keys(party, message, self._addressees(party, message)))

    def new_keys(
        self, party: Party, wishes: Mapping[str, Any], keys: Mapping[str, Secret]
    ) -> dict[str, Blob]:
        """Make a key and seal it for others, each under the key that the maker shares with it."""
        secret, public = self.generate(wishes)
        before = self._secrets(party) if wishes.get("renew") else []
        content, nonce, run = Secret(os.urandom(32)), os.urandom(12), run_of(party)
        packed = b"".join(struct.pack("<I", len(s.reveal())) + s.reveal() for s in (secret, *before))
        bundle = nonce + ChaCha20Poly1305(content.reveal()).encrypt(nonce, packed, run.encode())
        self._keep(party, content, Blob("sealed", bundle))
        blobs = {name: Blob("public", raw) for name, raw in public.items()}
        return {"bundle": Blob("sealed", bundle), "wraps": self._wraps(party, keys), **blobs}

    @step
    def share_key(self, party: Party, message: Message, shared: Shared | None) -> Message:
        """Seal the key that this party holds for parties that came later."""
        self.unlocked(party)  # only who can open it hands it on
        return Message(wraps=self._wraps(party, self._addressees(party, message)))

    def _addressees(self, party: Party, message: Message) -> dict[str, Secret]:
        """Keys shared with the parties that are named; only those whose identity is pinned here have one."""
        names = message["names"].decode().split("\n")
        exchanges = zip(names, message["exchanges"], strict=True)
        return {name: sealing_key(party, name, signed.tobytes()) for name, signed in exchanges}

    def _wraps(self, party: Party, keys: Mapping[str, Secret]) -> Blob:
        """The content key, sealed under each of the keys."""
        run, content = run_of(party), party.vault["content"].reveal()
        sealed = [seal(key, content, _key_place(run, party.id, name)) for name, key in keys.items()]
        return Blob("sealed", b"".join(sealed))

    def receive(self, party: Party, ticket: Mapping[str, Any]) -> None:
        """Unseal the key that rode on the ask, if any."""
        if "wrap" not in ticket:
            return
        maker = ticket["maker"]
        key = self.makers_key(party, maker, ticket)
        content = unseal(key, ticket["wrap"].data, _key_place(run_of(party), maker, party.id))
        self._keep(party, Secret(content), ticket["bundle"])

    def makers_key(self, party: Party, maker: str, ticket: Mapping[str, Any]) -> Secret:
        """Key that this party shares with who sealed the federation's key for it."""
        return sealing_key(party, maker, ticket["exchange"])

    def _keep(self, party: Party, content: Secret, bundle: Blob) -> None:
        # The bundle is the same for all and needs no hiding: in state it is one object for 20,000 parties.
        party.vault["content"] = content
        party.state["bundle"] = bundle

    def check_opening(self, party: Party, contributions: int) -> None:
        """Refuse to open what says of itself that it is no total over enough contributions."""
        if contributions < (least := self.min_contributions(agreed_minimum(party))):
            raise OpeningError(
                f"total over {contributions} contributions, agreed were at least {least}: it stays shut"
            )

    def unlocked(self, party: Party) -> Secret:
        """Give the federation's key, the newest, to a party that holds it."""
        return self._secrets(party)[0]

    def _secrets(self, party: Party) -> list[Secret]:
        """The federation's keys, newest first."""
        if "content" not in party.vault:
            raise ProtectionError(f"{party.id} has no key of {self.name}: it must be sent one first")
        raw: bytes = party.state["bundle"].data
        content = ChaCha20Poly1305(party.vault["content"].reveal())
        try:
            packed, found = content.decrypt(raw[:12], raw[12:], run_of(party).encode()), []
        except (InvalidTag, ValueError):
            raise ProtectionError("the federation's key does not open: it was changed on its way") from None
        while packed:
            end = 4 + struct.unpack_from("<I", packed)[0]
            found.append(Secret(packed[4:end]))
            packed = packed[end:]
        return found

    def cached(self, party: Party, make: Callable[[Secret], Any]) -> Any:
        """What is made from the federation's newest key, once per process and key."""
        return self._ready(party, make, 0)

    def fitting(
        self, party: Party, make: Callable[[Secret], Any], read: Callable[[Any], Any]
    ) -> tuple[Any, Any]:
        """What is made from the newest key under which a ciphertext can be read, and what was read."""
        newest = self.cached(party, make)
        try:
            return newest, read(newest)
        except ProtectionError as refusal:
            for age in range(1, len(self._secrets(party))):
                with suppress(ProtectionError):
                    older = self._ready(party, make, age)
                    return older, read(older)
            raise refusal from None

    def _ready(self, party: Party, make: Callable[[Secret], Any], age: int) -> Any:
        content = (
            hashlib.sha256(party.vault["content"].reveal()).digest() if "content" in party.vault else b""
        )
        key = (self.name, make.__qualname__, age, party.state.get("bundle"), content)
        if key not in party.cache:
            party.cache[key] = make(self._secrets(party)[age])
        return party.cache[key]

    # -- coordinator ---------------------------------------------------------------------------------

    def prepare(self, coordinator: Any, sums: int) -> None:
        """Let one party make the key; if it cannot, the next one does, down to the quorum."""
        if len(coordinator.parties) < 2:
            raise ProtectionError(f"{self.name} protects nothing with a single client: have at least two")
        if (chosen := self.chosen_maker) and chosen not in coordinator.parties:
            raise ConfigError(f"{chosen} is to make the keys and has not enrolled: choose another client")
        spare = len(coordinator.parties) - max(
            2, ceil(coordinator.manifest.quorum * len(coordinator.parties) - 1e-9)
        )
        for tried, maker in enumerate((chosen,) if chosen else coordinator.parties):
            try:
                take_keys(coordinator, self.make_keys, maker, self.wishes(coordinator))
                break
            except (QuorumError, MessageError):
                if chosen or tried >= spare:
                    raise

    def rotate(self, coordinator: Any) -> None:
        """Make a new key for the parties of a coordinator (or of a sum); it is used from the next sum on.

        Who is not among them cannot open what comes later. Totals so far can still be opened by whoever
        gets the new key.
        """
        wishes = {**coordinator.memory["wishes"], "renew": True}
        holders = [name for name in coordinator.parties if name in coordinator.memory["holders"]]
        for maker in [self.chosen_maker] if self.chosen_maker else holders:
            with suppress(QuorumError, MessageError):
                take_keys(coordinator, self.make_keys, maker, wishes)
                return
        raise ProtectionError("no client that holds the key could make a new one: the old one stays in use")

    def tickets(self, pending: Sum) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]]]:
        """What has to ride on the ask: the key for those who do not have it yet."""
        memory = pending.memory
        if self.lifetime and memory["used"] >= self.lifetime:
            self.rotate(pending)
        memory["used"] += 1
        parties = pending.parties
        hand_on(
            memory,
            pending.directory,
            parties,
            parties,
            lambda holder, common: pending.ask(self.share_key, common, parties=[holder]),
        )
        return riding(pending)

    def admit(self, coordinator: Any, names: Sequence[str]) -> None:
        """Let any party that has the key seal it for those that come later."""
        if "wraps" not in coordinator.memory:  # no client has one
            return
        lost: dict[str, str] = {}
        hand_on(
            coordinator.memory,
            coordinator.directory,
            names,
            coordinator.parties,
            lambda holder, common: coordinator.ask(self.share_key, common, parties=[holder], failures=lost),
        )

    def delivered(self, pending: Sum, party: str) -> None:
        """Remember that a party has its key."""
        pending.memory["wraps"].pop(party, None)
        pending.memory["holders"].add(party)


def _key_place(run: str, maker: str, receiver: str) -> bytes:
    return place(run, 0, "key", maker, receiver)
