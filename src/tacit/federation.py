"""Federations: the front door. Who holds which rows, on which engine, and how a method is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from tacit.core.coordinator import Coordinator
from tacit.core.engine import Engine
from tacit.core.errors import ConfigError, TacitError
from tacit.core.events import Events, RunEnded
from tacit.core.exposure import COORDINATOR
from tacit.core.link import Link
from tacit.core.manifest import Components, Manifest, new_run
from tacit.core.message import Message
from tacit.core.parallel import one_thread
from tacit.core.protection import Protection
from tacit.core.random import generator
from tacit.core.snapshot import Snapshot
from tacit.core.snapshot import resume as resume_run
from tacit.core.transport import Transcript
from tacit.data.files import load
from tacit.data.partition import partition as divide
from tacit.data.preparation import Preparation
from tacit.data.schema import Schema, vocabulary
from tacit.data.split import split
from tacit.data.table import Table
from tacit.engines.assembly import assemble
from tacit.engines.embedded import EmbeddedEngine
from tacit.engines.holdings import Holdings, SeparateHoldings, holdings_of
from tacit.engines.sites import pinned_identity, site_secret
from tacit.ledger.cost import CostLedger
from tacit.methods import METHODS
from tacit.methods.base import Method
from tacit.methods.compatibility import check_compatibility, check_holdout, min_count_of
from tacit.protections import PROTECTIONS
from tacit.training import Training, cells_are_counted, conclude, federated_scores


class Federation:
    """Parties that hold rows of the same kind, and an engine they live on.

    Use :meth:`embedded` for all parties on this machine.

    Examples
    --------
    >>> federation = Federation.embedded("iris", clients=6, partition="dirichlet", alpha=0.5, seed=1)
    >>> training = federation.train("fedheonn")
    >>> federation.clients, sorted(training.model.classes_.tolist())
    (6, ['setosa', 'versicolor', 'virginica'])
    """

    experiment = True  # all rows belong to one experimenter, who may read a client's replica of the model

    def __init__(
        self,
        holdings: Holdings,
        *,
        test: Table | None = None,
        seed: int = 0,
        workers: int = 0,
        timeout: float | None = None,
        quorum: float = 0.8,
        declared: Mapping[str, Any] | None = None,
        **engine: Any,
    ) -> None:
        if not 0 < quorum <= 1:
            raise ConfigError(
                f"quorum is {quorum}: give the share of clients that must answer, above 0 up to 1"
            )
        self.holdings = holdings
        self.test = test
        self.seed = seed
        self.quorum = quorum
        self.declared = dict(declared or {})
        self._engine_settings = {"workers": workers, "timeout": timeout, **engine}
        self.engine_facts: dict[str, Any] = {"name": "embedded"}
        # What another engine changes: whose keys, who is pinned, who keeps rows aside.
        self._secret = site_secret(seed, COORDINATOR)
        self._pinned: Callable[[str], bytes] = partial(pinned_identity, seed)
        self._preshared: frozenset[str] = frozenset()
        self._authenticated = False  # in one process there is nobody to be kept out: plain sums go untagged
        self._has_holdouts = bool(holdings.holdout_sizes.any())

    @classmethod
    def embedded(
        cls,
        data: str | Path | Table,
        *,
        clients: int | None = 10,
        partition: str = "iid",
        test: float | str | None = 0.3,
        holdout: float = 0.0,
        seed: int = 0,
        target: str | None = None,
        task: Any = None,
        repeat: int = 1,
        rows: int | None = None,
        workers: int = 0,
        timeout: float | None = None,
        quorum: float = 0.8,
        classes: Sequence[Any] | None = None,
        **options: Any,
    ) -> Self:
        """Make a federation on this machine from one data set, divided among clients.

        Parameters
        ----------
        data : str, path or Table
            A known data set, a CSV or parquet file, or a table.
        clients : int
        partition : str
            How rows are divided; its options (``alpha``, ``share``, ``column``) are keywords.
        test : float, "split" or None
            Share of the rows, drawn by class as scikit-learn does, that the experimenter keeps for a
            central test; "split" takes the data set's own division.
        holdout : float
            Share of its rows that each client keeps aside for a federated evaluation.
        seed : int
        target, task, repeat, rows
            See :func:`tacit.data.files.load`.
        workers : int
            Worker processes; 0 runs all parties in this one.
        timeout : float, optional
            Seconds a client may take for a step.
        quorum : float
            Share of the asked clients that must contribute to every sum.
        classes : sequence, optional
            The classes, declared beforehand; else clients tell which they hold.
        """
        table = data
        if not isinstance(table, Table):
            table = load(table, target=target, task=task, repeat=repeat, rows=rows, seed=seed)
        training, testing = split(table, test, seed)
        owner = divide(training, partition, clients, seed=generator(b"public", seed, "partition"), **options)
        held = holdings_of(training, owner, holdout, seed)
        declared = {} if classes is None else {"classes": list(classes)}
        return cls(
            held, test=testing, seed=seed, workers=workers, timeout=timeout, quorum=quorum, declared=declared
        )

    @classmethod
    def of(cls, tables: Mapping[str, Table], **settings: Any) -> Self:
        """Make a federation of parties whose tables are at hand, each under its name.

        The tables need not agree in columns: whether they do is found out at enrolment.
        """
        if not tables:
            raise ConfigError("a federation needs at least one party")
        return cls(SeparateHoldings(tables), **settings)

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.holdings.names)

    def pooled(self, schema: Schema | None = None) -> Federation:
        """Return the same rows at a single party, on a schema if one is agreed: as centralised training."""
        table = self.holdings.pooled()
        single = Holdings(table, np.array([0, table.rows]), ["everybody"])
        declared = self.declared if schema is None else vocabulary(schema)
        return Federation(single, test=self.test, seed=self.seed, declared=declared)

    def alone(self, index: int, schema: Schema) -> Federation:
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
    ) -> Training:
        """Train a method on this federation.

        Parameters
        ----------
        method : Method or str
        protect : Protection or str, optional
            How sums are protected; without it, as the method usually is (``default_protection``).
        preparation : Preparation, optional
            Scaling and treatment of missing values.
        events : Events, optional
            Where to tell what happens.
        min_clients : int, optional
            No total over fewer contributions is opened; 1 for plain sums, else 3.
        min_count : int, optional
            No class, category or column in which fewer rows stand apart is learnt from; 1, which counts
            nothing, for plain sums and those with noise, else 5.
        start : Training, optional
            An earlier training that these clients join: schema and scale stay as they are.
        run : str, optional
            The run's id.
        transcript : callable, optional
            Told everything that anyone received: receiver, sender, step, bytes.
        keep, resume : optional
            ``keep`` is told after each round what a run of the same settings can ``resume`` from.
        announce : callable, optional
            Told before a total opens who was in the totals so far, to put into a snapshot as ``opened``.
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
        ledger = CostLedger()
        events = events or Events()
        events.subscribe(ledger)
        with one_thread(), self._engine(manifest, components) as engine:
            link = Link(
                engine,
                manifest,
                components,
                events,
                secret=self._secret,
                pinned=self._pinned,
                preshared=self._preshared,
                authenticated=self._authenticated,
                transcript=transcript,
            )
            coordinator = Coordinator(link)
            if announce is not None:
                link.before_opening = lambda _: announce(link.opened_totals.to_message())
            try:
                coordinator.keep = keep
                training = self._train(coordinator, ledger, start, resume)
            except (TacitError, KeyboardInterrupt) as error:
                events.emit(RunEnded(manifest.run, None, f"{type(error).__name__}: {error}"))
                raise
            events.emit(RunEnded(manifest.run, training.outcome.digest))
            return training

    def _train(
        self, coordinator: Coordinator, ledger: CostLedger, start: Training | None, resume: Snapshot | None
    ) -> Training:
        method = coordinator.components.method
        coordinator.enrol()
        method.check(coordinator.schema)
        preparation = coordinator.components.preparation
        evaluated, protection = self._has_holdouts, coordinator.components.protection
        counted = resume is None and cells_are_counted(coordinator)
        sums = (method.budget_parts if protection.adds_noise else method.sums) + evaluated + counted
        sums += 0 if start else preparation.count_sums(method, protection)
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
        method.train(coordinator)
        holdout = federated_scores(coordinator) if evaluated else None
        return conclude(coordinator, ledger, holdout, recoded=counted, readable=self.experiment)

    @contextmanager
    def _engine(self, manifest: Manifest, components: Components) -> Iterator[Engine]:
        def here(asked: Manifest) -> Components:
            # A method written in a notebook cannot be imported; in this process it is at hand.
            return components if asked.digest == manifest.digest else assemble(asked)

        services = components.protection.services
        settings = {"seed": self.seed, "services": services, **self._engine_settings}
        engine = EmbeddedEngine(self.holdings, assemble=here, **settings)
        try:
            yield engine
        finally:
            engine.close()
