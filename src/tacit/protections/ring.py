"""The ring: a running encrypted sum that goes from client to client, and opens at the server.

docs/ring.md has the published protocol, and why two things differ: the client that begins the ring,
the *closer*, gets the sum back and hands it over, and blinds what it begins with until then. If a client
vanishes, the sum starts again without it; nobody computes a contribution twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from tacit.core.client import check_opening, manifest_of
from tacit.core.errors import OpeningError, ProtectionError, QuorumError
from tacit.core.fields import BLOB, BYTES, INTEGER, MOST_SUMMANDS, TEXT, Kind, read_integer
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.pending_sum import PendingSum
from tacit.core.promises import Place, Promises
from tacit.core.protection import Protection, Vector
from tacit.core.values import Blob
from tacit.crypto import paillier
from tacit.crypto.channel import place, seal, unseal
from tacit.crypto.fixedpoint import FixedPoint
from tacit.protections.keys import authenticated as channels
from tacit.protections.keys.authenticated import cipher_of, manifest_digest_of, sealing_key
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
    opens: ClassVar[Place] = "coordinator"  # which is the protocol's server
    restarts: ClassVar[bool] = True
    authenticated: ClassVar[bool] = True
    field_names: ClassVar[Mapping[str, str]] = {
        **channels.FIELD_NAMES,
        **dict.fromkeys(("next_exchange", "previous_exchange"), "signed exchange keys"),
        **dict.fromkeys(("hop", "incoming"), "running sum"),
        "public": "public key",
    }
    field_kinds: ClassVar[Mapping[str, Kind]] = {
        **channels.FIELD_KINDS,
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
        text = f"ring: a sum goes from client to client, {clients + 1:,} waves one after the other"
        return (f"{text}; paillier takes one",) if clients > LONG_RING else ()

    def at_coordinator(self, link: Link) -> "RingCoordinator":
        return RingCoordinator(self, link)

    def at_client(self, party: Party) -> "RingClient":
        return RingClient(self, party)


class RingCoordinator(channels.AuthenticatedCoordinator):
    """The protocol's server: holds the secret key, and relays what it cannot read."""

    def __init__(self, settings: Ring, link: Link) -> None:
        super().__init__(link)
        self._settings, self.public = settings, b""  # the public key

    def prepare(self, sums: int) -> None:
        private = paillier.make_keys(self._settings.key_bits)
        self.link.vault["paillier"] = private.to_secret()
        self.public = private.public.to_bytes()

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        lap, closer, heard_of = 0, "", False
        while True:
            lap += 1
            ring = [party for party in pending.parties if party not in pending.failures]
            pending.check(ring)  # no lap whose total could not be opened; names those that failed
            pending.restart()
            if heard_of and closer != ring[0]:
                raise self._lost(pending, closer)
            closer = ring[0]
            common = {"public": self.public, "summands": len(pending.parties), "lap": lap, "closer": closer}
            if (last := self._send_around(pending, ring, common)) is not None:
                total = Blob("cipher", self._hand_over(pending, ring, common, last))
                return {"cipher": total, "summands": len(pending.parties)}
            # If not even the closer answered, nobody else was told who it is.
            heard_of = heard_of or closer not in pending.failures

    def _send_around(self, pending: PendingSum, ring: list[str], common: Mapping[str, Any]) -> Blob | None:
        """Go around once; return what the last client sealed for the first, or None if one vanished."""
        incoming: Blob | None = None
        for position, party in enumerate(ring):
            after = ring[(position + 1) % len(ring)]
            ticket = self._ticket(ring[position - 1], incoming)
            ticket |= {"next": after, "next_exchange": self.directory[after]}
            reply = dict(pending.contributions({party: ticket}, common, [party])).get(party)
            if reply is None:
                return None
            incoming = reply.get("hop")
            if not isinstance(incoming, Blob) or incoming.kind != "sealed":
                pending.refuse(party, "no sealed hop where one was agreed")
                return None
            self.link.record_relay(party, after, len(incoming.data))
        return incoming

    def _ticket(self, before: str, incoming: Blob | None) -> dict[str, Any]:
        if incoming is None:
            return {}
        exchange = self.directory[before]
        return {"incoming": incoming, "previous": before, "previous_exchange": exchange}

    def _hand_over(
        self, pending: PendingSum, ring: list[str], common: Mapping[str, Any], last: Blob
    ) -> bytes:
        """Have the closer hand over the total; what is none is as if the closer had vanished."""
        closer = ring[0]
        fields = {**common, "sum": pending.number, **self._ticket(ring[-1], last)}
        for reply in dict(pending.ask(RingClient.hand_over, fields, parties=[closer])).values():
            try:
                blob = cipher_of(reply)
                found = paillier.read_header(paillier.PublicKey.from_bytes(self.public), blob).summands
                if found == len(ring):
                    return blob
                reason = f"a total of {found} contributions after {len(ring)} hops"
            except ProtectionError as error:
                reason = str(error)
            pending.refuse(closer, reason)
        raise self._lost(pending, closer)

    def _lost(self, pending: PendingSum, closer: str) -> QuorumError:
        reason = pending.failures.get(closer) or pending.lost.get(closer, "it vanished")
        return QuorumError(
            f"{pending.contribution}: {closer} began the ring and did not hand over its total ({reason}). "
            "Nobody else may, or there could be two of them: run again without it"
        )

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        used, private = self._settings, paillier.PrivateKey.from_secret(self.link.vault["paillier"])
        code = FixedPoint.of(layout, used.bits, total["summands"], used.clip)
        return code.decode(private.decrypt(cipher_of(total)))


