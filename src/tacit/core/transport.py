"""Transport: how the coordinator asks. Every ask of every method and protection goes through here.

A wave asks some parties for one step. What all are asked is encoded once; each party's own part carries,
where there is a channel, a tag. Replies stream back in party order; what they cost, and what anyone could
see in them, is told as events.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from tacit.core.client import viewed, write_log
from tacit.core.differencing import OpenedTotals
from tacit.core.engine import Engine, Reply
from tacit.core.errors import ConfigError, ProtectionError, QuorumError
from tacit.core.events import Events, Noted, Replied, WaveEnded, WaveStarted
from tacit.core.exposure import COORDINATOR, Exposure
from tacit.core.manifest import Components, Manifest
from tacit.core.message import Message
from tacit.core.parallel import cpu_seconds
from tacit.core.party import Vault, identity_of
from tacit.core.secret import Secret
from tacit.core.shared import Shared
from tacit.core.tags import ask_context, reply_context, tagged, untagged

Transcript = Callable[[str, str, str, bytes], None]  # receiver, sender, step, what was received


class Transport:
    """The coordinator as an asker: engine, channels, serial numbers, accounts. See :class:`Coordinator`."""

    def __init__(
        self,
        engine: Engine,
        manifest: Manifest,
        components: Components,
        events: Events | None = None,
        *,
        timeout: float | None = None,
        secret: Secret | None = None,
        pinned: Callable[[str], bytes] | None = None,
        transcript: Transcript | None = None,
        standing: frozenset[str] = frozenset(),
    ) -> None:
        self.engine = engine
        self.manifest = manifest
        self.components = components
        self.events = events or Events()
        self.timeout = timeout
        self.vault = Vault()
        self.memory: dict[str, Any] = {}
        self.directory: dict[str, bytes] = {}
        self.openings = OpenedTotals()
        self._secret = secret
        self._pinned = pinned
        self._transcript = transcript
        self.standing = standing  # parties whose exchange keys all others have pinned
        self.parties: tuple[str, ...] = ()
        self.failures: dict[str, str] = {}
        self.progress: Mapping[str, Any] = {}  # of the method, after its last complete round
        self.schema: Any = None
        self.shared: Shared | None = None
        self._initial: Shared | None = None  # what the public seed gives, before anything is learnt
        self._opens = components.protection.opens
        self._schema_raw = b""
        self._log: list[bytes] = []
        self._marks: dict[int, Mapping[str, Any]] = {}  # log entries -> how far the method was by then
        self._known: dict[str, int] = {}  # party -> log entries it has; absent: not told the schema
        self._serial = 0
        self._sums = 0
        self._waves = 0
        self._asking = False
        self._contributors = 0
        self._services: set[str] = set()
        self._silent: Counter[str] = Counter()  # invitations that a party did not answer
        self._cpu_mark = cpu_seconds()
        self._cpu_inline = 0.0

    def rng(self, *label: object) -> np.random.Generator:
        """Public randomness of this run."""
        return self.manifest.rng(*label)

    @property
    def identity(self) -> Secret:
        """The coordinator's signing key."""
        if self._secret is None:
            raise ConfigError(
                "this protection needs a coordinator with an identity: give the coordinator its secret"
            )
        return identity_of(self._secret)

    def pinned(self, name: str) -> bytes:
        """Identity key that the coordinator has pinned for a party."""
        if self._pinned is None:
            raise ConfigError("the coordinator has pinned no identities: give it the federation's roster")
        return self._pinned(name)

    def _authentic(self, reply: Reply) -> Message:
        """A reply's message without its tag; raises if there is a channel and the tag is not right."""
        channel = self.vault.get(f"channel/{reply.party}")
        if channel is None:
            return reply.message
        return untagged(reply.message, channel, *reply_context(self._serial, reply.party))

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
        news: bool = True,
    ) -> Iterator[Reply]:
        """Ask, stream the good replies, record the others; every wave of every method is this one."""
        if self._asking:
            raise TypeError("a wave is still under way: read all its replies before the next ask")
        self._asking = True
        try:
            yield from self._asked(step, parties, call, jobs, failures, number, news)
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
        news: bool,
    ) -> Iterator[Reply]:
        self._serial += 1
        self._waves += 1
        wave, started = self._waves, time.perf_counter()
        self.events.emit(WaveStarted(wave, step, len(parties), number))
        fields = {"$serial": self._serial, "$step": step, "$manifest": self.manifest.digest, **call}
        known: set[int | None] = set()
        # A service is told nothing of what is learnt, and a party nothing before it has enrolled.
        if news and step != "client.enrol" and not self._services.issuperset(parties):
            if self.shared is not None:
                view = viewed(self.components, self.shared)
                fields.update({f"shared/{name}": value for name, value in view.items()})
            # Parties mostly know the same: then the news is encoded once, for all.
            known = {self._known.get(party) for party in parties}
            fields.update(self._news(parties[0]) if len(known) == 1 else {})
        raw = Message(fields).encode()
        digest = hashlib.sha256(raw).digest()
        starting = self.shared is not None and self.shared is self._initial
        exposure = Exposure(wave, step, self.components.protection, starting=starting)
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
            if step == "client.enrol":
                self._silent[reply.party] = 0 if reply.message else self._silent[reply.party] + 1
            if failure is not None:
                failures[reply.party] = self.failures[reply.party] = failure
                continue
            good += 1
            if news and self.schema is not None and step != "client.enrol":
                self._known[reply.party] = len(self._log)
            exposure.replied(reply.party, reply.message, reply.party in self._services)
            yield reply
        for party in (party for party in parties if party in awaited):
            failures[party] = self.failures[party] = "StepError: no reply came"
        now = cpu_seconds()
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
        if step not in ("client.enrol", "client.enrol_service"):
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
        told = "; ".join(f"{some(parties)}: {reason}" for reason, parties in list(groups.items())[:5])
        more = f"; and {len(groups) - 5} more reasons" if len(groups) > 5 else ""
        raise QuorumError(
            f"{what}: {len(good)} of {len(asked)} clients contributed, the quorum is {needed}. "
            f"Failed: {told}{more}. Mend these clients, or lower the quorum"
        )


def some(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
