"""Checksums over all that was ever written into a book, so that a book which lost something says so.

Every transaction adds a link of what it wrote to a hash chain (:mod:`tacit.engines.links`). A book is whole
if its links follow one another and what they say was written last is what the tables hold.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.errors import ProtectionError
from tacit.engines.links import Links

PARTIES = "parties/all"
KEYS = {  # table -> column by which its rows are known; parties are written all at once
    "facts": "name",
    "contributions": "id",
    "openings": "number",
}


class Chain:
    """The links of an open book, and its head."""

    def __init__(self, base: sqlite3.Connection, book: Path) -> None:
        self._base, self._book = base, book
        self._head = book.with_suffix(".head")
        self._links = Links(base, self._head)
        self._written: dict[str, bytes] = {}  # by the present transaction: name -> digest of the rows

    # -- a transaction -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a transaction."""
        self._written = {}

    def wrote(self, table: str, key: object, rows: Sequence[Sequence[Any]]) -> None:
        """Note what the transaction made of a table, or of the rows of one key in it."""
        if not self._base.in_transaction:
            raise TypeError(f"{table} of a book are written within a transaction only")
        self._written[f"{table}/{key}"] = _digest_rows(rows)

    def link(self) -> None:
        """Add the link of a transaction, as its last statement."""
        if self._written:
            self._links.add(msgspec.msgpack.encode(self._written))

    def keep(self) -> None:
        """Write the head, once the transaction is committed."""
        if self._written or not self._head.exists():
            self._links.keep()
        self._written = {}

    # -- when it is opened ---------------------------------------------------------------------------

    def check(self) -> None:
        """Read all links, and refuse a book that is not what they say, or that is behind its head."""
        last = {PARTIES: _digest_rows([])}
        try:
            for raw, _ in self._links.read():
                last |= msgspec.msgpack.decode(raw, type=dict[str, bytes])
        except ValueError as error:
            raise self._broken(str(error)) from None
        found = self._rows()
        if odd := [name for name in {**last, **found} if last.get(name) != found.get(name)]:
            raise self._broken(f"'{sorted(odd)[0]}' is not what was written there last")

    def _rows(self) -> dict[str, bytes]:
        """Return digests of what the tables hold, under the names by which links know it."""
        found: dict[str, bytes] = {}
        for table, key in KEYS.items():
            rows = self._base.execute(f"SELECT {key}, * FROM {table}")
            found |= {f"{table}/{name}": _digest_rows([row]) for name, *row in rows}
        parties = self._base.execute("SELECT name, known, protection FROM parties ORDER BY place").fetchall()
        return {**found, PARTIES: _digest_rows(parties)}

    def _broken(self, what: str) -> ProtectionError:
        return ProtectionError(
            f"{self._book} is not whole: {what}. A file was damaged, lost ({self._book.name}-wal?) or put "
            f"back from an older copy: put a later copy of all files of {self._book.parent} back, or start "
            "again. What it has forgotten may have been opened, so nothing more is opened from it"
        )


def _digest_rows(rows: Sequence[Sequence[Any]]) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode([list(row) for row in rows])).digest()[:16]
