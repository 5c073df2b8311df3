"""The coordinator: where the coordinator's half of every method is written.

A method's ``train(coordinator)`` reads like its paper::

    coordinator.round(self.moments, self.scale)
    coordinator.round(self.gram, self.solve)

and never sees where totals open. If that is at the coordinator, ``round`` opens the total and applies
it here, and the shared values ride on the next ask. If it is at the clients, the protected total joins
a log that rides on the next ask: there each client opens it, applies it to its own replica and
contributes to the next sum in one wave, and the coordinator never sees a model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.client import initial, layout_of, opened, under, viewed
from tacit.core.engine import Reply
from tacit.core.errors import ConfigError, FederationError, SchemaError, TacitError
from tacit.core.events import Noted, RunStarted, TotalOpened
from tacit.core.kept import Kept, last_point, point
from tacit.core.message import Message
from tacit.core.parallel import cpu_seconds
from tacit.core.pending_sum import PendingSum
from tacit.core.shared import Shared, Total
from tacit.core.transport import Transcript, Transport, some

__all__ = ["Coordinator", "Outcome", "Transcript"]

MOST_INVITATIONS = 5  # to a party that could be asked and does not answer


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: the digest of the agreed replica, and the values where they may be seen."""

    digest: str
    shared: Shared | None
    holders: tuple[str, ...]


