"""Groups of clients: branch off a coordinator of their own, and merge its sums into another (eq. 5)."""

import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.core.errors import ConfigError, FederationError, ReplayError, UnavailableError
from tacit.core.standing_client import LEDGER
from tacit.engines.sitefolder import write_private
from tacit.protections.keys.proved_totals import STANDING_TAGS
from tacit.standing.book import Book
from tacit.standing.folder import Folder, party_without_rows
from tacit.standing.opening import MERGED

if TYPE_CHECKING:
    from tacit.standing.standing import Standing


def branch(standing: "Standing", path: Path | str) -> None:
    """Make the state of a group's coordinator: same federation, nothing contributed yet."""
    source, target = standing.folder, Path(path)
    _check_other(standing, target)
    source.book.count_announced()
    try:
        target.mkdir(parents=True, exist_ok=True)
        with closing(Book(target / "coordinator.db", new=True)) as book:
            write_private(target / "unlock.key", (source.path / "unlock.key").read_bytes())
            (target / "parties.db").touch(0o600)
            with (
                closing(sqlite3.connect(source.path / "parties.db")) as old,
                closing(sqlite3.connect(target / "parties.db")) as new,
            ):
                old.backup(new)
            with book.writing():
                for name in ("snapshot", "session"):
                    book.note(name, source.book.fact(name))
                book.note_parties(source.book.parties())
                # Whoever sees what the branch opens has seen what was opened here.
                for opening in source.book.opened():
                    book.mark_opening(opening)
                book.note("federation", source.book.fact("federation") | {"token": secrets.token_hex(8)})
    except (OSError, sqlite3.Error) as error:
        raise UnavailableError(f"{target} cannot be used: {error}") from None


def merge(standing: "Standing", path: Path | str) -> int:
    """Take over all that another coordinator of the same federation holds; return how many contributions."""
    _check_other(standing, Path(path))
    ours, theirs = standing.folder, Folder(Path(path), standing.folder.federation)
    with closing(theirs.book):
        theirs.book.check_started()
        token = theirs.book.fact("federation")["token"]
        if token in _merged(ours.book):
            return 0
        _check(standing, theirs)
        reason = f"{MERGED}{ours.book.fact('federation')['token']}"
        for book, fine in ((ours.book, None), (theirs.book, reason)):
            if (closed := book.fact("closed").get("reason", fine)) != fine:
                raise FederationError(f"{book.path.parent} accepts no more changes: {closed}")
        for book in (ours.book, theirs.book):
            book.count_announced()
        total, ledgers = _total(standing, theirs), _ledgers(standing, theirs)
        with theirs.book.writing():
            theirs.book.note("closed", {"reason": reason})
        taken = _take_parties(standing, theirs, ledgers)
        lines = theirs.book.contributions()
        with ours.book.writing():
            ours.book.note_repeated(theirs.book)
            for line in lines:
                if line.present or not ours.book.contribution(line.id):  # else ours has it, or had it
                    ours.book.enter(line)
            # Whoever sees what opens here has seen what was opened there.
            for opening in theirs.book.opened():
                ours.book.mark_opening(opening)
            ours.book.note("total", total)
            ours.book.note("merged", {"tokens": [*_merged(ours.book), *_merged(theirs.book), token]})
            known = {party.name: party for party in ours.book.parties()}
            other = {party.name: party for party in theirs.book.parties()}
            known |= {name: other[name] for name in taken if name in other}
            ours.book.note_parties(known.values())
            sessions = [book.fact("session").get("count", 1) for book in (ours.book, theirs.book)]
            ours.book.note("session", {"count": max(sessions)})
        return sum(line.present for line in lines)


def _check_other(standing: "Standing", theirs: Path) -> None:
    if standing.manifest.stands:
        raise ConfigError("sites keep one record for one coordinator: groups are for clients of one machine")
    if theirs.resolve() == standing.folder.path.resolve():
        raise ConfigError(f"{theirs} is this federation itself: name the folder of another coordinator")


