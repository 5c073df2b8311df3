"""Rounds as the coordinator sees them: which are left, who takes part, and when training ends early.

With early stopping, a round's model counts only once the clients' hold-outs, from a protected sum of hits and
losses, do not show a collapse: version control of models, as Santos et al. ("Exploring Aggregation Strategies
for Federated Learning in National Statistics") ask for.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, DifferencingError, TacitError
from tacit.core.events import Evaluated, Noted
from tacit.core.fields import add_prefix
from tacit.core.layout import Field, Layout
from tacit.core.marks import contribution
from tacit.core.party import Party
from tacit.core.settings_group import Rule, SettingsGroup
from tacit.core.shared import Shared
from tacit.data.schema import vocabulary
from tacit.methods.base import Method
from tacit.models.neural import TARGET_SPREAD

PREVIOUS = "previous/"  # of shared values as they were before the last round
SCORES = Layout(Field("hits", ()), Field("loss", ()), Field("rows", ()))
CONSENT = Layout(Field("consent", (), bound=1.0))

Cohort = tuple[str, ...] | None  # who takes part in a round; None for all


@dataclass(frozen=True)
class Stopping(SettingsGroup):
    """When training ends before its last round, and when a round is taken back.

    Parameters
    ----------
    patience : int
        Stop after so many rounds without a lower loss on the clients' hold-outs; 0 for never.
    collapse : float
        Take a round back if accuracy on the clients' hold-outs falls by more than this below the best; 0 for
        never.
    """

    patience: int = 0
    collapse: float = 0.0

    def rules(self) -> Iterable[Rule]:
        return (
            ("patience", self.patience >= 0, "give a number of rounds, or 0 for never"),
            ("collapse", 0 <= self.collapse < 1, "give a share of accuracy, or 0 for never"),
        )

    @property
    def active(self) -> bool:
        """Return whether hold-outs are looked at after each round."""
        return bool(self.patience or self.collapse)

    def check_task(self, task: str) -> None:
        """Refuse to look for a fall of accuracy where there is none."""
        if self.collapse and task == "regression":
            raise ConfigError(f"collapse is {self.collapse}: no regression has an accuracy, set patience")

    def remember(self, shared: Shared, prefixes: tuple[str, ...]) -> dict[str, Any]:
        """Return the values that a round may have to be taken back to, under other names."""
        changing = {name: value for name, value in shared.items() if name.startswith(prefixes)}
        return add_prefix(PREVIOUS, changing) if self.collapse else {}


@contribution(lambda _, schema: SCORES, family="scores", revealed=True)
def hold_out(self: Method, party: Party, shared: Shared) -> dict[str, Any]:
    """Return hits, loss and rows of a client's hold-out; a regression has squared errors, and no hits."""
    if not party.holdout.rows:
        return {"hits": 0.0, "loss": 0.0, "rows": 0.0}
    model = self.model_at(party, shared)
    counts = model.counts(party.holdout)
    if "confusion" not in counts:
        squares = counts["squared"] / model.arrays.get(TARGET_SPREAD, 1.0) ** 2
        return {"hits": 0.0, "loss": squares.mean(), "rows": counts["count"]}
    confusion = counts["confusion"]
    return {"hits": np.trace(confusion), "loss": counts["loss"], "rows": confusion.sum()}


@contribution(lambda _, schema: CONSENT, family=None)
def consent(self: Method, party: Party, shared: Shared) -> dict[str, Any]:
    """Return nothing but a one: wherever totals open, rounds are taken back with it."""
    return {"consent": 1.0}


