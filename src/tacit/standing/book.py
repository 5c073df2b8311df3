"""The coordinator's book: which contributions are in the standing total, in one SQLite file.

A contribution and the total it joined are one transaction, so that a process that is killed at any instant
leaves a total and a list that belong together. The book holds protected totals, public values and names:
no secret, and no client's vector where the protection hides it. Every transaction adds a link of the facts
that it wrote to a hash chain: a book that has lost something says so when it is opened.
"""

import hashlib
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.claims import Line, write_lines
from tacit.core.errors import ConfigError, ProtectionError, UnavailableError
from tacit.core.message import DEFAULT_LIMIT, Message
from tacit.core.snapshot import EnrolledParty
from tacit.engines.links import TABLE, Links
from tacit.standing.differencing import Contribution, Lines

FORMAT = 5
MARK = 0x7461_6369  # SQLite's application id of a book
PATIENCE = 5.0  # seconds to wait for another process
FACTS = "CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"


class Book:
    """An open book; nobody else can open it meanwhile. Unless ``new``, it must be there, of this format."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path = path
        if not new and not path.is_file():
            raise ConfigError(f"there is no standing federation at {path.parent}: start one there")
        if new:
            path.touch(0o600)
        self._base = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
        self._head = path.with_suffix(".head")
        self._links = Links(self._base, self._head)
        self._written: dict[str, bytes] = {}  # by the present transaction: digests by name
        try:
            if not new:
                self._check()  # before anything is changed in a file that may be somebody else's
            # Held until this process ends, however it ends.
            for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
                self._one(f"PRAGMA {setting}")
            with self.writing():
                self._check() if not new else self._make()
                self._check_whole()
        except BaseException:
            self._base.close()
            raise

    def _make(self) -> None:
        if self._one("SELECT COUNT(*) FROM sqlite_master"):
            self._check()
            if self.fact("federation"):  # else it is what a start left that was interrupted
                raise ConfigError(f"{self.path.parent} holds a standing federation already: choose another")
            return
        self._base.execute(FACTS)
        self._base.execute(TABLE)
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

    def _check_whole(self) -> None:
        last: dict[str, bytes] = {}
        try:
            for raw, _ in self._links.read():
                last |= msgspec.msgpack.decode(raw, type=dict[str, bytes])
            found = {f"{name}": _digest(raw) for name, raw in self._all("SELECT name, value FROM facts")}
            if odd := [name for name in {**last, **found} if last.get(name) != found.get(name)]:
                raise ValueError(f"'{min(odd)}' is not what was written there last")
        except (ValueError, msgspec.MsgspecError) as error:
            raise ProtectionError(
                f"{self.path} is not whole: {error}. A file was damaged, lost ({self.path.name}-wal?) or put "
                f"back from an older copy: put a later copy of all files of {self.path.parent} back, or "
                "start again. What it has forgotten may have been opened, so nothing more is opened from it"
            ) from None

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
                self._written = {}
                yield
                if self._written:
                    self._links.add(msgspec.msgpack.encode(self._written))
                self._base.execute("COMMIT")
                if self._written or not self._head.exists():
                    self._links.keep()
            except BaseException:
                if self._base.in_transaction:  # some errors have ended it already
                    self._base.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            if "locked" in str(error):
                reason = f"another process works on {self.path.parent}: wait until it is done"
                raise UnavailableError(reason) from None
            if "not a database" in str(error):
                reason = f"{self.path} is not the state of a standing federation: {error}"
                raise ConfigError(reason) from None
            raise UnavailableError(
                f"{self.path} cannot be used: {error}. What was acknowledged is in it if the file is whole: "
                "make room and see to the permissions, or put a copy back"
            ) from None

    def _all(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._translated():
            return self._base.execute(query, values).fetchall()

    def _one(self, query: str, values: Sequence[Any] = ()) -> Any:
        return next((row[0] for row in self._all(query, values)), None)

    def _put(self, name: str, raw: bytes) -> None:
        if not self._base.in_transaction:
            raise TypeError(f"'{name}' of a book is written within a transaction only")
        self._base.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, raw))
        self._written[name] = _digest(raw)

    def _get(self, name: str) -> Any:
        return self._one("SELECT value FROM facts WHERE name = ?", (name,))

    def _under(self, kind: str) -> list[bytes]:
        query = "SELECT value FROM facts WHERE name > ? AND name < ? ORDER BY name"
        return [raw for (raw,) in self._all(query, (f"{kind}/", f"{kind}0"))]  # 0 comes behind the stroke

    def fact(self, name: str) -> Message:
        """Return what was written down under a name; an empty message if nothing was."""
        raw = self._get(name)
        return Message() if raw is None else Message.decode(raw, DEFAULT_LIMIT)

    def note(self, name: str, fields: Mapping[str, Any]) -> None:
        """Write something down under a name, in place of what was there."""
        self._put(name, Message(fields).encode())

    def parties(self) -> list[EnrolledParty]:
        """Return who has enrolled, in party order."""
        raw = self._get("parties")
        return [] if raw is None else msgspec.msgpack.decode(raw, type=list[EnrolledParty])

    def note_parties(self, parties: Iterable[EnrolledParty]) -> None:
        """Write down who has enrolled, and what each was told."""
        self._put("parties", msgspec.msgpack.encode(list(parties)))

    def contributions(self) -> list[Contribution]:
        """Return all lines, those of withdrawn contributions too."""
        return [msgspec.msgpack.decode(raw, type=Contribution) for raw in self._under("contribution")]

    def contribution(self, name: str) -> Contribution | None:
        """Return the line of that name, if there is one."""
        raw = self._get(f"contribution/{name}")
        return None if raw is None else msgspec.msgpack.decode(raw, type=Contribution)

    def present(self) -> dict[str, list[str]]:
        """Return the names of each client's contributions that are in the total."""
        found: dict[str, list[str]] = {}
        for line in self.contributions():
            if line.present:
                found.setdefault(line.client, []).append(line.id)
        return found

    def enter(self, line: Contribution) -> None:
        """Write a line, or write it anew."""
        self._put(f"contribution/{line.id}", msgspec.msgpack.encode(line))

    def claimed_lines(self) -> bytes:
        """Return all contributions that ever joined the total, and how often they joined and left."""
        repeated = self.repeated()
        lines = ((line, 1 + repeated[line.id]) for line in self.contributions())
        return write_lines(
            Line(line.id, line.client, joined, joined - line.present) for line, joined in lines
        )

    def repeated(self) -> Counter[str]:
        """Return how often contributions joined again, in another group that was merged."""
        raw = self.fact("repeated").get("counts")
        return Counter(msgspec.json.decode(raw, type=dict[str, int])) if raw else Counter()

    def note_repeated(self, other: "Book") -> None:
        """Count what is in both books, before they are merged."""
        both = {line.id for line in self.contributions()} & {line.id for line in other.contributions()}
        if counts := self.repeated() + other.repeated() + Counter(both):
            self.note("repeated", {"counts": msgspec.json.encode(counts)})

    def opened(self) -> list[Lines]:
        """Return what was in each total that was opened, or may have been, in order."""
        return [_unpacked(raw) for raw in self._under("opening")]

    def total(self, changing: Iterable[Contribution] = ()) -> Lines:
        """Return what is in the total now, or will be once these contributions are as they say."""
        lines = {line.id: line for line in (*self.contributions(), *changing)}
        return frozenset(line for line in lines.values() if line.present)

    def mark_opening(self, lines: Lines | None = None) -> None:
        """Write down that a total is being opened; the present one, if none is given."""
        packed, opened = _packed(self.total() if lines is None else lines), self._under("opening")
        if packed not in opened:
            self._put(f"opening/{len(opened):08}", packed)

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
    return zlib.compress(msgspec.json.encode([line[:4] for line in sorted(lines, key=lambda line: line.id)]))


def _unpacked(raw: bytes) -> Lines:
    return frozenset(msgspec.json.decode(zlib.decompress(raw), type=list[Contribution]))


def _digest(value: Any) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(value)).digest()[:16]
