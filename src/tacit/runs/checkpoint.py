"""Checkpoints: what a run has learnt after each round, so that it can go on after whatever stopped it.

``checkpoint.bin`` is one message in Tacit's own encoding: settings, agreed schema, shared values, and the
scores of the rounds so far. A client's batches depend on its site's secret and the number of the round
only, so a run that goes on ends with the same model as one that was never stopped, bit for bit where sums
are plain or in fixed point. Nothing secret is in it: keys are agreed anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.errors import ConfigError, MessageError, nearest
from tacit.core.events import BudgetSpent, Evaluated, Event, Events
from tacit.core.message import Message
from tacit.core.shared import Shared
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.runs.folder import RunFolder
from tacit.runs.settings import Settings

NAME = "checkpoint.bin"
SCORES = ("accuracy", "f1", "loss", "r2", "rmse")


@dataclass(frozen=True)
class Checkpoint:
    """A run that was stopped: its folder and settings, and what it knew after its last completed round."""

    folder: RunFolder
    settings: Settings
    shared: Shared
    rounds: list[dict[str, Any]]

    @property
    def run(self) -> str:
        """The run's id."""
        return self.folder.path.name


class Keeper:
    """Writes a checkpoint after each round, and keeps the round's scores on the experimenter's test.

    Parameters
    ----------
    settings : Settings
    folder : RunFolder
    test : Table or None
        The experimenter's own test rows.
    events : Events
        Told the scores; tell what privacy has cost.
    rounds : sequence
        Scores of rounds before the run was stopped, if it was.
    """

    def __init__(
        self,
        settings: Settings,
        folder: RunFolder,
        test: Table | None,
        events: Events,
        rounds: Sequence[dict[str, Any]] = (),
    ) -> None:
        self._settings, self._folder, self._test, self._events = settings, folder, test, events
        self._method = settings.build_method()
        self.rounds = list(rounds)
        self._epsilon: float | None = None
        events.subscribe(self._hear)

    def _hear(self, number: int, event: Event) -> None:
        if isinstance(event, BudgetSpent):
            self._epsilon = event.epsilon

    def __call__(self, shared: Shared) -> None:
        """Keep what was learnt in a round."""
        entry: dict[str, Any] = {"round": int(shared["round"])}
        if self._test is not None:
            scores = self._method.model(shared).scores(self._test)
            entry |= {name: scores[name] for name in SCORES if scores.get(name) is not None}
            self._events.emit(Evaluated(f"round {entry['round']}", "test", dict(entry)))
        if self._epsilon is not None:
            entry["epsilon"] = self._epsilon
        self.rounds.append(entry)
        message = Message(
            {
                "settings": msgspec.json.encode(self._settings.as_tables()),
                "schema": shared.schema.to_message().encode(),
                "rounds": msgspec.json.encode(self.rounds),
                **{f"shared/{name}": value for name, value in shared.items()},
            }
        )
        self._folder.write(NAME, message.encode())

    def finish(self) -> None:
        """Remove the checkpoint of a run that is done."""
        (self._folder.path / NAME).unlink(missing_ok=True)


def read_checkpoint(run: str, out: str = "runs") -> Checkpoint:
    """Find a run that was stopped, by id or folder; "latest" is the newest that has a checkpoint.

    Raises
    ------
    ConfigError
        If there is none, or if the run cannot go on.
    """
    folder = RunFolder(_found(run, out))
    try:
        message = Message.decode((folder.path / NAME).read_bytes())
        tables = msgspec.json.decode(message["settings"], type=dict[str, Any])
        rounds = msgspec.json.decode(message["rounds"], type=list[dict[str, Any]])
        schema = Schema.from_message(Message.decode(message["schema"]))
    except (OSError, KeyError, MessageError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{folder.path / NAME} cannot be read: {error}") from None
    settings = Settings.from_tables(tables)
    if settings.protect["name"] == "noised":
        raise ConfigError(
            "a run with noise does not go on: the noise of its sums was sized for one run; start a new one"
        )
    values: Mapping[str, Any] = {n[7:]: v for n, v in message.items() if n.startswith("shared/")}
    return Checkpoint(folder, settings, Shared(schema, values), rounds)


def _found(run: str, out: str) -> Path:
    if (Path(run) / NAME).is_file():
        return Path(run)
    known = {path.parent.name: path for path in Path(out).glob(f"*/{NAME}")}
    if run == "latest" and known:
        return max(known.values(), key=lambda path: path.stat().st_mtime_ns).parent
    if run in known:
        return known[run].parent
    done = (Path(out) / run / "result.json").is_file() or (Path(run) / "result.json").is_file()
    none = "methods with rounds write one where totals open at the coordinator, and finished runs have none"
    hint = none if done or not known else nearest(run, known)
    raise ConfigError(f"no checkpoint of a run '{run}' in {out}/: {hint}")
