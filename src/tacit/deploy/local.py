"""A Flower federation on this machine: a SuperLink and SuperNodes on loopback, with TLS and node keys.

It is for trying out and for tests. Everything it starts is stopped when the block ends, however it ends.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from tacit.core.exposure import COORDINATOR
from tacit.deploy.certificates import HOST
from tacit.deploy.connection import Access
from tacit.deploy.launch import check_flower
from tacit.deploy.operate import register_nodes, status
from tacit.deploy.processes import (
    FAREWELL,
    NODE,
    SUPERLINK,
    environment_of,
    free_port,
    listens,
    processes_of,
    start,
    stop,
    wait_for,
)
from tacit.deploy.provision import Operator, init, join
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import SiteFolder, SiteSettings


class LocalFederation:
    """A running federation whose sites take part in experiments; a context manager.

    ``home`` is an empty folder for all keys, certificates, databases and logs. Services are parties without
    rows, such as "key-server". The ``policy`` of all sites is the usual one if none is given.
    """

    def __init__(
        self,
        home: Path,
        clients: Sequence[str],
        services: Sequence[str] = (),
        *,
        policy: Policy | None = None,
    ) -> None:
        check_flower()
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
        site = self.site(name)
        self._spawn(name, NODE, [f"{HOST}:{self.port}", site / "ca.crt", site / "node", site])

    def wait(self) -> None:
        """Wait until all sites are connected."""
        self._wait_for(lambda: all(site["state"] == "online" for site in status(self.home)["sites"]))

    def _spawn(self, log: str, program: str, words: Sequence[object]) -> None:
        with (self.home / f"{log}.log").open("ab") as file:
            environment = environment_of(self.home / "flower")
            self._processes[log] = start(program, words, environment, self.home, file)

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
