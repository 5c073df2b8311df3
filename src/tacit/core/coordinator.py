"""The coordinator's half of every method: one round can be read here from top to bottom.

A method's ``train`` never sees where totals open. If that is at the coordinator, ``round`` applies the total
here, and the shared values ride on the next ask. If it is at the clients, the protected total joins a log
that rides on the next ask: each client opens it, and applies it to its own replica.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.core.client import layout_of, open_entry, view_of
from tacit.core.differencing import ROWS, subjects_of
from tacit.core.enrolment import Enrolment
from tacit.core.errors import DifferencingError, FederationError, OversizeError
from tacit.core.events import Noted, RoundEnded, TotalOpened
from tacit.core.fields import NAMES, check_fields, strip_prefix
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.marks import find_marked
from tacit.core.message import DEFAULT_LIMIT, Message
from tacit.core.pending_sum import PendingSum
from tacit.core.shared import Shared, Total
from tacit.core.snapshot import Snapshot, make_checkpoint, take_checkpoint
from tacit.core.text import abbreviate

LEAST = 0.6  # of the bytes promised for a value: a sum of few vectors, or few values, takes less


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: the digest of the agreed replica, and the values where they may be seen."""

    digest: str
    shared: Shared | None
    holders: tuple[str, ...]


class Coordinator:
    """The coordinator at work on one run; ``link`` leads to its parties."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.manifest = link.manifest  # what the federation has agreed on
        self.components = link.components  # method, protection and preparation of the run
        self.events = link.events  # where to tell what happens
        self.failures = link.transport.failures  # parties that failed, with the last reason
        self.ask = link.ask  # for one step of the method
        self.rng = link.manifest.rng  # public randomness of this run
        self.protection = link.components.protection.at_coordinator(link)  # what it does here
        self.sums = 0  # begun so far
        self.progress: Mapping[str, Any] = {}  # what the method counts, after its last complete round
        self.keep: Callable[[Snapshot], None] | None = None  # told what the run can go on from after a round
        self.progress_at: dict[int, Mapping[str, Any]] = {}  # log entries -> how far the method was by then
        self.repeats = 0  # rounds that clients compute once more, since the run was stopped
        self.begun = 0  # sums before that
        self.learnt_before = 0  # totals that the clients had opened before that
        self.replica_was_read = False  # by the experimenter, for a checkpoint
        self.reserved = 0  # sums that come after a method's own
        self._enrolment = Enrolment(link, self.protection)
        self.enrol = self._enrolment.enrol  # agrees on manifest and schema with every party
        self.late, self.admit = self._enrolment.late, self._enrolment.admit  # parties that come later

    @property
    def parties(self) -> tuple[str, ...]:
        """Clients that take part, in party order."""
        return self.link.parties

    @parties.setter
    def parties(self, names: tuple[str, ...]) -> None:
        self.link.parties = names

    @property
    def schema(self) -> Any:
        """The agreed schema; None before enrolment has ended."""
        return self.link.schema

    @property
    def shared(self) -> Shared | None:
        """Shared values; None where totals open at the clients."""
        return self.link.briefing.shared

    @shared.setter
    def shared(self, values: Shared) -> None:
        self.link.briefing.shared = values

    def round(
        self,
        contribution: Callable[..., Any],
        apply: Callable[..., Shared],
        parties: Sequence[str] | None = None,
        state: str = "",
    ) -> tuple[str, ...]:
        """Sum a contribution over the parties (all, if left out) and apply the total, wherever it opens.

        ``contribution`` and ``apply`` are bound functions of the method or the preparation. ``state`` names
        the shared values that the contribution follows from, if a method goes back to earlier ones: what is
        computed again must not open over a few clients less. Returns who contributed.
        """
        pending, entry = self._form_total(contribution, parties, state)
        if self.shared is not None and self.protection.leader:
            self.shared = self._lead(pending, {**entry, "apply": apply.__name__}, self.shared)
        elif self.shared is not None:
            self.shared = apply(self._open(pending, entry), self.shared)
        else:
            entry["apply"] = apply.__name__
            self.link.briefing.log.append(Message(entry).encode())
            self._record_opening(pending)
        return tuple(pending.contributors)

    def reveal(self, contribution: Callable[..., Any], parties: Sequence[str] | None = None) -> Total:
        """Sum a contribution whose total is meant for the coordinator: counts, histograms, scores."""
        name = contribution.__name__
        part = getattr(self.components, self.link.kind_of(contribution))
        if not find_marked(part, name, "contribution")[1].revealed:
            raise TypeError(f"{name} is not marked revealed=True: clients do not hand over its totals")
        if any(field.columns for field in layout_of(part, name, self.schema).fields):
            raise TypeError(f"{name} may be multiplied unopened: no proof covers its total")
        pending, entry = self._form_total(contribution, parties)
        leader = self.protection.leader
        if self.shared is not None and not leader:
            return self._open(pending, entry)
        # One client opens the aggregate and returns it rounded; if it cannot, another one does.
        for chosen in (leader,) if leader else tuple(pending.contributors):
            # A wave is read to its end, or it would not be told of.
            wave = self.link.wave("client.disclose_total", (chosen,), entry, failures=pending.failures)
            for reply in list(wave):
                total = {name: value for name, value in reply.message.items() if name[0] != "$"}
                if reason := pending.layout.flaw(total):
                    pending.refuse(chosen, reason)
                    continue
                self._record_opening(pending)
                return Total(total, len(pending.contributors))
        self.link.transport.check_quorum("disclosure", pending.contributors, (), pending.failures)
        raise AssertionError("a quorum is never nobody")

    def begin_sum(
        self,
        contribution: Callable[..., Any],
        parties: Sequence[str] | None = None,
        state: str = "",
        **more: Any,
    ) -> PendingSum:
        """Return a new sum, for a protection to gather; ``more`` as :class:`PendingSum` takes it."""
        self.sums += 1
        self.link.opened_totals.count_announced()
        kind, name = self.link.kind_of(contribution), contribution.__name__
        part = getattr(self.components, kind)
        layout, family = layout_of(part, name, self.schema), find_marked(part, name, "contribution")[1].family
        asked = self.parties if parties is None else tuple(parties)
        self._check_length(name, layout, len(asked))
        # What is contributed follows from the shared values: same values, same contribution.
        state = state or (str(self.learnt) if self.shared is None else self.shared.digest())
        subjects = subjects_of(family, name, state)
        return PendingSum(self.link, self.sums, kind, name, layout, asked, subjects, **more)

    def _check_length(self, name: str, layout: Layout, clients: int) -> None:
        """Refuse a contribution that is longer than a message may be, before anybody computes it."""
        protection, promises = self.components.protection, self.components.protection.promises
        least = promises.bytes_per_value * (1.0 if protection.shows_contributions else LEAST)
        length = layout.size * least * (clients - 1 if promises.per_client else 1)
        if length > DEFAULT_LIMIT and (protection.shows_contributions or layout.largest_whole is None):
            raise OversizeError(
                f"'{name}' has {layout.size:,} values, {length:,.0f} bytes or more under {protection.name}, "
                f"and the limit of a message is {DEFAULT_LIMIT:,}: use fewer columns, classes or units"
            )

    @property
    def learnt(self) -> int:
        """Return how many totals the clients have learnt from, where totals open there."""
        return self.learnt_before + len(self.link.briefing.log)

    def _form_total(
        self, contribution: Callable[..., Any], parties: Sequence[str] | None, state: str = ""
    ) -> tuple[PendingSum, dict[str, Any]]:
        """Return a gathered sum with the fields of its total; in a second or third attempt if need be.

        A total that lacks a few clients of an earlier one never opens. So they are asked once more, and if
        they do not answer, so many others are left out that the difference hides them all; small cells
        of those that stay are counted anew.
        """
        pending = self.begin_sum(contribution, parties, state)
        try:
            return pending, self.gather(pending)
        except DifferencingError as refusal:
            totals, least = self.link.opened_totals, self.link.min_contributions
            can_open = totals.opens(pending.subjects, pending.parties, least)
            # Noise was sized for so many sums: a further attempt would be one more.
            if not can_open or self.protection.left() is not None:
                raise
            missing = [name for name in pending.parties if name not in refusal.contributors]
            text = f"without {abbreviate(missing)} the total must not open: asked once more"
            self.events.emit(Noted("differencing", f"{pending.contribution}: {text}", "warning"))
        again = self.begin_sum(contribution, pending.parties, state)
        try:
            return again, self.gather(again)
        except DifferencingError as refusal:
            kept = again.choose_others(refusal.contributors)
            if kept is None:
                raise
            absent = [name for name in again.parties if name not in kept]
            text = f"{abbreviate(absent)} are left out, so that the total hides who is missing"
            self.events.emit(Noted("differencing", f"{again.contribution}: {text}", "warning"))
        if again.subjects == ROWS and not self.link.opened_totals.is_counted(kept):
            self.components.preparation.count_cells(self, kept, continued=True)
        last = self.begin_sum(contribution, kept, state)
        return last, self.gather(last)

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        """Have a sum gathered, and return the fields of its protected total."""
        return pending.finish(self.protection.gather(pending), self.protection)

    def _open(self, pending: PendingSum, entry: Mapping[str, Any]) -> Total:
        total = open_entry(self.components.protection, self.protection, pending.layout, entry)
        self._record_opening(pending)
        return total

    def _lead(self, pending: PendingSum, entry: Mapping[str, Any], before: Shared) -> Shared:
        leader = self.protection.leader
        wave = self.link.wave("client.lead_total", (leader,), entry, failures=pending.failures)
        for reply in list(wave):
            check_fields(reply.message, {"released": NAMES})
            known = before | strip_prefix("shared/", reply.message)
            names = set(reply.message["released"].decode().split("\n"))
            self._record_opening(pending)
            return Shared(self.schema, {name: value for name, value in known.items() if name in names})
        reason = pending.failures.get(leader, "it does not answer")
        raise FederationError(
            f"totals open at the leader {leader} alone, and it fails: {reason}. Run again: another is drawn"
        )

    def _record_opening(self, pending: PendingSum) -> None:
        contributors, place = len(pending.contributors), str(self.components.protection.opens)
        if self.protection.leader:
            place += f" {self.protection.leader}"
        self.link.transport.contributors = contributors
        self.link.opened_totals.add(pending.subjects, pending.contributors)
        self.events.emit(
            TotalOpened(pending.number, pending.contribution, place, contributors, pending.layout.size)
        )

    def complete_round(self, number: int, **more: Any) -> None:
        """Record that so many rounds are complete, and what else a method has to know to go on from here."""
        self.progress = {"round": number, **more}
        self.link.opened_totals.mark()
        if self.keep is not None and not self.protection.leader:  # which keeps what no other has
            with self.link.transport.uncounted():  # keeping is no work of the federation
                if (snapshot := take_checkpoint(self)) is not None:
                    self.keep(snapshot)
        self.events.emit(RoundEnded(number))

    def finish(self) -> Outcome:
        """Hand what was learnt to every party, and check that all replicas are the same."""
        own = view_of(self.components, self.shared).digest() if self.shared is not None else None
        digest, holders = self.link.compare_replicas("client.adopt_model", {}, own)
        self.protection.discard_unused_keys()
        return Outcome(digest, self.shared, holders)

    def peek(self) -> Shared:
        """Return the shared values as the experimenter sees them: ours, or one client's replica."""
        if self.shared is not None:
            return self.shared
        for reply in list(self.link.wave("client.show_model", self.parties[:1], {}, failures=self.failures)):
            self.events.emit(Noted("run", f"the experimenter read the model at {reply.party}", "warning"))
            shared = Shared(self.schema, strip_prefix("shared/", reply.message))
            if self.keep is not None and self.progress:
                self.keep(make_checkpoint(self, self.progress, shared))
            return shared
        raise FederationError(f"no replica can be read: {self.failures[self.parties[0]]}")
