"""Sinks: scores and costs of a run, as its events tell them, for MLflow, TensorBoard and Weights & Biases.

Each is an extra, and writes beside the run unless its own environment variables say otherwise (docs/cli.md).
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tacit.core.errors import ConfigError, UnavailableError, nearest
from tacit.core.events import BudgetSpent, Evaluated, Event, Replied, RoundEnded

log = logging.getLogger("tacit.sinks")
COSTS = ("bytes_up", "bytes_down", "cpu_s")
# Takes numbers at a step; is told at the end whether the run was done.
Sink = tuple[Callable[[Mapping[str, float], int], None], Callable[[bool], None]]


def _mlflow(folder: Path, settings: Mapping[str, str]) -> Sink:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    place = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.parent.absolute() / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=place)
    known = client.get_experiment_by_name("tacit")
    experiment = known.experiment_id if known else client.create_experiment("tacit")
    run = client.create_run(experiment, run_name=folder.name).info.run_id
    client.log_batch(run, params=[Param(key, value) for key, value in settings.items()])

    def write(found: Mapping[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        client.log_batch(run, metrics=[Metric(key, value, now, step) for key, value in found.items()])

    return write, lambda done: client.set_terminated(run, "FINISHED" if done else "FAILED")


def _tensorboard(folder: Path, settings: Mapping[str, str]) -> Sink:
    from tensorboard.summary import Writer

    writer = Writer(str(folder / "tensorboard"))

    def write(found: Mapping[str, float], step: int) -> None:
        for key, value in found.items():
            writer.add_scalar(key, value, step=step)
        writer.flush()

    return write, lambda done: writer.close()


def _wandb(folder: Path, settings: Mapping[str, str]) -> Sink:
    import wandb

    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "tacit"),
        name=folder.name,
        dir=str(folder.absolute()),
        mode=None if "WANDB_MODE" in os.environ else "offline",
        config=dict(settings),
        settings=wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True),
    )
    return lambda found, step: run.log(dict(found), step=step), lambda done: run.finish(int(not done))


SINKS = {"mlflow": _mlflow, "tensorboard": _tensorboard, "wandb": _wandb}


def check_sinks(names: Iterable[str]) -> None:
    """Refuse a sink that is not known or not installed, before anything runs."""
    for name in names:
        if name not in SINKS:
            raise ConfigError(f"[run] sinks names '{name}': {nearest(name, SINKS)}")
        if find_spec(name) is None:
            raise UnavailableError(f"the sink {name} is not installed: pip install 'tacit-fl[{name}]'")


class Sinks(AbstractContextManager["Sinks"]):
    """Subscriber that hands scores and costs to the sinks of a run; a context manager.

    A sink that fails is left out from then on, with a warning: a run does not end for want of a server.
    """

    def __init__(self, names: Iterable[str], folder: Path, settings: Mapping[str, str]) -> None:
        self._open: dict[str, Sink] = {}
        self._costs = {f"cost/{name}": 0.0 for name in COSTS}
        self._round = 0
        for name in names:
            self._try(name, lambda name: self._open.update({name: SINKS[name](folder, settings)}), name)

    def _try(self, name: str, work: Callable[..., None], *words: Any) -> None:
        try:
            work(*words)
        except Exception as error:  # noqa: BLE001  # whatever another package raises
            self._open.pop(name, None)
            log.warning("the sink %s is left out from here on: %s: %s", name, type(error).__name__, error)

    def __call__(self, number: int, event: Event) -> None:
        match event:
            case Replied():
                for name in COSTS:
                    self._costs[f"cost/{name}"] += getattr(event, name)
            case BudgetSpent():
                self._costs[f"cost/{event.key}"] = event.epsilon
            case Evaluated():
                by_round = event.model.startswith("round ")
                step = int(event.model.removeprefix("round ")) if by_round else self._round
                kind = "round" if by_round else f"{event.holdout}/{event.model}"
                self._write({f"{kind}/{key}": v for key, v in event.scores.items() if type(v) is float}, step)
            case RoundEnded():
                self._round = event.round
                self._write(self._costs, event.round)

    def _write(self, found: Mapping[str, float], step: int) -> None:
        for name, (write, _) in list(self._open.items()):
            self._try(name, write, found, step)

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> None:
        self._write(self._costs, self._round)
        for name, (_, close) in list(self._open.items()):
            self._try(name, close, kind is None)
