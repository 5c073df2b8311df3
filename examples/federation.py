"""A Flower federation on this machine, and two trainings on it beside the same on the embedded engine.

`make federation` runs it: a SuperLink and three SuperNodes on loopback, with TLS and node keys. Everything it
starts is stopped when the block ends, however it ends. Our own tests run on :class:`LocalFederation`, too.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.text import Text

from tacit.cli.output import brief, make_table
from tacit.cli.progress import ProgressBars
from tacit.cli.tables import run_table
from tacit.core.errors import ConfigError, TacitError
from tacit.core.events import Subscriber
from tacit.core.exposure import COORDINATOR
from tacit.deploy.certificates import HOST
from tacit.deploy.connection import Access
from tacit.deploy.launch import launch
from tacit.deploy.operate import register_nodes, status
from tacit.deploy.processes import (
    FAREWELL,
    NODE,
    SUPERLINK,
    free_port,
    listens,
    start,
    stop,
    wait_for,
)
from tacit.deploy.provision import Operator, init, join
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import SiteFolder, SiteSettings
from tacit.runs.job import execute
from tacit.runs.page.costs import traffic_facts
from tacit.runs.settings import Settings

JOBS: tuple[dict[str, Any], ...] = (
    {"data": {"name": "breast_cancer"}, "method": {"name": "fedheonn"}},
    {"data": {"name": "digits"}, "method": {"name": "fedavg", "rounds": 2}, "protect": {"name": "masked"}},
)
say = Console(stderr=True, soft_wrap=True).print


class LocalFederation:
    """A running federation whose sites take part in experiments; a context manager.

    ``home`` is an empty folder for all keys, certificates, databases and logs. Services are parties without
    rows, such as "key-server". The ``policy`` of all sites is the usual one if none is given.
    """

    def __init__(
        self, home: Path, clients: Sequence[str], services: Sequence[str] = (), policy: Policy | None = None
    ) -> None:
        self.home, self.sites, self.policy = home.absolute(), (*clients, *services), policy
        self.port = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def coordinator(self) -> Path:
        """Folder of the coordinator's keys."""
        return self.home / COORDINATOR

    def site(self, name: str) -> Path:
        """Return the folder of a site."""
        return self.home / name

    def __enter__(self) -> Self:
        try:
            init(self.home, self.sites, f"{HOST}:{self.port}")
            for name in self.sites:
                bundle = self.home / "bundles" / f"{name}.bundle"
                join(bundle, self.site(name), SiteSettings(name, experiment=True), self.policy)
            for folder in map(SiteFolder, (self.coordinator, *map(self.site, self.sites))):
                alike = replace(folder.roster, exchanges={})  # waves are those of the embedded engine
                (folder.path / "roster.toml").write_text(alike.to_toml(), encoding="utf-8")
            self.start_superlink()
            for name in self.sites:
                self.start_node(name)
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_superlink(self) -> None:
        """Start the SuperLink, or start it again."""
        control = Access.renew(self.home / "flower").port
        self._spawn("superlink", SUPERLINK, [self.home, HOST, self.port])
        self._wait_for(lambda: listens(self.port) and listens(control))
        register_nodes(Operator(self.home))

    def start_node(self, name: str) -> None:
        """Start a site's SuperNode."""
        self._spawn(name, NODE, [f"{HOST}:{self.port}", self.site(name)])

    def wait(self) -> None:
        """Wait until all sites are connected."""
        self._wait_for(lambda: all(site["state"] == "online" for site in status(self.home)["sites"]))

    def _spawn(self, log: str, program: str, words: Sequence[object]) -> None:
        with (self.home / f"{log}.log").open("ab") as file:
            self._processes[log] = start(program, words, self.home, file)

    def _wait_for(self, ready: Callable[[], bool]) -> None:
        wait_for(ready, {self.home / f"{name}.log": process for name, process in self._processes.items()})

    def stop_node(self, *names: str) -> None:
        """Stop the SuperNodes of sites, or the SuperLink."""
        stop([self._processes.pop(name) for name in names])

    def stop(self) -> None:
        """Stop all that was started."""
        self.stop_node(*reversed(self._processes))
        # Workers notice that their parents are gone.
        until = time.monotonic() + FAREWELL
        while (left := processes_of(self.home / "flower")) and time.monotonic() < until:
            time.sleep(0.1)
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


