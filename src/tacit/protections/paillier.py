"""Paillier star: clients encrypt, the coordinator adds, and whoever opens never adds.

Santos et al., "Exploring Aggregation Strategies for Federated Learning in National Statistics", encrypt
layers of a network this way; PFMLP (Fang and Qian, "Privacy Preserving Machine Learning with Homomorphic
Encryption and Federated Learning") has a key server. The adder never holds the secret key: a separate key
server does, or the clients.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tacit.core.client import check_opening
from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.fields import BLOB, INTEGERS, Kind, check_fields
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.message import Message
from tacit.core.numbers import MOST_SUMMANDS, read_integer
from tacit.core.party import Party
from tacit.core.pending_sum import PendingSum
from tacit.core.promises import Place, Promises
from tacit.core.protection import Protection, Vector
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import checked_key
from tacit.crypto.field import PRIME
from tacit.crypto.fixedpoint import FixedPoint
from tacit.protections.blobs import cipher_of
from tacit.protections.keys.authenticated import AuthenticatedCoordinator, manifest_digest_of
from tacit.protections.keys.key_relay import KeyRelay
from tacit.protections.keys.key_server import KEY_SERVER, KeyServer
from tacit.protections.keys.proved_totals import PROVED, TAG, TAG_NAMES, ProvedTotals, add_tags, check_room
from tacit.protections.keys.shared_key import FIELD_NAMES, KEY_FIELDS, SHARED_KEY, KeyTerms, SharedKeyClient

KEY_BITS = (2048, 3072, 4096)


@dataclass(frozen=True)
class Paillier(Protection):
    """Paillier ciphertexts added by a coordinator that holds no key; exact fixed point.

    Parameters
    ----------
    holder : {"key-server", "clients", "in-turn"}
        Who holds the secret key: a key server, which opens totals for the coordinator, or all clients, of
        which one makes it; "in-turn" the next one makes another for each sum, as PFMLP has it.
    key_bits : int
        Size of the modulus: 3072 (about 128-bit security), 2048 (about 112) or 4096.
    bits : int
        Bits of a value in fixed point, its sign included.
    clip : bool
        Cut values at their bound instead of refusing them.
    randomness : {"djn", "plain", "short-alpha"}
        Randomness of ciphertexts: Damgård, Jurik and Nielsen's; Paillier's own rⁿ, which is slower; or his
        scheme 3 with a short α, which opens faster on a less studied assumption.
    """

    name = "paillier"
    authenticated: ClassVar[bool] = True
    key_fields: ClassVar[Collection[str]] = KEY_FIELDS
    field_names: ClassVar[Mapping[str, str]] = {**FIELD_NAMES, **TAG_NAMES, "signed": "public key"}
    field_kinds: ClassVar[Mapping[str, Kind]] = KeyTerms.field_kinds

    holder: Literal["key-server", "clients", "in-turn"] = "key-server"
    key_bits: int = 3072
    bits: int = 32
    clip: bool = False
    randomness: Literal["djn", "plain", "short-alpha"] = "djn"

    def __post_init__(self) -> None:
        check_key_bits(self.name, self.key_bits)

    @property
    def opens(self) -> Place:
        """At the coordinator by way of the key server, or at the clients."""
        return "coordinator" if self.holder == "key-server" else "clients"

    @property
    def services(self) -> tuple[str, ...]:
        """A key server, where it holds the key."""
        return (KEY_SERVER,) if self.holder == "key-server" else ()

    @property
    def promises(self) -> Promises:
        """What is promised, by who holds the key."""
        served = self.holder == "key-server"
        return Promises(
            opens=self.opens,
            keys=(
                {"key server": "the secret key", "coordinator, clients": "the public key"}
                if served
                else {"clients": "one secret key, shared by all", "coordinator": "the public key"}
            ),
            sees={
                "coordinator": "ciphertexts it cannot open" + (", and the total" if served else ""),
                "client": "what is made of the total" if served else "the total, and what is made of it",
                **({KEY_SERVER: "the total"} if served else {}),
                "outsider": "nothing",
            },
            collusion=(
                "coordinator and key server together open every contribution"
                if served
                else "the coordinator and any one client together open every contribution"
            ),
            dropout="the sum goes on without the client, down to the quorum",
            precision=2.0 ** -(self.bits - 1),
            bytes_per_value=(self.bits + 16) / 4,
            warnings=() if served else (SHARED_KEY,),
            proof="" if served else PROVED,
        )

    @property
    def terms(self) -> KeyTerms:
        """The terms of the key that clients share, where they hold it."""
        return KeyTerms(self.name, self.generate, lifetime=int(self.holder == "in-turn"))

    def generate(self, key_request: Mapping[str, Any]) -> tuple[Secret, Mapping[str, bytes]]:
        """Make a key pair."""
        from tacit.crypto.paillier import make_keys

        private = make_keys(self.key_bits, randomness=self.randomness)
        return private.to_secret(), {"public": private.public.to_bytes()}

    def code(self, layout: Layout, summands: int) -> FixedPoint:
        """Return how vectors become integers, with room for the sum of that many."""
        code = FixedPoint.of(layout, self.bits, summands, self.clip)
        if self.proves(layout):
            check_room(self.bits, code.guard_bits, summands)
        return code

    def proves(self, layout: Layout) -> bool:
        """Where clients open totals."""
        return self.holder != "key-server"

    def at_coordinator(self, link: Link) -> PaillierCoordinator:
        """Return the coordinator half, which adds ciphertexts."""
        return PaillierCoordinator(self, link)

    def at_client(self, party: Party) -> PaillierClient:
        """Return the client half, which encrypts and, where clients hold the key, opens totals."""
        return PaillierClient(self, party)

    def at_service(self, party: Party) -> KeyServer:
        """Return the key server, which holds the key and opens totals."""
        return KeyServer(self, party)


def check_key_bits(name: str, key_bits: int) -> None:
    """Refuse a modulus of another size than those in use."""
    if key_bits not in KEY_BITS:
        short = "; what was published with 1024 runs as well with 2048" if key_bits == 1024 else ""
        raise ConfigError(
            f"{name}: key_bits is {key_bits}: use 2048 (about 112-bit security), 3072 (128) or 4096{short}"
        )


class PaillierCoordinator(AuthenticatedCoordinator):
    """Adds ciphertexts that it cannot open; the clients hold the secret key, or a key server does.

    ``relay`` passes the clients' key on; it is None where there is a key server.
    """

    def __init__(self, settings: Paillier, link: Link) -> None:
        super().__init__(link)
        shared = settings.holder != "key-server"
        self.relay = KeyRelay(settings.terms, link, self.channels) if shared else None
        self.signed = b""  # the key server's public key with its signature
        self._settings, self._served_key = settings, b""

    @property
    def public(self) -> bytes:
        """The public key."""
        return self.relay.current_key.public["public"] if self.relay else self._served_key

    def prepare(self, sums: int) -> None:
        """Let one client or the key server make the key."""
        if self.relay:
            self.relay.prepare({})
            return
        for _, reply in self.link.ask(KeyServer.serve_key, parties=[KEY_SERVER]):
            check_fields(reply, {"public": BLOB})
            self.signed = reply["public"].data
            pinned, run = self.link.pinned(KEY_SERVER), self.link.manifest.digest
            self._served_key = checked_key(self.signed, pinned, "paillier", KEY_SERVER, run)

    def admit(self, names: Sequence[str]) -> None:
        """Let a client hand on the key, where clients share it."""
        if self.relay:
            self.relay.admit(names)

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        """Add ciphertexts; if there is a key server, let it open the total."""
        total = self._add_up(pending)
        if self.relay:
            return total
        opened = dict(self.link.ask(KeyServer.open_total, total, parties=[KEY_SERVER]))[KEY_SERVER]
        check_fields(opened, {"integers": INTEGERS})
        return {"integers": opened["integers"], "summands": total["summands"]}

    def _add_up(self, pending: PendingSum) -> dict[str, Any]:
        """Return the encrypted total of all that contribute."""
        from tacit.crypto.paillier import Adder, Packing, PublicKey, read_header

        summands, tickets = len(pending.parties), dict[str, Mapping[str, Any]]()
        common: dict[str, Any] = {"signed": Blob("public", self.signed)}
        if self.relay:
            common, tickets = self.relay.tickets(pending)
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
        pending.check()
        return {"cipher": Blob("cipher", adder.total()), "summands": summands, **tags}

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Decode what the key server has opened."""
        return self._settings.code(layout, total["summands"]).decode(total["integers"])


