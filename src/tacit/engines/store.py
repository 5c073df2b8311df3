"""Party store: what parties remember between steps, in one SQLite file; secrets are encrypted at rest.

Every step reads a party's state and vault and writes both in one transaction: all that it did is kept, or
nothing. The vault is written under a key that is not in the file. A party that has forgotten a step would
take it once more: so the file holds a checksum over all its rows, checked whenever it is opened.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from tacit.core.errors import ProtectionError, UnavailableError
from tacit.core.message import Message
from tacit.core.party import Party, State, Vault
from tacit.core.random import derive
from tacit.core.secret import Secret

NONCE = 12
KEPT_RUNS = 16  # runs that are remembered; of an older one only its name, without its keys
STANDING = "standing/"  # how names in a state begin that belong to a standing federation: it is kept
PATIENCE = 600.0  # seconds a step waits for another step of the same site
TABLE = """
CREATE TABLE IF NOT EXISTS parties (
    run TEXT NOT NULL, party TEXT NOT NULL, state BLOB NOT NULL, vault BLOB NOT NULL, written REAL NOT NULL,
    PRIMARY KEY (run, party)
) WITHOUT ROWID
"""
CHECKSUM = (
    "CREATE TABLE IF NOT EXISTS checksum (only INTEGER PRIMARY KEY CHECK (only = 0), digest BLOB NOT NULL)"
)
RUNS = "SELECT run FROM parties WHERE state != x'' GROUP BY run ORDER BY MAX(written) DESC"  # latest first
LASTING = "CREATE TABLE IF NOT EXISTS lasting (run TEXT PRIMARY KEY) WITHOUT ROWID"  # standing federations
DAMAGE = (sqlite3.Error, UnicodeDecodeError)  # what the database says of a file that is not whole
FORMAT = 2  # from which on there is a checksum; a file from before gets one


class PartyStore:
    """States and vaults of parties, each under its run; vaults are encrypted under ``key``."""

    def __init__(self, path: Path, key: Secret) -> None:
        self.path = path
        self._cipher = ChaCha20Poly1305(derive(key.reveal(), ("vault",)))
        try:
            path.touch(0o600)
        except OSError as error:
            raise self._failed("opened", error) from None
        with self._connected("opened") as connection:
            connection.execute("BEGIN IMMEDIATE")
            self._check(connection)
            connection.execute("COMMIT")

    def _check(self, connection: sqlite3.Connection) -> None:
        connection.execute(TABLE)
        connection.execute(CHECKSUM)
        connection.execute(LASTING)
        found = _digest(connection.execute("SELECT * FROM parties"))
        if connection.execute("PRAGMA user_version").fetchone()[0] < FORMAT:
            connection.execute("INSERT OR REPLACE INTO checksum VALUES (0, ?)", (found,))
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        elif connection.execute("SELECT digest FROM checksum").fetchall() != [(found,)]:
            raise ProtectionError(
                f"the state database {self.path} is not what was written last: it was damaged, or lost a "
                "journal. What this site has answered is not known any more, and it could answer twice: put "
                "a copy back, or take part in new runs with a new file"
            )

    @contextmanager
    def _connected(self, verb: str = "used") -> Iterator[sqlite3.Connection]:
        """Open the file; what was begun and not committed is taken back when it closes."""
        try:
            with closing(sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)) as connection:
                # What is overwritten is gone: a key of an old run must not be found in free pages.
                connection.execute("PRAGMA secure_delete = ON")
                yield connection
        except DAMAGE as error:
            raise self._failed(verb, error) from None

    def _failed(self, verb: str, error: Exception) -> UnavailableError:
        return UnavailableError(
            f"the state database {self.path} cannot be {verb}: {error}. Nothing of this step was kept: "
            "make room and see to the permissions, or put a copy back"
        )

    @contextmanager
    def step(self, run: str, party: Party) -> Iterator[Party]:
        """Give the party what it remembers of a run, and keep what the block made of it if it ends well."""
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")  # steps of one site happen one after the other
            if self._read(connection, run, party):
                raise ProtectionError(
                    f"{party.id} took part in run {run[:12]}… and has forgotten it, as it keeps the last "
                    f"{KEPT_RUNS} runs: start a new one"
                )
            before = party.state.to_bytes(), _written(party.vault)
            yield party
            after = party.state.to_bytes(), _written(party.vault)
            if after != before:
                self._write(connection, run, party.id, *after)
                if any(name.startswith(STANDING) for name in party.state):
                    connection.execute("INSERT OR IGNORE INTO lasting VALUES (?)", (run,))
            connection.execute("COMMIT")

    def recalled(self, run: str, party: Party) -> Party | None:
        """Return the party with what it remembers of a run, to look at only; None if that is nothing."""
        with self._connected() as connection:
            self._read(connection, run, party)
        return party if party.state else None

    def runs(self) -> list[str]:
        """Return the runs that are remembered, the latest first."""
        with self._connected() as connection:
            return [run for (run,) in connection.execute(RUNS)]

    def _read(self, connection: sqlite3.Connection, run: str, party: Party) -> bool:
        query = "SELECT state, vault FROM parties WHERE run = ? AND party = ?"
        row = connection.execute(query, (run, party.id)).fetchone()
        party.state, party.vault = State(), Vault()
        if row is None or not row[0]:
            return row is not None
        state, vault = row
        try:
            raw = self._cipher.decrypt(vault[:NONCE], vault[NONCE:], _place(run, party.id, state))
        except InvalidTag:
            raise ProtectionError(
                f"what {party.id} remembers does not open: the key is not the one it was written under, or "
                f"{self.path.name} was changed"
            ) from None
        party.state = State.from_bytes(state)
        party.vault = Vault({name: Secret(value) for name, value in Message.decode(raw).items()})
        return False

    def _write(
        self, connection: sqlite3.Connection, run: str, party: str, state: bytes, vault: bytes
    ) -> None:
        nonce = os.urandom(NONCE)
        sealed = nonce + self._cipher.encrypt(nonce, vault, _place(run, party, state))
        row = (run, party, state, sealed, time.time())
        with _summed(connection, "run = ? AND party = ?", (run, party)):
            connection.execute("INSERT OR REPLACE INTO parties VALUES (?, ?, ?, ?, ?)", row)
        lasting = {old for (old,) in connection.execute("SELECT run FROM lasting")}
        others = [old for (old,) in connection.execute(RUNS) if old not in lasting]
        for old in others[KEPT_RUNS:]:
            with _summed(connection, "run = ?", (old,)):
                connection.execute("UPDATE parties SET state = x'', vault = x'' WHERE run = ?", (old,))


@contextmanager
def _summed(connection: sqlite3.Connection, which: str, values: Sequence[str]) -> Iterator[None]:
    """Bring the checksum up to date with what the block makes of some rows."""
    query = f"SELECT * FROM parties WHERE {which}"
    before = _digest(connection.execute(query, values))
    yield
    after = _digest(connection.execute(query, values))
    ((total,),) = connection.execute("SELECT digest FROM checksum").fetchall()
    changed = bytes(a ^ b ^ c for a, b, c in zip(total, before, after, strict=True))
    connection.execute("UPDATE checksum SET digest = ?", (changed,))


def _digest(rows: Iterable[Sequence[Any]]) -> bytes:
    total = 0
    for row in rows:
        encoded = msgspec.msgpack.encode(list(row))
        total ^= int.from_bytes(hashlib.sha256(encoded).digest(), "little")
    return total.to_bytes(32, "little")


def _written(vault: Vault) -> bytes:
    return Message({name: secret.reveal() for name, secret in vault.items()}).encode()


def _place(run: str, party: str, state: bytes) -> bytes:
    """Return what a vault belongs to: with another run's, party's or moment's state it does not open."""
    return Message(run=run, party=party, state=hashlib.sha256(state).digest()).encode()
