"""The client's half of every method: enrol, follow what the federation has learnt, contribute, adopt."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tacit.core.briefing import read_log
from tacit.core.claims import HISTORY, Claim, keep_roll, note_applied, read_claim, recent
from tacit.core.differencing import subjects_of
from tacit.core.errors import DifferencingError, OpeningError, StepError
from tacit.core.fields import add_prefix, check_fields, read_integer, strip_prefix
from tacit.core.layout import Layout
from tacit.core.manifest import Components, Manifest, check_reveals
from tacit.core.marks import find_marked
from tacit.core.message import Message
from tacit.core.own_record import check_own, check_settled, remember_own
from tacit.core.party import Party
from tacit.core.protection import ClientHalf, Opener, Protection
from tacit.core.shared import Shared, Total

Assemble = Callable[[Manifest], Components]
BEFORE = "before/"
LAYOUTS = 64  # that a process keeps


def enrol(party: Party, message: Message, assemble: Assemble, *, serves: bool) -> Message:
    """Check the manifest against what this site has, remember it, and introduce the party's data."""
    if "manifest" in party.state:
        raise StepError(f"{party.id} is enrolled already, in run {manifest_of(party).run}")
    check_fields(message, {})
    party.state["manifest"] = message["manifest"]
    components = components_of(party, assemble)
    check_fields(message, components.protection.field_kinds)
    check_reveals(manifest_of(party), components)
    half = protection_half(party, components)
    for earlier in attempts(party).values():
        for part in (components.method, components.preparation):
            part.carry_over(party, earlier)
        half.carry_over(earlier)
    fields = add_prefix("protection/", half.introduce(strip_prefix("protection/", message)))
    if serves:
        return Message(fields)
    return Message({**components.preparation.introduce(party, manifest_of(party).declared), **fields})


def protection_half(party: Party, components: Components) -> ClientHalf:
    """Return what the run's protection does at this party."""
    protection = components.protection
    return protection.at_service(party) if party.id in protection.services else protection.at_client(party)


def components_of(party: Party, assemble: Assemble) -> Components:
    """Return the components of the manifest this party enrolled under, built once per process."""
    if "manifest" not in party.state:
        raise StepError(f"{party.id} has not enrolled: ask it to enrol first")
    return recent(party.cache, "components", party.state["manifest"], lambda: assemble(manifest_of(party)))


def manifest_of(party: Party) -> Manifest:
    """Return the manifest this party enrolled under."""
    raw = party.state["manifest"]
    return recent(party.cache, "manifest", raw, lambda: Manifest.from_message(Message.decode(raw)))


def attempts(party: Party) -> dict[int, Party]:
    """Return the same party as it was in earlier attempts at this run, on the same terms."""
    manifest, earlier = manifest_of(party), party.earlier
    if earlier is None:
        return {}
    found = {n: earlier(replace(manifest, attempt=n).digest) for n in range(manifest.attempt)}
    return {number: known for number, known in found.items() if known is not None}


def check_opening(party: Party, protection: Protection, contributions: int) -> int:
    """Refuse a total that, by its own account, is over fewer contributions than agreed; return the fewest."""
    if contributions < (least := protection.min_contributions(manifest_of(party).min_clients)):
        raise OpeningError(
            f"total over {contributions} contributions, agreed were at least {least}: "
            f"{party.id} does not open it"
        )
    return least


def follow(party: Party, components: Components, message: Message, told: Message) -> Shared | None:
    """Catch up: take the agreed schema, then the shared values (in ``told``) or the totals to open."""
    if (agreed := message.get("schema")) is not None:
        agreed = recent(party.cache, "told", agreed, lambda: agreed)  # one object for all of a process
        if party.state.setdefault("schema", agreed) != agreed:
            raise StepError(f"{party.id} was told another schema before: what was agreed on does not change")
    if (raw := party.state.get("schema")) is None:
        return None
    schema = recent(
        party.cache, "schema", raw, lambda: components.preparation.read_schema(Message.decode(raw))
    )
    party.arrange = schema.arrange
    if components.protection.opens == "clients":
        # A client that joins late gets its key with the totals that it opens.
        protection_half(party, components).receive(strip_prefix("ticket/", message))
        return open_log(party, components, schema, message)
    # All parties of a wave in this process get the same message object: read it once.
    found: tuple[Message, Shared] | None = party.cache.get("shared")
    if found is None or found[0] is not told or found[1].schema is not schema:
        found = told, Shared(schema, strip_prefix("shared/", told))
        party.cache["shared"] = found
    return found[1]


def open_log(party: Party, components: Components, schema: Any, message: Message) -> Shared:
    """Open and apply, in order, every total that this replica has not seen yet."""
    keep_roll(party.state, message)
    entries = read_log(message)
    position: int = party.state.get("position", 0)
    if "position" in party.state:
        shared = Shared(schema, strip_prefix("shared/", party.state))
    else:
        agreed = party.state["manifest"], party.state["schema"]
        shared = recent(
            party.cache,
            "initial",
            agreed,
            lambda: initial_values(components, schema, manifest_of(party)),
        )
    if party.earlier is not None and any(number > position for number, _ in entries):
        # What this replica was before: a coordinator that is stopped may not know of these totals later.
        counted = {name: party.state[name] for name in ("applied", HISTORY) if name in party.state}
        counted |= {"position": position, **add_prefix("shared/", shared)}
        party.state.replace(BEFORE, counted)
    for number, raw in entries:
        if number <= position:
            continue
        if number != position + 1:
            raise StepError(
                f"{party.id} knows {position} totals and was handed number {number}: one is missing"
            )
        entry = Message.decode(raw)
        check_fields(entry, components.protection.field_kinds)
        shared = apply_entry(party, components, shared, entry)
        position = number
    if entries:
        party.state["position"] = position
        party.state.replace("shared/", shared)
    return shared


