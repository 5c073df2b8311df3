"""The plain sum: nothing is hidden. The yardstick that every protection is measured against."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit.core.fields import VECTOR, Kind
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.pending_sum import PendingSum
from tacit.core.promises import Place, Promises
from tacit.core.protection import Protection, Vector
from tacit.protections.keys import authenticated
from tacit.protections.keys.authenticated import AuthenticatedClient, AuthenticatedCoordinator

ABSURD = 1e150  # no honest value is larger, and its square would overflow
NO_PROOF = "nothing: clients share no key, and open what they are handed"


@dataclass(frozen=True)
class Plain(Protection):
    """No protection: the coordinator sees every contribution.

    Parameters
    ----------
    opens : {"coordinator", "clients"}
        Where the total is applied. With "clients" the coordinator only adds and relays: every
        client holds its own replica of the model.
    """

    name = "plain"
    incremental: ClassVar[bool] = True
    shows_contributions: ClassVar[bool] = True
    field_names: ClassVar[Mapping[str, str]] = authenticated.FIELD_NAMES
    field_kinds: ClassVar[Mapping[str, Kind]] = {**authenticated.FIELD_KINDS, "vector": VECTOR}

    opens: Place = "coordinator"

    @property
    def promises(self) -> Promises:
        return Promises(
            opens=self.opens,
            keys={},
            sees={
                "coordinator": "every client's contribution, in the clear",
                "client": "the total, and what is made of it",
                "outsider": "nothing, if the engine's connections are encrypted",
            },
            collusion="none is needed: the coordinator alone sees all contributions",
            dropout="the sum goes on without the client, down to the quorum",
            precision=0.0,
            bytes_per_value=8.0,
            single=True,
            warnings=("plain: the coordinator sees every client's contribution in the clear",),
            proof=NO_PROOF if self.opens == "clients" else "",
        )

    def at_coordinator(self, link: Link) -> "PlainCoordinator":
        return PlainCoordinator(link)

    def at_client(self, party: Party) -> "PlainClient":
        return PlainClient(party)


class PlainCoordinator(AuthenticatedCoordinator):
    """Adds vectors that it can read; asks are authenticated at deployed sites only."""

    def greet(self) -> dict[str, Any]:
        return super().greet() if self.link.authenticated else {}

    def welcome(self, party: str, fields: Mapping[str, Any]) -> None:
        if self.link.authenticated:
            super().welcome(party, fields)

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        """Add in party order, so that one seed gives one total with any number of workers."""
        total = np.zeros(pending.layout.size)
        for _, protected in self.accepted(pending, len(pending.parties)):
            total += protected["vector"]
        return {"vector": total}

    def accepted(self, pending: PendingSum, summands: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for party, message in pending.contributions():
            vector = message.get("vector")
            if not VECTOR[1](vector) or vector.shape != (pending.layout.size,):
                pending.refuse(party, f"no vector of {pending.layout.size} values")
            elif not (np.abs(vector) <= ABSURD).all():
                pending.refuse(party, f"NaN, infinite or absurd values (beyond {ABSURD:g})")
            elif reason := pending.layout.beyond(vector):
                pending.refuse(party, reason)
            else:
                yield party, {"vector": vector}

    def add(self, total: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
        return {"vector": more["vector"] if total is None else total["vector"] + more["vector"]}

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        return np.asarray(total["vector"])


class PlainClient(AuthenticatedClient):
    """Hides nothing."""

    def introduce(self, greeting: Mapping[str, Any]) -> dict[str, Any]:
        return super().introduce(greeting) if greeting else {}

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        return Message(vector=vector)

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        return np.asarray(total["vector"])
