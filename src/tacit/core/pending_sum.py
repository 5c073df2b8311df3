"""A sum under way, as the coordinator sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tacit.core.errors import OpeningError
from tacit.core.events import Noted, Relayed
from tacit.core.layout import Layout
from tacit.core.message import Message

if TYPE_CHECKING:
    from tacit.core.coordinator import Coordinator

# Folding visible pieces many at a time is what makes merging thousands of factors cheap.
FOLD_BATCH = 32


@dataclass
class PendingSum:
    """Asks for contributions, folds what is visible, remembers who took part."""

    coordinator: Coordinator
    number: int
    part: str
    contribution: str
    layout: Layout
    parties: tuple[str, ...]
    weights: Mapping[str, float] = field(default_factory=dict)
    state: object = None  # which shared values are contributed from
    step: str = "client.contribute"
    more: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # for each party's own ask
    contributors: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    _pieces: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def largest_weight(self) -> float:
        """Largest public weight: contributions may exceed their bounds by that factor."""
        return max((abs(weight) for weight in self.weights.values()), default=1.0)

    @property
    def memory(self) -> dict[str, Any]:
        """What the protection keeps at the coordinator during the run; never a secret."""
        return self.coordinator.memory

    @property
    def directory(self) -> Mapping[str, bytes]:
        """Signed exchange keys of the parties."""
        return self.coordinator.directory

    def contributions(
        self,
        tickets: Mapping[str, Mapping[str, Any]] | None = None,
        common: Mapping[str, Any] | None = None,
        parties: Sequence[str] | None = None,
    ) -> Iterator[tuple[str, Message]]:
        """Ask for contributions, each with its ticket, and give them in party order as they come."""
        call: dict[str, Any] = {"part": self.part, "contribution": self.contribution, "sum": self.number}
        call |= {f"ticket/{name}": value for name, value in (common or {}).items()}
        jobs: dict[str, dict[str, Any]] = {
            party: {f"ticket/{name}": value for name, value in ticket.items()}
            for party, ticket in (tickets or {}).items()
        }
        for party, own in self.more.items():
            jobs.setdefault(party, {}).update(own)
        if self.weights:
            call["largest_weight"] = self.largest_weight
            for party, weight in self.weights.items():
                jobs.setdefault(party, {})["weight"] = float(weight)
        asked = self.parties if parties is None else tuple(parties)
        wave = self.coordinator._wave(
            self.step, asked, call, jobs, failures=self.failures, number=self.number
        )
        for reply in wave:
            if reason := self._flaw(reply.message):
                self.refuse(reply.party, reason)
                continue
            yield reply.party, reply.message
            if reply.party not in self.failures:
                self.contributors.append(reply.party)
                self._fold(reply.message)

    def ask(
        self,
        step: Callable[..., Any],
        common: Mapping[str, Any] | None = None,
        jobs: Mapping[str, Mapping[str, Any]] | None = None,
        parties: Sequence[str] | None = None,
    ) -> Iterator[tuple[str, Message]]:
        """Ask parties for a step of the protection; who fails is recorded, and how many may is its affair."""
        asked = tuple(parties if parties is not None else jobs or self.parties)
        return self.coordinator.ask(step, common, jobs, asked, self.lost)

    def serve(self, step: Callable[..., Any], service: str, fields: Mapping[str, Any]) -> Message:
        """Ask a service for one step of the protection."""
        return dict(self.coordinator.ask(step, fields, parties=[service]))[service]

    def relayed(self, sender: str, receiver: str, size: int) -> None:
        """Tell that a sealed message from one party rides on the next ask to another."""
        self.coordinator.events.emit(Relayed(self.coordinator._waves + 1, sender, receiver, size))

    def restart(self) -> None:
        """Begin again without those that failed; nobody computes a contribution twice."""
        self.contributors.clear()
        self._pieces.clear()

    def refuse(self, party: str, reason: str) -> None:
        """Record that what this party sent cannot be used; the sum goes on without it."""
        self.failures[party] = self.coordinator.failures[party] = reason
        self.coordinator.events.emit(Noted(party, f"contribution refused: {reason}", "warning"))

    def _flaw(self, message: Message) -> str | None:
        """What is wrong with the visible fields of a contribution, if anything is."""
        for clear in self.layout.clear:
            value = message.get(f"clear/{clear.name}")
            if flaw := clear.flaw(value):
                return flaw
            if flaw := self._part().flaw(clear.name, value, self.coordinator.schema):
                return f"'{clear.name}' {flaw}"
        return None

    def _part(self) -> Any:
        return getattr(self.coordinator.components, self.part)

    def _fold(self, message: Message) -> None:
        for clear in self.layout.clear:
            pieces = self._pieces.setdefault(clear.name, [])
            pieces.append(message[f"clear/{clear.name}"])
            if len(pieces) > FOLD_BATCH:
                pieces[:] = [self._folded(clear.name)]

    def _folded(self, name: str) -> Any:
        return self._part().fold(name, self._pieces[name])

    def check(self, parties: Sequence[str] | None = None) -> None:
        """Refuse to go on if too few have contributed (or are left); asked before anything is opened."""
        found = self.contributors if parties is None else parties
        self.coordinator._check_quorum(self.contribution, self.parties, found, self.failures)
        least = self.coordinator.components.protection.min_contributions(
            self.coordinator.manifest.min_clients
        )
        if len(found) < least:
            raise OpeningError(
                f"{self.contribution}: {len(found)} contributions, no total over fewer than "
                f"{least} is opened: wait for more clients"
            )
        self.coordinator.openings.check(self.contribution, self.state, found, least)
        self.coordinator._contributors = len(found)

    def finished(self, protected: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of the protected total, once enough parties have contributed."""
        self.check()
        folded = {clear.name: self._folded(clear.name) for clear in self.layout.clear}
        for remark in self._part().remarks(folded) if folded else ():
            self.coordinator.events.emit(Noted(self.contribution, remark, "warning"))
        mapped = self._mapped(protected, folded)
        return {
            "part": self.part,
            "contribution": self.contribution,
            "contributors": len(self.contributors),
            **({"largest_weight": self.largest_weight} if self.weights else {}),
            **{f"total/{name}": value for name, value in (mapped or protected).items()},
            # What was clear went into the matrix: whoever opens the product needs it no more.
            **({f"clear/{name}": value for name, value in folded.items()} if mapped is None else {}),
        }

    def _mapped(self, protected: Mapping[str, Any], folded: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The total times the method's matrix, if method and protection know how to multiply unopened."""
        if not any(field.columns for field in self.layout.fields):
            return None
        operator = partial(self._part().operator, folded)
        found: Mapping[str, Any] | None = self.coordinator.components.protection.map(
            self, protected, operator
        )
        return found
