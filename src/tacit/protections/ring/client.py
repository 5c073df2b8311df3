"""What the ring does at a client: it adds to the running sum, and hands over its total if it began it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tacit.core.client import agreed_minimum
from tacit.core.errors import OpeningError, ProtectionError
from tacit.core.layout import Layout
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.numbers import MOST_SUMMANDS, read_integer
from tacit.core.party import Party
from tacit.core.protection import Vector
from tacit.core.values import Blob
from tacit.crypto.channel import place, seal, unseal
from tacit.crypto.fixedpoint import FixedPoint
from tacit.protections.keys.authenticated import AuthenticatedClient, manifest_digest_of, sealing_key

if TYPE_CHECKING:
    from tacit.protections.ring import Ring


class Lap(NamedTuple):
    """One time that a sum goes around."""

    sum: int
    number: int
    closer: str  # who begins it and hands over its total

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Lap:
        """Read what an ask says of its lap."""
        return cls(read_integer(fields, "sum", 1), read_integer(fields, "lap", 1), fields["closer"])

    def hop(self, run: str, sender: str, receiver: str) -> bytes:
        """Return where a sealed running sum belongs."""
        return place(run, self.sum, f"hop, lap {self.number}, closed by {self.closer}", sender, receiver)


class RingClient(AuthenticatedClient):
    """A client of the ring: adds its vector to what the one before it sent."""

    def __init__(self, settings: Ring, party: Party) -> None:
        super().__init__(party)
        self._settings = settings

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Add one's own to the running sum, and seal it for the next."""
        from tacit.crypto.paillier import Packing, PublicKey, add_blobs, blind

        party, used = self.party, self._settings
        lap = self._take_turn(ticket)
        party.state["next"] = ticket["next"]
        summands = read_integer(ticket, "summands", 1, MOST_SUMMANDS)
        code = FixedPoint.of(layout, used.bits, summands, used.clip)
        key = PublicKey.from_bytes(ticket["public"])
        running = key.encrypt(code.encode(vector), Packing(used.bits, code.guard_bits))
        if "incoming" in ticket:
            running = add_blobs(key, self._incoming(ticket, lap), running)
        else:  # the next client could have the server decrypt it, while there is no other contribution in it
            running, party.vault["blinding"] = blind(key, running)
        channel = sealing_key(party, ticket["next"], ticket["next_exchange"])
        sealed = seal(channel, running, lap.hop(manifest_digest_of(party), party.id, ticket["next"]))
        return Message(hop=Blob("sealed", sealed))

    @step(replies="aggregate")
    def hand_over(self, message: Message) -> Message:
        """Hand the sum that came back to the server: as the closer, once."""
        from tacit.crypto.paillier import PublicKey, read_header, unblind

        party, lap = self.party, Lap.of(message)
        began = party.state.get("closer") == party.id == lap.closer
        if not began or (lap.sum, lap.number) != party.state["turn"]:
            raise OpeningError(f"{party.id} did not begin lap {lap.number} of sum {lap.sum}: it has no total")

        self._check_open(lap)
        key, running = PublicKey.from_bytes(message["public"]), self._incoming(message, lap)
        least = self._settings.min_contributions(agreed_minimum(party))
        if (found := read_header(key, running).summands) < least:
            raise OpeningError(
                f"running sum of {found} contributions, agreed were at least {least}: "
                f"{party.id} does not hand it to the server"
            )
        party.state["handed_over"] = lap.sum
        return Message(cipher=Blob("cipher", unblind(key, running, party.vault.pop("blinding"))))

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
        """Refuse another lap of a sum whose total was handed over."""
        if lap.sum <= self.party.state.get("handed_over", 0):
            raise OpeningError(
                f"{self.party.id} handed over the total of sum {lap.sum}, or of a later one: a second total "
                "over other clients would show those in between"
            )

    def _incoming(self, fields: Mapping[str, Any], lap: Lap) -> bytes:
        """Return the running sum that the client before sealed for this one."""
        party, before = self.party, fields["previous"]
        self._check_neighbours(before)
        channel = sealing_key(party, before, fields["previous_exchange"])
        return unseal(channel, fields["incoming"].data, lap.hop(manifest_digest_of(party), before, party.id))

    def _check_neighbours(self, before: str) -> None:
        """Refuse to stand between a client and itself: with the server it would see what is added."""
        own, least = self.party.id, self._settings.min_contributions(agreed_minimum(self.party))
        if before == self.party.state["next"] and least > 2:
            raise OpeningError(
                f"{own} was told that {before} is before and after it in the ring, in which at least {least} "
                "clients were agreed: it adds nothing"
            )
