"""A key that all clients share and the coordinator never sees: how clients make it, pass it on and use it.

One client makes the key, encrypts it once under a *content key*, and seals the content key for every other
client. The coordinator relays (:mod:`tacit.protections.keys.key_relay`); it keeps only what is public. A
client that comes later gets the content key from any client that has it, so nobody is needed for ever. A new
key carries the ones before it in its bundle, so that earlier totals can still be opened.

A *preshared* exchange key, pinned as the identity is, lets the first client make and seal the federation's
key with its introduction: one wave less, for a price that SECURITY.md names.
"""

import hashlib
import hmac
import os
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from tacit.core.errors import ProtectionError
from tacit.core.fields import BLOB, FLAG, TEXT, Kind
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import ClientHalf, hands_on
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import pair_key, place, seal, unseal
from tacit.protections.keys import authenticated
from tacit.protections.keys.authenticated import check_other, manifest_digest_of, read_exchanges, sealing_key

Made = TypeVar("Made")
Read = TypeVar("Read")
KEY_FIELDS = ("bundle", "wrap", "wraps")  # fields of messages that hold the sealed key
FIELD_NAMES = {
    **authenticated.FIELD_NAMES,
    **dict.fromkeys(KEY_FIELDS, "the federation's key"),
    "public": "public key",
}
FIELD_KINDS: Mapping[str, Kind] = {
    **authenticated.FIELD_KINDS,
    **dict.fromkeys(KEY_FIELDS, BLOB),
    **dict.fromkeys(("preshared", "renew"), FLAG),
    **dict.fromkeys(("cipher", "signed"), BLOB),
    "maker": TEXT,
}
SHARED_KEY = (
    "all clients share one decryption key: the coordinator together with any single client opens every "
    "client's contribution; 'masked' hides it from that pair, too"
)


def random_key() -> tuple[Secret, bytes]:
    """Make a key that has no public part."""
    return Secret(os.urandom(32)), b""


@dataclass(frozen=True)
class KeyTerms:
    """What a protection says of its clients' key; ``generate`` makes it: the secret and its public part."""

    protection: str  # its name, for messages
    generate: Callable[[], tuple[Secret, bytes]] = random_key
    maker: str = ""  # the client that the federation chose to make keys; empty: the first that can
    lifetime: int = 0  # after how many sums a new key is made; 0 for never within a run
    at_enrolment: bool = False  # make it there, where all parties have preshared exchange keys


