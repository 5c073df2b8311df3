"""A site's account of epsilon: what noise has cost its rows, over all runs, in one SQLite file.

A charge is on disk before the noise is drawn, and stays whatever becomes of the step: what was charged may
not have left the site, but nothing leaves that was not charged. Runs add up, and so do their deltas. A site
that forgets a run (:mod:`tacit.engines.store`) does not forget its cost.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.core.errors import ProtectionError, UnavailableError
from tacit.core.party import Charge
from tacit.crypto.accounting import Accountant, Release

PATIENCE = 60.0  # seconds to wait for another step of the same site
KEY = "terms, unit, noise, sampling, delta"
TABLE = f"""
CREATE TABLE IF NOT EXISTS spent (
    terms TEXT NOT NULL, run TEXT NOT NULL, unit TEXT NOT NULL, noise REAL NOT NULL, sampling REAL NOT NULL,
    delta REAL NOT NULL, releases INTEGER NOT NULL, epsilon REAL NOT NULL, written REAL NOT NULL,
    PRIMARY KEY ({KEY})
)
"""


@dataclass(frozen=True)
class Spent:
    """What noise of one kind has cost in one run."""

    run: str
    unit: str  # whose privacy it is: "row" or "client"
    noise: float
    sampling: float
    delta: float
    releases: int
    epsilon: float
    written: float  # when it was charged last, in seconds since 1970


@dataclass(frozen=True)
class EpsilonLedger:
    """The account in one file, made with the first charge."""

    path: Path

    def charge(self, terms: str, run: str, charge: Charge, limit: float | None = None) -> None:
        """Write a charge down, or refuse it; ``terms`` is the digest of what a run's attempts agreed on."""
        key = (terms, charge.unit, charge.noise, charge.sampling, charge.delta)
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")  # no two charges fit into the same rest
            rows = connection.execute(f"SELECT {KEY}, releases, epsilon FROM spent")
            spent = {row[:5]: row[5:] for row in rows}
            used = sum(releases for known, (releases, _) in spent.items() if known[:2] == key[:2])
            if used + charge.releases > charge.most:
                raise ProtectionError(
                    f"the budget that run {run} agreed on is spent: it allows {charge.most} releases with "
                    f"noise, {used} were made and {charge.releases} more are asked for"
                )
            before, _ = spent.pop(key, (0, 0.0))
            accountant = Accountant(charge.delta)
            accountant.add(Release(charge.noise, "discrete", charge.sampling), before + charge.releases)
            epsilon = accountant.epsilon()
            elsewhere = sum(cost for _, cost in spent.values())
            if limit is not None and elsewhere + epsilon > limit:
                raise ProtectionError(
                    f"an epsilon of {limit:g} over all runs is accepted here: {elsewhere:.4g} is spent, and "
                    f"this run would cost {epsilon:.4g}; its owner can raise [accept] epsilon_total"
                )
            row = (terms, run, *key[1:], before + charge.releases, epsilon, time.time())
            connection.execute("INSERT OR REPLACE INTO spent VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            connection.execute("COMMIT")

    def list(self) -> list[Spent]:
        """Return what was spent, the latest first."""
        if not self.path.exists():
            return []
        with self._connected() as connection:
            rows = connection.execute("SELECT * FROM spent ORDER BY written DESC, unit")
            return [Spent(*row) for _, *row in rows]

    def total(self, but: str = "") -> float:
        """Return the epsilon of all runs together, but for that of one."""
        if not self.path.exists():
            return 0.0
        with self._connected() as connection:
            query = "SELECT COALESCE(SUM(epsilon), 0) FROM spent WHERE terms != ?"
            return float(connection.execute(query, (but,)).fetchone()[0])

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Open the file; what was begun and not committed is taken back when it closes."""
        try:
            self.path.touch(0o600)
            with closing(sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute(TABLE)
                yield connection
        except (OSError, sqlite3.Error) as error:
            raise UnavailableError(
                f"the account {self.path.name} cannot be used: {error}. Nothing was computed: make room "
                "and see to the permissions, or put a copy back"
            ) from None
