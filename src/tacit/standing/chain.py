"""Checksums over all that was ever written into a book, so that a book which lost something says so.

Every transaction adds a *link*: what it wrote, and a digest of that and of the link before it. A book is
whole if its links follow one another and what they say was written last is what the tables hold. But SQLite
goes back to an earlier moment without a word if the ``-wal`` file is gone or damaged, and so does whoever
puts an old copy back. So the last link also stands in a small file of its own, the *head*, written after the
transaction and before anything is acknowledged: a book may be ahead of it, and never behind.
"""

import hashlib
import os
import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.errors import ProtectionError

TABLE = "CREATE TABLE links (number INTEGER PRIMARY KEY, written BLOB NOT NULL, digest BLOB NOT NULL)"
START = bytes(32)
SLOT = struct.Struct("<Q32s32s")  # number, digest of the last link, digest of both
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
        self._number, self._digest = 0, START  # of the last link that is committed
        self._next = 0, START  # of the one that the present transaction adds
        self._written: dict[str, bytes] = {}  # by the present transaction: name -> digest of the rows

    # -- a transaction -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a transaction."""
        self._written, self._next = {}, (self._number, self._digest)

    def wrote(self, table: str, key: object, rows: Sequence[Sequence[Any]]) -> None:
        """Note what the transaction made of a table, or of the rows of one key in it."""
        if not self._base.in_transaction:
            raise TypeError(f"{table} of a book are written within a transaction only")
        self._written[f"{table}/{key}"] = _digest_rows(rows)

    def link(self) -> None:
        """Add the link of a transaction, as its last statement."""
        if self._written:
            raw = msgspec.msgpack.encode(self._written)
            self._next = number, digest = self._number + 1, _follow(self._digest, raw)
            self._base.execute("INSERT INTO links VALUES (?, ?, ?)", (number, raw, digest))

    def keep(self) -> None:
        """Write the head, once the transaction is committed."""
        self._number, self._digest = self._next
        if self._written or not self._head.exists():
            both = struct.pack("<Q32s", self._number, self._digest)
            slot = SLOT.pack(self._number, self._digest, hashlib.sha256(both).digest())
            handle = os.open(self._head, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                # Two places in turn: while one is written, the other is whole.
                os.pwrite(handle, slot, self._number % 2 * SLOT.size)
                os.fdatasync(handle)
            finally:
                os.close(handle)
        self._written = {}

    # -- when it is opened ---------------------------------------------------------------------------

    def check(self) -> None:
        """Read all links, and refuse a book that is not what they say, or that is behind its head."""
        number, digest = 0, START
        digests, last = [START], {PARTIES: _digest_rows([])}
        for told, raw, following in self._base.execute("SELECT * FROM links ORDER BY number"):
            number += 1
            if not isinstance(raw, bytes) or (told, following) != (number, _follow(digest, raw)):
                raise self._broken(f"link {number} of what was written does not follow the one before")
            digest = following
            digests.append(digest)
            last |= msgspec.msgpack.decode(raw, type=dict[str, bytes])
        self._number, self._digest = self._next = number, digest
        self._check_head(digests)
        found = self._rows()
        if odd := [name for name in {**last, **found} if last.get(name) != found.get(name)]:
            raise self._broken(f"'{sorted(odd)[0]}' is not what was written there last")

    def _check_head(self, digests: Sequence[bytes]) -> None:
        if not self._head.exists() and not self._number:
            return  # a process was killed before it had written anything else
        number, digest = self._read_head()
        if number > self._number:
            raise self._broken(f"{number - self._number} of {number} changes are missing that were confirmed")
        if digests[number] != digest:
            raise self._broken(f"change {number} is another than the one that was confirmed")

    def _read_head(self) -> tuple[int, bytes]:
        try:
            raw = self._head.read_bytes()
        except OSError as error:
            raise self._broken(f"{self._head.name} cannot be read: {error.strerror}") from None
        whole = []
        for at in (0, SLOT.size):
            if len(raw) >= at + SLOT.size:
                number, digest, both = SLOT.unpack_from(raw, at)
                if hashlib.sha256(struct.pack("<Q32s", number, digest)).digest() == both:
                    whole.append((number, digest))
        if not whole:
            raise self._broken(f"{self._head.name} is damaged")
        return max(whole)

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


def _follow(before: bytes, raw: bytes) -> bytes:
    return hashlib.sha256(before + raw).digest()


def _digest_rows(rows: Sequence[Sequence[Any]]) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode([list(row) for row in rows])).digest()[:16]
