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

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from tacit.core.authentic import ask_context, reply_context, tagged, untagged
from tacit.core.engine import Engine, Reply
from tacit.core.errors import ConfigError, FederationError, ProtectionError, QuorumError, TacitError
from tacit.core.events import Events, Noted, Replied, RunStarted, TotalOpened, WaveEnded, WaveStarted
from tacit.core.exposure import COORDINATOR, Exposure
from tacit.core.manifest import Manifest, Parts
from tacit.core.message import Message
from tacit.core.party import Vault, identity_of
from tacit.core.pending import PendingSum
from tacit.core.replica import initial, layout_of, opened, viewed, write_log
from tacit.core.secret import Secret
from tacit.core.shared import Shared, Total

Transcript = Callable[[str, str, str, bytes], None]  # receiver, sender, step, what was received


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
    secret : Secret, optional
        The coordinator's own, from which its signing key comes; protections with keys need it.
    pinned : callable, optional
        Gives the identity key that the coordinator has pinned for a party.
    transcript : callable, optional
        Told everything that anyone received: receiver, sender, step, bytes.
    """

    def __init__(
        self,
        engine: Engine,
        manifest: Manifest,
        parts: Parts,
        events: Events | None = None,
        *,
        timeout: float | None = None,
        secret: Secret | None = None,
        pinned: Callable[[str], bytes] | None = None,
        transcript: Transcript | None = None,
    ) -> None:
        self.engine = engine
        self.manifest = manifest
        self.parts = parts
        self.events = events or Events()
        self.timeout = timeout
        self.vault = Vault()
        self.memory: dict[str, Any] = {}
        self.directory: dict[str, bytes] = {}
        self._secret = secret
        self._pinned = pinned
        self._transcript = transcript
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
        self._asking = False
        self._contributors = 0
        self._services: set[str] = set()
        self._cpu_mark = time.thread_time()
        self._cpu_inline = 0.0

    def rng(self, *label: object) -> np.random.Generator:
        """Public randomness of this run."""
        return self.manifest.rng(*label)

    @property
    def identity(self) -> Secret:
        """The coordinator's signing key."""
        if self._secret is None:
            raise ConfigError(
                "this protection needs a coordinator with an identity: give the desk its secret"
            )
        return identity_of(self._secret)

    def pinned(self, name: str) -> bytes:
        """Identity key that the coordinator has pinned for a party."""
        if self._pinned is None:
            raise ConfigError("the coordinator has pinned no identities: give it the federation's roster")
        return self._pinned(name)

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
        greeting = self.parts.protection.greet(self)
        call = {
            "manifest": self.manifest.to_message().encode(),
            **{f"guard/{name}": value for name, value in greeting.items()},
        }
        self._enrol_services(call)
        agreement = self.parts.preparation.agreement(self.manifest.declared)
        enrolled = []
        for reply in self._wave("desk.enrol", asked, call, {}, failures=self.failures):
            try:
                message = self._welcomed(reply)
                agreement.add(reply.party, message)
            except TacitError as error:
                self.failures[reply.party] = f"{type(error).__name__}: {error}"
                self.events.emit(Noted(reply.party, f"enrolment refused: {error}", "warning"))
                continue
            enrolled.append(reply.party)
        self._check_quorum("enrolment", asked, enrolled, self.failures)
        self.schema = agreement.settle()
        self._schema_raw = self.schema.to_message().encode()
        self.parties = tuple(enrolled)
        if self._opens == "coordinator":
            self.shared = initial(self.parts, self.schema, self.manifest)

    def _enrol_services(self, call: Mapping[str, Any]) -> None:
        for service in self.parts.protection.services:
            names = self.engine.parties(service)
            if not names:
                raise ConfigError(f"{self.parts.protection.name} needs a {service}: this engine has none")
            self._services.update(names)
            for reply in self._wave("desk.serve", names, call, {}, failures=self.failures):
                self._welcomed(reply)
            if odd := [name for name in names if name in self.failures]:
                raise FederationError(f"{odd[0]} cannot serve: {self.failures[odd[0]]}")

    def _welcomed(self, reply: Reply) -> Message:
        """An introduction, once it is known to be that party's own."""
        fields = {name[6:]: value for name, value in reply.message.items() if name.startswith("guard/")}
        self.parts.protection.welcome(self, reply.party, fields)
        return self._authentic(reply)

    def _authentic(self, reply: Reply) -> Message:
        """A reply's message without its tag; raises if there is a channel and the tag is not right."""
        channel = self.vault.get(f"channel/{reply.party}")
        if channel is None:
            return reply.message
        return untagged(reply.message, channel, *reply_context(self._serial, reply.party))

    def round(
        self,
        contribution: Callable[..., Any],
        apply: Callable[..., Shared],
        parties: Sequence[str] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> tuple[str, ...]:
        """Sum a contribution over the parties and apply the total, wherever it opens.

        Parameters
        ----------
        contribution, apply : bound functions of a part
        parties : sequence of str, optional
            Whom to ask; all that are enrolled, if left out.
        weights : mapping, optional
            Public weight of each party, by which it multiplies its vector before protection. A private
            weight is folded in by the contribution itself, and nobody learns it.

        Returns
        -------
        tuple of str
            Who contributed.
        """
        pending, entry = self._summed(contribution, parties, weights)
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
            # A wave is read to its end, or it would not be told of.
            for reply in list(self._wave("desk.disclose", (chosen,), entry, {}, failures=pending.failures)):
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
        for reply in list(self._wave("desk.hand_over", self.parties[:1], {}, {}, failures=self.failures)):
            self.events.emit(Noted("run", f"the experimenter read the model at {reply.party}", "warning"))
            values = {k[7:]: v for k, v in reply.message.items() if k.startswith("shared/")}
            return Shared(self.schema, values)
        raise FederationError(f"no replica can be read: {self.failures[self.parties[0]]}")

    # -- inside ------------------------------------------------------------------------------------

    def _kind(self, function: Callable[..., Any]) -> str:
        """Which part of the manifest a bound function belongs to."""
        owner = getattr(function, "__self__", None)
        for kind, part in self.parts._asdict().items():
            if owner is part or owner is getattr(part, "wrapped", part):  # noise wraps others
                return kind
        raise TypeError(f"{function!r} is not a function of this run's method, protection or preparation")

    def _summed(
        self,
        contribution: Callable[..., Any],
        parties: Sequence[str] | None,
        weights: Mapping[str, float] | None = None,
    ) -> tuple[PendingSum, dict[str, Any]]:
        self._sums += 1
        kind = self._kind(contribution)
        layout = layout_of(getattr(self.parts, kind), contribution.__name__, self.schema)
        asked = self.parties if parties is None else tuple(parties)
        chosen = {party: weights[party] for party in asked} if weights is not None else {}
        if not all(np.isfinite(weight) for weight in chosen.values()):
            raise ConfigError("a weight is NaN or infinite: weights are finite numbers")
        pending = PendingSum(self, self._sums, kind, contribution.__name__, layout, asked, chosen)
        pending.layout = layout.scaled(pending.largest_weight)
        return pending, pending.finished(self.parts.protection.gather(pending))

    def _opened(self, pending: PendingSum, entry: Mapping[str, Any]) -> Total:
        total = opened(self.parts, self, self.schema, entry)
        self._tell_opened(pending)
        return total

    def _tell_opened(self, pending: PendingSum) -> None:
        self._contributors = len(pending.contributors)
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
        if missed := self._log[known or 0 :]:
            news |= write_log((known or 0) + 1, missed)
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
        if self._asking:
            raise TypeError("a wave is still under way: read all its replies before the next ask")
        self._asking = True
        try:
            yield from self._asked(step, parties, call, jobs, failures, number)
        finally:
            self._asking = False

    def _asked(
        self,
        step: str,
        parties: Sequence[str],
        call: Mapping[str, Any],
        jobs: Mapping[str, Mapping[str, Any]],
        failures: dict[str, str],
        number: int | None,
    ) -> Iterator[Reply]:
        self._serial += 1
        self._waves += 1
        wave, started = self._waves, time.perf_counter()
        self.events.emit(WaveStarted(wave, step, len(parties), number))
        fields = {"$serial": self._serial, "$step": step, "$manifest": self.manifest.digest, **call}
        known: set[int | None] = set()
        if not self._services.issuperset(parties):  # a service is told nothing of what is learnt
            if self.shared is not None:
                view = viewed(self.parts, self.shared)
                fields.update({f"shared/{name}": value for name, value in view.items()})
            # Parties mostly know the same: then the news is encoded once, for all.
            known = {self._known.get(party) for party in parties}
            fields.update(self._news(parties[0]) if len(known) == 1 else {})
        raw = Message(fields).encode()
        digest = hashlib.sha256(raw).digest()
        exposure = Exposure(wave, step)
        if parties:
            exposure.asked(self._role(parties[0]), fields, len(parties))

        def job(party: str) -> bytes:
            own = {**jobs.get(party, {}), **(self._news(party) if len(known) > 1 else {})}
            exposure.asked(self._role(party), own)
            if self._transcript:
                self._transcript(party, COORDINATOR, step, raw + Message(own).encode())
            channel = self.vault.get(f"channel/{party}")
            if channel is not None:
                return tagged(Message(own), channel, *ask_context(self._serial, party, digest)).encode()
            return Message(own).encode() if own else b""

        good, awaited = 0, set(parties)
        for reply in self.engine.ask(raw, ((party, job(party)) for party in parties), self.timeout):
            if reply.party not in awaited:  # counted twice, a contribution would weigh double
                self.events.emit(Noted(reply.party, "a reply that nobody waits for: ignored", "warning"))
                continue
            awaited.discard(reply.party)
            failure = self._failure(reply, step)
            self._account(wave, reply, failure)
            if failure is not None:
                failures[reply.party] = self.failures[reply.party] = failure
                continue
            good += 1
            if self.schema is not None:
                self._known[reply.party] = len(self._log)
            exposure.replied(reply.party, reply.message, reply.party in self._services)
            yield reply
        for party in (party for party in parties if party in awaited):
            failures[party] = self.failures[party] = "StepError: no reply came"
        now = time.thread_time()
        cpu = max(0.0, now - self._cpu_mark - self._cpu_inline)
        self._cpu_mark, self._cpu_inline = now, 0.0
        elapsed = time.perf_counter() - started
        exposure.tell(self.events, self._contributors)
        self.events.emit(WaveEnded(wave, good, len(parties) - good, cpu, elapsed))

    def _role(self, party: str) -> str:
        return party if party in self._services else "client"

    def _failure(self, reply: Reply, step: str) -> str | None:
        """Why a reply cannot be used, if so."""
        if self._transcript:
            self._transcript(COORDINATOR, reply.party, step, reply.message.encode())
        if step not in ("desk.enrol", "desk.serve"):
            try:
                self._authentic(reply)
            except ProtectionError as error:
                if reply.failure is None:
                    return f"ProtectionError: {error}"
                # An engine's own word (a lost reply, a time-out) has no tag; neither has a stranger's.
                return f"{reply.failure} (unconfirmed: it is not tagged)" if reply.message else reply.failure
        return reply.failure

    def _account(self, wave: int, reply: Reply, failure: str | None) -> None:
        if reply.inline:
            self._cpu_inline += reply.cpu_s
        service = reply.party in self._services
        self.events.emit(
            Replied(wave, reply.party, reply.bytes_down, reply.bytes_up, reply.cpu_s, failure, service)
        )
        if failure is not None:
            return
        for text, level in reply.message.get("$notes", ()):
            self.events.emit(Noted(reply.party, text, level))

    def _check_quorum(
        self, what: str, asked: Sequence[str], good: Sequence[str], failures: Mapping[str, str]
    ) -> None:
        needed = max(1, ceil(self.manifest.quorum * len(asked) - 1e-9))
        if len(good) >= needed:
            return
        groups: dict[str, list[str]] = {}
        for party, reason in failures.items():
            groups.setdefault(reason.replace(party, "it"), []).append(party)
        told = "; ".join(f"{_some(parties)}: {reason}" for reason, parties in list(groups.items())[:5])
        more = f"; and {len(groups) - 5} more reasons" if len(groups) > 5 else ""
        raise QuorumError(
            f"{what}: {len(good)} of {len(asked)} clients contributed, the quorum is {needed}. "
            f"Failed: {told}{more}. Mend these clients, or lower the quorum"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
