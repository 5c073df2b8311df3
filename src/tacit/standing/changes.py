"""How contributions join and leave the standing total: one by one, or a batch of clients at a time."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from tacit.core.claims import piece_of
from tacit.core.client import open_entry
from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, ProtectionError, QuorumError, ReplayError, SchemaError, nearest
from tacit.core.events import Events
from tacit.core.manifest import Components, Manifest
from tacit.core.pending_sum import PendingSum
from tacit.core.protection import Vector
from tacit.data.schema import vocabulary
from tacit.standing.book import Book
from tacit.standing.differencing import Contribution, all_rows
from tacit.standing.folder import Folder
from tacit.standing.opening import check_lines, error_of_failures


def entering(
    book: Book,
    clients: Sequence[str],
    client: str,
    rows: tuple[int, int] | None,
    name: str | None,
    *,
    pieces: bool = False,
    more: bool = False,
) -> Contribution:
    """Return the line for a contribution (with ``more`` the next piece): present if it is in already."""
    if client not in clients:
        raise ConfigError(f"there is no client '{client}': {nearest(client, clients)}")
    if pieces:
        line = _piece(book, client, rows, name, more)
    else:
        if more:
            raise ConfigError("clients of one machine are told which rows they bring: give --rows")
        if name is not None:
            _check_name(name, clients, client)
        line = Contribution(f"{client}:{rows[0]}-{rows[1]}", client, *rows) if rows else all_rows(client)
        line = line._replace(id=name or line.id)
    known = book.contribution(line.id)
    if known is None:
        return line._replace(present=False)
    if (known.client, known.rows) != (client, line.rows):
        raise ReplayError(
            f"'{line.id}' is another contribution, of {known.client}: give this one a name of its own"
        )
    if not known.present:
        raise ReplayError(
            f"'{line.id}' was withdrawn: a repeat does not bring it back. Give it another name if {client} "
            "wants to contribute these rows again"
        )
    return known


def _piece(
    book: Book, client: str, rows: tuple[int, int] | None, name: str | None, more: bool
) -> Contribution:
    if rows is not None:
        raise ConfigError(
            f"{client} says by itself which rows it brings: leave --rows out for those that it enrolled "
            "with, or give --more for those that are new"
        )
    known = [line.last or 0 for line in book.contributions() if line.client == client]
    piece = piece_of(name, client) if name else max(known, default=0) + 1 if more else 1
    return Contribution(name or f"{client}:{piece}", client, piece - 1, piece)


def _check_name(name: str, clients: Sequence[str], client: str) -> None:
    """Refuse a name that could be taken for another client's contribution, or cannot be typed."""
    if not name.isprintable() or not name.strip():
        raise ConfigError(f"a contribution is named {name!r}: give letters, digits and signs")
    for other in clients:
        if name == other or (other != client and name.startswith(f"{other}:")):
            raise ConfigError(f"'{name}' stands for {other}: name the contribution of {client} otherwise")


def leaving(book: Book, word: str) -> list[Contribution]:
    """Return the lines that a contribution's name, or a client's, stands for."""
    line = book.contribution(word)
    if line and any(other.client == word != line.client for other in book.contributions()):
        raise ConfigError(f"'{word}' is a client, and a contribution of {line.client}: name what it brought")
    lines = [line] if line else [other for other in book.contributions() if other.client == word]
    if not lines:
        known = [other.id for other in book.contributions() if other.present]
        raise ConfigError(f"'{word}' never contributed, so nothing can be withdrawn: {nearest(word, known)}")
    if not (present := [line for line in lines if line.present]):
        raise ReplayError(f"'{word}' was withdrawn already: it is in no total any more")
    return present


def begin_change(
    coordinator: Coordinator,
    changes: Mapping[str, Contribution],
    book: Book,
    before_opening: Callable[[Sequence[str]], None] | None = None,
) -> PendingSum:
    """Return a sum of these clients' changes, each of a contribution as it will be."""
    method = coordinator.components.method
    assert method.standing is not None  # or the federation could not have been started
    own, present = coordinator.manifest.stands, book.present()  # sites of their own choose their rows
    jobs: dict[str, Any] = {}
    for name, line in changes.items():
        about = {"id": line.id, "rows": None if own else line.rows, "sign": 1.0 if line.present else -1.0}
        jobs[name] = {**about, "accepted": present.get(name, [])}
    pending = coordinator.begin_sum(
        getattr(method, method.standing[0]),
        tuple(changes),
        step="client.change_contribution",
        jobs=jobs,
        before_opening=before_opening,
    )
    return replace(pending, layout=pending.layout.growing())