def replica_at(party: Party, components: Components, schema: Any, log: Message, end: int) -> Shared:
    """Return a party's replica after ``end`` totals: taken back before the last ones, or brought forward."""
    if party.state.get("position", 0) > end:
        before = strip_prefix(BEFORE, party.state)
        party.state["position"] = before.pop("position", end + 1)
        party.state["applied"], party.state[HISTORY] = before.pop("applied", 0), before.pop(HISTORY, "")
        party.state.replace("shared/", strip_prefix("shared/", before))
    if party.state.get("position", 0) > end:
        raise StepError(f"{party.id} has opened more than the {end} totals that the coordinator knows of")
    return open_log(party, components, schema, log)


def initial_values(components: Components, schema: Any, manifest: Manifest) -> Shared:
    """Return the shared values before the first total: the same at every replica."""
    return Shared(schema, components.method.init(schema, manifest.rng("init")))


def apply_entry(party: Party, components: Components, shared: Shared, entry: Message) -> Shared:
    """Open one total at this client, and apply it."""
    number, last = read_integer(entry, "sum", 1), party.state.get("applied", 0)
    if number <= last:  # or a total could be applied twice, or after a later one
        raise OpeningError(f"total of sum {number}, and {party.id} has applied that of sum {last}: a replay")
    check_settled(party, entry["contribution"])
    party.state["applied"] = number
    total = open_at_client(party, components, shared.schema, entry)
    note_applied(party.state, entry)
    function, _ = find_marked(getattr(components, entry["component"]), entry["apply"], "apply")
    result: Shared = function(total, shared)
    return result


def open_at_client(
    party: Party,
    components: Components,
    schema: Any,
    entry: Mapping[str, Any],
    read: Callable[[], Claim] | None = None,
) -> Total:
    """Open a total here, if over enough contributions and proved to be theirs; ``read`` reads its claim."""
    least = check_opening(party, components.protection, read_integer(entry, "contributors"))
    part, name = getattr(components, entry["component"]), entry["contribution"]
    protection = components.protection
    try:
        layout, half = layout_of(part, name, schema, party.cache), protection_half(party, components)
        layout = layout.growing() if read else layout
        if read is not None or not protection.proves(layout):
            claim = read() if read and protection.proves(layout) else None
            return open_entry(protection, half, layout, entry, claim)
        claim = read_claim(party.state, entry, party.cache)
        family = find_marked(part, name, "contribution")[1].family
        subjects = subjects_of(family, name, str(party.state.get("applied", 0)))
        check_own(party, name, subjects, claim, least)
        total = open_entry(protection, half, layout, entry, claim)
        remember_own(party, subjects, claim)
        return total
    except DifferencingError:  # follows from the names alone
        raise
    except Exception as error:  # which check failed would tell whoever forged it of the key
        raise OpeningError(
            f"{party.id} does not open this total of {name}: it is damaged, too large, "
            f"under another key, or not the sum of what its {entry['contributors']} contributors sent for it"
        ) from error


def open_entry(
    protection: Protection,
    opener: Opener,
    layout: Layout,
    entry: Mapping[str, Any],
    claim: Claim | None = None,
) -> Total:
    """Open a protected total with the half of the protection that can; both sides write the same entry."""
    total, contributors = strip_prefix("total/", entry), entry["contributors"]
    opened = opener.open({**total, "claim": claim} if claim else total, layout)
    # No tag covers what travels in the clear: a sum must not be replaced by it.
    beside = {f.name: entry[f"clear/{f.name}"] for f in layout.clear if f"clear/{f.name}" in entry}
    fields = layout.unpack(opened) | beside
    noise = opener.measure_noise(total, layout, contributors)
    error, exact = protection.error(layout, contributors, total), protection.promises.precision == 0
    return Total(fields, contributors, error, claim is None and bool(total.get("multiplied")), exact, noise)


def layout_of(part: object, contribution: str, schema: Any, cache: dict[Any, Any] | None = None) -> Layout:
    """Return the layout of a part's contribution under the schema; one object for all who share a cache."""
    if cache is not None:
        key = (id(part), contribution, id(schema))
        # What is kept holds part and schema, so that their ids stay theirs.
        return recent(
            cache, "layout", key, lambda: (layout_of(part, contribution, schema), part, schema), LAYOUTS
        )[0]
    _, mark = find_marked(part, contribution, "contribution")
    assert mark.layout
    layout: Layout = mark.layout(part, schema)
    return layout


def view_of(components: Components, shared: Shared) -> Shared:
    """Return what of the shared values the clients need: what travels, and what replicas compare."""
    return Shared(shared.schema, components.method.view(shared))
