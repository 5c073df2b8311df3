"""The way to a SuperLink: what Flower's configuration says of it, and whether it answers."""

import os
import secrets
import socket
import ssl
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.core.errors import ConfigError, ProtectionError, UnavailableError, nearest
from tacit.deploy.certificates import HOST
from tacit.deploy.processes import free_port, listens
from tacit.engines.sitefolder import write_private

PATIENCE = 10.0  # seconds to wait for an answer
TOKEN = "control.token"  # beside Flower's configuration: what the SuperLink asks its operator for


@dataclass(frozen=True)
class Connection:
    """A SuperLink's address, and the certificate that vouches for it."""

    name: str
    host: str
    port: int
    certificates: Path | None
    source: Path = Path("config.toml")
    token: Path | None = None

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"


def read_connection(name: str | None, environment: Mapping[str, str] = os.environ) -> Connection:
    """Read a connection, or the default one, from Flower's configuration."""
    path = Path(environment.get("FLWR_HOME") or Path.home() / ".flwr") / "config.toml"
    try:
        known: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")).get("superlink", {})
    except FileNotFoundError:
        raise ConfigError(
            f"there is no {path}, which `tacit coordinator start` writes: start the SuperLink, or set "
            "FLWR_HOME to the folder where it is"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    chosen = name or known.get("default")
    connections = {key: value for key, value in known.items() if isinstance(value, dict)}
    if chosen not in connections:
        hint = nearest(str(chosen), connections) if connections else "there is none"
        raise ConfigError(f"no SuperLink '{chosen}' in {path}: {hint}")
    found = connections[chosen]
    host, colon, port = str(found.get("address", "")).rpartition(":")
    if not colon or not port.isdigit():
        raise ConfigError(f"[superlink.{chosen}] in {path} has no address of the form host:port")
    token = path.parent / str(found["token"]) if "token" in found else None
    return Connection(chosen, host.strip("[]"), int(port), _certificates(found, path, chosen), path, token)


def write_connection(home: Path, name: str) -> Connection:
    """Write how commands on this machine reach the SuperLink that is about to start, with a new token.

    The port is that of the last time, if it is free: a run under way finds the SuperLink again.
    """
    home.mkdir(exist_ok=True)  # a restored folder has none
    where = {"FLWR_HOME": str(home)}
    try:
        port = read_connection(name, where).port
    except ConfigError:
        port = 0
    if not port or listens(port):
        port = free_port()
    write_private(home / TOKEN, secrets.token_hex(32).encode())
    lines = [f'[superlink.{name}]\naddress = "{HOST}:{port}"', "insecure = true", f'token = "{TOKEN}"']
    text = "\n".join([f'[superlink]\ndefault = "{name}"\n', *lines]) + "\n"
    (home / "config.toml").write_text(text, encoding="utf-8")
    return read_connection(name, where)


def _certificates(found: dict[str, Any], path: Path, name: str) -> Path | None:
    if found.get("insecure"):
        return None
    if not (file := found.get("root-certificates")):
        raise ConfigError(
            f"[superlink.{name}] in {path} names no root-certificates: give the CA's certificate"
        )
    certificates = path.parent / Path(str(file)).expanduser()
    if not certificates.is_file():
        raise ConfigError(f"there is no certificate {certificates}, which [superlink.{name}] names")
    return certificates


def probe(connection: Connection) -> None:
    """Refuse a SuperLink that does not answer, or is not the one that the certificate vouches for."""
    try:
        with socket.create_connection((connection.host, connection.port), PATIENCE) as plain:
            if connection.certificates is None:
                return
            context = ssl.create_default_context(cafile=connection.certificates)
            with context.wrap_socket(plain, server_hostname=connection.host):
                return
    except ssl.SSLCertVerificationError as error:
        raise ProtectionError(
            f"whoever answers at {connection.address} is not vouched for by {connection.certificates} "
            f"({error.verify_message}): get the SuperLink's certificate from its operator, and do not go on "
            "without"
        ) from None
    except ssl.SSLError as error:
        raise UnavailableError(
            f"what answers at {connection.address} does not speak TLS ({error.reason}): is it a SuperLink?"
        ) from None
    except OSError as error:
        raise UnavailableError(
            f"no SuperLink answers at {connection.address} ({error.strerror or error}): start it, or correct "
            f"the address of '{connection.name}' in {connection.source}"
        ) from None
