"""Flower's programs as processes: how a SuperLink and a SuperNode are started, found, asked and stopped."""

import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from tacit.core.errors import UnavailableError
from tacit.deploy.certificates import HOST
from tacit.deploy.launch import FLWR, QUIET

FAREWELL = 10.0  # seconds between asking a process to end and ending it
PORTS = range(20_000, 32_000)  # below those that systems give to outgoing connections
SUPERLINK = ("flwr.superlink.cli.flower_superlink", "flower_superlink")
SUPERNODE = ("flwr.supernode.cli.flower_supernode", "flower_supernode")


def environment_of(home: Path) -> dict[str, str]:
    """Return what Flower's programs need in their environment; ``home`` has its configuration."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    # Flower starts its own programs by name, and they are beside this interpreter.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"FLWR_HOME": str(home), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
    return {**os.environ, **QUIET, **single, **own, "PATH": path}


def superlink_words(folder: Path, host: str, port: int) -> list[object]:
    """Return the flags of a SuperLink whose certificates and database are in a folder."""
    return [
        *("--ssl-ca-certfile", folder / "ca.crt", "--ssl-certfile", folder / "server.pem"),
        *("--ssl-keyfile", folder / "server.key", "--enable-supernode-auth"),
        *("--database", folder / "superlink.db", "--disable-runtime-dependency-installation"),
        *("--host", host, "--port", port),
    ]


def supernode_words(address: str, certificate: Path, key: Path, port: int, site: Path) -> list[object]:
    """Return the flags of a SuperNode that answers for a site."""
    return [
        *("--superlink", address, "--root-certificates", certificate, "--auth-supernode-private-key", key),
        *("--host", HOST, "--port", port, "--node-config", f'site="{site}"'),
    ]


def start(
    program: Sequence[str],
    words: Iterable[object],
    environment: Mapping[str, str],
    folder: Path,
    log: BinaryIO | int | None,
) -> subprocess.Popen[bytes]:
    """Start one of Flower's programs, which ends with this process."""
    module, function = program
    code = f"import sys; sys.argv[0] = 'flower'; from {module} import {function}; {function}()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT if log is not None else None,
        env=environment,
        cwd=folder,
        start_new_session=True,  # a group of its own, which is ended as a whole
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )


def ask_flower(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a command of Flower's, and return what it printed; refuse with what it said if it failed."""
    done = subprocess.run([*FLWR, *words], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"flwr {' '.join(words[:2])}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def list_nodes(link: str, environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the registered SuperNodes by their number."""
    told = json.loads(ask_flower(["supernode", "list", link, "--format", "json"], environment))
    if not told.get("success"):
        raise UnavailableError(
            f"the SuperLink does not answer: {told.get('error-message', 'it says nothing')}"
        )
    return {str(node["node-id"]): node for node in told["nodes"]}


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


def _die_with_parent() -> None:
    """Ask Linux to end this process if the one that started it is killed, and can stop nothing any more."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))  # PR_SET_PDEATHSIG


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def processes_of(home: Path) -> list[int]:
    """Find the processes with that home of Flower's in their environment, where there is /proc."""
    word, found = f"FLWR_HOME={home}".encode(), []
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


def listens(port: int, host: str = HOST) -> bool:
    """Return whether somebody listens at a port."""
    with socket.socket() as found:
        return found.connect_ex((host, port)) == 0