class SharedKey:
    """The federation's key at one client."""

    def __init__(self, terms: KeyTerms, party: Party) -> None:
        self._terms, self._party = terms, party

    def introduce(self, greeting: Mapping[str, Any]) -> dict[str, Any]:
        """Make the key at enrolment, if this client is asked to, sealed under preshared exchange keys."""
        own = self._party.id
        asked = self._terms.at_enrolment and greeting.get("maker") == own
        if not asked or self._terms.maker not in ("", own):
            return {}
        names = greeting["names"].decode().split("\n")
        return dict(self._new_keys({name: self._preshared_key(name) for name in names}))

    @step
    def make_keys(self, message: Message) -> Message:
        """Make the federation's key, or a new one, and seal it for every party."""
        own, chosen = self._party.id, self._terms.maker
        if chosen not in ("", own):
            raise ProtectionError(f"{own} was asked for keys, the federation chose {chosen}")
        return Message(self._new_keys(self._addressees(message), renew=bool(message.get("renew"))))

    @step
    def share_key(self, message: Message) -> Message:
        """Seal the key that this party holds for parties that came later."""
        self.newest()  # only who can open it hands it on
        return Message(wraps=self._wraps(self._addressees(message)))

    def _new_keys(self, keys: Mapping[str, Secret], renew: bool = False) -> dict[str, Blob]:
        secret, public = self._terms.generate()
        before = self._secrets() if renew else []
        content, run = Secret(os.urandom(32)), manifest_digest_of(self._party)
        packed = b"".join(struct.pack("<I", len(s.reveal())) + s.reveal() for s in (secret, *before))
        bundle = Blob("sealed", seal(content, packed, run.encode()))
        self._keep(content, bundle)
        return {"bundle": bundle, "wraps": self._wraps(keys), "public": Blob("public", public)}

    def _addressees(self, message: Message) -> dict[str, Secret]:
        """Return keys shared with the named parties; only those whose identity is pinned here have one."""
        pairs = read_exchanges(message, message["names"].decode().split("\n"))
        return {name: sealing_key(self._party, name, signed) for name, signed in pairs}

    def _wraps(self, keys: Mapping[str, Secret]) -> Blob:
        run, own = manifest_digest_of(self._party), self._party.id
        content = self._party.vault["content"].reveal()
        sealed = [seal(key, content, _key_place(run, own, name)) for name, key in keys.items()]
        return Blob("sealed", b"".join(sealed))

    def receive(self, ticket: Mapping[str, Any]) -> None:
        """Unseal the key that rode on the ask, if any."""
        if "wrap" not in ticket:
            return
        party, maker = self._party, ticket["maker"]
        if self._terms.at_enrolment and ticket.get("preshared"):
            key = self._preshared_key(maker)
        else:
            key = sealing_key(party, maker, ticket["exchange"])
        content = unseal(key, ticket["wrap"].data, _key_place(manifest_digest_of(party), maker, party.id))
        self._keep(Secret(content), ticket["bundle"])

    def _preshared_key(self, other: str) -> Secret:
        check_other(self._party, other)
        private, public = self._party.preshared(other)
        return pair_key(private, public, "seal", manifest_digest_of(self._party))

    def _keep(self, content: Secret, bundle: Blob) -> None:
        # The bundle is the same for all and needs no hiding: in state it is one object for 20,000 parties.
        self._party.vault["content"] = content
        self._party.state["bundle"] = bundle

    def newest(self) -> Secret:
        """Return the federation's newest key, if this party holds it."""
        return self._secrets()[0]

    def _secrets(self) -> list[Secret]:
        party = self._party
        if "content" not in party.vault:
            raise ProtectionError(
                f"{party.id} has no key of {self._terms.protection}: it must be sent one first"
            )
        run, found = manifest_digest_of(party), []
        try:
            packed = unseal(party.vault["content"], party.state["bundle"].data, run.encode())
        except ProtectionError:
            raise ProtectionError("the federation's key does not open: it was changed on its way") from None
        while packed:
            end = 4 + struct.unpack_from("<I", packed)[0]
            found.append(Secret(packed[4:end]))
            packed = packed[end:]
        return found

    def conceal(self, digest: str) -> str:
        """Return a digest under the oldest key, which all who opened anything have.

        Who has no key could else try which of a few values a replica holds.
        """
        if "content" not in self._party.vault:
            return digest
        return hmac.digest(self._secrets()[-1].reveal(), b"replica" + digest.encode(), "sha256").hex()

    def find_key(
        self, what: str, make: Callable[[Secret], Made], read: Callable[[Made], Read]
    ) -> tuple[int, Read]:
        """Return the age of the newest key under which a ciphertext can be read, and what was read."""
        try:
            return 0, read(self.cached(what, make))
        except ProtectionError as refusal:
            for age in range(1, len(self._secrets())):
                with suppress(ProtectionError):
                    return age, read(self.cached(what, make, age))
            raise refusal from None

    def cached(self, what: str, make: Callable[[Secret], Made], age: int = 0) -> Made:
        """Return what is made from the newest or an older key, under the name ``what``, once per process."""
        vault, state, cache = self._party.vault, self._party.state, self._party.cache
        content = hashlib.sha256(vault["content"].reveal()).digest() if "content" in vault else b""
        key = (self._terms.protection, what, age, state.get("bundle"), content)
        if key not in cache:
            cache[key] = make(self._secrets()[age])
        made: Made = cache[key]
        return made


@hands_on("key", "receive", "conceal")
class SharedKeyClient(ClientHalf):
    """Half of a protection whose clients share a key and have channels to the coordinator."""

    def __init__(self, terms: KeyTerms, party: Party) -> None:
        super().__init__(party)
        self.key = SharedKey(terms, party)

    @property
    def step_owners(self) -> tuple[object, ...]:
        return self, self.key

    def introduce(self, greeting: Mapping[str, Any]) -> dict[str, Any]:
        return {**authenticated.open_channel(self.party, greeting), **self.key.introduce(greeting)}


def _key_place(run: str, maker: str, receiver: str) -> bytes:
    return place(run, 0, "key", maker, receiver)
