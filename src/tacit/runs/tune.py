"""Tuning: the settings of a method by which a federation does best on rows that its clients keep aside."""

import dataclasses
import json
import time
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import isfinite, prod
from typing import Any

import numpy as np

from tacit.core.coordinator import Outcome
from tacit.core.errors import ConfigError, TacitError
from tacit.core.events import Events
from tacit.core.manifest import new_run
from tacit.core.protection import Protection
from tacit.core.shared import Shared
from tacit.data.inputs import Inputs
from tacit.federation import Federation
from tacit.runs.experiment import build_federation
from tacit.runs.folder import RunFolder
from tacit.runs.keys import toml
from tacit.runs.settings import Settings
from tacit.training import Training

Progress = Callable[[int, int | None, str], None]
HOLDOUT = 0.2  # share of its rows that a client keeps aside for the search, unless the settings say another
MOST_TRIALS = 10_000


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, for a search that draws; by ratios if they span two orders of magnitude."""

    low: float
    high: float


Space = Mapping[str, Sequence[Any] | Range]


@dataclass(frozen=True)
class Trial:
    """One setting and its score; ``error`` says why there is none."""

    settings: Mapping[str, Any]
    score: float | None
    cpu_s: float
    error: str | None = None


class Objective:
    """Trains a method with some settings and scores it; what was tried is remembered, as is the scale."""

    def __init__(self, settings: Settings, federation: Federation, *, told: bool = False) -> None:
        self.settings = settings
        self.federation = federation
        self.trials: list[Trial] = []
        self._told = told  # whether somebody has said, or will, what the rows look like
        self._known: dict[str, Trial] = {}
        self._start: Training | None = None
        self.measure = "balanced_accuracy" if settings.build_method().class_weight else "accuracy"

    def __call__(self, chosen: Mapping[str, Any]) -> Trial:
        key = json.dumps(chosen, sort_keys=True)
        if key not in self._known:
            started = time.process_time()
            score, error = self._scored(chosen)
            trial = Trial(dict(chosen), score, round(time.process_time() - started, 4), error)
            self._known[key] = trial
            self.trials.append(trial)
        return self._known[key]

    def _scored(self, chosen: Mapping[str, Any]) -> tuple[float | None, str | None]:
        settings = dataclasses.replace(self.settings, method={**self.settings.method, **chosen})
        try:
            events = Events() if self._told else None
            self._told = True
            training = self.federation.train(**settings.training(), start=self._start, events=events)
        except TacitError as error:
            return None, str(error)
        if self.federation.experiment:  # sites with rows of their own agree on a scale each time
            self._start = self._start or _prepared(training)
        if training.holdout is None:
            return None, "its scores must not open: clients were missing"
        self.measure = self.measure if self.measure in training.holdout else "r2"
        return training.holdout[self.measure], None


def _prepared(training: Training) -> Training | None:
    shared = training.outcome.shared
    if shared is None:
        return None
    kept = {name: shared[name] for name in (*Inputs.NAMES, "norms", "min_count") if name in shared}
    outcome = Outcome(training.outcome.digest, Shared(shared.schema, kept), training.outcome.holders)
    return dataclasses.replace(training, outcome=outcome)


def grid(space: Space) -> Iterator[dict[str, Any]]:
    """Yield every combination of the values."""
    values = [() if isinstance(axis, Range) else axis for axis in space.values()]
    return (dict(zip(space, chosen, strict=True)) for chosen in product(*values))


def tune(
    settings: Settings,
    space: Space,
    *,
    search: str = "grid",
    trials: int | None = None,
    progress: Progress | None = None,
    federation: Federation | None = None,
) -> dict[str, Any]:
    """Search settings of the method, and write the best as a file that ``tacit run`` takes.

    Without a hold-out each client keeps a fifth of its rows aside. ``space`` has for options of the method
    the values to try, or a range to draw from. ``search`` is "grid" (every combination), or "optuna", which
    learns from the trials before; ``trials`` are by default all of a grid, and 30 of Optuna's.
    """
    count = _checked(settings, space, search, trials)
    objective = Objective(settings, federation or divide(settings))
    folder = RunFolder.create(settings.run.out, f"{new_run()}-tune")

    def told(done: int) -> None:
        if progress:
            best = max((t.score for t in objective.trials if t.score is not None), default=None)
            progress(done, count, "tune" if best is None else f"tune, best {best:.4f}")

    told(0)
    by_grid = map(objective, islice(grid(space), count))
    tried = _drawn(objective, space, count, settings.run.seed) if search == "optuna" else by_grid
    for done, _ in enumerate(tried, 1):
        told(done)
    scored = [trial for trial in objective.trials if trial.score is not None]
    if not scored:
        raise ConfigError(f"no trial could be trained; the first says: {objective.trials[0].error}")
    best = max(scored, key=lambda trial: trial.score or 0.0)  # of equals the first
    chosen = dataclasses.replace(settings, method={**settings.method, **best.settings})
    file = folder.write("tuned.toml", toml(chosen.as_tables()).encode())
    result = {
        "folder": str(folder.path),
        "method": settings.method["name"],
        "data": settings.data.title,
        "protect": settings.protect["name"],
        "search": search,
        "objective": objective.measure,
        "holdout": settings.data.holdout or HOLDOUT,
        "trials": [dataclasses.asdict(trial) for trial in objective.trials],
        "best": dict(best.settings),
        "score": best.score,
        "file": str(file),
    }
    folder.write_json("tune.json", result)
    return result


def keeping_aside(settings: Settings) -> Settings:
    """Return settings by which clients keep rows aside."""
    data = settings.data if settings.data.holdout else dataclasses.replace(settings.data, holdout=HOLDOUT)
    return dataclasses.replace(settings, data=data)


def divide(settings: Settings) -> Federation:
    """Divide the rows, of which clients keep some aside; refuse if nobody does: there would be no score."""
    settings = keeping_aside(settings)
    federation = build_federation(settings)
    if not federation.holdings.holdout_sizes.any():
        most = int(np.diff(federation.holdings.offsets).max())
        raise ConfigError(
            f"no client keeps rows aside: a share of {settings.data.holdout:g} of at most {most} rows is "
            "less than one row. Raise holdout, or have fewer clients"
        )
    return federation


def _checked(settings: Settings, space: Space, search: str, trials: int | None) -> int:
    if not space:
        raise ConfigError("nothing to tune: say which options to try, such as --try lam=0.001,0.01,0.1")
    if search not in ("grid", "optuna"):
        raise ConfigError(f"unknown search '{search}': use grid or optuna")
    if trials is not None and not 1 <= trials <= MOST_TRIALS:
        raise ConfigError(f"trials is {trials}: give 1 to {MOST_TRIALS:,}")
    ranges = [name for name, axis in space.items() if isinstance(axis, Range)]
    if search == "grid" and ranges:
        raise ConfigError(f"{ranges[0]} is a range: a grid needs values, or use search = 'optuna'")
    tried = [  # a typo is found before the first trial
        dataclasses.replace(settings, method={**settings.method, name: value}).build_method()
        for name, axis in space.items()
        for value in ([axis.low, axis.high] if isinstance(axis, Range) else axis)
    ]
    refuse_noise(settings.build_protection(), tried)
    if search == "optuna":
        return trials or 30
    combinations = prod(len(axis) for axis in space.values() if not isinstance(axis, Range))
    if (trials or combinations) > MOST_TRIALS:
        raise ConfigError(f"the grid has {combinations:,} combinations: leave out values, or set trials")
    return min(trials or combinations, combinations)


def refuse_noise(protection: Protection, methods: Sequence[Any]) -> None:
    """Refuse to try settings where each trial costs privacy."""
    if protection.adds_noise or any(isfinite(method.own_epsilon) for method in methods):
        raise ConfigError(
            "every trial with noise would spend its privacy budget anew: tune on public data, then run"
        )


def _drawn(objective: Objective, space: Space, count: int, seed: int) -> Iterator[Trial]:
    try:
        import optuna
    except ImportError:
        raise ConfigError("search = 'optuna' needs Optuna: pip install 'tacit-fl[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed % 2**32))
    types = typing.get_type_hints(type(objective.settings.build_method()))
    for _ in range(count):
        asked = study.ask()
        trial = objective({name: _suggested(asked, name, axis, types[name]) for name, axis in space.items()})
        if trial.score is None:
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(asked, trial.score)
        yield trial


def _suggested(asked: Any, name: str, axis: Sequence[Any] | Range, kind: Any) -> Any:
    if not isinstance(axis, Range):
        # Optuna takes plain values only: choose by position.
        return axis[asked.suggest_categorical(name, range(len(axis)))]
    by_ratios = axis.low > 0 and axis.high >= 100 * axis.low
    members = {kind, *typing.get_args(kind)}  # an optional number is a number
    if int in members and float not in members:
        return asked.suggest_int(name, int(axis.low), int(axis.high), log=by_ratios)
    return asked.suggest_float(name, axis.low, axis.high, log=by_ratios)
