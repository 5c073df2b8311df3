"""Run folders: ``result.json``, ``events.jsonl``, ``report.html`` and the model of one run."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.errors import ConfigError, UnavailableError, nearest
from tacit.core.events import Event, WaveStarted

FLUSH = 0.25  # seconds for which events may wait in memory


class RunFolder:
    """A run's folder; whole files appear at once, so that a killed process leaves none half-written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, out: str, run: str) -> RunFolder:
        """Make the folder of a new run."""
        path = Path(out) / run
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise ConfigError(f"{path} is there already: choose another folder with --out") from None
        except OSError as error:
            raise UnavailableError(
                f"cannot make {path}: {error.strerror}: choose another with --out"
            ) from None
        return cls(path)

    @classmethod
    def find(cls, run: str, out: str = "runs") -> RunFolder:
        """Find a run by the path of its folder or by its id; "latest" is the newest one."""
        direct = Path(run)
        if (direct / "result.json").is_file():
            return cls(direct)
        found = {p.parent.name: p for p in Path(out).glob("*/result.json")}
        known = sorted(found)
        if run == "latest" and known:
            # An id starts with date and time; runs of one second are told apart by their files.
            newest = max(known, key=lambda name: (name[:15], found[name].stat().st_mtime_ns))
            return cls(Path(out) / newest)
        if run in known:
            return cls(Path(out) / run)
        hint = nearest(run, known) if known else "there are none yet; start one with `tacit run`"
        raise ConfigError(f"no run '{run}' in {out}/: {hint}")

    def write(self, name: str, content: bytes) -> Path:
        """Write a whole file, or nothing."""
        return self.place(name, lambda path: _write_through(path, content))

    def place(self, name: str, write: Callable[[Path], Any]) -> Path:
        """Let a function write a whole file, or nothing: a failed one leaves no trace."""
        from safetensors import SafetensorError

        target, part = self.path / name, self.path / f".{name}.part"
        try:
            write(part)
            part.replace(target)
        except (OSError, SafetensorError) as error:
            if self.path.is_dir():
                part.unlink(missing_ok=True)
            raise cannot_write(target, error) from None
        return target

    def write_json(self, name: str, value: Mapping[str, Any]) -> Path:
        """Write plain values as JSON."""
        return self.write(name, msgspec.json.format(msgspec.json.encode(value), indent=1))

    def result(self) -> dict[str, Any]:
        """Read ``result.json``."""
        try:
            found: dict[str, Any] = msgspec.json.decode((self.path / "result.json").read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"{self.path}/result.json cannot be read: {error}") from None
        return found


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
        self._path = folder.path / "events.jsonl"
        try:
            self._file = self._path.open("ab" if append else "wb")
            if append:
                self._file.truncate(self.length(folder))
        except OSError as error:
            raise cannot_write(self._path, error) from None
        self._encode = msgspec.json.Encoder().encode
        self._started = time.perf_counter()
        self._flushed = 0.0

    @staticmethod
    def length(folder: RunFolder) -> int:
        """Bytes of whole lines: a process that was killed may have left half a line."""
        try:
            return (folder.path / "events.jsonl").read_bytes().rfind(b"\n") + 1
        except OSError:
            return 0

    def __call__(self, number: int, event: Event) -> None:
        """Append one event."""
        elapsed = time.perf_counter() - self._started
        try:
            self._file.write(b'{"n":%d,"t":%.6f,%b\n' % (number, elapsed, self._encode(event)[1:]))
            # Somebody may follow the file; but 20,000 replies may come at once.
            if elapsed > self._flushed + FLUSH or isinstance(event, WaveStarted):
                self._file.flush()
                self._flushed = elapsed
        except OSError as error:
            raise cannot_write(self._path, error) from None

    def close(self) -> None:
        """Finish the file; what is still in memory may find the disk full."""
        try:
            self._file.close()
        except OSError as error:
            raise cannot_write(self._path, error) from None