class Lap(NamedTuple):
    """One time that a sum goes around."""

    sum: int
    number: int
    closer: str  # who begins it and hands over its total

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Lap":
        """Read what an ask says of its lap."""
        return cls(read_integer(fields, "sum", 1), read_integer(fields, "lap", 1), fields["closer"])

    def hop(self, run: str, sender: str, receiver: str) -> bytes:
        """Return where a sealed running sum belongs."""
        return place(run, self.sum, f"hop, lap {self.number}, closed by {self.closer}", sender, receiver)


class RingClient(channels.AuthenticatedClient):
    """A client of the ring: adds its vector to what the one before it sent."""

    def __init__(self, settings: Ring, party: Party) -> None:
        super().__init__(party)
        self._settings = settings

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        party, used, lap = self.party, self._settings, self._take_turn(ticket)
        party.state["next"] = ticket["next"]
        code = FixedPoint.of(layout, used.bits, read_integer(ticket, "summands", 1, MOST_SUMMANDS), used.clip)
        key = paillier.PublicKey.from_bytes(ticket["public"])
        running = key.encrypt(code.encode(vector), paillier.Packing(used.bits, code.guard_bits))
        if "incoming" in ticket:
            running = paillier.add_blobs(key, self._incoming(ticket, lap), running)
        else:  # the next client could have the server decrypt it, while there is no other contribution in it
            running, party.vault["blinding"] = paillier.blind(key, running)
        channel = sealing_key(party, ticket["next"], ticket["next_exchange"])
        sealed = seal(channel, running, lap.hop(manifest_digest_of(party), party.id, ticket["next"]))
        return Message(hop=Blob("sealed", sealed))

    @step(replies="aggregate")
    def hand_over(self, message: Message) -> Message:
        """Hand the sum that came back to the server: as the closer, once."""
        party, lap = self.party, Lap.of(message)
        began = party.state.get("closer") == party.id == lap.closer
        if not began or (lap.sum, lap.number) != party.state["turn"]:
            raise OpeningError(f"{party.id} did not begin lap {lap.number} of sum {lap.sum}: it has no total")
        self._check_open(lap)
        key, running = paillier.PublicKey.from_bytes(message["public"]), self._incoming(message, lap)
        check_opening(party, self._settings, paillier.read_header(key, running).summands)
        party.state["handed_over"] = lap.sum
        return Message(cipher=Blob("cipher", paillier.unblind(key, running, party.vault.pop("blinding"))))

    def _take_turn(self, ticket: Mapping[str, Any]) -> Lap:
        """Take part once per lap: a lap that passes a client twice counts it as two."""
        state, own, lap = self.party.state, self.party.id, Lap.of(ticket)
        self._check_open(lap)
        last_sum, last_lap = state.get("turn", (0, 0))
        if (lap.sum, lap.number) <= (last_sum, last_lap):
            raise OpeningError(f"{own} took its turn in lap {lap.number} of sum {lap.sum} already")
        if lap.sum == last_sum and lap.closer != state["closer"]:
            raise OpeningError(
                f"{own} was told that {state['closer']} hands over the total of sum {lap.sum}, and now that "
                f"{lap.closer} does: two totals over other clients would show those in between"
            )
        if (own == lap.closer) == ("incoming" in ticket):
            raise ProtectionError(f"{own} was told to begin the ring of {lap.closer}: only its closer does")
        state.update({"turn": (lap.sum, lap.number), "closer": lap.closer})
        return lap

    def _check_open(self, lap: Lap) -> None:
        if lap.sum <= self.party.state.get("handed_over", 0):
            raise OpeningError(
                f"{self.party.id} handed over the total of sum {lap.sum}, or of a later one: a second total "
                "over other clients would show those in between"
            )

    def _incoming(self, fields: Mapping[str, Any], lap: Lap) -> bytes:
        party, before = self.party, fields["previous"]
        self._check_neighbours(before)
        channel = sealing_key(party, before, fields["previous_exchange"])
        return unseal(channel, fields["incoming"].data, lap.hop(manifest_digest_of(party), before, party.id))

    def _check_neighbours(self, before: str) -> None:
        """Refuse to stand between a client and itself: with the server it would see what is added."""
        own, least = self.party.id, self._settings.min_contributions(manifest_of(self.party).min_clients)
        if before == self.party.state["next"] and least > 2:
            raise OpeningError(
                f"{own} was told that {before} is before and after it in the ring, in which at least {least} "
                "clients were agreed: it adds nothing"
            )
