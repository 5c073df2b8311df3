"""What a training gives, and from where a later one goes on."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tacit.core.coordinator import Coordinator, Outcome
from tacit.core.display import Shown
from tacit.core.errors import ConfigError, DataError, DifferencingError
from tacit.core.events import Evaluated, Event, Events, Noted, RunStarted
from tacit.core.manifest import Manifest
from tacit.core.shared import Shared
from tacit.core.snapshot import Snapshot
from tacit.data.findings import Finding, look_at_schema
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.ledger.cost import CostLedger
from tacit.ledger.exposure import ExposureLedger
from tacit.ledger.history import History
from tacit.methods.base import Method, Model
from tacit.models.scores import check_counts, classification_scores, curves_of, regression_scores, spread_of

MOST_FINDINGS = 5  # that a run tells of, beside how many more there are
MOST_NOTES = 200


@dataclass
class Record:
    """What a training tells as it happens, beside its cost; subscribe it to the events."""

    exposure: ExposureLedger = field(default_factory=ExposureLedger)
    history: History = field(default_factory=History)
    notes: list[dict[str, str]] = field(default_factory=list)
    clients: int = 0

    def __call__(self, number: int, event: Event) -> None:
        self.exposure(number, event)
        self.history(number, event)
        if isinstance(event, RunStarted):
            self.clients = event.clients
        elif isinstance(event, Noted) and len(self.notes) < MOST_NOTES:
            self.notes.append({"about": event.about, "text": event.text, "level": event.level})


@dataclass(frozen=True, repr=False)
class Training(Shown):
    """What training on a federation gives.

    Attributes
    ----------
    trained, outcome
        The model, None if it opened at sites that show it to nobody else; its digest and the shared values.
    schema, manifest, ledger, failures, record
        What was agreed, what it cost, which parties failed and why, and what else was told as it happened.
    holdout : dict or None
        Scores on the rows that clients keep aside, from a protected sum of counts, if there is one.
    test : Table or None
        The experimenter's own test rows.
    """

    trained: Model | None
    outcome: Outcome
    schema: Schema
    manifest: Manifest
    ledger: CostLedger
    failures: dict[str, str] = field(default_factory=dict)
    holdout: dict[str, Any] | None = None
    record: Record = field(default_factory=Record)
    test: Table | None = None

    def facts(self) -> dict[str, Any]:
        parts, scores = self.manifest.components, self.scores or {}
        named = {kind: parts[kind]["name"] for kind in ("method", "protection")}
        names = ("accuracy", "balanced_accuracy", "r2")
        found = {name.replace("_", " "): scores[name] for name in names if name in scores}
        return {"run": self.manifest.run, **named, **found, "failed": [*self.failures] or None}

    @cached_property
    def scores(self) -> dict[str, Any] | None:
        """All scores on the central test or, without one, on the rows that clients keep aside."""
        if self.test is None or self.trained is None:
            return self.holdout
        return self.trained.scores(self.test)

    @property
    def exposure(self) -> ExposureLedger:
        """Who saw what."""
        return self.record.exposure

    @property
    def history(self) -> Any:
        """A pandas DataFrame with a line for each sum: what it cost, and the scores that followed it."""
        return self.record.history.frame()

    def plot(self, axes: Any = None) -> Any:
        """Draw scores by round, or what each sum cost; return matplotlib's axes."""
        return self.record.history.plot(axes)

    def report(self) -> Any:
        """Return the report of ``tacit run`` on this training: shown in a notebook, or saved."""
        import tacit

        return tacit.report(self)

    @property
    def model(self) -> Model:
        """The model, where it may be seen."""
        if self.trained is None:
            raise ConfigError("the model is at the sites, and none shows it: export it at a site")
        return self.trained

    def carry_on(self, coordinator: Coordinator) -> Shared:
        """Return the shared values as the point from which another training's clients go on."""
        if coordinator.shared is None or self.outcome.shared is None:
            raise ConfigError("going on from an earlier training needs totals that open at the coordinator")
        if coordinator.schema != self.schema:
            raise DataError("these clients' schema differs from that of the training they join")
        return coordinator.shared | self.outcome.shared


def log_notes(number: int, event: Event) -> None:
    """Log what looks wrong with the rows, where nobody else is told of it."""
    if isinstance(event, Noted) and event.about == "data":
        logging.getLogger("tacit").warning(event.text)


def tell_findings(coordinator: Coordinator, findings: Mapping[str, Sequence[Finding]]) -> None:
    """Say briefly what looks wrong with the rows, and with the categories that the clients agreed on."""
    everyone = {**findings, "all clients": look_at_schema(coordinator.schema)}
    texts = [
        f"{owner}: {found.sentence}"
        for owner, several in everyone.items()
        for found in several
        if found.severity == "warning"
    ]
    if len(texts) > MOST_FINDINGS:
        texts[MOST_FINDINGS:] = [f"{len(texts) - MOST_FINDINGS} more findings: see `tacit data check`"]
    for text in texts:
        coordinator.events.emit(Noted("data", text, "warning"))


def cells_are_counted(coordinator: Coordinator) -> bool:
    """Return whether small cells are to be counted; if not, say what that shows."""
    least, protection = coordinator.manifest.min_count, coordinator.components.protection
    if least == 1 and not (protection.promises.single or protection.adds_noise):
        text = "min_count is 1: a class or category that occurs once gives its row to who opens totals"
        coordinator.events.emit(Noted("privacy", text, "warning"))
    return least > 1


def federated_scores(coordinator: Coordinator) -> dict[str, Any] | None:
    """Return the scores on the rows that clients keep aside; None if their counts must not open."""
    noisy = coordinator.components.protection.adds_noise
    try:
        counts = coordinator.reveal(coordinator.components.method.evaluation)
        check_counts(counts, noisy)
    except (DataError, DifferencingError) as error:
        coordinator.events.emit(Noted("hold-out", f"no federated evaluation: {error}", "warning"))
        return None
    classes = coordinator.schema.classes
    scores = classification_scores(counts, classes) if classes else regression_scores(counts)
    coordinator.events.emit(Evaluated("federated", "clients", dict(scores)))
    if classes:
        scores["curves"] = curves_of(counts["histogram"], classes)
    if not noisy:  # on which noise may be a site
        scores["sites"] = spread_of(counts)
    return scores


def score_round(method: Method, test: Table, events: Events, kept: Snapshot) -> None:
    """Tell the scores of the model after a round on test rows, where the coordinator can read it."""
    if kept.shared is not None and method.has_model_by_round:
        scores = method.model(kept.shared).scores(test)
        plain = {name: value for name, value in scores.items() if isinstance(value, float)}
        events.emit(Evaluated(f"round {kept.progress['round']}", "test", plain))