def _merged(book: Book) -> tuple[str, ...]:
    return tuple(book.fact("merged").get("tokens", ()))


def _check(standing: "Standing", theirs: Folder) -> None:
    ours, components = standing.folder, standing.components
    one, two = (folder.snapshot(components) for folder in (ours, theirs))
    manifests = [folder.book.fact("federation")["manifest"] for folder in (ours, theirs)]
    learnt = [kept.shared.digest() if kept.shared is not None else "" for kept in (one, two)]
    same = (one.schema, one.log, manifests[0], learnt[0]) == (two.schema, two.log, manifests[1], learnt[1])
    if not same or not standing.coordinator().protection.same_keys(two.protection):
        raise ConfigError(
            f"{theirs.path} is the state of another federation: only branches of this one merge"
        )
    if ours.book.fact("federation")["token"] == theirs.book.fact("federation")["token"]:
        raise ConfigError(f"{theirs.path} is a copy of this state: it is in it already")
    for line in theirs.book.contributions():
        known = ours.book.contribution(line.id)
        if known and known.present and line.present:
            raise ReplayError(f"'{line.id}' is in both: it would count twice. Withdraw it from one of them")


def _total(standing: "Standing", theirs: Folder) -> dict[str, Any]:
    one, two = dict(standing.folder.book.fact("total")), dict(theirs.book.fact("total"))
    count = one.pop("$count", 0) + two.pop("$count", 0)
    if not one or not two:
        return {**(one or two), "$count": count}
    if not standing.components.protection.incremental:
        return {"vector": one["vector"] + two["vector"], "$count": count}
    capacity = standing.folder.book.fact("federation")["capacity"]
    if count > capacity:
        raise ConfigError(f"{count:,} changes in both, but a total was made for {capacity:,}: start again")
    return {**standing.coordinator().protection.add(one, two), "$count": count}


def _ledgers(standing: "Standing", theirs: Folder) -> dict[str, Any]:
    ours, run = standing.folder, standing.folder.run(standing.manifest)
    clients = [{line.client for line in folder.book.contributions()} for folder in (ours, theirs)]
    present = [folder.book.present() for folder in (ours, theirs)]
    found = {}
    for name in sorted(set.intersection(*clients)):
        kept = []
        for folder, lines in zip((ours, theirs), present, strict=True):
            accepted = lines.get(name, [])
            with folder.store.step(run, party_without_rows(name)) as party:
                ledger = party.state.get(LEDGER, {})
                kept.append({key: entry for key, entry in ledger.items() if key in accepted})
        found[name] = _joined(name, *kept)
    return found


def _take_parties(standing: "Standing", theirs: Folder, ledgers: dict[str, Any]) -> list[str]:
    ours, run = standing.folder, standing.folder.run(standing.manifest)
    known = {party.name for party in ours.book.parties()}
    here = {line.client for line in ours.book.contributions()}
    there = {line.client for line in theirs.book.contributions()}
    enrolled = {party.name for party in theirs.book.parties()}
    taken = sorted((there - here) | (enrolled - known - here))
    for name in (*ledgers, *taken):
        with (
            theirs.store.step(run, party_without_rows(name)) as other,
            ours.store.step(run, party_without_rows(name)) as own,
        ):
            if name not in ledgers:
                own.state, own.vault = other.state, other.vault
                continue
            sent = {key: kept for key, kept in other.state.items() if key.startswith(STANDING_TAGS)}
            own.state.update({**sent, **own.state, LEDGER: ledgers[name]})
    keys, others = ours.channels(standing.manifest), theirs.channels(standing.manifest)
    ours.keep_channels(standing.manifest, keys | {name: key for name, key in others.items() if name in taken})
    return taken


def _joined(client: str, own: Any, other: Any) -> dict[str, Any]:
    for name, (start, stop, _) in own.items():
        for second, (first, last, _) in other.items():
            if name != second and start < last and first < stop:
                raise ReplayError(f"{client} brought the same rows to both, in '{name}' and '{second}'")
    return {**own, **other}
