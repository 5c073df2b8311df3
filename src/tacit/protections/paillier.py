"""Paillier star: clients encrypt, the coordinator adds, and whoever opens never adds.

Santos et al., "Exploring Aggregation Strategies for Federated Learning in National Statistics", encrypt
layers of a network this way; PFMLP (Fang and Qian, "Privacy Preserving Machine Learning with Homomorphic
Encryption and Federated Learning") has a key server. The adder never holds the secret key: a separate key
server does, or the clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.layout import Layout
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import Place, Promises, Sum, Vector
from tacit.core.secret import Secret
from tacit.core.shared import Shared
from tacit.core.values import Blob
from tacit.crypto.channel import checked_key, sign_key
from tacit.crypto.fixedpoint import FixedPoint
from tacit.protections.keys.authenticated import SHARED_KEY, run_of
from tacit.protections.keys.shared_key import ClientKeys

KEY_SERVER = "key-server"
KEY_BITS = (2048, 3072, 4096)


@dataclass(frozen=True)
class Paillier(ClientKeys):
    """Paillier ciphertexts added by a coordinator that holds no key; exact fixed point.

    Parameters
    ----------
    holder : {"key-server", "clients"}
        Who holds the secret key: a key server, which opens totals for the coordinator, or all clients.
    key_bits : int
        Size of the modulus: 3072 (about 128-bit security), 2048 (about 112) or 4096.
    bits : int
        Bits of a value in fixed point, its sign included.
    clip : bool
        Cut values at their bound instead of refusing them.
    randomness : {"djn", "plain"}
        Randomness of ciphertexts: Damgård, Jurik and Nielsen's, or Paillier's own rⁿ, which is slower.
    """

    name = "paillier"
    field_names: ClassVar[Mapping[str, str]] = {**ClientKeys.field_names, "signed": "public key"}

    holder: Literal["key-server", "clients"] = "key-server"
    key_bits: int = 3072
    bits: int = 32
    clip: bool = False
    randomness: Literal["djn", "plain"] = "djn"

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
        )

    # -- keys --------------------------------------------------------------------------------------

    def generate(self, wishes: Mapping[str, Any]) -> tuple[Secret, Mapping[str, bytes]]:
        """Make a key pair."""
        from tacit.crypto.paillier import make_keys

        private = make_keys(self.key_bits, randomness=self.randomness)
        return private.to_secret(), {"public": private.public.to_bytes()}

    def prepare(self, coordinator: Any, sums: int) -> None:
        """Let the key server (or one client) make the key."""
        if self.holder == "clients":
            super().prepare(coordinator, sums)
            return
        for _, reply in coordinator.ask(self.serve_key, parties=[KEY_SERVER]):
            signed = reply["public"].data
            coordinator.memory["signed"] = Blob("public", signed)
            coordinator.memory["public"] = checked_key(
                signed, coordinator.pinned(KEY_SERVER), "paillier", KEY_SERVER, coordinator.manifest.digest
            )

    @step
    def serve_key(self, party: Party, message: Message, shared: Shared | None) -> Message:
        """Key server: make the key and publish its signed public half."""
        secret, made = self.generate(message)
        party.vault["paillier"] = secret
        signed = sign_key(party.identity, "paillier", party.id, run_of(party), made["public"])
        return Message(public=Blob("public", signed))

    # -- the sum -----------------------------------------------------------------------------------

    def protect(self, party: Party, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Encrypt this party's vector."""
        from tacit.crypto.paillier import Packing

        code = FixedPoint.of(layout, self.bits, ticket["summands"], self.clip)
        integers = code.encode(vector)
        key = self._encryption_key(party, ticket)
        return Message(cipher=Blob("cipher", key.encrypt(integers, Packing(self.bits, code.guard_bits))))

    def _encryption_key(self, party: Party, ticket: Mapping[str, Any]) -> Any:
        from tacit.crypto.paillier import PrivateKey, PublicKey

        if self.holder == "clients":
            return self.cached(party, PrivateKey.from_secret)
        signed: bytes = ticket["signed"].data
        if ("paillier", signed) not in party.cache:
            raw = checked_key(signed, party.pinned(KEY_SERVER), "paillier", KEY_SERVER, run_of(party))
            party.cache["paillier", signed] = PublicKey.from_bytes(raw)
        return party.cache["paillier", signed]

    def gather(self, pending: Sum) -> dict[str, Any]:
        """Add ciphertexts; then, if there is a key server, let it open the total."""
        from tacit.crypto.paillier import Adder, Packing, PublicKey

        memory = pending.memory
        common: dict[str, Any] = {"summands": len(pending.parties)}
        tickets: Mapping[str, Mapping[str, Any]] = {}
        if self.holder == "clients":
            keys, tickets = self.tickets(pending)
            common |= keys
        else:
            common["signed"] = memory["signed"]
        # A tuple with the bytes it was read from: a new key replaces it.
        if memory.get("adder", ("",))[0] != memory["public"]:
            memory["adder"] = memory["public"], PublicKey.from_bytes(memory["public"])
        key = memory["adder"][1]
        code = FixedPoint.of(pending.layout, self.bits, len(pending.parties), self.clip)
        packing = Packing(self.bits, code.guard_bits)
        adder = Adder(key, packing=packing)
        for party, message in pending.contributions(tickets, common):
            try:
                adder.add(single(key, cipher_of(message), packing, code.slots))
            except ProtectionError as error:
                pending.refuse(party, str(error))
                continue
            if self.holder == "clients":
                self.delivered(pending, party)
        pending.check()
        total = {"cipher": Blob("cipher", adder.total()), "summands": len(pending.parties)}
        if self.holder == "clients":
            return total
        opened = pending.serve(self.open_total, KEY_SERVER, total)
        return {"integers": opened["integers"], "summands": total["summands"]}

    @step(replies="aggregate")
    def open_total(self, party: Party, message: Message, shared: Shared | None) -> Message:
        """Key server: open a total over enough contributions, and hand it to the coordinator."""
        from tacit.crypto.paillier import PrivateKey, read_header

        blob = cipher_of(message)
        private = PrivateKey.from_secret(party.vault["paillier"])
        self.check_opening(party, read_header(private.public, blob).summands)
        return Message(integers=private.decrypt(blob))

    def open(self, holder: Any, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Open at a client with the shared key; a key server has opened the total already."""
        from tacit.crypto.paillier import PrivateKey, read_header

        code = FixedPoint.of(layout, self.bits, total["summands"], self.clip)
        if self.holder == "key-server":
            return code.decode(total["integers"])
        blob = cipher_of(total)
        private, header = self.fitting(
            holder, PrivateKey.from_secret, lambda key: read_header(key.public, blob)
        )
        self.check_opening(holder, header.summands)
        return code.decode(private.decrypt(blob))


def check_key_bits(name: str, key_bits: int) -> None:
    """Refuse a modulus of another size than those in use."""
    if key_bits not in KEY_BITS:
        short = "; what was published with 1024 runs as well with 2048" if key_bits == 1024 else ""
        raise ConfigError(
            f"{name}: key_bits is {key_bits}: use 2048 (about 112-bit security), 3072 (128) or 4096{short}"
        )


def single(key: Any, blob: bytes, packing: Any, slots: int) -> bytes:
    """One client's ciphertexts: as many values as agreed, and not more than one contribution."""
    from tacit.crypto.paillier import read_header

    header = read_header(key, blob, packing)
    if header.summands != 1 or header.count != slots:
        raise ProtectionError(
            f"{header.count} values as {header.summands} contributions, agreed were {slots} as one"
        )
    return blob


def cipher_of(fields: Mapping[str, Any]) -> bytes:
    """Ciphertext in a message, or a refusal."""
    blob = fields.get("cipher")
    if not isinstance(blob, Blob) or blob.kind != "cipher":
        raise ProtectionError("no ciphertext where one was agreed")
    return blob.data