class PaillierClient(SharedKeyClient):
    """Encrypts; where clients share the key, also opens totals."""

    def __init__(self, settings: Paillier, party: Party) -> None:
        super().__init__(settings.terms, party)
        self._settings = settings
        self._proved = ProvedTotals(party, self.key)

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Encrypt this party's vector; tag it, where clients open the total."""
        from tacit.crypto.paillier import Packing

        code = self._settings.code(layout, read_integer(ticket, "summands", 1, MOST_SUMMANDS))
        integers = code.encode(vector)
        packing = Packing(self._settings.bits, code.guard_bits)
        tag = {TAG: self._proved.tag(ticket, layout, integers)} if self._settings.proves(layout) else {}
        return Message(cipher=Blob("cipher", self._encryption_key(ticket).encrypt(integers, packing)), **tag)

    def _encryption_key(self, ticket: Mapping[str, Any]) -> Any:
        from tacit.crypto.paillier import PrivateKey, PublicKey

        if self._settings.holder != "key-server":
            return self.key.cached("private", PrivateKey.from_secret)
        pinned, run = self.party.pinned(KEY_SERVER), manifest_digest_of(self.party)
        return PublicKey.from_bytes(checked_key(ticket["signed"].data, pinned, "paillier", KEY_SERVER, run))

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Open with the shared key, and check whose contributions it is of."""
        from tacit.crypto.paillier import PrivateKey, read_header

        code = self._settings.code(layout, read_integer(total, "summands", 1, MOST_SUMMANDS))
        blob = cipher_of(total)
        age, header = self.key.find_key(
            "private", PrivateKey.from_secret, lambda key: read_header(key.public, blob)
        )
        check_opening(self.party, self._settings, header.summands)
        integers = self.key.cached("private", PrivateKey.from_secret, age).decrypt(blob)
        self._proved.check(total, layout, total["summands"], {PRIME: integers}, age)
        return code.decode(integers)
