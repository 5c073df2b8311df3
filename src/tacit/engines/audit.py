"""The audit log of a site or a coordinator: who asked what, what left, under what, and who allowed it.

It is a hash chain in one SQLite file (:mod:`tacit.engines.links`), to which records are only ever added. A
record is on disk before what it tells of leaves: what is recorded may not have left, but nothing leaves that
is not recorded. It holds no row, no secret and no value of a message.
"""

import datetime
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tacit.core.errors import ConfigError, ProtectionError, UnavailableError
from tacit.core.exposure import COORDINATOR
from tacit.core.text import visible
from tacit.engines.links import TABLE, Links

FILE, HEAD = "audit.db", "audit.head"
PATIENCE = 60.0  # seconds to wait for another process
LONGEST = 500  # characters of a text that somebody else may have chosen


class End(NamedTuple):
    """The last record of a log that is whole: whoever notes it elsewhere can show later what was added."""

    number: int
    digest: str


class AuditLog:
    """The log in a folder, made with the first record; an operator's is in the coordinator's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / COORDINATOR if (folder / "federation.json").is_file() else folder
        self.path, self.head = self.folder / FILE, self.folder / HEAD

    def add(self, event: str, **facts: Any) -> None:
        """Add a record, and return once it is on disk; refuse if it cannot be, or if the log is not whole."""
        known = {name: value for name, value in facts.items() if value is not None}
        known |= {name: visible(text[:LONGEST]) for name, text in known.items() if isinstance(text, str)}
        raw = msgspec.json.encode({"at": now(), "event": event, **known}, enc_hook=dict)  # settings are views
        try:
            self.path.touch(0o600)
            with self._connected() as (connection, links):
                connection.execute("BEGIN IMMEDIATE")
                if not connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                    connection.execute(TABLE)
                    if not self.head.exists():
                        links.keep()  # before the first record: nobody finds one without a head
                links.check_end()
                links.add(raw)
                connection.execute("COMMIT")
                connection.execute("BEGIN IMMEDIATE")  # of two processes none writes an older head
                links.keep()
                connection.execute("ROLLBACK")
        except (OSError, sqlite3.Error) as error:
            raise UnavailableError(
                f"the audit log {FILE} cannot be written: {error}. Nothing is answered without a record: "
                "make room and see to the permissions"
            ) from None

    def records(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """Yield the records behind that number, in order; they are as they were written if all is whole."""
        with self._read() as (connection, _):
            rows = connection.execute("SELECT number, written FROM links WHERE number > ?", (after,))
            for number, raw in rows:
                yield {"number": number, **msgspec.json.decode(raw)}

    def check_end(self) -> None:
        """Refuse a log that lost its end; what comes before is not looked at."""
        with self._read() as (_, links):
            links.check_end()

    def verify(self, noted: End | None = None) -> End:
        """Refuse a log that was changed, cut or put back, or lacks the end ``noted`` once; return its end."""
        number, digest = 0, b""
        with self._read() as (_, links):
            for number, (_raw, digest) in enumerate(links.read(), start=1):
                if noted is not None and noted.number == number and digest.hex() != noted.digest:
                    raise ValueError(f"record {number} is another than the one that was noted")
            if noted is not None and noted.number > number:
                raise ValueError(f"record {noted.number} was noted, and there are {number}")
        return End(number, digest.hex())

    @contextmanager
    def _read(self) -> Iterator[tuple[sqlite3.Connection, Links]]:
        if not self.path.is_file() and not self.head.is_file():
            raise ConfigError(f"{self.folder} has no audit log, made at the first ask: give another folder")
        try:
            if not self.path.is_file():
                raise self._broken(f"{FILE} is gone")
            with self._connected("?mode=rw") as found:  # what a killed process began is taken back first
                yield found
        except (OSError, sqlite3.Error) as error:
            raise UnavailableError(f"the audit log {self.path} cannot be read: {error}") from None

    @contextmanager
    def _connected(self, mode: str = "") -> Iterator[tuple[sqlite3.Connection, Links]]:
        """Open the file; what was begun and not committed is taken back when it closes."""
        address = f"{self.path.absolute().as_uri()}{mode}"
        try:
            with closing(sqlite3.connect(address, PATIENCE, isolation_level=None, uri=True)) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")  # also the end of the journal is on disk
                yield connection, Links(connection, self.head)
        except ValueError as error:
            raise self._broken(error) from None

    def _broken(self, what: object) -> ProtectionError:
        return ProtectionError(
            f"the audit log {self.path} is not whole: {what}. It was damaged, changed, or put back from an "
            f"older copy: find out why, move {FILE} and {HEAD} to a safe place, and a new log begins"
        )


def now() -> str:
    """Return the time, as records have it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
