"""The two ways to a SuperLink: a site's, by a certificate, and its operator's on one machine, by a token."""

import http.client
import secrets
import ssl
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from tacit.core.errors import ProtectionError, UnavailableError
from tacit.deploy.processes import free_port, listens
from tacit.engines.sitefolder import write_private

PATIENCE = 10.0  # seconds to wait for an answer
ACCESS = "control.json"  # in Flower's folder of a federation


class Access(msgspec.Struct, frozen=True):
    """The loopback port at which a SuperLink of this machine takes orders, and the token that it asks for."""

    port: int
    token: str

    @classmethod
    def read(cls, home: Path) -> Self:
        """Read how commands on this machine reach the SuperLink, if there is one."""
        try:
            return msgspec.json.decode((home / ACCESS).read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError):
            raise UnavailableError(
                f"no SuperLink was started from {home.parent}: `tacit coordinator start` does"
            ) from None

    @classmethod
    def renew(cls, home: Path) -> Self:
        """Write how a SuperLink that is about to start is reached, with a new token.

        The port is that of the last time, if it is free: a run under way finds the SuperLink again.
        """
        home.mkdir(exist_ok=True)  # a restored folder has none
        try:
            port = cls.read(home).port
        except UnavailableError:
            port = free_port()
        found = cls(free_port() if listens(port) else port, secrets.token_hex(32))
        write_private(home / ACCESS, msgspec.json.encode(found))
        return found


@dataclass(frozen=True)
class Connection:
    """Where sites reach a SuperLink, the certificate that vouches for it, and the file that says so."""

    host: str
    port: int
    certificate: Path
    source: Path

    @classmethod
    def at(cls, address: str, certificate: Path, source: Path) -> Self:
        """Return the way to an address of the form host:port."""
        host, _, port = address.rpartition(":")
        return cls(host.strip("[]"), int(port), certificate, source)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"


def probe(connection: Connection) -> str | None:
    """Return the time of a SuperLink; refuse one that does not answer, or is not vouched for."""
    try:
        host, port = connection.host, connection.port
        context = ssl.create_default_context(cafile=connection.certificate)
        with closing(http.client.HTTPSConnection(host, port, timeout=PATIENCE, context=context)) as asked:
            asked.connect()
            with suppress(OSError, http.client.HTTPException):
                asked.request("HEAD", "/")
                return asked.getresponse().getheader("date")
    except ssl.SSLCertVerificationError as error:
        raise ProtectionError(
            f"whoever answers at {connection.address} is not vouched for by {connection.certificate} "
            f"({error.verify_message}): get the SuperLink's certificate from its operator, and do not go on "
            "without"
        ) from None
    except ssl.SSLError as error:
        raise UnavailableError(
            f"what answers at {connection.address} does not speak TLS ({error.reason}): is it a SuperLink?"
        ) from None
    except (OSError, UnicodeError, http.client.InvalidURL) as error:
        raise UnavailableError(
            f"no SuperLink answers at {connection.address} ({getattr(error, 'strerror', None) or error}): "
            "start it, or ask its operator whether it runs, and whether a firewall is between; the address "
            f"is that in {connection.source}"
        ) from None
    return None
