"""How the standing total opens: where the protection lets it, and never so that a few clients show."""

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tacit.core import errors
from tacit.core.client import layout_of, open_entry
from tacit.core.coordinator import Coordinator
from tacit.core.errors import FederationError, OpeningError, ProtectionError, StepError, TacitError
from tacit.core.events import TotalOpened
from tacit.core.fields import add_prefix, strip_prefix
from tacit.core.manifest import Components, Manifest
from tacit.core.message import Message
from tacit.core.shared import Shared, Total
from tacit.core.standing_client import apply_standing_total
from tacit.engines.assembly import assemble
from tacit.standing.book import Book
from tacit.standing.differencing import Lines, count_differing, find_exposed, nearest

MERGED = "merged into "  # why a state is closed that another has taken over


def check_lines(book: Book, least: int, now: Lines) -> int:
    """Refuse a total that with earlier ones would show a few clients; return how far the nearest is."""
    opened = book.opened()
    apart = nearest(opened, now)
    if apart is None:
        return 0
    hint = " A batch that was interrupted counts: repeat it as it was." if book.interrupted else ""
    if apart < least and least > 1:  # with 1, every contribution may be seen
        raise OpeningError(
            f"this total would differ by {apart} client{'s' * (apart != 1)} from one that was opened "
            f"before, and the difference would show them: at least {least} must have come or gone; wait for "
            f"more. The scale that the founders settled counts.{hint}"
        )
    if few := find_exposed(opened, now, least):
        raise OpeningError(
            f"added to and subtracted from those opened before, this total would show {' and '.join(few)}: "
            f"change something else as well, so that at least {least} stay together.{hint}"
        )
    return apart


def clients_in(book: Book) -> int:
    """Count the clients that contribute now."""
    return len(book.present())


def check_opening(book: Book, least: int) -> int:
    """Refuse to open the present total over too few clients, or too near to an earlier one."""
    if (closed := book.fact("closed").get("reason", "")).startswith(MERGED):
        raise FederationError(f"{book.path.parent} was {closed}: ask there for weights")
    if (clients := clients_in(book)) < least:
        raise OpeningError(
            f"{clients} clients contribute, no total over fewer than {least} is opened: wait for more"
        )
    return check_lines(book, least, book.total())


class Adopted(NamedTuple):
    """What came of a total that sites opened: a digest of the model, who has it, and who has not, and why."""

    digest: str
    holders: tuple[str, ...]
    failures: dict[str, str]


def solution(book: Book, coordinator: Coordinator, changed: int) -> Shared | Adopted:
    """Apply the method to the present total: here, at a client that the experimenter may ask, or at sites."""
    components, incremental = coordinator.components, coordinator.components.protection.incremental
    total = dict(book.fact("total"))
    count = total.pop("$count")
    assert components.method.standing is not None  # or the federation could not have been started
    contribution, apply = components.method.standing
    entry = {
        "component": "method",
        "contribution": contribution,
        "apply": apply,
        "contributors": count,
        "clients": clients_in(book),
        "changed": changed,
        **add_prefix("total/", total),
    }
    layout = layout_of(components.method, contribution, coordinator.schema).growing()
    place = components.protection.opens
    if components.protection.proves(layout):
        entry["lines"] = book.claimed_lines()
    coordinator.events.emit(TotalOpened(coordinator.sums, contribution, place, entry["clients"], layout.size))
    if coordinator.manifest.stands:
        inside = book.present()
        return _adopted(coordinator, [name for name in coordinator.parties if name in inside], entry)
    if place == "clients":
        return _asked(coordinator, entry)
    assert coordinator.shared is not None
    if incremental:
        opened = open_entry(components.protection, coordinator.protection, layout, entry)
    else:
        opened = Total(layout.unpack(total["vector"]), count)
    return apply_standing_total(components, entry, opened, coordinator.shared)


def error_of_failures(failures: Mapping[str, str]) -> TacitError:
    """Return the error of clients that could not do their part: of its own class if all have the same."""
    kinds = {_kind(reason) for reason in failures.values()}
    kind = kinds.pop() if len(kinds) == 1 else FederationError
    told = "; ".join(f"{name}: {reason}" for name, reason in list(failures.items())[:3])
    more = f"; and {len(failures) - 3} more" if len(failures) > 3 else ""
    return kind(f"{told}{more}")


def _kind(reason: str) -> type[TacitError]:
    found = getattr(errors, reason.partition(":")[0], None)
    if isinstance(found, type) and issubclass(found, TacitError):
        return found
    return StepError if reason.endswith("in the client's step") else ProtectionError


def _asked(coordinator: Coordinator, entry: Mapping[str, Any]) -> Shared:
    failures: dict[str, str] = {}
    for name in coordinator.parties:
        wave = coordinator.link.wave("client.open_standing_total", (name,), entry, failures=failures)
        for reply in list(wave):
            return Shared(coordinator.schema, strip_prefix("shared/", reply.message))
        if not issubclass(_kind(failures[name]), FederationError):
            raise error_of_failures({name: failures[name]})
    raise error_of_failures(failures)


def _adopted(coordinator: Coordinator, names: Sequence[str], entry: Mapping[str, Any]) -> Adopted:
    """Have all sites that contribute open the total, if their own records allow, and compare what they got.

    Who could not be asked gets the model when the same total opens again.
    """
    failures: dict[str, str] = {}
    wave = coordinator.link.wave("client.open_standing_total", names, entry, failures=failures)
    digests = {reply.party: str(reply.message.get("digest")) for reply in wave}
    if not digests:
        raise error_of_failures(failures)
    if len({*digests.values()}) > 1:
        raise FederationError(
            f"sites opened different models: {', '.join(digests)} were told different things"
        )
    return Adopted(next(iter(digests.values())), tuple(digests), failures)


def read(path: Path | str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read status and kept settings of a state, without its parties."""
    with closing(Book(Path(path) / "coordinator.db")) as book:
        book.check_started()
        about = book.fact("federation")
        manifest = Manifest.from_message(Message.decode(about["manifest"]))
        return status(book, manifest, assemble(manifest)), msgspec.json.decode(about["settings"])


def status(book: Book, manifest: Manifest, components: Components) -> dict[str, Any]:
    """Return where a federation stands, as plain values."""
    lines, about = book.contributions(), book.fact("federation")
    incremental = components.protection.incremental
    present, clients = sum(line.present for line in lines), clients_in(book)
    least, opened = components.protection.min_contributions(manifest.min_clients), book.opened()
    can_open = False
    with suppress(FederationError, OpeningError):
        check_opening(book, least)
        can_open = True
    return {
        "run": manifest.run,
        "method": manifest.components["method"]["name"],
        "protect": manifest.components["protection"]["name"],
        "unit": "contribution" if incremental else "batch",
        "release": about["release"],
        "founders": about["founders"],
        "clients": clients,
        "contributions": present,
        "withdrawn": len(lines) - present,
        "changes": book.fact("total").get("$count", 0),
        "capacity": about["capacity"] if incremental else None,
        "openings": len(opened),
        "changed_since_opening": count_differing(opened[-1] if opened else frozenset(), book.total()),
        "min_clients": least,
        "can_open": can_open,
        "interrupted_batch": book.interrupted,
        "closed": book.fact("closed").get("reason"),
    }
