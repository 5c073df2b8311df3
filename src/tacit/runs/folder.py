"""Run folders: ``result.json``, ``events.jsonl``, ``report.html`` and the model of one run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.errors import ConfigError, UnavailableError, nearest
from tacit.core.events import Event


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
        known = sorted(p.parent.name for p in Path(out).glob("*/result.json"))
        if run == "latest" and known:
            return cls(Path(out) / known[-1])
        if run in known:
            return cls(Path(out) / run)
        hint = nearest(run, known) if known else "there are none yet; start one with `tacit run`"
        raise ConfigError(f"no run '{run}' in {out}/: {hint}")

    def write(self, name: str, content: bytes) -> Path:
        """Write a whole file, or nothing."""
        target, part = self.path / name, self.path / f".{name}.part"
        try:
            with part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise UnavailableError(f"cannot write {target}: {error.strerror}: free some space") from None
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


class EventFile:
    """Subscriber that appends every event to ``events.jsonl`` as one line of JSON."""

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.path / "events.jsonl"
        self._file = self._path.open("wb")
        self._encode = msgspec.json.Encoder().encode
        self._started = time.perf_counter()

    def __call__(self, number: int, event: Event) -> None:
        """Append one event."""
        elapsed = time.perf_counter() - self._started
        try:
            self._file.write(b'{"n":%d,"t":%.6f,%b\n' % (number, elapsed, self._encode(event)[1:]))
        except OSError as error:
            raise UnavailableError(f"cannot write {self._path}: {error.strerror}: free some space") from None

    def close(self) -> None:
        """Finish the file."""
        self._file.close()
