"""How the standing total opens: where the protection lets it, and never so that a few clients show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.desk import Desk
from tacit.core.errors import FederationError, OpeningError
from tacit.core.manifest import Manifest, Parts
from tacit.core.message import Message
from tacit.core.replica import layout_of, opened
from tacit.core.shared import Shared, Total
from tacit.core.standing import solved
from tacit.engines.assembly import assemble
from tacit.standing.book import Book, Contribution


def check_apart(book: Book, least: int, changing: Sequence[Contribution] = ()) -> int:
    """Refuse to open a total that differs by too few clients from one that was opened.

    Gives by how many it differs from the last one. ``changing`` are lines that are about to join or leave.
    """
    known = [line.id for line in changing if line.present]
    entering = [line.client for line in changing if not line.present]
    last, nearest = book.fewest_apart(known, entering)
    if last and nearest < least:
        raise OpeningError(
            f"this total would differ by {nearest} client{'s' * (nearest > 1)} from one that was opened "
            f"before, and the difference would show them: at least {least} must have come or gone; wait for "
            "more"
        )
    return last


def clients_in(book: Book) -> int:
    """How many clients contribute now."""
    return len({line.client for line in book.contributions() if line.present})


def check_opening(book: Book, least: int) -> int:
    """Refuse to open the present total over too few clients, or too near to an earlier one."""
    if (clients := clients_in(book)) < least:
        raise OpeningError(
            f"{clients} clients contribute, no total over fewer than {least} is opened: wait for more"
        )
    return check_apart(book, least)


def solution(book: Book, desk: Desk, changed: int) -> Shared:
    """What the method makes of the present total: here, or at a client that the experimenter may ask."""
    parts, joins = desk.parts, desk.parts.protection.joins
    total = dict(book.fact("total"))
    count = total.pop("$count")
    contribution, apply = parts.method.standing
    entry = {
        "part": "method",
        "contribution": contribution,
        "apply": apply,
        "contributors": count,
        "clients": clients_in(book),
        "changed": changed,
        "summands": book.fact("federation")["capacity"] if joins else count,
        **{f"total/{name}": value for name, value in total.items()},
    }
    if parts.protection.opens == "clients":
        return _asked(desk, entry)
    assert desk.shared is not None
    if joins:
        return solved(parts, entry, opened(parts, desk, desk.schema, entry), desk.shared)
    fields = layout_of(parts.method, contribution, desk.schema).unpack(total["vector"])
    return solved(parts, entry, Total(fields, count), desk.shared)


def _asked(desk: Desk, entry: Mapping[str, Any]) -> Shared:
    """Have a client open the total: any will do."""
    failures: dict[str, str] = {}
    for name in desk.parties:
        for reply in list(desk._wave("desk.reopen", (name,), entry, {}, failures=failures)):
            values = {k[7:]: v for k, v in reply.message.items() if k.startswith("shared/")}
            return Shared(desk.schema, values)
    reason = next(iter(failures.values()), "none is there")
    raise FederationError(f"no client could open the total: {reason}")


def read(path: Path | str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Status and kept settings of a state, without its parties."""
    book = Book(Path(path) / "coordinator.db")
    try:
        book.check_started()
        about = book.fact("federation")
        manifest = Manifest.from_message(Message.decode(about["manifest"]))
        return status(book, manifest, assemble(manifest)), msgspec.json.decode(about["settings"])
    finally:
        book.close()


def status(book: Book, manifest: Manifest, parts: Parts) -> dict[str, Any]:
    """Where a federation stands, as plain values."""
    lines, about, joins = book.contributions(), book.fact("federation"), parts.protection.joins
    present, clients = sum(line.present for line in lines), clients_in(book)
    last, nearest = book.fewest_apart()
    least = parts.protection.fewest(manifest.min_clients)
    return {
        "run": manifest.run,
        "method": manifest.parts["method"]["name"],
        "protect": manifest.parts["protection"]["name"],
        "unit": "contribution" if joins else "batch",
        "release": about["release"],
        "founders": about["founders"],
        "clients": clients,
        "contributions": present,
        "withdrawn": len(lines) - present,
        "changes": book.fact("total").get("$count", 0),
        "capacity": about["capacity"] if joins else None,
        "openings": book.openings,
        "changed_since_opening": last,
        "min_clients": least,
        "can_open": clients >= least and (not last or nearest >= least),
        "interrupted_batch": bool(book.fact("interrupted")),
        "closed": book.fact("closed").get("reason"),
    }
