"""A federation on loopback that is operated by the commands that people type: real processes, real files.

It is a context manager: whatever was started is gone when the block ends, however it ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import tacit
from examples.federation import processes_of
from tacit.data.files import load
from tacit.data.table import Table
from tacit.deploy.processes import free_port

TACIT = [str(Path(sys.executable).with_name("tacit"))]
# Commands run the package that is tested, also where another copy of it is installed.
SOURCES = os.pathsep.join([str(Path(tacit.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
COLUMNS = 4
START = 180.0  # seconds for a command to say that it is ready, on a machine that has other work
PATIENCE = 600.0  # seconds for a command that ends by itself


def rows_of(place: int, sites: int) -> Table:
    """Return the rows of one of so many sites: every so-manieth of the data set, and four columns of it."""
    return load("breast_cancer").take(slice(place, None, sites))


def write_rows(path: Path, place: int, sites: int) -> None:
    """Write the rows of one of so many sites as a CSV file."""
    part = rows_of(place, sites)
    lines = [",".join([*(f"x{i}" for i in range(COLUMNS)), "outcome"])]
    for values, label in zip(part.values, part.target, strict=True):
        lines.append(",".join([*map(str, values[:COLUMNS]), str(part.classes[label])]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Write tables as TOML; of simple values JSON is TOML."""
    pieces = []
    for name, table in tables.items():
        pieces += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items()), ""]
    return "\n".join(pieces)


def wait_until(what: str, ready: Callable[[], Any], seconds: float = START) -> Any:
    """Wait until something is true, and return it."""
    until = time.monotonic() + seconds
    while not (found := ready()):
        assert time.monotonic() < until, f"{seconds:g} s went by without {what}"
        time.sleep(0.1)
    return found


class Operated:
    """A federation in a folder: ``fed`` is the operator's, and each site has one of its own name.

    ``write`` writes the rows of a site, and ``accept`` are keys of the sites' policy, as TOML.
    """

    def __init__(
        self,
        folder: Path,
        sites: Sequence[str],
        *,
        started: bool = True,
        write: Callable[[Path, int, int], None] = write_rows,
        **accept: str,
    ) -> None:
        self.folder, self.sites, self._started = folder, tuple(sites), started
        self._write, self._accept = write, accept
        self.address = f"127.0.0.1:{free_port()}"
        self.running: dict[str, subprocess.Popen[str]] = {}
        self._typed: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        try:
            for place, site in enumerate(self.sites):
                self._write(self.folder / f"{site}.csv", place, len(self.sites))
            named = [word for site in self.sites for word in ("--site", site)]
            self.tacit("federation", "init", "fed", *named, "--address", self.address)
            for site in self.sites:
                rows = ("--data", f"{site}.csv", "--target", "outcome")
                self.tacit("site", "join", f"fed/bundles/{site}.bundle", *rows)
                self._set_policy(site)
            if self._started:
                self.start("fed")
                self.start(*self.sites)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _set_policy(self, site: str) -> None:
        """Write what a site accepts into its own file, as its owner does."""
        path = self.folder / site / "site.toml"
        lines = path.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line.partition(" = ")[0] not in self._accept]
        more = [f"{key} = {value}" for key, value in self._accept.items()]
        path.write_text("\n".join([*kept, *more]) + "\n", encoding="utf-8")

    @property
    def operator(self) -> Path:
        """The operator's folder."""
        return self.folder / "fed"

    # -- commands ------------------------------------------------------------------------------------

    def tacit(self, *words: object, code: int = 0, **variables: str) -> str:
        """Type a command, and return what it said; on its error output too, if it was to fail."""
        done = self.type(*words, **variables)
        out, err = done.communicate(timeout=PATIENCE)
        assert done.returncode == code, f"{words} ended with {done.returncode}: {out[-3000:]}{err[-3000:]}"
        return out + err if code else out

    def type(self, *words: object, **variables: str) -> subprocess.Popen[str]:
        """Type a command that takes a while."""
        found = subprocess.Popen(
            [*TACIT, *map(str, words)],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": SOURCES, **variables},
        )
        self._typed.append(found)
        return found

    def settings(self, name: str = "run.toml", **tables: Mapping[str, Any]) -> Path:
        """Write the settings of a run."""
        path = self.folder / name
        path.write_text(toml({"data": {"holdout": 0.0}, **tables}), encoding="utf-8")
        return path

    def submit(self, code: int = 0, **tables: Mapping[str, Any]) -> dict[str, Any]:
        """Train by these settings, and return the result, or the error."""
        done = self.type("submit", "fed", self.settings(**tables), "--json", "-q")
        out, err = done.communicate(timeout=PATIENCE)
        assert done.returncode == code, out[-3000:] + err[-3000:]
        found: dict[str, Any] = json.loads(out)
        return found["error"] if code else found

    def start(self, *names: str, **variables: str) -> None:
        """Start the coordinator (``fed``) or sites, and wait until they say that they run."""
        for name in names:
            log = (self.folder / f"{name}.out").open("w")
            words = ["coordinator", "start", "fed"] if name == "fed" else ["site", "start", name]
            self.running[name] = subprocess.Popen(
                [*TACIT, *words],
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": SOURCES, **variables},
            )
            log.close()
        for name in names:
            ready = "SuperLink at" if name == "fed" else "answers the SuperLink"
            wait_until(f"{name} being ready", lambda name=name, ready=ready: ready in self.said(name))

    def said(self, name: str) -> str:
        """Return what the command of the coordinator or of a site has said; fail if it has ended."""
        text = (self.folder / f"{name}.out").read_text(encoding="utf-8")
        assert self.running[name].poll() is None, f"{name} ended: {text}{self.log(name)[-2000:]}"
        return text

    def log(self, name: str) -> str:
        """Return the log of Flower's program at the coordinator or a site."""
        file = self.folder / name / ("superlink.log" if name == "fed" else "supernode.log")
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""

    def online(self) -> list[str]:
        """Return the sites that are connected, as the operator sees it."""
        told = json.loads(self.tacit("federation", "status", "fed", "--json"))
        return [row["site"] for row in told["sites"] if row["state"] == "online"]

    # -- what happens to processes -------------------------------------------------------------------

    def kill(self, name: str, part: bytes = b"") -> list[int]:
        """End the processes of the coordinator or of a site by ``kill -9``; those of a command line only."""
        killed = [number for number in self.processes(name) if part in command_line(number)]
        for number in killed:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        if not part and (command := self.running.pop(name, None)):
            command.kill()
            command.wait()
        return killed

    def stop(self, *names: str) -> None:
        """Stop as an operator does."""
        for name in names:
            self.tacit("federation", "stop", name)
            self.running.pop(name).wait(60)

    def processes(self, name: str) -> list[int]:
        """Return the numbers of a site's or the coordinator's processes, the command that runs them first."""
        command = self.running.get(name)
        own = [command.pid] if command else []
        return own + processes_of((self.folder / name / "flower").absolute())

    def end(self) -> None:
        """End all that was started."""
        for process in (*self._typed, *self.running.values()):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in (*self._typed, *self.running.values()):
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        until = time.monotonic() + 20
        while (left := [*self.left()]) and time.monotonic() < until:
            time.sleep(0.2)
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def left(self) -> Iterator[int]:
        """Return the numbers of Flower's processes that run from here."""
        for path in self.folder.glob("*/flower"):
            yield from processes_of(path.absolute())


def command_line(number: int) -> bytes:
    """Return the command line of a process; nothing if it has ended."""
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return b""
