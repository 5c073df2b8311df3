"""A PostgreSQL server of its own, on loopback, for as long as a test needs it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

USER, PASSWORD = "ann", "s3cret-pass"


def find_server() -> Path | None:
    """Return the folder of PostgreSQL's programs: Debian keeps them out of the path."""
    found = shutil.which("initdb")
    places = [*([Path(found).parent] if found else []), *sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    return places[-1] if places and shutil.which("postgres", path=str(places[-1])) else None


@contextmanager
def server(programs: Path) -> Iterator[str]:
    """Start a server with an empty database ``ward``, and yield its address, without the password."""
    # PostgreSQL refuses to run as root, and whoever it runs as must reach its folder.
    other: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    who = other if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="tacit-postgres-") as name:
        home, cluster = Path(name), Path(name) / "cluster"
        (home / "password").write_text(PASSWORD)
        if who:
            shutil.chown(home, "nobody", "nogroup")
            shutil.chown(home / "password", "nobody", "nogroup")
        words = [
            "-D",
            cluster,
            "-U",
            USER,
            "-A",
            "scram-sha-256",
            f"--pwfile={home / 'password'}",
            "--no-sync",
        ]
        subprocess.run(
            [programs / "initdb", *words, "-E", "UTF8"], check=True, capture_output=True, cwd=home, **who
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = ["-D", cluster, "-h", "127.0.0.1", "-p", str(port), "-k", "", "-F"]
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                [programs / "postgres", *words], stdout=log, stderr=log, cwd=home, **who
            )
        try:
            _execute(f"postgresql://{USER}@127.0.0.1:{port}/postgres", "CREATE DATABASE ward", process)
            yield f"postgresql://{USER}@127.0.0.1:{port}/ward"
        finally:
            process.send_signal(signal.SIGINT)  # its fast shutdown
            process.wait(20)


def _execute(address: str, text: str, process: subprocess.Popen[bytes] | None = None) -> None:
    from adbc_driver_manager import OperationalError
    from adbc_driver_postgresql import dbapi

    for patience in range(200, -1, -1):
        try:
            connection = dbapi.connect(address.replace("@", f":{PASSWORD}@"), autocommit=True)
            break
        except OperationalError:
            if not patience or process is None or process.poll() is not None:
                raise
            time.sleep(0.05)
    with connection, connection.cursor() as cursor:
        cursor.execute(text)


def execute(address: str, text: str) -> None:
    """Run a statement on a server."""
    _execute(address, text)
