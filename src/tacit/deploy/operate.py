"""Running a provisioned federation: the coordinator's SuperLink, a site's SuperNode, who is connected."""

import fcntl
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TextIO

from tacit.core.errors import ConfigError, UnavailableError
from tacit.deploy.certificates import HOST
from tacit.deploy.connection import Access, Connection, probe
from tacit.deploy.launch import check_flower
from tacit.deploy.processes import QUIET, START, SUPERLINK, listens, start, stop, wait_for
from tacit.deploy.provision import LINK, Operator
from tacit.deploy.records import told_by_sites
from tacit.engines.audit import AuditLog
from tacit.engines.sitefolder import SiteFolder

PID = "tacit.pid"  # of the command that runs here
UNIT = Path(__file__).with_name("unit.service")
Tell = Callable[[str], None]


def unit(what: str, words: list[str], folder: Path) -> str:
    """Return a systemd unit that runs one of the commands below, as the owner of the folder."""

    def quote(word: str) -> str:
        return json.dumps(word) if re.search(r"[^\w%./:-]", word) else word

    command = " ".join(map(quote, [str(Path(sys.executable).with_name("tacit")), *words]))
    path, user = quote(str(folder.absolute())), folder.owner() if folder.exists() else "tacit"
    return UNIT.read_text().format(what=what, user=user, command=command, folder=path).replace("%", "%%")


def bind_address(host: str) -> str:
    """Return where to listen for a host that others know by that name."""
    try:
        return str(ip_address(host))
    except ValueError:
        return HOST if host == "localhost" else "0.0.0.0"


def serve_coordinator(path: Path, tell: Tell, bind: str | None = None) -> None:
    """Run the SuperLink of a federation, with its nodes registered, until it is stopped."""
    check_flower()
    operator, path = Operator(path), path.absolute()
    link = operator.link
    host = bind or bind_address(link.host)
    here = HOST if host == "0.0.0.0" else host
    if listens(link.port, here):
        raise UnavailableError(f"port {link.port} of {host} is taken: is the coordinator running already?")
    with (path / "superlink.log").open("ab") as log:
        control = Access.renew(path / "flower").port
        process = start(SUPERLINK, [path, host, link.port], path, log)
        with _running(path, [process]):
            ready = lambda: listens(link.port, here) and listens(control)  # noqa: E731
            wait_for(ready, {path / "superlink.log": process})
            names = register_nodes(operator)
            tell(f"SuperLink at {operator.state.address}; registered: {', '.join(names) or 'no site yet'}")
            process.wait()


def serve_site(folder: Path, tell: Tell) -> None:
    """Run a site's SuperNode until it is stopped."""
    check_flower()
    site, folder = SiteFolder(folder), folder.absolute()
    connection = connection_of(folder)
    site.secret  # noqa: B018  # locked, it could answer nobody
    probe(connection)
    os.environ.update({**QUIET, "FLWR_HOME": str(folder / "flower")})
    from tacit.deploy.node import serve_node

    logging.basicConfig(
        filename=folder / "supernode.log", level=logging.INFO, format="%(asctime)s %(message)s"
    )
    with _running(folder):
        ready = f"{site.name} answers the SuperLink at {connection.address}"
        serve_node(connection.address, folder, lambda: tell(ready))


def connection_of(folder: Path) -> Connection:
    """Return the way to the SuperLink that a site's bundle names."""
    try:
        address = str(json.loads((folder / LINK).read_text())["address"])
        return Connection.at(address, folder / "ca.crt", folder / LINK)
    except (OSError, ValueError, KeyError):
        raise ConfigError(f"{folder} has no address: make it with `tacit site join BUNDLE`") from None


@contextmanager
def _running(folder: Path, processes: Sequence[subprocess.Popen[bytes]] = ()) -> Iterator[None]:
    path = folder / PID
    with path.open("a") as lock:  # held until this process ends, however it does
        if not _locks(lock):
            raise UnavailableError(f"something runs from {folder} already: stop it first")
        path.write_text(str(os.getpid()))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            yield
        finally:
            stop(processes)
            path.unlink(missing_ok=True)


def _locks(file: TextIO) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def register_nodes(operator: Operator) -> list[str]:
    """Let the SuperLink know the nodes of all sites, and forget those of revoked ones; return the names."""
    from tacit.deploy.control import Control

    members = operator.state.members
    with Control(operator.path / "flower") as control:
        known = control.nodes()
        for name, member in members.items():
            if member.active and member.number not in known:
                member.number = control.register(name, member.node)
            elif not member.active and member.number in known:
                control.unregister(member.number)
    operator.save_state()
    return [name for name, member in members.items() if member.active]


def status(path: Path) -> dict[str, Any]:
    """Return who takes part, who is connected since when, and what sites told of their rows and policy."""
    from tacit.deploy.control import Control

    operator = Operator(path)
    try:
        with Control(path / "flower") as control:
            nodes, running = control.nodes(), True
    except UnavailableError:
        nodes, running = {}, False
    rows, told = list[dict[str, Any]](), told_by_sites(AuditLog(path))
    for name, member in operator.state.members.items():
        node, absent = nodes.get(member.number, {}), "not registered" if running else "unknown"
        state = node.get("status", absent) if member.active else "revoked"
        since = node.get("online-at") if state == "online" else None
        known = {"schema": None, "policy": None, "told": None, **told.get(name, {})}
        rows.append({"site": name, "state": state, "since": since, "identity": member.identity[:16], **known})
    found = {"address": operator.state.address, "running": running}
    return {**found, "revision": operator.state.revision, "sites": rows}


def end(folder: Path) -> None:
    """Stop the coordinator or the site that runs from a folder."""
    try:
        with (folder / PID).open() as file:
            if _locks(file):  # left by a process that was killed: the number may be another's by now
                raise ProcessLookupError
            number = int(file.read())
        os.kill(number, signal.SIGTERM)
    except (OSError, ValueError):
        raise UnavailableError(f"nothing runs from {folder}") from None
    until = time.monotonic() + START / 4
    with suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.kill(number, 0)
            time.sleep(0.1)
