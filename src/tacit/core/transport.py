"""How the coordinator asks parties: every ask of every method and protection goes through here.

A *wave* asks some parties for one step. What replies cost, and what anyone could see in them, are events.
"""

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from tacit.core.briefing import Briefing
from tacit.core.engine import Engine, Reply
from tacit.core.errors import DataError, DataQuorumError, ProtectionError, QuorumError
from tacit.core.events import Events, Noted, Replied, WaveEnded, WaveStarted
from tacit.core.exposure import COORDINATOR, Exposure
from tacit.core.manifest import Manifest
from tacit.core.message import Message
from tacit.core.parallel import cpu_seconds
from tacit.core.party import Vault
from tacit.core.protection import Protection
from tacit.core.tags import ask_context, reply_context, tagged, untagged
from tacit.core.text import abbreviate, foreign

# What each party alone is told; by a function if thousands of proofs need not be held at once.
Jobs = Mapping[str, Mapping[str, Any]] | Callable[[str], Mapping[str, Any]]
Transcript = Callable[[str, str, str, bytes], None]  # receiver, sender, step, what was received
ENROLMENT = ("client.enrol", "client.enrol_service")  # steps before there is a channel
MOST_NOTES = 20  # of one reply


@dataclass(eq=False, repr=False)
class Transport:
    """Serial numbers, tags, accounts, quorum and transcript of one run."""

    engine: Engine  # where the parties live
    manifest: Manifest
    protection: Protection  # of whose messages the exposure report tells
    events: Events
    transcript: Transcript | None = None  # told everything that anyone received
    channels: Vault = field(default_factory=Vault)  # party -> key of the tags between it and the coordinator
    services: set[str] = field(default_factory=set)  # parties without rows, such as a key server
    failures: dict[str, str] = field(default_factory=dict)  # party -> why it failed last
    unanswered: Counter[str] = field(default_factory=Counter)  # party -> invitations that it did not answer
    contributors: int = 0  # of the total that was formed last
    waves: int = 0
    serial: int = 0
    _asking: bool = False
    _cpu_mark: float = field(default_factory=cpu_seconds)
    _cpu_inline: float = 0.0

    def wave(
        self,
        step: str,
        parties: Sequence[str],
        call: Mapping[str, Any],
        jobs: Jobs | None = None,
        *,
        failures: dict[str, str],
        number: int | None = None,
        briefing: Briefing | None = None,
        aggregate: bool = False,
    ) -> Iterator[Reply]:
        """Ask parties for a step, stream the good replies and record the others in ``failures``.

        ``step`` is an address such as ``client.contribute``; ``call`` is what all are asked, ``jobs`` what
        each alone is told, ``number`` that of the sum, ``briefing`` what parties have to be told before.
        """
        with self._alone():
            self.serial += 1
            self.waves += 1
            wave, started = self.waves, time.perf_counter()
            self.events.emit(WaveStarted(wave, step, len(parties), number))
            # A service is told nothing of what is learnt.
            if self.services.issuperset(parties):
                briefing = None
            fields = {"$serial": self.serial, "$step": step, "$manifest": self.manifest.digest, **call}
            told_to_all, told_to_one = briefing.write(parties, step) if briefing else ({}, lambda party: {})
            fields.update(told_to_all)
            raw = Message(fields).encode()
            starting = briefing is not None and bool(briefing.shared) and briefing.shared is briefing.initial
            exposure = Exposure(wave, step, self.protection, starting=starting, aggregate=aggregate)
            if parties:
                exposure.asked(parties[0] if parties[0] in self.services else "client", fields, len(parties))
            write_job, own = self._job_writer(step, raw, exposure), find_job(jobs)

            def job(party: str) -> tuple[str, bytes]:
                return party, write_job(party, {**own(party), **told_to_one(party)})

            good, awaited = 0, set(parties)
            for reply in self.engine.ask(raw, map(job, parties)):
                if reply.party not in awaited:  # counted twice, a contribution would weigh double
                    self.events.emit(Noted(reply.party, "a reply that nobody waits for: ignored", "warning"))
                    continue
                awaited.discard(reply.party)
                reason = self._reason(reply, step)
                failure = None if reason is None else foreign(reason)
                self._account(wave, reply, failure, exposure)
                if step in ENROLMENT:
                    self.unanswered[reply.party] = 0 if reply.message else self.unanswered[reply.party] + 1
                if failure is not None:
                    failures[reply.party] = self.failures[reply.party] = failure
                    continue
                good += 1
                if briefing is not None:
                    briefing.told(reply.party)
                yield reply
            for party in (party for party in parties if party in awaited):
                failures[party] = self.failures[party] = "StepError: no reply came"
            exposure.tell(self.events, self.contributors)
            elapsed = time.perf_counter() - started
            self.events.emit(WaveEnded(wave, good, len(parties) - good, self._own_cpu(), elapsed))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._asking:
            raise TypeError("a wave is still under way: read all its replies before the next ask")
        self._asking = True
        try:
            yield
        finally:
            self._asking = False

    def _job_writer(
        self, step: str, raw: bytes, exposure: Exposure
    ) -> Callable[[str, Mapping[str, Any]], bytes]:
        digest = hashlib.sha256(raw).digest()

        def write(party: str, own: Mapping[str, Any]) -> bytes:
            exposure.asked(party if party in self.services else "client", own, party=party)
            if self.transcript:
                self.transcript(party, COORDINATOR, step, raw + Message(own).encode())
            channel = self.channels.get(party)
            if channel is not None:
                return tagged(Message(own), channel, *ask_context(self.serial, party, digest)).encode()
            return Message(own).encode() if own else b""

        return write

    def _own_cpu(self) -> float:
        now = cpu_seconds()
        spent = max(0.0, now - self._cpu_mark - self._cpu_inline)
        self._cpu_mark, self._cpu_inline = now, 0.0
        return spent

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Leave the CPU time of the block out of the account."""
        pending = cpu_seconds() - self._cpu_mark
        try:
            yield
        finally:
            self._cpu_mark = cpu_seconds() - pending

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Emit no events within the block: it is no traffic of the federation."""
        told, self.events = self.events, Events()
        try:
            yield
        finally:
            self.events = told

    def authentic(self, reply: Reply) -> Message:
        """Return a reply's message without its tag; raise if there is a channel and the tag is wrong."""
        channel = self.channels.get(reply.party)
        if channel is None:
            return reply.message
        return untagged(reply.message, channel, *reply_context(self.serial, reply.party))

    def _reason(self, reply: Reply, step: str) -> str | None:
        if self.transcript:
            self.transcript(COORDINATOR, reply.party, step, reply.message.encode())
        if step not in ENROLMENT:
            try:
                self.authentic(reply)
            except ProtectionError as error:
                if reply.failure is None:
                    return f"ProtectionError: {error}"
                # An engine's own word (a lost reply, a time-out) has no tag; neither has a stranger's.
                return f"{reply.failure} (unconfirmed: it is not tagged)" if reply.message else reply.failure
        return reply.failure

    def _account(self, wave: int, reply: Reply, failure: str | None, exposure: Exposure) -> None:
        if reply.inline:
            self._cpu_inline += reply.cpu_s
        service, cost = reply.party in self.services, (reply.bytes_down, reply.bytes_up, reply.cpu_s)
        down = exposure.hidden[""] + exposure.hidden.pop(reply.party, 0)
        up = 0 if failure else exposure.replied(reply.party, reply.message, service)
        self.events.emit(Replied(wave, reply.party, *cost, failure, service, down, up))
        if failure is not None:
            return
        for text, level in reply.message.get("$notes", ())[:MOST_NOTES]:
            self.events.emit(Noted(reply.party, foreign(text), "info" if level == "info" else "warning"))

    def quorum_of(self, asked: int) -> int:
        """Return how many of so many parties have to answer well."""
        return max(1, ceil(self.manifest.quorum * asked - 1e-9))

    def check_quorum(
        self, what: str, asked: Sequence[str], good: Sequence[str], failures: Mapping[str, str]
    ) -> None:
        """Stop the run if too few of the asked parties have answered well."""
        if len(good) >= (needed := self.quorum_of(len(asked))):
            return
        groups: dict[str, list[str]] = {}
        for party, reason in failures.items():
            own_name = rf"(^|[:,] ){re.escape(party)}(?=[: ])"  # not where a name is a word like others
            groups.setdefault(re.sub(own_name, r"\1it", reason), []).append(party)
        # A name may be a word of the text as well: what a single party said stays as it is.
        told = "; ".join(
            f"{abbreviate(parties)}: {reason if len(parties) > 1 else failures[parties[0]]}"
            for reason, parties in list(groups.items())[:5]
        )
        more = f"; and {len(groups) - 5} more reasons" if len(groups) > 5 else ""
        kinds = {"DataError", *(kind.__name__ for kind in DataError.__subclasses__())}
        of_data = bool(failures) and kinds.issuperset(text.partition(":")[0] for text in failures.values())
        raise (DataQuorumError if of_data else QuorumError)(
            f"{what}: {len(good)} of {len(asked)} clients contributed, the quorum is {needed}. "
            f"Failed: {told}{more}. Mend these clients{', or lower the quorum' * bool(good)}"
        )


def find_job(jobs: Jobs | None) -> Callable[[str], Mapping[str, Any]]:
    """Return a function that gives the fields of a party's job: none if there is no job for it."""
    return jobs if callable(jobs) else lambda party: (jobs or {}).get(party, {})
