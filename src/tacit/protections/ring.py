"""The ring: a running encrypted sum that goes from client to client, and opens at the server.

The protocol was published for training multilayer perceptrons with federated learning and homomorphic
encryption: the server makes Paillier keys; the first client encrypts its vector, each next one adds its
own, and the last hands the total to the server, which decrypts it. The server holds the secret key, so
what goes from hop to hop is sealed against it: it relays bytes that it cannot read. If a hop vanishes,
the ring re-forms without it and the sum starts again; nobody computes a contribution twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tacit.core.client import agreed_minimum
from tacit.core.errors import OpeningError, ProtectionError
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.pending_sum import PendingSum
from tacit.core.promises import Place, Promises
from tacit.core.protection import Protection, Vector
from tacit.core.values import Blob
from tacit.crypto.channel import place, seal, unseal
from tacit.crypto.fixedpoint import FixedPoint
from tacit.protections.blobs import cipher_of
from tacit.protections.keys.authenticated import (
    FIELD_NAMES,
    AuthenticatedClient,
    AuthenticatedCoordinator,
    run_of,
    sealing_key,
)
from tacit.protections.paillier import check_key_bits

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
    restarts: ClassVar[bool] = True
    authenticated: ClassVar[bool] = True
    field_names: ClassVar[Mapping[str, str]] = {
        **FIELD_NAMES,
        **dict.fromkeys(("next_exchange", "previous_exchange"), "signed exchange keys"),
        **dict.fromkeys(("hop", "incoming"), "running sum"),
        "public": "public key",
    }

    key_bits: int = 3072
    bits: int = 32
    clip: bool = False

    def __post_init__(self) -> None:
        check_key_bits(self.name, self.key_bits)

    @property
    def opens(self) -> Place:
        """At the coordinator, which is the protocol's server."""
        return "coordinator"

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
            collusion="the coordinator with the clients before and after one in the ring isolate that client",
            dropout="the ring re-forms without the client and the sum starts again, down to the quorum",
            precision=2.0 ** -(self.bits - 1),
            bytes_per_value=(self.bits + 16) / 4,
        )

    def warnings_for(self, clients: int, scaled: bool) -> Sequence[str]:
        """Return a warning of the many waves of a long ring."""
        text = f"ring: a sum goes from client to client, {clients:,} waves one after the other"
        return (f"{text}; paillier takes one",) if clients > LONG_RING else ()

    def at_coordinator(self, link: Link) -> RingCoordinator:
        """Return the coordinator half, which makes the key, sends the sum around and opens it."""
        return RingCoordinator(self, link)

    def at_client(self, party: Party) -> RingClient:
        """Return the client half, which adds to the running sum."""
        return RingClient(self, party)


