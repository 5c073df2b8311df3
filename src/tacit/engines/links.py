"""A hash chain in a table of a SQLite file, whose last link also stands in a small file of its own.

Each *link* holds what was written, and a digest of that and of the link before it. But SQLite goes back to
an earlier moment without a word if a journal is gone or damaged, and so does whoever puts an old copy back.
So the last link also stands in the *head*, written after the transaction and before anything is acknowledged:
the table may be ahead of it, and never behind.
"""

import hashlib
import os
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

TABLE = "CREATE TABLE links (number INTEGER PRIMARY KEY, written BLOB NOT NULL, digest BLOB NOT NULL)"
START = bytes(32)
SLOT = struct.Struct("<Q32s32s")  # number, digest of the last link, digest of both


class Links:
    """The links in an open database, and their head; what is not whole raises a ValueError that says why."""

    def __init__(self, base: sqlite3.Connection, head: Path) -> None:
        self._base, self._head = base, head

    def last(self) -> tuple[int, bytes]:
        """Return number and digest of the last link."""
        found = self._base.execute("SELECT number, digest FROM links ORDER BY number DESC LIMIT 1").fetchone()
        return found or (0, START)

    def add(self, raw: bytes) -> None:
        """Add a link, within a transaction."""
        number, digest = self.last()
        self._base.execute("INSERT INTO links VALUES (?, ?, ?)", (number + 1, raw, _follow(digest, raw)))

    def keep(self) -> None:
        """Write the head, once the transaction is committed."""
        number, digest = self.last()
        slot = SLOT.pack(number, digest, _digest_slot(number, digest))
        new = not self._head.exists()
        handle = os.open(self._head, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            # Two places in turn: while one is written, the other is whole.
            os.pwrite(handle, slot, number % 2 * SLOT.size)
            os.fdatasync(handle)
        finally:
            os.close(handle)
        if new:
            folder = os.open(self._head.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def check_end(self) -> None:
        """Refuse a chain whose end is not what the head says; the links before are not looked at."""
        number, digest = self._read_head()
        if number > (last := self.last()[0] or 0):  # a damaged page may hold no number
            raise ValueError(f"{number - last} of {number} changes are missing that were confirmed")
        found = self._base.execute("SELECT digest FROM links WHERE number = ?", (number,)).fetchone()
        if number and (found is None or found[0] != digest):
            raise ValueError(f"change {number} is another than the one that was confirmed")

    def read(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield what was written in each link and its digest; refuse a chain that is not whole."""
        self.check_end()
        digest, rows = START, self._base.execute("SELECT * FROM links ORDER BY number")
        for number, (told, raw, following) in enumerate(rows, start=1):
            if not isinstance(raw, bytes) or (told, following) != (number, _follow(digest, raw)):
                raise ValueError(f"link {number} of what was written does not follow the one before")
            digest = following
            yield raw, digest

    def _read_head(self) -> tuple[int, bytes]:
        if not self._head.exists() and not self.last()[0]:
            return 0, START  # a process was killed before it had written anything else
        try:
            raw = self._head.read_bytes()
        except OSError as error:
            raise ValueError(f"{self._head.name} cannot be read: {error.strerror}") from None
        whole = []
        for at in (0, SLOT.size):
            if len(raw) >= at + SLOT.size:
                number, digest, both = SLOT.unpack_from(raw, at)
                if _digest_slot(number, digest) == both:
                    whole.append((number, digest))
        if not whole:
            raise ValueError(f"{self._head.name} is damaged")
        return max(whole)


def _follow(before: bytes, raw: bytes) -> bytes:
    return hashlib.sha256(before + raw).digest()


def _digest_slot(number: int, digest: bytes) -> bytes:
    return hashlib.sha256(struct.pack("<Q32s", number, digest)).digest()
