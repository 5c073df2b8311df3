"""A sum under way, as the coordinator and its protection see it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tacit.core.differencing import ROWS, Subjects
from tacit.core.errors import OpeningError
from tacit.core.events import Noted
from tacit.core.fields import add_prefix
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.message import Message
from tacit.core.protection import CoordinatorHalf
from tacit.core.transport import Jobs, find_job

# Folding visible pieces many at a time is what makes merging thousands of factors cheap.
FOLD_BATCH = 32


@dataclass
class PendingSum:
    """Asks for contributions, folds what is visible, and remembers who took part."""

    link: Link
    number: int  # of the sum in its run
    component: str  # whose contribution is summed: "method" or "preparation"
    contribution: str  # its name
    layout: Layout
    parties: tuple[str, ...]  # who is asked
    subjects: Subjects = ROWS  # with which other totals this one is compared before it opens
    step: str = "client.contribute"  # what parties are asked for
    jobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what each party alone is told
    # Told who contributed before the total opens; raises if it must not.
    before_opening: Callable[[Sequence[str]], None] | None = None
    told: Mapping[str, Any] = field(default_factory=dict)  # what else rides on every ask for a contribution
    contributors: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)  # failed in a step of the protection; some matter
    _pieces: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.layout.clear and self.component != "method":
            raise TypeError(
                f"{self.contribution}: only a method says how clear fields are checked and folded"
            )

    def contributions(
        self,
        tickets: Jobs | None = None,
        common: Mapping[str, Any] | None = None,
        parties: Sequence[str] | None = None,
    ) -> Iterator[tuple[str, Message]]:
        """Ask for contributions, and yield them in party order, unless refused before the next is taken."""
        call = {"component": self.component, "contribution": self.contribution, "sum": self.number}
        call |= add_prefix("ticket/", {**(common or {}), **self.told})
        asked, given = self.parties if parties is None else tuple(parties), find_job(tickets)

        def job(party: str) -> Mapping[str, Any]:
            return {**add_prefix("ticket/", given(party)), **self.jobs.get(party, {})}

        wave = self.link.wave(self.step, asked, call, job, failures=self.failures, number=self.number)
        for reply in wave:
            if reason := self._flaw(reply.message):
                self.refuse(reply.party, reason)
                continue
            yield reply.party, reply.message
            if reply.party not in self.failures:
                self.contributors.append(reply.party)
                self._fold(reply.message)

    @property
    def ask(self) -> Callable[..., Iterator[tuple[str, Message]]]:
        """Asks as :meth:`Link.ask` does; who fails is recorded, and the protection judges."""
        return partial(self.link.ask, failures=self.lost)

    def restart(self) -> None:
        """Begin again without those that failed; nobody computes a contribution twice."""
        self.contributors.clear()
        self._pieces.clear()

    def refuse(self, party: str, reason: str) -> None:
        """Record that what this party sent cannot be used; the sum goes on without it."""
        self.failures[party] = reason
        self.link.record_failure(party, reason)
        self.link.events.emit(Noted(party, f"contribution refused: {reason}", "warning"))

    def check(self, parties: Sequence[str] | None = None) -> None:
        """Refuse to go on if too few have contributed; asked before anything is opened.

        With ``parties``, those that are left and might contribute, it is a check only; without, the total is
        about to open, and whoever keeps a record is told.
        """
        found = self.contributors if parties is None else parties
        link = self.link
        link.transport.check_quorum(self.contribution, self.parties, found, self.failures)
        least = link.min_contributions
        if len(found) < least:
            raise OpeningError(
                f"{self.contribution}: {len(found)} contributions, no total over fewer than "
                f"{least} is opened: wait for more clients"
            )
        link.opened_totals.check(self.contribution, self.subjects, found, least)
        link.transport.contributors = len(found)
        if parties is not None:
            return
        if self.before_opening is not None:
            self.before_opening(found)
        # If the process ends now, nobody knows whether it has opened.
        new = link.opened_totals.announce(self.subjects, found)
        if new and link.before_opening is not None:
            link.before_opening(found)

    def choose_others(self, contributors: frozenset[str]) -> tuple[str, ...] | None:
        """Return clients over whom the total may open, though not over all of these; None if too few stay."""
        link, least = self.link, self.link.min_contributions
        fewest, rng = link.transport.quorum_of(len(self.parties)), link.manifest.rng("left out", self.number)
        kept = link.opened_totals.choose(self.subjects, contributors, least, fewest, rng)
        return None if kept is None else tuple(name for name in self.parties if name in kept)

    def finish(self, protected: Mapping[str, Any], protection: CoordinatorHalf) -> dict[str, Any]:
        """Return the fields of the protected total, once enough parties have contributed."""
        self.check()
        folded = {clear.name: self._folded(clear.name) for clear in self.layout.clear}
        method = self.link.components.method
        for remark in method.remarks(folded) if folded else ():
            self.link.events.emit(Noted(self.contribution, remark, "warning"))
        product = None
        if any(field.columns for field in self.layout.fields):
            product = protection.multiply(self, protected, partial(method.operator, folded))
        return {
            "component": self.component,
            "contribution": self.contribution,
            "contributors": len(self.contributors),
            **self._claim(),
            **add_prefix("total/", product or protected),
            # What was clear went into the matrix: whoever opens the product needs it no more.
            **(add_prefix("clear/", folded) if product is None else {}),
        }

    def _claim(self) -> dict[str, Any]:
        protection = self.link.components.protection
        if protection.opens == "coordinator":
            return {}
        names = self.link.briefing.roll.mark(self.contributors) if protection.proves(self.layout) else None
        return {"sum": self.number} if names is None else {"sum": self.number, "in_total": names}

    def _flaw(self, message: Message) -> str | None:
        for clear in self.layout.clear:
            value = message.get(f"clear/{clear.name}")
            if flaw := clear.flaw(value):
                return flaw
            method, schema = self.link.components.method, self.link.schema
            if flaw := method.flaw(clear.name, value, schema):
                return f"'{clear.name}' {flaw}"
        return None

    def _fold(self, message: Message) -> None:
        for clear in self.layout.clear:
            pieces = self._pieces.setdefault(clear.name, [])
            pieces.append(message[f"clear/{clear.name}"])
            if len(pieces) > FOLD_BATCH:
                pieces[:] = [self._folded(clear.name)]

    def _folded(self, name: str) -> Any:
        return self.link.components.method.fold(name, self._pieces[name])
