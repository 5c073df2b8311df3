"""The programs of a federation as processes: how a SuperLink and a node are started, found and stopped."""

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from tacit.core.errors import UnavailableError
from tacit.core.parallel import SINGLE
from tacit.deploy.certificates import HOST

START = 120.0  # seconds for a SuperLink or a SuperNode to answer
FAREWELL = 10.0  # seconds between asking a process to end and ending it
PORTS = range(20_000, 32_000)  # below those that systems give to outgoing connections
SUPERLINK, NODE = "tacit.deploy.superlink", "tacit.deploy.node"
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


def environment_of(home: Path) -> dict[str, str]:
    """Return the environment of programs that use Flower; ``home`` has its configuration."""
    return {**os.environ, **QUIET, **SINGLE, "FLWR_HOME": str(home)}


def start(module: str, words: Iterable[object], folder: Path, log: BinaryIO) -> subprocess.Popen[bytes]:
    """Start one of the programs of the federation in a folder; it ends with this process."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment_of(folder / "flower"),
        cwd=folder,
        start_new_session=True,  # a group of its own, which is ended as a whole
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )


def stop(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Stop processes with all that they have started."""
    left = list(processes)
    for process in left:
        _signal(process, signal.SIGTERM)
    until = time.monotonic() + FAREWELL
    for process in left:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, until - time.monotonic()))
    for process in left:
        _signal(process, signal.SIGKILL)  # also children that outlived their parent
        process.wait()


def wait_for(ready: Callable[[], bool], running: Mapping[Path, subprocess.Popen[bytes]]) -> None:
    """Wait for something that processes make true, each with its log; one that ended is an error."""
    until = time.monotonic() + START
    while not ready():
        ended = [log for log, process in running.items() if process.poll() is not None]
        if ended or time.monotonic() > until:
            log = [*ended, *running][0]
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-4:]
            raise UnavailableError(f"Flower did not start: {' / '.join(map(str.strip, lines))}; see {log}")
        time.sleep(0.1)


def _die_with_parent() -> None:
    """Ask Linux to end this process if the one that started it is killed, and can stop nothing any more."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))  # PR_SET_PDEATHSIG


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def free_port() -> int:
    """Find a port of the loopback interface that nobody uses now, and that no connection will be given."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as found, suppress(OSError):
            found.bind((HOST, port))
            return port


def listens(port: int, host: str = HOST) -> bool:
    """Return whether somebody listens at a port."""
    with socket.socket() as found:
        return found.connect_ex((host, port)) == 0
