"""The coordinator's book: which contributions are in the standing total, in one SQLite file.

A contribution and the total it joined are one transaction, so that a process that is killed at any instant
leaves a total and a list that belong together. The book holds protected totals, public values and names:
no secret, and no client's vector where the protection hides it.

What was opened can be subtracted from what is opened next. The book therefore knows for each contribution
the first opening that had it and the first that no longer did, and :meth:`Book.fewest_apart` tells by how
few clients the present total differs from any that was opened before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tacit.core.errors import ConfigError, UnavailableError
from tacit.core.memo import Enrolled
from tacit.core.message import DEFAULT_LIMIT, Message

FORMAT = 1
MARK = 0x7461_6369  # SQLite's application id of a book
PATIENCE = 5.0  # seconds to wait for another process
TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE contributions (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, first INTEGER, last INTEGER, present INTEGER NOT NULL,
    joined INTEGER, gone INTEGER
) WITHOUT ROWID;
CREATE TABLE parties (place INTEGER PRIMARY KEY, name TEXT UNIQUE, known INTEGER, signed BLOB, wrap BLOB);
"""


class Contribution(NamedTuple):
    """A line of the book; rows are None for all that the client holds."""

    id: str
    client: str
    first: int | None
    last: int | None
    present: bool
    joined: int | None = None
    gone: int | None = None

    @property
    def rows(self) -> tuple[int, int] | None:
        """Rows of the client that are in it."""
        return None if self.first is None or self.last is None else (self.first, self.last)

    def opened_in(self, opening: int) -> bool:
        """Whether the total of an opening had it."""
        return (
            self.joined is not None and self.joined <= opening and (self.gone is None or opening < self.gone)
        )


class Book:
    """An open book; nobody else can open it meanwhile.

    Parameters
    ----------
    path : Path
    new : bool
        Make it; else it must be there, of this format.
    """

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path = path
        if not new and not path.is_file():
            raise ConfigError(f"there is no standing federation at {path.parent}: start one there")
        try:
            if new:
                path.touch(0o600)
            self._base = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
            # Held until this process ends, however it ends.
            self._base.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = FULL")
            with self.writing():
                self._check() if not new else self._make()
        except sqlite3.DatabaseError as error:
            self._base.close()
            if "locked" in str(error):
                raise UnavailableError(
                    f"another process works on {path.parent}: wait until it is done"
                ) from None
            raise ConfigError(f"{path} is not the state of a standing federation: {error}") from None
        except BaseException:
            self._base.close()
            raise

    def _make(self) -> None:
        if self._one("SELECT COUNT(*) FROM sqlite_master"):
            self._check()
            if self.fact("federation"):  # else it is what a start left that was interrupted
                raise ConfigError(f"{self.path.parent} holds a standing federation already: choose another")
            return
        for statement in TABLES.split(";"):
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
        """Let others open it."""
        self._base.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction: all of the block, or nothing."""
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")

    def _one(self, query: str, values: Sequence[Any] = ()) -> Any:
        row = self._base.execute(query, values).fetchone()
        return None if row is None else row[0]

    # -- facts -------------------------------------------------------------------------------------

    def fact(self, name: str) -> Message:
        """What was written down under a name; an empty message if nothing was."""
        raw = self._one("SELECT value FROM facts WHERE name = ?", (name,))
        return Message() if raw is None else Message.decode(raw, DEFAULT_LIMIT)

    def note(self, name: str, fields: Mapping[str, Any]) -> None:
        """Write something down under a name."""
        self._base.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, Message(fields).encode()))

    # -- parties -----------------------------------------------------------------------------------

    def parties(self) -> list[Enrolled]:
        """Who has enrolled, in party order."""
        rows = self._base.execute("SELECT name, known, signed, wrap FROM parties ORDER BY place")
        return [Enrolled(*row) for row in rows]

    def note_parties(self, parties: Iterable[Enrolled]) -> None:
        """Write down who has enrolled, and what each was told."""
        self._base.execute("DELETE FROM parties")
        self._base.executemany(
            "INSERT INTO parties (name, known, signed, wrap) VALUES (?, ?, ?, ?)", list(parties)
        )

    # -- contributions -----------------------------------------------------------------------------

    def contributions(self) -> list[Contribution]:
        """All lines, those of withdrawn contributions too."""
        return [_read(row) for row in self._base.execute("SELECT * FROM contributions ORDER BY id")]

    def contribution(self, name: str) -> Contribution | None:
        """The line of that name."""
        row = self._base.execute("SELECT * FROM contributions WHERE id = ?", (name,)).fetchone()
        return None if row is None else _read(row)

    def of(self, client: str) -> list[str]:
        """Names of a client's contributions that are in the total."""
        rows = self._base.execute("SELECT id FROM contributions WHERE client = ? AND present", (client,))
        return [name for (name,) in rows]

    def enter(self, line: Contribution) -> None:
        """Write a line, or write it anew."""
        self._base.execute("INSERT OR REPLACE INTO contributions VALUES (?, ?, ?, ?, ?, ?, ?)", line)

    # -- openings ----------------------------------------------------------------------------------

    @property
    def openings(self) -> int:
        """How often a total was opened."""
        found: int = self.fact("openings").get("count", 0)
        return found

    def fewest_apart(self, changing: Collection[str] = (), entering: Iterable[str] = ()) -> tuple[int, int]:
        """By how many clients the present total differs from the last one opened, and from the nearest.

        ``changing`` are lines about to change, ``entering`` clients about to bring a first line. Equal totals
        tell nothing and do not count as near; the empty total counts as opened.
        """
        lines, new = self.contributions(), set(entering)
        apart = [
            len(new | {x.client for x in lines if x.opened_in(number) != (x.present != (x.id in changing))})
            for number in range(self.openings + 1)
        ]
        return apart[-1], min((count for count in apart if count), default=0)

    def mark_opening(self) -> None:
        """Write down that the present total is being opened."""
        number = self.openings + 1
        self.note("openings", {"count": number})
        self._base.execute("UPDATE contributions SET joined = ? WHERE present AND joined IS NULL", (number,))
        self._base.execute(
            "UPDATE contributions SET gone = ? WHERE NOT present AND joined IS NOT NULL AND gone IS NULL",
            (number,),
        )


def _read(row: Sequence[Any]) -> Contribution:
    name, client, first, last, present, joined, gone = row
    return Contribution(name, client, first, last, bool(present), joined, gone)
