"""A Flower federation on this machine: a SuperLink and SuperNodes on loopback, with TLS and node keys.

It is for trying out and for tests. Everything it starts is stopped when the block ends, however it ends.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tacit.core.errors import UnavailableError
from tacit.core.exposure import COORDINATOR
from tacit.core.secret import Secret
from tacit.deploy.certificates import HOST, write_certificates, write_node_key
from tacit.deploy.connection import Connection, read_connection, write_connection
from tacit.deploy.launch import check_flower
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
)
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import Roster, SiteFolder, SiteSettings, new_unlock, write_private

NAME = "local"  # of the connection in Flower's configuration
START = 120.0  # seconds for a SuperLink or a SuperNode to answer


class LocalFederation:
    """A running federation; a context manager.

    ``home`` is an empty folder for all keys, certificates, databases and logs. Services are parties without
    rows, such as "key-server". With ``exchanges`` the roster holds the clients' exchange keys, which saves a
    wave. The ``policy`` of all sites is the usual one if none is given.
    """

    def __init__(
        self,
        home: Path,
        clients: Sequence[str],
        services: Sequence[str] = (),
        *,
        exchanges: bool = False,
        policy: Policy | None = None,
    ) -> None:
        check_flower()
        self.home = home.absolute()
        self.clients, self.services = tuple(clients), tuple(services)
        self.exchanges, self.policy = exchanges, policy
        self.port = 0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def coordinator(self) -> Path:
        """Folder of the coordinator's keys."""
        return self.home / COORDINATOR

    def site(self, name: str) -> Path:
        """Return the folder of a site."""
        return self.home / name

    @property
    def environment(self) -> dict[str, str]:
        """What commands about this federation need in their environment."""
        return environment_of(self.home / "flower")

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        (self.home / "flower").mkdir(parents=True)
        self._write_sites()
        write_certificates(self.home)
        from tacit.deploy.control import Control

        self.port = free_port()
        connection = self.start_superlink()
        with Control(connection) as asked:
            for name in (*self.clients, *self.services):
                public = write_node_key(self.home / f"{name}.node")
                asked.register(name, public.read_text(encoding="utf-8"))
                self.start_node(name)
        self.wait()

    def start_superlink(self) -> Connection:
        """Start the SuperLink, or start it again, and return how to reach it."""
        connection = write_connection(self.home / "flower", NAME)
        self._spawn("superlink", SUPERLINK, [self.home, HOST, self.port, connection.port])
        self._wait_for(lambda: listens(self.port) and listens(connection.port))
        return connection

    def wait(self) -> None:
        """Wait until all sites are connected."""
        from tacit.deploy.control import Control

        wanted = len(self.clients) + len(self.services)
        with Control(read_connection(NAME, self.environment)) as asked:
            self._wait_for(lambda: sum(n["status"] == "online" for n in asked.nodes().values()) == wanted)

    def _write_sites(self) -> None:
        """Write a folder for each party: secrets under a key of its own, and everybody's identity pinned."""
        folders = {}
        for name in (COORDINATOR, *self.clients, *self.services):
            key = new_unlock().encode()
            write_private(self.home / f"{name}.unlock", key)
            settings = SiteSettings(name, experiment=True, unlock=str(self.home / f"{name}.unlock"))
            folders[name] = SiteFolder.create(self.site(name), settings, Secret(key), self.policy)
        identities = {name: folder.identity for name, folder in folders.items()}
        roster = Roster(
            identities[COORDINATOR],
            {name: identities[name] for name in self.clients},
            {name: identities[name] for name in self.services},
            {name: folders[name].exchange for name in self.clients if self.exchanges},
        )
        for folder in folders.values():
            (folder.path / "roster.toml").write_text(roster.to_toml(), encoding="utf-8")

    def start_node(self, name: str) -> None:
        """Start a site's SuperNode."""
        words = [f"{HOST}:{self.port}", self.home / "ca.crt", self.home / f"{name}.node", self.site(name)]
        self._spawn(name, NODE, words)

    def _spawn(self, log: str, program: str, words: Sequence[object]) -> None:
        with (self.home / f"{log}.log").open("ab") as file:
            self._processes[log] = start(program, words, self.environment, self.home, file)

    def _wait_for(self, ready: Callable[[], bool]) -> None:
        """Wait for something that the processes make true."""
        until = time.monotonic() + START
        while not ready():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise UnavailableError(f"the process of {name} ended: {self._last_lines(name)}")
            if time.monotonic() > until:
                raise UnavailableError(f"the federation did not start within {START:g} s: see {self.home}")
            time.sleep(0.1)

    def _last_lines(self, log: str) -> str:
        text = (self.home / f"{log}.log").read_text(encoding="utf-8", errors="replace")
        return " / ".join(line.strip() for line in text.splitlines()[-5:])

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