def processes_of(home: Path) -> list[int]:
    """Find the processes with that home of Flower's in their environment, where there is /proc."""
    word, found = f"FLWR_HOME={home}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        # Others' processes cannot be read, and some end meanwhile.
        with suppress(OSError):
            if word in (process / "environ").read_bytes().split(b"\0") and int(process.name) != os.getpid():
                found.append(int(process.name))
    return found


def compare(tables: dict[str, Any], federation: LocalFederation, subscriber: Subscriber) -> dict[str, Any]:
    """Run one job on both engines, and return both results."""
    settings = Settings.from_tables(tables)
    title = f"{settings.method['name']} on {settings.data.name}, {settings.protect['name']}"
    say(f"{title}: on the embedded engine, then on Flower", style="dim")
    flower = {"flower": {"coordinator": str(federation.coordinator)}}
    flower |= {"run": {**tables["run"], "engine": "flower"}}
    found: dict[str, Any] = {}
    for name, run in (
        ("embedded", lambda: execute(settings)),
        ("flower", lambda: launch(Settings.from_tables({**tables, **flower}), subscriber)),
    ):
        began = time.perf_counter()
        result = run().result
        found[name] = {**result, "wall_s": time.perf_counter() - began}
    return {"title": title, **found, "same_model": found["embedded"]["model"] == found["flower"]["model"]}


def facts(result: Mapping[str, Any]) -> dict[str, str]:
    """Return what a run learnt and cost, in words."""
    scores = {name: f"{result[name]:.4f}" for name in ("accuracy", "f1", "auc", "loss")}
    traffic = {name: value for name, value, _ in traffic_facts(result)}
    waves = {
        "waves": str(len(result["ledger"]["waves"])),
        "from start to result": f"{result['wall_s']:.1f} s",
    }
    return {**scores, "model": result["model"][:12], **traffic, **waves}


def main() -> None:
    """Start a federation, train on it, compare with the embedded engine, and stop all that was started."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of all public randomness")
    parser.add_argument("--out", default="runs", help="folder for run folders")
    parser.add_argument("--home", type=Path, help="empty folder for keys, databases and logs, which stay")
    parser.add_argument("--json", action="store_true", help="print results as one JSON object")
    given = parser.parse_args()
    if given.home and given.home.exists() and any(given.home.iterdir()):
        raise ConfigError(f"{given.home} is not empty: give an empty folder, or none")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was started is stopped
    began, names = time.perf_counter(), ["client-1", "client-2", "client-3"]
    same = {"partition": {"name": "iid", "clients": 3}, "run": {"seed": given.seed, "out": given.out}}
    temporary = tempfile.TemporaryDirectory(prefix="tacit-federation-", ignore_cleanup_errors=True)
    say("starting a SuperLink and 3 SuperNodes on loopback, with TLS and node keys", style="dim")
    with (
        nullcontext(given.home) if given.home else temporary as home,
        LocalFederation(Path(home), names) as federation,
        ProgressBars(not sys.stderr.isatty()) as bars,
    ):
        runs = [compare({**job, **same}, federation, bars) for job in JOBS]
    seconds = time.perf_counter() - began
    if given.json:
        found = [{**run, **{name: brief(run[name]) for name in ("embedded", "flower")}} for run in runs]
        print(json.dumps({"runs": found, "seconds": seconds}))
        return
    for run in runs:
        table, flower = make_table(("",), ("embedded", "Flower")), facts(run["flower"])
        for name, value in facts(run["embedded"]).items():
            table.add_row(name, value, flower[name])
        models = "the same model" if run["same_model"] else "ANOTHER MODEL"
        Console().print(run_table(run["flower"]), Text(), table, Text(f"{models} on both, to the last bit\n"))
    print(f"all in {seconds:.0f} s; nothing is left running")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except TacitError as error:
        say(Text(f"{type(error).__name__}: {error}"))
        sys.exit(error.exit_code)
