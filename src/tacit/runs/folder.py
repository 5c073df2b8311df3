"""Run folders: ``result.json``, ``events.jsonl``, ``report.html`` and the model of a run; lists of them."""

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shlex import quote
from typing import Any, Self

import msgspec

from tacit.core.errors import ConfigError, UnavailableError, nearest
from tacit.core.events import Event, WaveStarted
from tacit.runs.page.scores import BEST

FLUSH = 0.25  # seconds for which events may wait in memory
RESULT = "result.json"
EVENTS = "events.jsonl"
CHECKPOINT = "checkpoint.bin"
OPENED = "opened.bin"  # who was in the totals that were opened, or are about to be
STAMP = len("20260301-101500")  # an id starts with date and time
STATES = ("done", "failed", "stopped", "unfinished")
FACTS = ("created", "method", "data", "clients", "protect", "partition", "seed", "training_s")


class RunFolder:
    """A run's folder; whole files appear at once, so that a killed process leaves none half-written.

    Files of a ``private`` one are for their owner only, wherever they are moved: they name sites and words.
    """

    def __init__(self, path: Path, *, private: bool = False) -> None:
        self.path, self._private = path, private

    @classmethod
    def create(cls, out: str, run: str) -> Self:
        """Make the folder of a new run, which only its owner may read."""
        path = Path(out) / run
        try:
            path.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            raise ConfigError(f"{path} is there already: choose another folder with --out") from None
        except OSError as error:
            raise UnavailableError(
                f"cannot make {path}: {error.strerror}: choose another with --out"
            ) from None
        return cls(path, private=True)

    @classmethod
    def find(cls, run: str, out: str = "runs") -> Self:
        """Find a run that has a result by the path of its folder or by its id; "latest" is the newest one."""
        direct, (found, known) = cls(Path(run)), cls.holding(RESULT, run, out)
        if found is not None:
            return found
        stopped = [folder for folder in _unfinished(out) if run in ("latest", folder.path.name)]
        if direct.is_unfinished or stopped:
            newest = direct if direct.is_unfinished else max(stopped, key=lambda each: each.age(EVENTS))
            raise ConfigError(newest.unfinished())
        hint = nearest(run, known) if known else "there are none yet; start one with `tacit run`"
        raise ConfigError(f"no run '{run}' in {out}/: {hint}")

    @classmethod
    def holding(cls, name: str, run: str, out: str) -> tuple[Self | None, dict[str, Self]]:
        """Find a run as :meth:`find` does, by a file that it has; return all that have it as well, by id."""
        known = {path.parent.name: cls(path.parent, private=True) for path in Path(out).glob(f"*/{name}")}
        if (Path(run) / name).is_file():
            return cls(Path(run), private=True), known
        if run == "latest" and known:
            return max(known.values(), key=lambda folder: folder.age(name)), known
        return known.get(run), known

    def skipped(self) -> "RunFolder | None":
        """Return the newest run beside this one that began later and has no result, if there is one."""
        later = [folder for folder in _unfinished(self.path.parent) if folder.age(EVENTS) > self.age(RESULT)]
        return max(later, key=lambda folder: folder.age(EVENTS), default=None)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Let no other process work on the run within the block, however this one ends."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise UnavailableError(
                f"another process still works on run {self.path.name}: wait until it is done, or stop it"
            ) from None
        try:
            yield
        finally:
            os.close(handle)

    @property
    def is_unfinished(self) -> bool:
        """Whether a run began here that has left no result."""
        here = any((self.path / name).is_file() for name in (EVENTS, CHECKPOINT))
        return here and not (self.path / RESULT).is_file()

    def unfinished(self) -> str:
        """Say that the run has no result, and what can be done."""
        return f"run {self.path.name} was stopped without a result, or is not done yet; {self.way_on()}"

    def way_on(self) -> str:
        """Say how a run that was stopped goes on."""
        if (self.path / CHECKPOINT).is_file():
            return f"`tacit resume {quote(str(self.path))}` goes on from its checkpoint"
        return "it has no checkpoint to go on from: start it again with `tacit run`"

    def age(self, name: str) -> tuple[str, int]:
        """Return the key by which runs are ordered; those of one second are told apart by their files."""
        file = self.path / name
        return self.path.name[:STAMP], file.stat().st_mtime_ns if file.is_file() else 0

    def write(self, name: str, content: bytes) -> Path:
        """Write a whole file, or nothing."""
        return self.place(name, lambda path: _write_through(path, content))

    def place(self, name: str, write: Callable[[Path], Any]) -> Path:
        """Let a function write a whole file, or nothing: a failed one leaves no trace."""
        from safetensors import SafetensorError

        target, part = self.path / name, self.path / f".{name}.part"
        try:
            write(part)
            self.guard(part)
            part.replace(target)
        except (OSError, SafetensorError) as error:
            if self.path.is_dir():
                part.unlink(missing_ok=True)
            raise cannot_write(target, error) from None
        return target

    def guard(self, file: Path) -> None:
        """Let only the owner read a file of a private folder."""
        if self._private:
            file.chmod(0o600)

    def write_json(self, name: str, value: Mapping[str, Any]) -> Path:
        """Write plain values as JSON."""
        return self.write(name, msgspec.json.format(msgspec.json.encode(value), indent=1))

    def result(self) -> dict[str, Any]:
        """Read ``result.json``, and refuse what is not the result of a run."""
        path = self.path / RESULT
        try:
            found = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None
        # A run on Flower that did not even begin says no more than why.
        needed = ("run", "error") if "error" in found else ("run", "method", "data", "protect")
        if missing := [name for name in needed if name not in found]:
            raise ConfigError(f"{path} cannot be read: it is no result of a run, '{missing[0]}' is missing")
        return found


