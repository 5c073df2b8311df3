"""Federations: the front door. Who holds which rows, on which engine, and how a method is trained."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tacit.core.coordinator import Coordinator
from tacit.core.differencing import OpenedTotals
from tacit.core.engine import Engine
from tacit.core.errors import FederationError
from tacit.core.events import Events, Noted, RunEnded
from tacit.core.link import Link
from tacit.core.manifest import Components, Manifest, new_run
from tacit.core.message import Message
from tacit.core.parallel import one_thread
from tacit.core.protection import Protection
from tacit.core.snapshot import Snapshot
from tacit.core.snapshot import resume as resume_run
from tacit.core.transport import Transcript
from tacit.data.cells import check_at_hand
from tacit.data.inputs import describe
from tacit.data.preparation import Preparation
from tacit.data.schema import Schema, complete, vocabulary
from tacit.data.table import joined
from tacit.data.words import agree_on_words
from tacit.engines.assembly import assemble, vocabulary_run
from tacit.engines.embedded import EmbeddedEngine
from tacit.engines.holdings import Holdings
from tacit.engines.parties import Parties
from tacit.ledger.cost import CostLedger
from tacit.ledger.history import notebook_bar
from tacit.methods import METHODS
from tacit.methods.base import Method, Model
from tacit.methods.compatibility import check_compatibility, check_holdout, min_count_of
from tacit.protections import PROTECTIONS
from tacit.training import (
    Record,
    Training,
    cells_are_counted,
    federated_scores,
    log_notes,
    score_round,
    tell_findings,
)


class Federation(Parties):
    """Parties that hold rows of the same kind, and an engine they live on.

    Use :meth:`embedded` for one table that is divided, :meth:`of` for tables that parties have.

    Examples
    --------
    >>> federation = Federation.embedded("iris", clients=6, partition="dirichlet", alpha=0.5, seed=1)
    >>> training = federation.train("fedheonn")
    >>> federation.clients, sorted(training.model.classes_.tolist())
    (6, ['setosa', 'versicolor', 'virginica'])
    """

    def pooled(self, schema: Schema | None = None) -> "Federation":
        """Return the same rows at a single party, on a schema if one is agreed: as centralised training."""
        held, kept = self.holdings, self.holdings.holdout_sizes
        aside = [held.holdout_rows(int(index)) for index in np.flatnonzero(kept)]
        table = joined([held.pooled(), *aside]) if aside else held.pooled()
        single = Holdings(table, np.array([0, table.rows]), ["everybody"], np.array([kept.sum()]))
        declared = self.declared if schema is None else vocabulary(schema)
        return Federation(single, test=self.test, seed=self.seed, declared=declared)

    def alone(self, index: int, schema: Schema) -> "Federation":
        """Return one party by itself, with all classes: what it could learn without the others."""
        part = self.holdings.part(np.array([index]))
        return Federation(part, test=self.test, seed=self.seed, declared=vocabulary(schema))

    def train(
        self,
        method: Method | str,
        *,
        protect: Protection | str | None = None,
        preparation: Preparation | None = None,
        events: Events | None = None,
        min_clients: int | None = None,
        min_count: int | None = None,
        start: Training | None = None,
        run: str | None = None,
        transcript: Transcript | None = None,
        keep: Callable[[Snapshot], None] | None = None,
        resume: Snapshot | None = None,
        announce: Callable[[Message], None] | None = None,
        track: bool = False,
        record: Record | None = None,
    ) -> Training:
        """Train a method on this federation.

        Parameters
        ----------
        method, preparation
            What is learnt, and scaling and treatment of missing values.
        protect : Protection or str, optional
            How sums are protected; without it, as the method usually is (``default_protection``).
        min_clients, min_count : int, optional
            No total over fewer contributions is opened, and no class, category or column in which fewer rows
            stand apart is learnt from; 3 and 5, but 1 where the protection hides nothing.
        start : Training, optional
            An earlier training that these clients join: schema and scale stay as they are.
        run, events, record : optional
            The run's id, where to tell what happens, and what is subscribed there.
        transcript : callable, optional
            Told everything that anyone received: receiver, sender, step, bytes.
        keep, resume, announce : optional
            ``keep`` is told after each round what a run of the same settings can ``resume`` from, and
            ``announce`` before a total opens who was in the totals so far.
        track : bool
            Score the model on the central test after each round, for ``Training.history``.
        """
        chosen = METHODS.build(method) if isinstance(method, str) else method
        protection = PROTECTIONS.build(protect) if isinstance(protect, str) else protect
        if protection is None:
            protection = PROTECTIONS.build(chosen.default_protection, chosen.default_settings)
        components = Components(chosen, protection, preparation or Preparation())
        least = check_compatibility(chosen, protection, self.clients, min_clients=min_clients)
        components.preparation.check_clients(protection, self.clients)
        check_holdout(protection, self._has_holdouts)
        manifest = Manifest.of(
            run or new_run(),
            components,
            seed=self.seed,
            min_clients=least,
            min_count=min_count_of(protection, min_count),
            quorum=self.quorum,
            experiment=self.experiment,
            attempt=resume.following if resume else 0,
            declared=self.declared | ({} if start is None else vocabulary(start.schema)),
        )
        bar = notebook_bar() if events is None else None  # who listens to events draws them too
        self.record(events := events or Events(log_notes))
        events.subscribe(ledger := CostLedger())
        if record is None:
            events.subscribe(record := Record())
        if bar is not None:
            events.subscribe(bar)
        if track and keep is None and self.test is not None:
            keep = partial(score_round, chosen, self.test, events)
        opened = OpenedTotals()  # sums of words and those of the run are of the same rows
        with one_thread(), events.ending(manifest.run):
            if manifest.min_count > 1 and start is None and not protection.promises.single:
                told = opened, events, transcript
                words = vocabulary(resume.schema) if resume else self.find_words(manifest, components, *told)
                manifest = replace(manifest, declared=complete(manifest.declared, words))
            with self._engine(manifest, components) as engine:
                link = Link(engine, manifest, components, events, transcript=transcript, **self.keys)
                link.opened_totals = opened
                coordinator = Coordinator(link)
                if announce is not None:
                    link.before_opening = lambda _: announce(link.opened_totals.to_message())
                coordinator.keep = keep
                training = self._train(coordinator, ledger, record, start, resume)
            events.emit(RunEnded(manifest.run, training.outcome.digest))
            return training

    def find_words(
        self,
        manifest: Manifest,
        components: Components,
        opened: OpenedTotals,
        events: Events,
        transcript: Transcript | None = None,
        before_opening: Callable[[Sequence[str]], None] | None = None,
        at: Engine | None = None,
    ) -> dict[str, Any]:
        """Return the labels and categories, from a run of its own that tells nobody who holds which."""
        known = self.holdings.vocabulary() if self.experiment else None
        if known is not None or {"classes", "categories"} <= manifest.declared.keys():
            return known or {}
        first, masked = vocabulary_run(manifest, components)
        with self._engine(first, masked) if at is None else nullcontext(at) as engine:
            link = Link(engine, first, masked, events, transcript=transcript, **self.keys)
            link.opened_totals, link.before_opening = opened, before_opening
            return agree_on_words(Coordinator(link))

    def _train(
        self,
        coordinator: Coordinator,
        ledger: CostLedger,
        record: Record,
        start: Training | None,
        resume: Snapshot | None,
    ) -> Training:
        (method, protection, preparation), evaluated = coordinator.components, self._has_holdouts
        coordinator.enrol()
        tell_findings(coordinator, self.holdings.findings if self.experiment else {})
        method.check(coordinator.schema)
        counted = resume is None and cells_are_counted(coordinator)
        if counted and self.experiment:
            rows, aside = map(self.holdings.rows, range(self.clients)), self.holdings.holdout_sizes
            check_at_hand(rows, coordinator.schema, coordinator.manifest.min_count, int(aside.sum()))
        sums = (method.budget_parts if protection.adds_noise else method.sums) + evaluated + counted
        agreed = {} if resume else method.agreements(coordinator.schema, protection)
        sums += len(agreed) + (0 if start else preparation.count_sums(method, protection))
        coordinator.protection.prepare(sums)
        coordinator.reserved = int(evaluated)
        if resume is not None:
            resume_run(coordinator, resume, method.round_sums)
        elif start is not None:
            coordinator.shared = method.continue_from(start.carry_on(coordinator))
        if counted:
            coordinator.parties = preparation.count_cells(coordinator, continued=start is not None)
        if start is None and resume is None and not method.finds_scale_itself(coordinator):
            coordinator.parties = preparation.train(coordinator)
        for name, (contribution, apply) in agreed.items():
            if coordinator.shared is None or name not in coordinator.shared:  # left by an earlier training
                coordinator.round(contribution, apply)
        method.train(coordinator)
        holdout = federated_scores(coordinator) if evaluated else None
        outcome = coordinator.finish()
        model = self._read_model(coordinator, recoded=counted)
        found = coordinator.schema, coordinator.manifest, ledger, coordinator.failures, holdout
        return Training(model, outcome, *found, record, self.test)

    def _read_model(self, coordinator: Coordinator, *, recoded: bool) -> Model | None:
        if not self.experiment and coordinator.shared is None:
            return None
        shared = coordinator.peek()
        for text in describe(shared) if recoded else ():
            coordinator.events.emit(Noted("preparation", text, "warning"))
        model: Model = coordinator.components.method.model(shared)
        return model

    @contextmanager
    def _engine(self, manifest: Manifest, components: Components) -> Iterator[Engine]:
        def here(asked: Manifest) -> Components:
            # A method written in a notebook cannot be imported; in this process it is at hand.
            return components if asked.digest == manifest.digest else assemble(asked)

        services = components.services
        settings = {"seed": self.seed, "services": services, **self._engine_settings}
        engine = EmbeddedEngine(self.holdings, assemble=here, **settings)
        try:
            yield engine
        except FederationError as error:  # whoever wrote the module that failed sees where
            raise error from error.__cause__ or getattr(engine, "cause", None)
        finally:
            engine.close()
            self.workers_mb = max(self.workers_mb, engine.workers_mb)  # words have an engine of their own
