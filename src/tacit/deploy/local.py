"""A Flower federation on this machine: a SuperLink and SuperNodes on loopback, with TLS and node keys.

It is for trying out and for tests. Everything it starts is stopped when the block ends, however it ends.
"""

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tacit.core.errors import UnavailableError
from tacit.core.exposure import COORDINATOR
from tacit.core.secret import Secret
from tacit.deploy.certificates import HOST, write_certificates, write_node_key
from tacit.deploy.launch import FLWR, QUIET, check_flower
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import Roster, SiteFolder, SiteSettings, new_unlock, write_private

NAME = "local"  # of the connection in Flower's configuration
START = 120.0  # seconds for a SuperLink or a SuperNode to answer
ATTEMPTS = 3  # at starting a SuperNode, each on another port
PORTS = range(20_000, 32_000)  # below those that systems give to outgoing connections
FAREWELL = 10.0  # seconds between asking a process to end and ending it


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
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        # Flower starts its own programs by name, and they are beside this interpreter.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        own = {"FLWR_HOME": str(self.home / "flower"), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
        return {**os.environ, **QUIET, **single, **own, "PATH": path}

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
        self._spawn(
            "superlink",
            ["flwr.superlink.cli.flower_superlink", "flower_superlink"],
            ["--ssl-ca-certfile", self.home / "ca.crt", "--ssl-certfile", self.home / "server.pem"],
            ["--ssl-keyfile", self.home / "server.key", "--enable-supernode-auth"],
            ["--database", self.home / "superlink.db", "--disable-runtime-dependency-installation"],
            ["--host", HOST, "--port", self.port],
        )
        self._wait_for("superlink")
        for name in (*self.clients, *self.services):
            public = write_node_key(self.home / f"{name}.node")
            words = [*FLWR, "supernode", "register", str(public), NAME, "--name", name]
            done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False)
            if done.returncode:
                said = done.stderr.strip() or done.stdout.strip()
                raise UnavailableError(f"{name} cannot be registered: {said}")
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
        self._spawn(
            name,
            ["flwr.supernode.cli.flower_supernode", "flower_supernode"],
            ["--superlink", f"{HOST}:{self.port}", "--root-certificates", self.home / "ca.crt"],
            ["--auth-supernode-private-key", self.home / f"{name}.node"],
            ["--host", HOST, "--port", self._ports[name], "--node-config", f'site="{self.site(name)}"'],
        )

    def _spawn(self, log: str, program: Sequence[str], *words: Sequence[object]) -> None:
        module, function = program
        code = f"import sys; sys.argv[0] = 'flower'; from {module} import {function}; {function}()"
        with (self.home / f"{log}.log").open("ab") as file:
            self._processes[log] = subprocess.Popen(
                [sys.executable, "-c", code, *(str(word) for group in words for word in group)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=self.home,
                start_new_session=True,  # a group of its own, which is ended as a whole
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    def _wait_for(self, name: str) -> None:
        """Wait until a process listens; a SuperNode that ended, since its port was taken, starts again."""
        until, attempts = time.monotonic() + START, 1
        while not _listens(self._ports[name]):
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
        processes = [self._processes.pop(name) for name in names]
        for process in processes:
            _signal(process, signal.SIGTERM)
        until = time.monotonic() + FAREWELL
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
        for process in processes:
            _signal(process, signal.SIGKILL)  # also children that outlived their parent
            process.wait()

    def stop(self) -> None:
        """Stop all that was started."""
        self.stop_node(*reversed(self._processes))
        # Flower's executors are in sessions of their own; they notice that their parents are gone.
        until = time.monotonic() + FAREWELL
        while (left := processes_of(self.home)) and time.monotonic() < until:
            time.sleep(0.1)
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


def _die_with_parent() -> None:
    """Ask Linux to end this process if the one that started it is killed, and can stop nothing any more."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))  # PR_SET_PDEATHSIG


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def processes_of(home: Path) -> list[int]:
    """Find the processes of the federation in that folder by their environment, where there is /proc."""
    word, found = f"FLWR_HOME={home / 'flower'}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        # Others' processes cannot be read, and some end meanwhile.
        with suppress(OSError):
            if word in (process / "environ").read_bytes().split(b"\0") and int(process.name) != os.getpid():
                found.append(int(process.name))
    return found


def free_port() -> int:
    """Find a port of the loopback interface that nobody uses now, and that no connection will be given."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as found, suppress(OSError):
            found.bind((HOST, port))
            return port


def _listens(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex((HOST, port)) == 0