class Coordinator(Transport):
    """The coordinator at work on one run.

    Parameters
    ----------
    engine : Engine
        Where the parties live.
    manifest : Manifest
    components : Components
        The components that the manifest names, built here.
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

    # Told what a run can go on from when a method has completed a round; set by whoever keeps checkpoints.
    keep: Callable[[Kept], None] | None = None
    repeats = 0  # rounds that clients compute once more, since the run was stopped
    begun = 0  # sums before that
    read = False  # whether the experimenter has read a replica
    reserved = 0  # sums that come after a method's own

    def enrol(self) -> None:
        """Agree on manifest and schema with every party."""
        asked = tuple(self.engine.parties())
        names = {kind: part["name"] for kind, part in self.manifest.components.items()}
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
        for warning in self.components.protection.promises.warnings:
            self.events.emit(Noted("protection", warning, "warning"))
        call = self._invitation()
        self._enrol_services(call)
        agreement = self.components.preparation.agreement(self.manifest.declared)
        enrolled = self._introduced(asked, call, agreement)
        self._check_quorum("enrolment", asked, enrolled, self.failures)
        self.schema = agreement.settle()
        self._schema_raw = self.schema.to_message().encode()
        self.parties = tuple(enrolled)
        if self._opens == "coordinator":
            self.shared = self._initial = initial(self.components, self.schema, self.manifest)

    def late(self) -> tuple[str, ...]:
        """Parties that did not answer when all were invited, and could be asked now.

        Where clients open totals, one that comes late has to open all there were; of a run that was taken
        up again not all are there.
        """
        if len(self.parties) == len(self.engine.parties()):
            return ()
        if self._opens == "clients" and self.manifest.attempt:
            return ()
        there, tries = set(self.engine.present()), self._silent
        return tuple(n for n in self.engine.parties() if n in there and 0 < tries[n] <= MOST_INVITATIONS)

    def admit(self, names: Sequence[str], agreement: Any) -> tuple[str, ...]:
        """Enrol parties that come later, under the schema that was agreed; gives those that could be.

        ``agreement`` has that schema's vocabulary declared.
        """
        agreement.hold(self.schema)
        admitted = tuple(self._introduced(names, self._invitation(), agreement))
        if admitted:
            if agreement.settle() != self.schema:
                raise SchemaError(f"{some(admitted)}: other columns or targets than the federation agreed on")
            self.components.protection.admit(self, admitted)
            self.parties += admitted
        return admitted

    def _invitation(self) -> dict[str, Any]:
        greeting = self.components.protection.greet(self)
        return {
            "manifest": self.manifest.to_message().encode(),
            **{f"guard/{name}": value for name, value in greeting.items()},
        }

    def _introduced(self, asked: Sequence[str], call: Mapping[str, Any], agreement: Any) -> list[str]:
        """Those that introduced themselves properly."""
        enrolled = []
        for reply in self._wave("client.enrol", asked, call, {}, failures=self.failures):
            try:
                message = self._welcomed(reply)
                agreement.add(reply.party, message)
            except TacitError as error:
                self.failures[reply.party] = f"{type(error).__name__}: {error}"
                self.events.emit(Noted(reply.party, f"enrolment refused: {error}", "warning"))
                continue
            enrolled.append(reply.party)
        return enrolled

    def _enrol_services(self, call: Mapping[str, Any]) -> None:
        for service in self.components.protection.services:
            names = self.engine.parties(service)
            if not names:
                raise ConfigError(
                    f"{self.components.protection.name} needs a {service}: this engine has none"
                )
            self._services.update(names)
            for reply in self._wave("client.enrol_service", names, call, {}, failures=self.failures):
                self._welcomed(reply)
            if odd := [name for name in names if name in self.failures]:
                raise FederationError(f"{odd[0]} cannot serve: {self.failures[odd[0]]}")

    def _welcomed(self, reply: Reply) -> Message:
        """An introduction, once it is known to be that party's own."""
        fields = {name[6:]: value for name, value in reply.message.items() if name.startswith("guard/")}
        self.components.protection.welcome(self, reply.party, fields)
        return self._authentic(reply)

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
            for reply in list(
                self._wave("client.disclose_total", (chosen,), entry, {}, failures=pending.failures)
            ):
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
        failures: dict[str, str] | None = None,
    ) -> Iterator[tuple[str, Message]]:
        """Ask parties for one step of a part, and give their replies in party order as they come.

        Too few answers stop the run, unless the caller takes the ``failures`` and judges by itself.
        """
        asked = tuple(parties if parties is not None else jobs or self.parties)
        lost: dict[str, str] = {} if failures is None else failures
        answered = []
        address = f"{self._kind(step)}.{step.__name__}"
        for reply in self._wave(address, asked, common or {}, jobs or {}, failures=lost):
            answered.append(reply.party)
            yield reply.party, reply.message
        if failures is None:
            self._check_quorum(step.__name__, asked, answered, lost)

    def mark(self, number: int, **more: Any) -> None:
        """Say that so many rounds are complete, and what else a method has to know to go on from here."""
        self.progress = {"round": number, **more}
        if self.keep is None:
            return
        uncounted = cpu_seconds() - self._cpu_mark
        if (kept := point(self)) is not None:
            self.keep(kept)
        self._cpu_mark = cpu_seconds() - uncounted  # keeping is no work of the federation

    def finish(self) -> Outcome:
        """Hand what was learnt to every party, and check that all replicas are the same."""
        failures: dict[str, str] = {}
        digests = {
            reply.party: str(reply.message.get("digest"))
            for reply in self._wave("client.adopt_model", self.parties, {}, {}, failures=failures)
        }
        self.components.protection.settle(self)
        self._check_quorum("adoption", self.parties, list(digests), failures)
        own = viewed(self.components, self.shared).digest() if self.shared is not None else None
        expected = own or Counter(digests.values()).most_common(1)[0][0]
        if odd := [party for party, digest in digests.items() if digest != expected]:
            raise FederationError(
                f"{len(odd)} of {len(digests)} replicas differ from the rest ({some(odd)}): "
                "they were told something else; the run is void"
            )
        return Outcome(expected, self.shared, tuple(digests))

    def peek(self) -> Shared:
        """Shared values as the experimenter sees them: ours, or one client's replica."""
        if self.shared is not None:
            return self.shared
        for reply in list(self._wave("client.show_model", self.parties[:1], {}, {}, failures=self.failures)):
            self.events.emit(Noted("run", f"the experimenter read the model at {reply.party}", "warning"))
            shared = Shared(self.schema, under("shared/", reply.message))
            if self.keep is not None and self.progress:
                self.keep(last_point(self, shared))
            return shared
        raise FederationError(f"no replica can be read: {self.failures[self.parties[0]]}")

    # -- inside ------------------------------------------------------------------------------------

    def _kind(self, function: Callable[..., Any]) -> str:
        """Which part of the manifest a bound function belongs to."""
        owner = getattr(function, "__self__", None)
        for kind, part in self.components._asdict().items():
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
        layout = layout_of(getattr(self.components, kind), contribution.__name__, self.schema)
        asked = self.parties if parties is None else tuple(parties)
        chosen = {party: weights[party] for party in asked} if weights is not None else {}
        if not all(np.isfinite(weight) for weight in chosen.values()):
            raise ConfigError("a weight is NaN or infinite: weights are finite numbers")
        # What is contributed follows from the shared values: same values, same contribution.
        state = len(self._log) if self.shared is None else self.shared.digest()
        pending = PendingSum(self, self._sums, kind, contribution.__name__, layout, asked, chosen, state)
        pending.layout = layout.scaled(pending.largest_weight)
        return pending, pending.finished(self.components.protection.gather(pending))

    def _opened(self, pending: PendingSum, entry: Mapping[str, Any]) -> Total:
        total = opened(self.components, self, self.schema, entry)
        self._tell_opened(pending)
        return total

    def _tell_opened(self, pending: PendingSum) -> None:
        self._contributors = len(pending.contributors)
        self.openings.opened(pending.contribution, pending.state, pending.contributors)
        self.events.emit(
            TotalOpened(
                pending.number,
                pending.contribution,
                self._opens,
                len(pending.contributors),
                pending.layout.size,
            )
        )
