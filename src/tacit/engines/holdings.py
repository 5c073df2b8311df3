"""Who holds which rows: many parties' rows in one table, or tables that were never in one place."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError
from tacit.core.message import Message
from tacit.core.random import generator
from tacit.data.findings import Finding, look, look_at_balance, words_by_column
from tacit.data.skew import look_at_sites, sites_of
from tacit.data.table import Column, Label, Table, joined

DESCRIBED = ("name", "columns", "task", "classes", "target_names", "chosen")  # of a table, beside its arrays


@dataclass(eq=False, repr=False)
class Holdings:
    """Rows of many parties in one table, ordered by owner: a party's rows are a view.

    Party i holds the rows from ``offsets[i]`` up to ``offsets[i + 1]``, and keeps the last ``kept[i]`` of
    them aside for evaluation.
    """

    table: Table
    offsets: NDArray[np.int64]
    names: Sequence[str]
    kept: InitVar[NDArray[np.int64] | None] = None

    def __post_init__(self, kept: NDArray[np.int64] | None) -> None:
        self.names = tuple(self.names)
        self.holdout_sizes = np.zeros(len(self.names), dtype=np.int64) if kept is None else kept
        self._rows: dict[int, Table] = {}  # views, not copies

    def rows(self, index: int) -> Table:
        """Return the training rows of a party."""
        if index not in self._rows:
            last = self.offsets[index + 1] - self.holdout_sizes[index]
            self._rows[index] = self.table.take(slice(self.offsets[index], last))
        return self._rows[index]

    def holdout_rows(self, index: int) -> Table:
        """Return the rows that a party keeps aside."""
        return self.table.take(
            slice(self.offsets[index + 1] - self.holdout_sizes[index], self.offsets[index + 1])
        )

    def vocabulary(self) -> dict[str, Any] | None:
        """Return the words of rows that are in one place; None if nobody may see them together."""
        table = self.table
        classes = [table.classes[code] for code in np.unique(table.target)] if table.classes else []
        return {**({"classes": classes} if classes else {}), "categories": words_by_column(table)}

    @cached_property
    def findings(self) -> dict[str, list[Finding]]:
        """Return what looks wrong with the rows, by the name of their table or party."""
        together = look_at_sites(sites_of(self.table))
        return {self.table.name: [*look(self.table), *together]} if self.table.rows else {}

    def part(self, indices: NDArray[np.int64]) -> "Holdings":
        """Return the holdings of some parties only."""
        sizes = np.diff(self.offsets)[indices]
        pieces = [np.arange(self.offsets[i], self.offsets[i + 1]) for i in indices]
        rows = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return Holdings(
            self.table.take(rows), offsets, [self.names[i] for i in indices], self.holdout_sizes[indices]
        )

    def pooled(self) -> Table:
        """Return all training rows in one table: what only an experimenter can have."""
        if not self.holdout_sizes.any():
            return self.table
        rows = np.ones(self.table.rows, dtype=bool)
        for end, kept in zip(self.offsets[1:], self.holdout_sizes, strict=True):
            rows[end - kept : end] = False
        return self.table.take(rows)

    def to_messages(self) -> list[Message]:
        """Return the holdings as messages, for a worker process."""
        table = self.table
        described = {name: getattr(table, name) for name in DESCRIBED}
        arrays = {"values": table.values, "target": table.target}
        arrays |= {"offsets": self.offsets, "kept": self.holdout_sizes}
        return [Message(arrays, described=msgspec.json.encode({**described, "names": self.names}))]


class SeparateHoldings(Holdings):
    """Rows of parties whose tables were never in one place, and need not agree."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = tuple(tables.values())
        offsets = np.concatenate([[0], np.cumsum([table.rows for table in self._tables])])
        super().__init__(self._tables[0], offsets, tuple(tables))

    def rows(self, index: int) -> Table:
        return self._tables[index]

    def vocabulary(self) -> dict[str, Any] | None:
        """Return nothing: clients agree on words without telling who holds which."""
        return None

    @cached_property
    def findings(self) -> dict[str, list[Finding]]:
        counts = Counter[Label]()
        for table in self._tables if self.table.task == "classification" else ():
            sizes = np.bincount(table.target, minlength=len(table.classes)).tolist()
            counts.update(dict(zip(table.classes, sizes, strict=True)))
        found = zip(self.names, map(look, self._tables), strict=True)
        alone = {name: [each for each in several if each.kind != "balance"] for name, several in found}
        target = self.table.target_names[0]
        together = look_at_sites(dict(zip(self.names, self._tables, strict=True)))
        return {**alone, "all together": [*together, *(look_at_balance(target, counts) if counts else ())]}

    def part(self, indices: NDArray[np.int64]) -> Holdings:
        if not len(indices):
            return super().part(indices)
        return SeparateHoldings({self.names[i]: self._tables[i] for i in indices})

    def pooled(self) -> Table:
        return joined(self._tables)

    def to_messages(self) -> list[Message]:
        held = zip(self.names, self._tables, strict=True)
        alone = (Holdings(table, np.array([0, table.rows]), [name]) for name, table in held)
        return [message for one in alone for message in one.to_messages()]


def read_holdings(raws: Sequence[bytes]) -> Holdings:
    """Read what :meth:`Holdings.to_messages` returned."""
    found = []
    for message in (Message.decode(raw, limit=1 << 40) for raw in raws):
        known = msgspec.json.decode(message["described"])
        listed: dict[str, Any] = {name: tuple(known[name]) for name in ("classes", "target_names", "chosen")}
        columns = msgspec.convert(known["columns"], tuple[Column, ...])
        table = Table(known["name"], columns, message["values"], message["target"], known["task"], **listed)
        found.append(Holdings(table, message["offsets"], known["names"], message["kept"]))
    if len(found) == 1:
        return found[0]
    return SeparateHoldings({holdings.names[0]: holdings.table for holdings in found})


def holdings_of(
    table: Table, owner: NDArray[Any], holdout: float, seed: int, names: Sequence[str] | None = None
) -> Holdings:
    """Order rows by owner; each party's rows in random order, the last ones kept aside."""
    if not 0 <= holdout < 1:
        raise ConfigError(f"holdout is {holdout}: give the share that each client keeps aside, below 1")
    clients = int(owner.max()) + 1
    sizes = np.bincount(owner, minlength=clients)
    order = np.arange(table.rows)
    kept = np.zeros(clients, dtype=np.int64)
    if holdout:
        order = generator(b"public", seed, "holdout").permutation(table.rows)
        kept = np.minimum(np.floor(sizes * holdout + 1e-9).astype(np.int64), sizes - 1)
    order = order[np.argsort(owner[order], kind="stable")]
    width = len(str(clients))
    names = names or [f"client-{index + 1:0{width}}" for index in range(clients)]
    return Holdings(table.take(order), np.concatenate([[0], np.cumsum(sizes)]), names, kept)
