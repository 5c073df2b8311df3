"""Paillier star: clients encrypt, the coordinator adds, and whoever opens never adds.

After Santos et al., "Exploring Aggregation Strategies for Federated Learning in National Statistics", and
PFMLP (Fang and Qian, "Privacy Preserving Machine Learning with Homomorphic Encryption and Federated
Learning"). The adder never holds the secret key: a key server does, the clients, or a leader that they draw.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from tacit.core.errors import ConfigError
from tacit.core.fields import INTEGER, ROWS, Kind
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.party import Party
from tacit.core.promises import Opening, Promises
from tacit.core.protection import ClientHalf, CoordinatorHalf, Protection
from tacit.core.secret import Secret
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.paillier import make_keys
from tacit.protections.keys.proved_totals import PROVED, TAG_NAMES, check_room
from tacit.protections.keys.shared_key import FIELD_KINDS, FIELD_NAMES, KEY_FIELDS, SHARED_KEY, KeyTerms

KEY_BITS = (2048, 3072, 4096)
KEY_SERVER = "key-server"
DRAWS = 3  # of a leader: again if somebody withholds its number
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


@dataclass(frozen=True)
class Paillier(Protection):
    """Paillier ciphertexts added by a coordinator that holds no key; exact fixed point.

    Parameters
    ----------
    holder : {"key-server", "clients", "in-turn", "leader"}
        Who holds the secret key: a key server, which opens totals for the coordinator; all clients, of
        which one makes it; "in-turn" the next one makes another for each sum, as PFMLP has it; or a leader,
        one client that all draw, which opens totals alone and tells what was learnt from them.
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
    field_kinds: ClassVar[Mapping[str, Kind]] = {
        **FIELD_KINDS,
        **dict.fromkeys(("commitments", "nonces"), ROWS),
        "draw": INTEGER,
    }

    holder: Literal["key-server", "clients", "in-turn", "leader"] = "key-server"
    key_bits: int = 3072
    bits: int = 32
    clip: bool = False
    randomness: Literal["djn", "plain", "short-alpha"] = "djn"

    def __post_init__(self) -> None:
        check_key_bits(self.name, self.key_bits)

    @property
    def opens(self) -> Opening:
        """At the coordinator by way of the key server, at the leader, or at the clients."""
        if self.holder == "leader":
            return "leader"
        return "coordinator" if self.holder == "key-server" else "clients"

    @property
    def services(self) -> tuple[str, ...]:
        return (KEY_SERVER,) if self.holder == "key-server" else ()

    @property
    def shared_key(self) -> bool:
        """Whether all clients hold the secret key."""
        return self.opens == "clients"

    @property
    def promises(self) -> Promises:
        if self.holder == "leader":
            return replace(LEADER, precision=2.0 ** -(self.bits - 1), bytes_per_value=(self.bits + 16) / 4)
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

    def generate(self) -> tuple[Secret, bytes]:
        """Make a key pair."""
        private = make_keys(self.key_bits, randomness=self.randomness)
        return private.to_secret(), private.public.to_bytes()

    def code(self, layout: Layout, summands: int) -> FixedPoint:
        """Return how vectors become integers, with room for the sum of that many."""
        code = FixedPoint.of(layout, self.bits, summands, self.clip)
        if self.proves(layout):
            check_room(self.bits, code.guard_bits, summands)
        return code

    def proves(self, layout: Layout) -> bool:
        return self.shared_key

    def at_coordinator(self, link: Link) -> CoordinatorHalf:
        from tacit.protections.paillier.halves import PaillierCoordinator

        return PaillierCoordinator(self, link)

    def at_client(self, party: Party) -> ClientHalf:
        from tacit.protections.paillier.halves import PaillierClient

        return PaillierClient(self, party)

    def at_service(self, party: Party) -> ClientHalf:
        from tacit.protections.paillier.halves import KeyServer

        return KeyServer(self, party)


def check_key_bits(name: str, key_bits: int) -> None:
    """Refuse a modulus of another size than those in use."""
    if key_bits not in KEY_BITS:
        short = "; what was published with 1024 runs as well with 2048" if key_bits == 1024 else ""
        raise ConfigError(
            f"{name}: key_bits is {key_bits}: use 2048 (about 112-bit security), 3072 (128) or 4096{short}"
        )