def join_each(
    folder: Folder, coordinator: Coordinator, changes: Sequence[Contribution], capacity: int
) -> Iterator[Contribution]:
    """Let contributions join or leave one by one; each is a transaction, and given once it is committed."""
    book, protection = folder.book, coordinator.protection
    total = dict(book.fact("total"))
    count = total.pop("$count", 0)
    if count + len(changes) > capacity:
        raise ConfigError(
            f"{count + len(changes):,} changes, but the total was made for {capacity:,}: start again, with a "
            "larger capacity"
        )
    failures = _admit(folder, coordinator, changes)
    for wave in _waves([change for change in changes if change.client not in failures]):
        pending = begin_change(coordinator, wave, book)
        for party, protected in protection.accepted(pending, capacity):
            try:
                grown = dict(protection.add(total or None, protected))
            except ProtectionError as error:
                pending.refuse(party, str(error))
                continue
            with book.writing():
                book.enter(wave[party])
                book.note("total", {**grown, "$count": count + 1})
            total, count = grown, count + 1
            yield wave[party]
        failures |= pending.failures
    with book.writing():
        folder.save(coordinator)
    if failures:
        raise error_of_failures(failures)


def _waves(changes: Sequence[Contribution]) -> Iterator[dict[str, Contribution]]:
    by_client: dict[str, list[Contribution]] = defaultdict(list)
    for change in changes:
        by_client[change.client].append(change)
    for wave in zip_longest(*by_client.values()):
        yield {change.client: change for change in wave if change}


def _admit(folder: Folder, coordinator: Coordinator, changes: Sequence[Contribution]) -> dict[str, str]:
    known = set(coordinator.parties)
    new = list(dict.fromkeys(c.client for c in changes if c.client not in known))
    if not new:
        return {}
    before = dict(coordinator.failures)
    agreed = vocabulary(coordinator.schema), coordinator.manifest.min_count
    coordinator.admit(new, coordinator.components.preparation.agreement(*agreed))
    folder.keep_channels(coordinator.manifest, coordinator.link.transport.channels)
    with folder.book.writing():
        folder.save(coordinator)
    lost = {name: coordinator.failures[name] for name in new if name not in coordinator.parties}
    coordinator.failures.clear()
    coordinator.failures.update(before)
    return lost


def join_batch(
    folder: Folder,
    manifest: Manifest,
    components: Components,
    changes: Sequence[Contribution],
    events: Events,
) -> Iterator[Contribution]:
    """Sum a batch under keys of its own, add the opened sum to the total, and give what is committed."""
    book, wave = folder.book, {change.client: change for change in changes}
    if len(wave) < len(changes):
        raise ConfigError(
            f"{components.protection.name} sums a batch with one change for each client: do the others in "
            "the next"
        )
    base, before = folder.snapshot(components), book.fact("total").get("$count", 0)
    number = len(book.opened()) + before + 1  # of no other batch, though two may open the same total
    coordinator = folder.coordinator(
        replace(manifest, run=f"{manifest.run}.{number}"), components, tuple(wave), events, batch=True
    )
    least = components.protection.min_contributions(manifest.min_clients)

    def announce(contributors: Sequence[str]) -> None:
        lines = book.total(wave[name] for name in contributors)
        check_lines(book, least, lines)
        with book.writing():
            book.announce(lines)

    book.count_announced()
    check_lines(book, least, book.total(changes))
    coordinator.enrol()
    if coordinator.schema != base.schema:
        raise SchemaError("these clients have other columns or targets than the federation agreed on")
    coordinator.protection.prepare(1)
    assert base.shared is not None  # it opens here, or the federation could not have been started
    coordinator.shared = base.shared
    pending = begin_change(coordinator, {name: wave[name] for name in coordinator.parties}, book, announce)
    try:
        entry = coordinator.gather(pending)
    except QuorumError:
        if pending.failures:  # whose reasons say more than that they were too many
            raise error_of_failures(pending.failures) from None
        raise
    total = open_entry(components.protection, coordinator.protection, pending.layout, entry)
    vector = np.concatenate([np.ravel(total[f.name]) for f in pending.layout.fields])
    done = [wave[name] for name in pending.contributors]
    _add_to_total(book, done, vector)
    yield from done
    reasons = {**coordinator.failures, **pending.failures}
    lost = [name for name in wave if name not in pending.contributors]
    if lost:
        raise error_of_failures({name: reasons.get(name, "StepError: it did not answer") for name in lost})


def _add_to_total(book: Book, done: Sequence[Contribution], vector: Vector) -> None:
    before = book.fact("total")
    with book.writing():
        for change in done:
            book.enter(change)
        count = before.get("$count", 0) + len(done)
        book.note("total", {"vector": before.get("vector", 0.0) + vector, "$count": count})
        book.mark_opening()
        book.note("announced", {})
        book.note("interrupted", {})
