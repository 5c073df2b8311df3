"""The desk: where the coordinator's half of every method is written.

A method's ``train(desk)`` reads like its paper::

    desk.round(self.moments, self.scale)
    desk.round(self.gram, self.solve)

and never sees where totals open. If that is at the coordinator, ``round`` opens the total and applies
it here, and the shared values ride on the next ask. If it is at the clients, the protected total joins
a log that rides on the next ask: there each client opens it, applies it to its own replica and
contributes to the next sum in one wave, and the coordinator never sees a model.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np

from tacit.core.engine import Engine, Reply
from tacit.core.errors import FederationError, OpeningError, QuorumError
from tacit.core.events import Events, Noted, Replied, RunStarted, TotalOpened, WaveEnded, WaveStarted
from tacit.core.layout import Layout
from tacit.core.manifest import Manifest, Parts
from tacit.core.message import Message
from tacit.core.party import Vault
from tacit.core.replica import initial, layout_of, opened, viewed
from tacit.core.shared import Shared, Total

# Folding visible pieces many at a time is what makes merging thousands of factors cheap.
FOLD_BATCH = 32


@dataclass
class PendingSum:
    """A sum under way: asks for contributions, folds what is visible, remembers who took part."""

    desk: Desk
    number: int
    part: str
    contribution: str
    layout: Layout
    parties: tuple[str, ...]
    contributors: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    _pieces: dict[str, list[Any]] = field(default_factory=dict)

    def contributions(
        self, tickets: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Iterator[tuple[str, Message]]:
        """Ask for contributions, each with its ticket, and give them in party order as they come."""
        call = {"part": self.part, "contribution": self.contribution, "sum": self.number}
        jobs = {
            party: {f"ticket/{name}": value for name, value in ticket.items()}
            for party, ticket in (tickets or {}).items()
        }
        wave = self.desk._wave(
            "desk.contribute", self.parties, call, jobs, failures=self.failures, number=self.number
        )
        for reply in wave:
            if reason := self._flaw(reply.message):
                self.refuse(reply.party, reason)
                continue
            yield reply.party, reply.message
            if reply.party not in self.failures:
                self.contributors.append(reply.party)
                self._fold(reply.message)

    def refuse(self, party: str, reason: str) -> None:
        """Record that what this party sent cannot be used; the sum goes on without it."""
        self.failures[party] = self.desk.failures[party] = reason
        self.desk.events.emit(Noted(party, f"contribution refused: {reason}", "warning"))

    def _flaw(self, message: Message) -> str | None:
        """What is wrong with the visible fields of a contribution, if anything is."""
        for clear in self.layout.clear:
            value = message.get(f"clear/{clear.name}")
            if flaw := clear.flaw(value):
                return flaw
            if flaw := self._part().flaw(clear.name, value, self.desk.schema):
                return f"'{clear.name}' {flaw}"
        return None

    def _part(self) -> Any:
        return getattr(self.desk.parts, self.part)

    def _fold(self, message: Message) -> None:
        for clear in self.layout.clear:
            pieces = self._pieces.setdefault(clear.name, [])
            pieces.append(message[f"clear/{clear.name}"])
            if len(pieces) > FOLD_BATCH:
                pieces[:] = [self._folded(clear.name)]

    def _folded(self, name: str) -> Any:
        return self._part().fold(name, self._pieces[name])

    def finished(self, protected: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of the protected total, once enough parties have contributed."""
        self.desk._check_quorum(self.contribution, self.parties, self.contributors, self.failures)
        if len(self.contributors) < self.desk.manifest.min_clients:
            raise OpeningError(
                f"{self.contribution}: {len(self.contributors)} contributions, no total over fewer than "
                f"{self.desk.manifest.min_clients} is opened: wait for more clients"
            )
        return {
            "part": self.part,
            "contribution": self.contribution,
            "contributors": len(self.contributors),
            **{f"total/{name}": value for name, value in protected.items()},
            **{f"clear/{clear.name}": self._folded(clear.name) for clear in self.layout.clear},
        }


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: the digest of the agreed replica, and the values where they may be seen."""

    digest: str
    shared: Shared | None
    holders: tuple[str, ...]


class Desk:
    """The coordinator at work on one run.

    Parameters
    ----------
    engine : Engine
        Where the parties live.
    manifest : Manifest
    parts : Parts
        The parts that the manifest names, built here.
    events : Events
    timeout : float, optional
        Seconds a party may take for a step.
    """

    def __init__(
        self,
        engine: Engine,
        manifest: Manifest,
        parts: Parts,
        events: Events | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        self.engine = engine
        self.manifest = manifest
        self.parts = parts
        self.events = events or Events()
        self.timeout = timeout
        self.vault = Vault()
        self.parties: tuple[str, ...] = ()
        self.failures: dict[str, str] = {}
        self.schema: Any = None
        self.shared: Shared | None = None
        self._opens = parts.protection.opens
        self._schema_raw = b""
        self._log: list[bytes] = []
        self._known: dict[str, int] = {}  # party -> log entries it has; absent: not told the schema
        self._serial = 0
        self._sums = 0
        self._waves = 0
        self._cpu_mark = time.thread_time()
        self._cpu_inline = 0.0

    def rng(self, *label: object) -> np.random.Generator:
        """Public randomness of this run."""
        return self.manifest.rng(*label)

    def enrol(self) -> None:
        """Agree on manifest and schema with every party."""
        asked = tuple(self.engine.parties())
        names = {kind: part["name"] for kind, part in self.manifest.parts.items()}
        self.events.emit(
            RunStarted(
                self.manifest.run,
                self.manifest.digest,
                names["method"],
                names["protection"],
                self._opens,
                len(asked),
                self.manifest.seed,
            )
        )
        for warning in self.parts.protection.promises.warnings:
            self.events.emit(Noted("protection", warning, "warning"))
        agreement = self.parts.preparation.agreement(self.manifest.declared)
        enrolled = []
        call = {"manifest": self.manifest.to_message().encode()}
        for reply in self._wave("desk.enrol", asked, call, {}, failures=self.failures):
            agreement.add(reply.party, reply.message)
            enrolled.append(reply.party)
        self._check_quorum("enrolment", asked, enrolled, self.failures)
        self.schema = agreement.settle()
        self._schema_raw = self.schema.to_message().encode()
        self.parties = tuple(enrolled)
        if self._opens == "coordinator":
            self.shared = initial(self.parts, self.schema, self.manifest)

    def round(
        self,
        contribution: Callable[..., Any],
        apply: Callable[..., Shared],
        parties: Sequence[str] | None = None,
    ) -> tuple[str, ...]:
        """Sum a contribution over the parties and apply the total, wherever it opens.

        Returns
        -------
        tuple of str
            Who contributed.
        """
        pending, entry = self._summed(contribution, parties)
        if self._opens == "coordinator":
            assert self.shared is not None
            self.shared = apply(self._opened(pending, entry), self.shared)
        else:
            entry["apply"] = apply.__name__
            self._log.append(Message(entry).encode())
            self._tell_opened(pending)
        return tuple(pending.contributors)

    def reveal(self, contribution: Callable[..., Any], parties: Sequence[str] | None = None) -> Total:
        """Sum a contribution whose total is meant for the coordinator: counts, histograms, scores."""
        pending, entry = self._summed(contribution, parties)
        if self._opens == "coordinator":
            return self._opened(pending, entry)
        # One client opens the aggregate and returns it rounded; if it cannot, another one does.
        for chosen in tuple(pending.contributors):
            for reply in self._wave("desk.disclose", (chosen,), entry, {}, failures=pending.failures):
                total = {name: value for name, value in reply.message.items() if name[0] != "$"}
                if reason := pending.layout.flaw(total):
                    pending.refuse(chosen, reason)
                    continue
                self._tell_opened(pending)
                return Total(total, len(pending.contributors))
        self._check_quorum("disclosure", pending.contributors, (), pending.failures)
        raise AssertionError("a quorum is never nobody")

    def ask(
        self,
        step: Callable[..., Any],
        common: Mapping[str, Any] | None = None,
        jobs: Mapping[str, Mapping[str, Any]] | None = None,
        parties: Sequence[str] | None = None,
    ) -> Iterator[tuple[str, Message]]:
        """Ask parties for one step of a part, and give their replies in party order as they come."""
        asked = tuple(parties if parties is not None else jobs or self.parties)
        failures: dict[str, str] = {}
        answered = []
        address = f"{self._kind(step)}.{step.__name__}"
        for reply in self._wave(address, asked, common or {}, jobs or {}, failures=failures):
            answered.append(reply.party)
            yield reply.party, reply.message
        self._check_quorum(step.__name__, asked, answered, failures)

    def finish(self) -> Outcome:
        """Hand what was learnt to every party, and check that all replicas are the same."""
        failures: dict[str, str] = {}
        digests = {
            reply.party: str(reply.message.get("digest"))
            for reply in self._wave("desk.adopt", self.parties, {}, {}, failures=failures)
        }
        self._check_quorum("adoption", self.parties, list(digests), failures)
        own = viewed(self.parts, self.shared).digest() if self.shared is not None else None
        expected = own or Counter(digests.values()).most_common(1)[0][0]
        if odd := [party for party, digest in digests.items() if digest != expected]:
            raise FederationError(
                f"{len(odd)} of {len(digests)} replicas differ from the rest ({_some(odd)}): "
                "they were told something else; the run is void"
            )
        return Outcome(expected, self.shared, tuple(digests))

    def peek(self) -> Shared:
        """Shared values as the experimenter sees them: ours, or one client's replica."""
        if self.shared is not None:
            return self.shared
        for reply in self._wave("desk.hand_over", self.parties[:1], {}, {}, failures=self.failures):
            self.events.emit(Noted("run", f"the experimenter read the model at {reply.party}", "warning"))
            values = {k[7:]: v for k, v in reply.message.items() if k.startswith("shared/")}
            return Shared(self.schema, values)
        raise FederationError(f"no replica can be read: {self.failures[self.parties[0]]}")

    # -- inside ------------------------------------------------------------------------------------

    def _kind(self, function: Callable[..., Any]) -> str:
        """Which part of the manifest a bound function belongs to."""
        owner = getattr(function, "__self__", None)
        for kind, part in self.parts._asdict().items():
            if owner is part:
                return kind
        raise TypeError(f"{function!r} is not a function of this run's method, protection or preparation")

    def _summed(
        self, contribution: Callable[..., Any], parties: Sequence[str] | None
    ) -> tuple[PendingSum, dict[str, Any]]:
        self._sums += 1
        kind = self._kind(contribution)
        layout = layout_of(getattr(self.parts, kind), contribution.__name__, self.schema)
        asked = self.parties if parties is None else tuple(parties)
        pending = PendingSum(self, self._sums, kind, contribution.__name__, layout, asked)
        return pending, pending.finished(self.parts.protection.gather(pending))

    def _opened(self, pending: PendingSum, entry: Mapping[str, Any]) -> Total:
        total = opened(self.parts, self.vault, self.schema, entry)
        self._tell_opened(pending)
        return total

    def _tell_opened(self, pending: PendingSum) -> None:
        self.events.emit(
            TotalOpened(
                pending.number,
                pending.contribution,
                self._opens,
                len(pending.contributors),
                pending.layout.size,
            )
        )

    def _news(self, party: str) -> dict[str, Any]:
        """What this party has to be told before it can take a step."""
        news: dict[str, Any] = {}
        known = self._known.get(party)
        if known is None:
            if self.schema is None:
                return news
            news["schema"] = self._schema_raw
        if self._opens == "coordinator":
            return news
        for number in range((known or 0) + 1, len(self._log) + 1):
            news[f"log/{number}"] = self._log[number - 1]
        return news

    def _wave(
        self,
        step: str,
        parties: Sequence[str],
        call: Mapping[str, Any],
        jobs: Mapping[str, Mapping[str, Any]],
        *,
        failures: dict[str, str],
        number: int | None = None,
    ) -> Iterator[Reply]:
        """Ask, stream the good replies, record the others; every wave of every method is this one."""
        self._serial += 1
        self._waves += 1
        wave, started = self._waves, time.perf_counter()
        self.events.emit(WaveStarted(wave, step, len(parties), number))
        fields = {"$serial": self._serial, "$step": step, "$manifest": self.manifest.digest, **call}
        if self.shared is not None:
            view = viewed(self.parts, self.shared)
            fields.update({f"shared/{name}": value for name, value in view.items()})
        # Parties mostly know the same: then the news is encoded once, for all.
        known = {self._known.get(party) for party in parties}
        common = self._news(parties[0]) if len(known) == 1 else {}
        raw = Message({**fields, **common}).encode()

        def job(party: str) -> bytes:
            own = {**jobs.get(party, {}), **(self._news(party) if len(known) > 1 else {})}
            return Message(own).encode() if own else b""

        good = 0
        for reply in self.engine.ask(raw, ((party, job(party)) for party in parties), self.timeout):
            self._account(wave, reply)
            if reply.failure is not None:
                failures[reply.party] = self.failures[reply.party] = reply.failure
                continue
            good += 1
            if self.schema is not None:
                self._known[reply.party] = len(self._log)
            yield reply
        now = time.thread_time()
        cpu = max(0.0, now - self._cpu_mark - self._cpu_inline)
        self._cpu_mark, self._cpu_inline = now, 0.0
        elapsed = time.perf_counter() - started
        self.events.emit(WaveEnded(wave, good, len(parties) - good, cpu, elapsed))

    def _account(self, wave: int, reply: Reply) -> None:
        if reply.inline:
            self._cpu_inline += reply.cpu_s
        self.events.emit(
            Replied(wave, reply.party, reply.bytes_down, reply.bytes_up, reply.cpu_s, reply.failure)
        )
        for text, level in reply.message.get("$notes", ()):
            self.events.emit(Noted(reply.party, text, level))

    def _check_quorum(
        self, what: str, asked: Sequence[str], good: Sequence[str], failures: Mapping[str, str]
    ) -> None:
        needed = max(1, ceil(self.manifest.quorum * len(asked) - 1e-9))
        if len(good) >= needed:
            return
        reasons = "; ".join(f"{party}: {reason}" for party, reason in list(failures.items())[:5])
        more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
        raise QuorumError(
            f"{what}: {len(good)} of {len(asked)} clients contributed, the quorum is {needed}. "
            f"Failed: {reasons}{more}. Mend these clients, or lower the quorum"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
