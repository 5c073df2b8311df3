"""How contributions join and leave the standing total: one by one, or a batch of clients at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from tacit.core.desk import Desk
from tacit.core.errors import ConfigError, ProtectionError, QuorumError, SchemaError
from tacit.core.events import Events
from tacit.core.manifest import Manifest, Parts
from tacit.core.pending import PendingSum
from tacit.core.replica import layout_of, opened
from tacit.core.shared import Shared
from tacit.data.schema import vocabulary
from tacit.standing.book import Book, Contribution
from tacit.standing.folder import Folder
from tacit.standing.opening import check_apart, failed


class Change(NamedTuple):
    """A contribution that is to join (1) or to leave (-1)."""

    line: Contribution
    sign: float

    @property
    def done(self) -> Contribution:
        """The line as it will be."""
        return self.line._replace(present=self.sign > 0)


def pending_sum(
    kind: type[PendingSum], desk: Desk, contribution: str, changes: Mapping[str, Change], book: Book
) -> Any:
    """A sum of these clients' changes."""
    desk._sums += 1
    layout = layout_of(desk.parts.method, contribution, desk.schema)
    more = {
        name: {"id": change.line.id, "rows": change.line.rows, "accepted": book.of(name)}
        for name, change in changes.items()
    }
    weights = {name: change.sign for name, change in changes.items()}
    return kind(
        desk,
        desk._sums,
        "method",
        contribution,
        layout,
        tuple(changes),
        weights,
        step="desk.change",
        more=more,
    )


# -- one by one ------------------------------------------------------------------------------------


def join_each(folder: Folder, desk: Desk, changes: Sequence[Change], capacity: int) -> Iterator[Change]:
    """Let contributions join or leave one by one; each is a transaction, and given once it is committed."""
    book, protection = folder.book, desk.parts.protection
    total = dict(book.fact("total"))
    count = total.pop("$count", 0)
    if count + len(changes) > capacity:
        raise ConfigError(
            f"{count + len(changes):,} changes, but the total was made for {capacity:,}: start again, with a "
            "larger capacity"
        )
    failures = _admit(folder, desk, changes)
    for wave in _waves([change for change in changes if change.line.client not in failures]):
        pending = pending_sum(PendingSum, desk, desk.parts.method.standing[0], wave, book)
        for party, protected in protection.arriving(pending, capacity):
            try:
                grown = dict(protection.joined(desk.memory, total or None, protected))
            except ProtectionError as error:
                pending.refuse(party, str(error))
                continue
            with book.writing():
                book.enter(wave[party].done)
                book.note("total", {**grown, "$count": count + 1})
            total, count = grown, count + 1
            yield wave[party]
        failures |= pending.failures
    with book.writing():
        folder.save(desk)
    if failures:
        raise failed(failures)


def _waves(changes: Sequence[Change]) -> Iterator[dict[str, Change]]:
    """A party is asked for one thing at a time."""
    left = list(changes)
    while left:
        wave: dict[str, Change] = {}
        for change in left:
            wave.setdefault(change.line.client, change)
        yield wave
        left = [change for change in left if wave[change.line.client] is not change]


def _admit(folder: Folder, desk: Desk, changes: Sequence[Change]) -> dict[str, str]:
    """Enrol clients that are seen for the first time; gives those that cannot be, with the reason."""
    known = set(desk.parties)
    new = list(dict.fromkeys(c.line.client for c in changes if c.line.client not in known))
    if not new:
        return {}
    before = dict(desk.failures)
    desk.admit(new, desk.parts.preparation.agreement(vocabulary(desk.schema)))
    folder.save_channels(desk)
    with folder.book.writing():
        folder.save(desk)
    lost = {name: desk.failures[name] for name in new if name not in desk.parties}
    desk.failures = before
    return lost


# -- a batch at a time -----------------------------------------------------------------------------


@dataclass
class BatchSum(PendingSum):
    """The sum of a batch, which opens at once: so it must not differ by too few from any opened before."""

    guard: Callable[[Sequence[str]], None] = field(default=lambda parties: None)

    def check(self, parties: Sequence[str] | None = None) -> None:
        """Refuse to open, too, what would show a few clients by subtraction."""
        super().check(parties)
        self.guard(self.contributors if parties is None else parties)


def join_batch(
    folder: Folder, manifest: Manifest, parts: Parts, changes: Sequence[Change], events: Events
) -> Iterator[Change]:
    """Sum a batch under keys of its own, and add the opened sum to the total, in one transaction.

    Gives the changes that are committed, before it says who of the batch failed.
    """
    book, wave = folder.book, {change.line.client: change for change in changes}
    if len(wave) < len(changes):
        raise ConfigError(
            f"{parts.protection.name} sums a batch with one change for each client: do the others in the next"
        )
    contribution = parts.method.standing[0]
    base, number = book.fact("memo"), book.openings + 1
    desk = folder.desk(
        replace(manifest, run=f"{manifest.run}.{number}"), parts, tuple(wave), events, batch=True
    )
    least = parts.protection.fewest(manifest.min_clients)

    def guard(contributors: Sequence[str]) -> None:
        check_apart(book, least, [wave[name].line for name in contributors])

    def announce(contributors: Sequence[str]) -> None:
        guard(contributors)
        with book.writing():
            book.announce(book.total(wave[name].line for name in contributors))

    book.settle()
    guard(tuple(wave))
    desk.enrol()
    if desk.schema.to_message().encode() != base["schema"]:
        raise SchemaError("these clients have other columns or targets than the federation agreed on")
    parts.protection.prepare(desk, 1)
    desk.shared = Shared(desk.schema, {name[7:]: base[name] for name in base if name.startswith("shared/")})
    pending = pending_sum(BatchSum, desk, contribution, {name: wave[name] for name in desk.parties}, book)
    pending.guard = announce
    try:
        entry = pending.finished(parts.protection.gather(pending))
    except QuorumError:
        if pending.failures:  # whose reasons say more than that they were too many
            raise failed(pending.failures) from None
        raise
    total = opened(parts, desk, desk.schema, entry)
    vector = np.concatenate([np.ravel(total[f.name]) for f in pending.layout.fields])
    before = book.fact("total")
    done = [wave[name] for name in pending.contributors]
    with book.writing():
        for change in done:
            book.enter(change.done)
        count = before.get("$count", 0) + len(done)
        book.note("total", {"vector": before.get("vector", 0.0) + vector, "$count": count})
        book.mark_opening()
        book.note("announced", {})
        book.note("interrupted", {})
    yield from done
    if lost := {name: _why(name, desk, pending) for name in wave if name not in pending.contributors}:
        raise failed(lost)


def _why(name: str, desk: Desk, pending: PendingSum) -> str:
    """Why a client's change is not in the batch that opened."""
    return pending.failures.get(name) or desk.failures.get(name) or "StepError: it did not answer"
