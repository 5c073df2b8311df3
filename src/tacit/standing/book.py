"""The coordinator's book: which contributions are in the standing total, in one SQLite file.

A contribution and the total it joined are one transaction, so that a process that is killed at any instant
leaves a total and a list that belong together. The book holds protected totals, public values and names:
no secret, and no client's vector where the protection hides it. Of every total that was opened, or may have
been, it keeps which contributions were in it (:mod:`tacit.standing.differencing`). A book that has lost
something says so when it is opened (:mod:`tacit.standing.chain`).
"""

from __future__ import annotations

import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tacit.core.claims import Line as ClaimedLine
from tacit.core.claims import write_lines
from tacit.core.errors import ConfigError, TacitError, UnavailableError
from tacit.core.message import DEFAULT_LIMIT, Message
from tacit.core.snapshot import EnrolledParty
from tacit.engines.links import TABLE as LINKS
from tacit.standing.chain import Chain
from tacit.standing.differencing import Line, Lines

FORMAT = 5
MARK = 0x7461_6369  # SQLite's application id of a book
PATIENCE = 5.0  # seconds to wait for another process
TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE contributions (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, first INTEGER, last INTEGER, present INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE openings (number INTEGER PRIMARY KEY, lines BLOB NOT NULL);
CREATE TABLE parties (place INTEGER PRIMARY KEY, name TEXT UNIQUE, known INTEGER, protection BLOB NOT NULL);
"""


class Contribution(NamedTuple):
    """A line of the book; rows are None for all that the client holds."""

    id: str
    client: str
    first: int | None
    last: int | None
    present: bool

    @property
    def rows(self) -> tuple[int, int] | None:
        """Rows of the client that are in it."""
        return None if self.first is None or self.last is None else (self.first, self.last)

    @property
    def line(self) -> Line:
        """What of it an opening remembers."""
        return Line(self.id, self.client, self.first, self.last)


class Book:
    """An open book; nobody else can open it meanwhile. Unless ``new``, it must be there, of this format."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path = path
        if not new and not path.is_file():
            raise ConfigError(f"there is no standing federation at {path.parent}: start one there")
        if new:
            path.touch(0o600)
        self._base = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
        self._chain = Chain(self._base, path)
        try:
            if not new:
                self._check()  # before anything is changed in a file that may be somebody else's
            # Held until this process ends, however it ends.
            for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
                self._one(f"PRAGMA {setting}")
            with self.writing():
                self._check() if not new else self._make()
                self._chain.check()
        except BaseException:
            self._base.close()
            raise

    def _make(self) -> None:
        if self._one("SELECT COUNT(*) FROM sqlite_master"):
            self._check()
            if self.fact("federation"):  # else it is what a start left that was interrupted
                raise ConfigError(f"{self.path.parent} holds a standing federation already: choose another")
            return
        for statement in (*TABLES.split(";"), LINKS):
            self._base.execute(statement)
        self._base.execute(f"PRAGMA application_id = {MARK}")
        self._base.execute(f"PRAGMA user_version = {FORMAT}")

    def _check(self) -> None:
        mark, found = self._one("PRAGMA application_id"), self._one("PRAGMA user_version")
        if mark != MARK:
            raise ConfigError(f"{self.path} is not the state of a standing federation")
        if found != FORMAT:
            raise ConfigError(
                f"{self.path} is of format {found}, this release reads {FORMAT}: use the release that made it"
            )

    def check_started(self) -> None:
        """Refuse a book whose federation was never settled."""
        if not self.fact("federation"):
            raise ConfigError(f"the start of {self.path.parent} was interrupted: start it again")

    def close(self) -> None:
        """Close the database, so that other processes can open it."""
        self._base.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run the block as one transaction: all of it, or nothing."""
        with self._translated():
            try:
                self._base.execute("BEGIN IMMEDIATE")
                self._chain.begin()
                yield
                self._chain.link()
                self._base.execute("COMMIT")
                self._chain.keep()
            except BaseException:
                if self._base.in_transaction:  # some errors have ended it already
                    self._base.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate errors of the database for whoever works with the book."""
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise self._failed(error) from None

    def _all(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._translated():
            return self._base.execute(query, values).fetchall()

    def _one(self, query: str, values: Sequence[Any] = ()) -> Any:
        rows = self._all(query, values)
        return rows[0][0] if rows else None

    def _failed(self, error: Exception) -> TacitError:
        if "locked" in str(error):
            return UnavailableError(f"another process works on {self.path.parent}: wait until it is done")
        if "not a database" in str(error):
            return ConfigError(f"{self.path} is not the state of a standing federation: {error}")
        return UnavailableError(
            f"{self.path} cannot be used: {error}. What was acknowledged is in it if the file is whole: make "
            "room and see to the permissions, or put a copy back"
        )

    # -- facts -------------------------------------------------------------------------------------

    def fact(self, name: str) -> Message:
        """Return what was written down under a name; an empty message if nothing was."""
        raw = self._one("SELECT value FROM facts WHERE name = ?", (name,))
        return Message() if raw is None else Message.decode(raw, DEFAULT_LIMIT)

    def note(self, name: str, fields: Mapping[str, Any]) -> None:
        """Write something down under a name, in place of what was there."""
        row = (name, Message(fields).encode())
        self._base.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", row)
        self._chain.wrote("facts", name, [row])

    # -- parties -----------------------------------------------------------------------------------

    def parties(self) -> list[EnrolledParty]:
        """Return who has enrolled, in party order."""
        rows = self._all("SELECT name, known, protection FROM parties ORDER BY place")
        return [EnrolledParty(*row) for row in rows]

    def note_parties(self, parties: Iterable[EnrolledParty]) -> None:
        """Write down who has enrolled, and what each was told."""
        self._base.execute("DELETE FROM parties")
        query = "INSERT INTO parties (name, known, protection) VALUES (?, ?, ?)"
        rows = list(parties)
        self._base.executemany(query, rows)
        self._chain.wrote("parties", "all", rows)

    # -- contributions -----------------------------------------------------------------------------

    def contributions(self) -> list[Contribution]:
        """Return all lines, those of withdrawn contributions too."""
        return [_read(row) for row in self._all("SELECT * FROM contributions ORDER BY id")]

    def contribution(self, name: str) -> Contribution | None:
        """Return the line of that name, if there is one."""
        rows = self._all("SELECT * FROM contributions WHERE id = ?", (name,))
        return _read(rows[0]) if rows else None

    def of(self, client: str) -> list[str]:
        """Return the names of a client's contributions that are in the total."""
        rows = self._all("SELECT id FROM contributions WHERE client = ? AND present", (client,))
        return [name for (name,) in rows]

    def enter(self, line: Contribution) -> None:
        """Write a line, or write it anew."""
        row = (*line[:4], int(line.present))  # as the database gives it back
        self._base.execute("INSERT OR REPLACE INTO contributions VALUES (?, ?, ?, ?, ?)", row)
        self._chain.wrote("contributions", line.id, [row])

    # -- what the total claims of itself to the client that opens it --------------------------------

    def claimed_lines(self) -> bytes:
        """Return all contributions that ever joined the total, and how often they joined and left."""
        repeated = self.repeated()
        lines = ((line, 1 + repeated[line.id]) for line in self.contributions())
        return write_lines(
            ClaimedLine(line.id, line.client, joined, joined - line.present) for line, joined in lines
        )

    def repeated(self) -> Counter[str]:
        """Return how often contributions joined again, in another group that was merged."""
        raw = self.fact("repeated").get("counts")
        return Counter(msgspec.json.decode(raw, type=dict[str, int])) if raw else Counter()

    def note_repeated(self, other: Book) -> None:
        """Count what is in both books, before they are merged."""
        both = {line.id for line in self.contributions()} & {line.id for line in other.contributions()}
        if counts := self.repeated() + other.repeated() + Counter(both):
            self.note("repeated", {"counts": msgspec.json.encode(counts)})

    # -- openings ----------------------------------------------------------------------------------

    @property
    def openings(self) -> int:
        """How many totals were opened, or may have been."""
        found: int = self._one("SELECT COUNT(*) FROM openings")
        return found

    def opened(self) -> list[Lines]:
        """Return what was in each total that was opened, in order."""
        return [_unpacked(raw) for (raw,) in self._all("SELECT lines FROM openings ORDER BY number")]

    def total(self, changing: Iterable[Contribution] = ()) -> Lines:
        """Return what is in the total now, or will be once these contributions have joined or left."""
        lines = {line.id: line for line in self.contributions()}
        lines |= {line.id: line._replace(present=not line.present) for line in changing}
        return frozenset(line.line for line in lines.values() if line.present)

    def mark_opening(self, lines: Lines | None = None) -> None:
        """Write down that a total is being opened; the present one, if none is given."""
        packed = _packed(self.total() if lines is None else lines)
        if not self._one("SELECT COUNT(*) FROM openings WHERE lines = ?", (packed,)):
            number = self._base.execute("INSERT INTO openings (lines) VALUES (?)", (packed,)).lastrowid
            self._chain.wrote("openings", number, [(number, packed)])

    def announce(self, lines: Lines) -> None:
        """Write down which total is about to open: after a crash nobody knows whether it did."""
        self.note("announced", {"lines": _packed(lines)})

    def count_announced(self) -> None:
        """Count a total that was announced, and of which nothing more was heard, as one that was opened."""
        if announced := self.fact("announced"):
            with self.writing():
                self.mark_opening(_unpacked(announced["lines"]))
                self.note("announced", {})
                self.note("interrupted", {"batch": True})

    @property
    def interrupted(self) -> bool:
        """Whether a batch was interrupted while it opened, and none has opened since."""
        return bool(self.fact("announced") or self.fact("interrupted"))


def _packed(lines: Lines) -> bytes:
    return zlib.compress(msgspec.json.encode(sorted(lines, key=lambda line: line.id)))


def _unpacked(raw: bytes) -> Lines:
    return frozenset(msgspec.json.decode(zlib.decompress(raw), type=list[Line]))


def _read(row: Sequence[Any]) -> Contribution:
    name, client, first, last, present = row
    return Contribution(name, client, first, last, bool(present))
