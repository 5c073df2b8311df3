"""Checkpoints: what a run has learnt after each round, so that it can go on after whatever stopped it.

``checkpoint.bin`` is one message in Tacit's own encoding, after its digest: settings, agreed schema, how far
the run was, the shared values where they may be seen, and the scores of the rounds so far. ``opened.bin``
beside it names the clients in each total, and is written before one opens: a round that was stopped opens
again only over the same clients, or over enough others. Nothing secret is in either file.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.errors import ConfigError, MessageError, TacitError, nearest
from tacit.core.events import EPSILONS, Evaluated, Events
from tacit.core.message import Message
from tacit.core.snapshot import Snapshot
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.runs.folder import CHECKPOINT, OPENED, RESULT, RunFolder
from tacit.runs.settings import Settings

MARK = b"tacit checkpoint 3\n"  # then the digest of the message, and the message
SCORES = ("accuracy", "f1", "loss", "r2", "rmse")


@dataclass(frozen=True)
class Checkpoint:
    """A run that was stopped: its folder and settings, and what it knew after its last completed round."""

    folder: RunFolder
    settings: Settings
    kept: Snapshot
    rounds: list[dict[str, Any]]

    @property
    def run(self) -> str:
        """The run's id."""
        return self.folder.path.name

    def begin(self) -> None:
        """Write down that it goes on: the attempt after this one, if there is to be one, is another."""
        replace(self, kept=replace(self.kept, following=self.kept.following + 1)).write()

    def write(self) -> None:
        """Write the checkpoint into the run's folder."""
        settings, rounds = map(msgspec.json.encode, (self.settings.as_tables(), self.rounds))
        message = Message({"settings": settings, "rounds": rounds, **self.kept.to_message()})
        self.folder.write(CHECKPOINT, _with_digest(message))


class CheckpointWriter:
    """Writes a checkpoint after each round, and keeps the round's scores on the experimenter's test rows."""

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

    def __call__(self, kept: Snapshot) -> None:
        done = int(kept.progress["round"])
        entry: dict[str, Any] = {"round": done}
        if self._test is not None and kept.shared is not None and self._method.has_model_by_round:
            scores = self._method.model(kept.shared).scores(self._test)
            entry |= {name: scores[name] for name in SCORES if scores.get(name) is not None}
            self._events.emit(Evaluated(f"round {done}", "test", dict(entry)))
        entry |= {key: kept.progress[key] for key in EPSILONS.values() if kept.progress.get(key)}
        self.rounds = [*(before for before in self.rounds if before["round"] < done), entry]
        Checkpoint(self._folder, self._settings, kept, self.rounds).write()

    def announce(self, opened: Message) -> None:
        """Write down who is in a total before it opens, once there is a checkpoint to repeat it from."""
        if (self._folder.path / CHECKPOINT).is_file():
            self._folder.write(OPENED, _with_digest(opened))

    def finish(self) -> None:
        """Remove the checkpoint of a run that is done."""
        for name in (CHECKPOINT, OPENED):
            (self._folder.path / name).unlink(missing_ok=True)


def read_checkpoint(run: str, out: str = "runs") -> Checkpoint:
    """Find a run that was stopped, by id or folder; "latest" is the newest that has a checkpoint."""
    folder = _find_run(run, out)
    try:
        message = _read(folder.path / CHECKPOINT)
        tables = msgspec.json.decode(message["settings"], type=dict[str, Any])
        rounds = msgspec.json.decode(message["rounds"], type=list[dict[str, Any]])
        settings = Settings.from_tables(tables)
        kept = Snapshot.from_message(message, Schema.from_message)
        kept = replace(kept, opened=_read_opened(folder) or kept.opened)
    except (OSError, KeyError, TypeError, ValueError, TacitError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{folder.path / CHECKPOINT} cannot be read: {error}") from None
    return Checkpoint(folder, settings, kept, rounds)


def _with_digest(message: Message) -> bytes:
    """Return the bytes of a message after its digest, so that any damage is noticed."""
    raw = message.encode()
    return MARK + hashlib.sha256(raw).digest() + raw


def _read(file: Path) -> Message:
    raw = file.read_bytes()
    start = len(MARK) + hashlib.sha256().digest_size
    if raw[: len(MARK)] != MARK:
        earlier = "an earlier release wrote it" if raw.startswith((b"TCT", MARK[:-2])) else "it is damaged"
        raise ConfigError(f"{earlier}: start the run again, or go on with the release that began it")
    if hashlib.sha256(raw[start:]).digest() != raw[len(MARK) : start]:
        raise ConfigError("it is damaged, its digest is another: put a copy back, or start the run again")
    return Message.decode(raw[start:])


def _read_opened(folder: RunFolder) -> Message:
    file = folder.path / OPENED
    try:
        return _read(file) if file.is_file() else Message()
    except (ConfigError, MessageError) as error:
        raise ConfigError(f"{file}, which says which totals were opened: {error}") from None


def _find_run(run: str, out: str) -> RunFolder:
    found, known = RunFolder.holding(CHECKPOINT, run, out)
    if found is not None:
        return found
    done = any((place / RESULT).is_file() for place in (Path(out) / run, Path(run)))
    none = "methods with rounds write one after their first rounds, and finished runs have none"
    raise ConfigError(
        f"no checkpoint of a run '{run}' in {out}/: {none if done or not known else nearest(run, known)}"
    )