class RingCoordinator(AuthenticatedCoordinator):
    """The protocol's server: holds the secret key, and relays what it cannot read."""

    def __init__(self, settings: Ring, link: Link) -> None:
        super().__init__(link)
        self.public = b""  # the public key
        self._settings = settings

    def prepare(self, sums: int) -> None:
        """Make the server's key."""
        from tacit.crypto.paillier import make_keys

        private = make_keys(self._settings.key_bits)
        self.link.vault["paillier"] = private.to_secret()
        self.public = private.public.to_bytes()

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        """Send the sum around until it comes back whole."""
        lap = 0
        while True:
            lap += 1
            alive = [party for party in pending.parties if party not in pending.failures]
            pending.check(alive)  # no lap whose total could not be opened; names those that failed
            pending.restart()
            total = self._send_around(pending, alive, lap)
            if total is not None:
                return {"cipher": Blob("cipher", total), "summands": len(pending.parties)}

    def _send_around(self, pending: PendingSum, alive: Sequence[str], lap: int) -> bytes | None:
        """Go around once; return the total, or None if a client vanished."""
        common = {"public": self.public, "summands": len(pending.parties), "lap": lap}
        incoming: Blob | None = None
        for position, party in enumerate(alive):
            ticket = self._ticket(alive, position, incoming)
            reply = dict(pending.contributions({party: ticket}, common, [party])).get(party)
            if reply is None:
                return None
            if position == len(alive) - 1:
                return self._read_total(pending, party, reply, len(alive))
            incoming = reply.get("hop")
            if not isinstance(incoming, Blob) or incoming.kind != "sealed":
                pending.refuse(party, "no sealed hop where one was agreed")
                return None
            self.link.record_relay(party, alive[position + 1], len(incoming.data))
        return None

    def _ticket(self, alive: Sequence[str], position: int, incoming: Blob | None) -> dict[str, Any]:
        ticket: dict[str, Any] = {}
        exchanges = self.channels.directory
        if incoming is not None:
            before = alive[position - 1]
            ticket |= {"incoming": incoming, "previous": before, "previous_exchange": exchanges[before]}
        if position + 1 < len(alive):
            after = alive[position + 1]
            ticket |= {"next": after, "next_exchange": exchanges[after]}
        return ticket

    def _read_total(self, pending: PendingSum, party: str, reply: Message, hops: int) -> bytes | None:
        """Return the total that the last client handed over, if it is one."""
        from tacit.crypto.paillier import PublicKey, read_header

        try:
            blob = cipher_of(reply)
            header = read_header(PublicKey.from_bytes(self.public), blob)
        except ProtectionError as error:
            pending.refuse(party, str(error))
            return None
        if header.summands != hops:
            pending.refuse(party, f"a total of {header.summands} contributions after {hops} hops")
            return None
        return blob

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Open the total with the server's key."""
        from tacit.crypto.paillier import PrivateKey

        used = self._settings
        code = FixedPoint.of(layout, used.bits, total["summands"], used.clip)
        return code.decode(PrivateKey.from_secret(self.link.vault["paillier"]).decrypt(cipher_of(total)))


class RingClient(AuthenticatedClient):
    """A client of the ring: adds its vector to what the one before it sent."""

    def __init__(self, settings: Ring, party: Party) -> None:
        super().__init__(party)
        self._settings = settings

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Add one's own to the running sum, and seal it for the next; the last hands it to the server."""
        from tacit.crypto.paillier import Packing, PublicKey, add_blobs, read_header

        self._take_turn(ticket)
        party, used = self.party, self._settings
        code = FixedPoint.of(layout, used.bits, ticket["summands"], used.clip)
        integers = code.encode(vector)
        raw: bytes = ticket["public"]
        if ("ring", raw) not in party.cache:
            party.cache["ring", raw] = PublicKey.from_bytes(raw)
        key = party.cache["ring", raw]
        running = key.encrypt(integers, Packing(used.bits, code.guard_bits))
        if "incoming" in ticket:
            channel = sealing_key(party, ticket["previous"], ticket["previous_exchange"])
            where = _hop(party, ticket, ticket["previous"], party.id)
            running = add_blobs(key, unseal(channel, ticket["incoming"].data, where), running)
        if "next" in ticket:
            channel = sealing_key(party, ticket["next"], ticket["next_exchange"])
            sealed = seal(channel, running, _hop(party, ticket, party.id, ticket["next"]))
            return Message(hop=Blob("sealed", sealed))
        least = used.min_contributions(agreed_minimum(party))
        if (found := read_header(key, running).summands) < least:
            raise OpeningError(
                f"running sum of {found} contributions, agreed were at least {least}: "
                f"{party.id} does not hand it to the server"
            )
        return Message(cipher=Blob("cipher", running))

    def _take_turn(self, ticket: Mapping[str, Any]) -> None:
        """Take part once per lap: a lap that passes a client twice counts it as two."""
        turn = (ticket["sum"], ticket["lap"])
        if turn <= self.party.state.get("turn", (0, 0)):
            raise OpeningError(f"{self.party.id} took its turn in lap {turn[1]} of sum {turn[0]} already")
        self.party.state["turn"] = turn


def _hop(party: Party, ticket: Mapping[str, Any], sender: str, receiver: str) -> bytes:
    return place(run_of(party), ticket["sum"], f"hop, lap {ticket['lap']}", sender, receiver)