@dataclass
class HoldOutMonitor:
    """Looks at the hold-outs after each round, if the settings ask for it.

    Its method has :func:`hold_out` and :func:`consent`, and an apply ``take_back`` for what a round changed.
    """

    stopping: Stopping
    coordinator: Coordinator
    start: int = 0  # rounds behind the present weights: the number of the next, if none was taken back
    counted: int = 0  # clients when a method last counted them

    def __post_init__(self) -> None:
        self.method: Any = self.coordinator.components.method
        self.start = self.coordinator.progress.get("start", self.start)
        # Lowest loss, highest accuracy, rounds without either: what a run that goes on later has to know.
        self.best: tuple[float, float, int] = self.coordinator.progress.get("best", (inf, 0.0, 0))
        # Clients that are not in the total of a round that they were asked for, and the number of that round.
        self.missed: dict[str, int] = dict(self.coordinator.progress.get("missed", ()))

    @property
    def state(self) -> str:
        """Name the weights from which clients start."""
        return f"weights after {self.start} rounds"

    def run_round(
        self, number: int, update: Callable[..., Any], step: Callable[..., Shared], cohort: Cohort
    ) -> bool:
        """Sum the updates of a cohort and judge the round; return whether to go on.

        After a round that was taken back, clients start from the same weights again, and may compute the
        same. So the two totals are compared, and if too few clients differ, training ends with what it has.
        """
        try:
            counted = {*self.coordinator.round(update, step, cohort, self.state)}
            asked = self.coordinator.parties if cohort is None else cohort
            self.missed = {name: number for name in asked if name not in counted} | self.missed
        except DifferencingError as error:
            if self.start == number:
                raise
            text = (
                f"round {number + 1} would repeat one that was taken back: training ends before it. {error}"
            )
            self.coordinator.events.emit(Noted("hold-out", text, "warning"))
            return False
        return self.judge_round(number)

    def judge_round(self, number: int) -> bool:
        """Keep a round or take it back, and return whether to go on."""
        if not self.stopping.active:
            self.start = number + 1
            return True
        accuracy, loss = self._score(number)
        lowest, highest, waited = self.best
        if self.stopping.collapse and accuracy < highest - self.stopping.collapse:
            text = f"accuracy on the hold-outs fell to {accuracy:.3f} from {highest:.3f}"
            text = f"round {number + 1} is taken back: {text}"
            self.coordinator.events.emit(Noted("hold-out", text, "warning"))
            self.coordinator.round(self.method.consent, self.method.take_back)
            self.best = lowest, highest, waited + 1
        else:
            self.best = min(lowest, loss), max(highest, accuracy), 0 if loss < lowest else waited + 1
            self.start = number + 1
        waited = self.best[2]
        if self.stopping.patience and waited >= self.stopping.patience:
            text = f"no lower loss on the hold-outs for {waited} rounds: training ends with {number + 1}"
            self.coordinator.events.emit(Noted("hold-out", text))
            return False
        return True

    def _score(self, number: int) -> tuple[float, float]:
        counts = self.coordinator.reveal(self.method.hold_out)
        if counts["rows"] < 0.5:
            way_out = "set holdout, say to 0.2"
            raise ConfigError(f"patience and collapse need rows that clients keep aside: {way_out}")
        accuracy, loss = (float(counts[name] / counts["rows"]) for name in ("hits", "loss"))
        regression = self.coordinator.schema.task == "regression"
        scores = {"loss": loss} | ({} if regression else {"accuracy": accuracy})
        self.coordinator.events.emit(Evaluated(f"round {number + 1}", "clients", scores))
        return accuracy, loss


def find_remaining(coordinator: Coordinator, rounds: int) -> range:
    """Return the numbers of the rounds that are still to do."""
    known: Mapping[str, Any] = coordinator.shared or {}
    done = int(coordinator.progress.get("round", known.get("round", 0)))
    return range(done, done if coordinator.progress.get("over") else int(known.get("until", rounds)))


def draw_cohort(coordinator: Coordinator, fraction: float, number: int) -> Cohort:
    """Return the clients of a round: a share of them, but never too few to open a total; None for all."""
    fewest = coordinator.components.protection.min_contributions(coordinator.manifest.min_clients)
    wanted = max(round(fraction * len(coordinator.parties)), fewest)
    if wanted >= len(coordinator.parties):
        return None
    drawn = coordinator.rng("cohort", number).choice(len(coordinator.parties), size=wanted, replace=False)
    return tuple(coordinator.parties[index] for index in sorted(drawn.tolist()))


def admit_late_clients(coordinator: Coordinator, number: int) -> None:
    """Let clients that were not there when the run began take part from now on."""
    if not (late := coordinator.late()):
        return
    agreed = vocabulary(coordinator.schema), coordinator.manifest.min_count
    agreement = coordinator.components.preparation.agreement(*agreed)
    try:
        admitted = coordinator.admit(late, agreement)
    except TacitError as error:
        coordinator.events.emit(Noted("enrolment", f"nobody joins late: {error}", "warning"))
        return
    for name in admitted:
        coordinator.events.emit(Noted(name, f"joined late, in round {number + 1}"))


def has_sums_left(coordinator: Coordinator, round_sums: int) -> bool:
    """Return whether the protection's noise was sized for another round, and those sums that follow."""
    left = coordinator.protection.left()
    if left is None or left >= round_sums + coordinator.reserved:
        return True
    text = f"noise was sized for {left} more sums, too few for a round: training ends here"
    coordinator.events.emit(Noted("privacy", text, "warning"))
    return False


# -- what clients keep for themselves from round to round, such as a head, if a run is stopped and goes on:
# clients of an experiment end with its process, so its checkpoint holds their state too; deployed sites
# keep theirs in a store of their own, which nobody reads or sets


def read_kept(coordinator: Coordinator, show: Callable[..., Any], names: Sequence[str]) -> dict[str, Any]:
    """Return what clients show of these names, to be written down with a round; nothing if sites keep it."""
    transport = coordinator.link.transport
    if not names or transport.engine.persistent or coordinator.keep is None:
        return {}
    with transport.unrecorded():  # the experimenter's reading is no traffic of the federation
        wave = transport.wave(f"method.{show.__name__}", coordinator.parties, {}, failures={})
        replies = [reply for reply in wave if names[0] in reply.message]
    found = {name: np.array([one.message[name] for one in replies]) for name in names}
    return {**found, "names": "\n".join(one.party for one in replies).encode()}


def give_back(coordinator: Coordinator, swap: Callable[..., Any], names: Sequence[str]) -> None:
    """Give clients back what was written down of them before a run was stopped."""
    columns = [coordinator.progress.get(name, ()) for name in names]
    clients = coordinator.progress.get("names", b"").decode().split("\n")
    known = {one: dict(zip(names, row, strict=True)) for one, *row in zip(clients, *columns, strict=False)}
    if jobs := {name: known[name] for name in coordinator.parties if name in known}:
        list(coordinator.ask(swap, jobs=jobs, failures={}))