def _unfinished(out: str | Path) -> list[RunFolder]:
    inside = [RunFolder(path) for path in sorted(Path(out).glob("*"))]
    return [folder for folder in inside if folder.is_unfinished]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say of an error of the disk within the block which file it was, and what to do."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from None


def cannot_write(path: Path, error: Exception) -> UnavailableError:
    """Say why a file cannot be written, and what to do."""
    full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
    way_out = "free some space" if full else "choose another place"
    return UnavailableError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}: {way_out}")


def _write_through(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


class EventFile:
    """Subscriber that appends every event to ``events.jsonl`` as one line of JSON."""

    def __init__(self, folder: RunFolder, *, append: bool = False) -> None:
        self._path = folder.path / EVENTS
        with writing(self._path):
            self._file = self._path.open("ab" if append else "wb")
            folder.guard(self._path)
            if append:  # a process that was killed may have left half a line
                self._file.truncate(self._path.read_bytes().rfind(b"\n") + 1)
        self._encode = msgspec.json.Encoder().encode
        self._started = time.perf_counter()
        self._flushed = 0.0

    def __call__(self, number: int, event: Event) -> None:
        elapsed = time.perf_counter() - self._started
        with writing(self._path):
            self._file.write(b'{"n":%d,"t":%.6f,%b\n' % (number, elapsed, self._encode(event)[1:]))
            # Somebody may follow the file; but 20,000 replies may come at once.
            if elapsed > self._flushed + FLUSH or isinstance(event, WaveStarted):
                self._file.flush()
                self._flushed = elapsed

    def close(self) -> None:
        """Finish the file; what is still in memory may find the disk full."""
        with writing(self._path):
            self._file.close()


def list_runs(
    out: str = "runs", names: Sequence[str] = (), *, state: str | None = None, **wanted: str | None
) -> list[dict[str, Any]]:
    """Return the runs in a folder, the newest first, as plain values.

    ``names`` are ids or how they begin. ``state`` is one of ``STATES``: a stopped run can be resumed.
    ``wanted`` are facts such as ``method="fedavg"``; None wants any.
    """
    if state not in (None, *STATES):
        raise ConfigError(f"unknown state '{state}': {nearest(str(state), STATES)}")
    parents = {path.parent for name in (RESULT, EVENTS, CHECKPOINT) for path in Path(out).glob(f"*/{name}")}
    found = [_facts(RunFolder(path)) for path in sorted(parents, reverse=True)]
    for name in names:
        if not any(row["run"].startswith(name) for row in found):
            raise ConfigError(f"no run '{name}' in {out}/: {nearest(name, [row['run'] for row in found])}")
    asked = {key: value for key, value in {"state": state, **wanted}.items() if value is not None}
    chosen = [row for row in found if row["run"].startswith(tuple(names) or "")]
    return [row for row in chosen if all(str(row[key]) == value for key, value in asked.items())]


def _facts(folder: RunFolder) -> dict[str, Any]:
    try:
        result = {} if folder.is_unfinished else folder.result()
        state = "unfinished" if not result else "failed" if "error" in result else "done"
    except ConfigError:
        result, state = {}, "failed"
    if state == "failed" and (folder.path / CHECKPOINT).is_file():
        state = "stopped"
    measure = next((name for name in BEST if result.get(name) is not None), "")
    facts = {name: result.get(name) for name in FACTS}
    score = {"measure": measure or None, "score": result.get(measure)}
    return {"run": folder.path.name, "state": state, **facts, **score, "folder": str(folder.path)}


def delete_runs(rows: Iterable[dict[str, Any]]) -> None:
    """Delete runs as :func:`list_runs` gives them; none while a process still works on one of them."""
    folders = [RunFolder(Path(row["folder"])) for row in rows]
    with ExitStack() as claims:
        for folder in folders:
            claims.enter_context(folder.claimed())
        for folder in folders:
            with writing(folder.path):
                shutil.rmtree(folder.path)
