"""The ring: a running encrypted sum that goes from client to client, and opens at the server.

The protocol was published for training multilayer perceptrons with federated learning and homomorphic
encryption: the server makes Paillier keys; the first client encrypts its vector, each next one adds its
own, and the last hands the total to the server, which decrypts it. The server holds the secret key, so
what goes from hop to hop is sealed against it: it relays bytes that it cannot read. If a hop vanishes,
the ring re-forms without it and the sum starts again; nobody computes a contribution twice.

One thing differs. Published, whoever is last hands the total over. A server that claims that a hop has
vanished would get a second total over other clients, handed over by another one, and the difference shows
who is in one of them only. Here the client that begins the ring, the *closer*, also gets the sum back and
hands it over, once; all clients of a sum keep to the closer they were first told. That is one message more.
And since it comes back, the closer blinds what it begins with: published, the second client and the server
could open the contribution of the first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tacit.core.fields import BLOB, BYTES, INTEGER, TEXT, Kind
from tacit.core.link import Link
from tacit.core.party import Party
from tacit.core.promises import Place, Promises
from tacit.core.protection import Protection
from tacit.protections.keys.authenticated import FIELD_KINDS, FIELD_NAMES
from tacit.protections.paillier import check_key_bits
from tacit.protections.ring.client import RingClient
from tacit.protections.ring.coordinator import RingCoordinator

LONG_RING = 200  # clients, beyond which a ring is worth a warning


@dataclass(frozen=True)
class Ring(Protection):
    """A running Paillier sum that goes from client to client; the server sees only the total.

    Parameters
    ----------
    key_bits : int
        Size of the modulus: 3072 (about 128-bit security), 2048 (about 112) or 4096.
    bits : int
        Bits of a value in fixed point, its sign included.
    clip : bool
        Cut values at their bound instead of refusing them.
    """

    name = "ring"
    opens: ClassVar[Place] = "coordinator"  # which is the protocol's server
    restarts: ClassVar[bool] = True
    authenticated: ClassVar[bool] = True
    field_names: ClassVar[Mapping[str, str]] = {
        **FIELD_NAMES,
        **dict.fromkeys(("next_exchange", "previous_exchange"), "signed exchange keys"),
        **dict.fromkeys(("hop", "incoming"), "running sum"),
        "public": "public key",
    }
    field_kinds: ClassVar[Mapping[str, Kind]] = {
        **FIELD_KINDS,
        **dict.fromkeys(("public", "next_exchange", "previous_exchange"), BYTES),
        **dict.fromkeys(("closer", "next", "previous"), TEXT),
        "incoming": BLOB,
        "lap": INTEGER,
    }

    key_bits: int = 3072
    bits: int = 32
    clip: bool = False

    def __post_init__(self) -> None:
        check_key_bits(self.name, self.key_bits)

    @property
    def promises(self) -> Promises:
        """What the ring promises."""
        return Promises(
            opens="coordinator",
            keys={"coordinator": "the secret key", "client": "the public key"},
            sees={
                "coordinator": "sealed hops it cannot read, and the total",
                "client": "the running sum of those before it, encrypted under a key it does not hold",
                "outsider": "nothing",
            },
            collusion="the coordinator with the clients before and after one in the ring isolate that one, "
            "and with the client that begins the ring any other",
            dropout="the ring re-forms without the client and the sum starts again, down to the quorum; if "
            "the client that began it vanishes before it has handed over the total, the sum stops",
            precision=2.0 ** -(self.bits - 1),
            bytes_per_value=(self.bits + 16) / 4,
        )

    def warnings_for(self, clients: int, scaled: bool) -> Sequence[str]:
        """Warn of a long ring."""
        text = f"ring: a sum goes from client to client, {clients + 1:,} waves one after the other"
        return (f"{text}; paillier takes one",) if clients > LONG_RING else ()

    def at_coordinator(self, link: Link) -> RingCoordinator:
        """Make the key, send the sum around, and open it."""
        return RingCoordinator(self, link)

    def at_client(self, party: Party) -> RingClient:
        """Add to the running sum."""
        return RingClient(self, party)
