"""A Flower federation on this machine: a SuperLink and SuperNodes on loopback, with TLS and node keys.

It is for trying out and for tests. Everything it starts is stopped when the block ends, however it ends.
"""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tacit.core.errors import UnavailableError
from tacit.core.exposure import COORDINATOR
from tacit.core.secret import Secret
from tacit.deploy.certificates import HOST, write_certificates, write_node_key
from tacit.deploy.launch import check_flower
from tacit.deploy.processes import (
    FAREWELL,
    SUPERLINK,
    SUPERNODE,
    ask_flower,
    environment_of,
    free_port,
    listens,
    processes_of,
    start,
    stop,
    superlink_words,
    supernode_words,
)
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import Roster, SiteFolder, SiteSettings, new_unlock, write_private

NAME = "local"  # of the connection in Flower's configuration
START = 120.0  # seconds for a SuperLink or a SuperNode to answer
ATTEMPTS = 3  # at starting a SuperNode, each on another port


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
        self._ports: dict[str, int] = {}

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
        self.port = self._ports["superlink"] = free_port()
        (self.home / "flower" / "config.toml").write_text(
            f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\naddress = "{HOST}:{self.port}"\n'
            f'root-certificates = "{self.home / "ca.crt"}"\n',
            encoding="utf-8",
        )
        self._spawn("superlink", SUPERLINK, superlink_words(self.home, HOST, self.port))
        self._wait_for("superlink")
        for name in (*self.clients, *self.services):
            public = write_node_key(self.home / f"{name}.node")
            ask_flower(["supernode", "register", str(public), NAME, "--name", name], self.environment)
            self.start_node(name)
        for name in (*self.clients, *self.services):
            self._wait_for(name)

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
        self._ports[name] = free_port()
        address, key = f"{HOST}:{self.port}", self.home / f"{name}.node"
        site, certificate = self.site(name), self.home / "ca.crt"
        self._spawn(name, SUPERNODE, supernode_words(address, certificate, key, self._ports[name], site))

    def _spawn(self, log: str, program: Sequence[str], words: Sequence[object]) -> None:
        with (self.home / f"{log}.log").open("ab") as file:
            self._processes[log] = start(program, words, self.environment, self.home, file)

    def _wait_for(self, name: str) -> None:
        """Wait until a process listens; a SuperNode that ended, since its port was taken, starts again."""
        until, attempts = time.monotonic() + START, 1
        while not listens(self._ports[name]):
            if self._processes[name].poll() is not None:
                if name == "superlink" or attempts == ATTEMPTS:
                    raise UnavailableError(f"Flower's process for {name} ended: {self._last_lines(name)}")
                attempts += 1
                self.start_node(name)
            elif time.monotonic() > until:
                raise UnavailableError(f"Flower's process for {name} is silent: {self._last_lines(name)}")
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
        # Flower's executors are in sessions of their own; they notice that their parents are gone.
        until = time.monotonic() + FAREWELL
        while (left := processes_of(self.home / "flower")) and time.monotonic() < until:
            time.sleep(0.1)
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
