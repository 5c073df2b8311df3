"""How a client contributes to a sum, and what it shows of what it has opened."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from tacit.core import client
from tacit.core.claims import Term, name_of, roll_fields
from tacit.core.errors import ConfigError, OpeningError, ReplayError, TooLargeError
from tacit.core.fields import add_prefix, read_integer, strip_prefix
from tacit.core.layout import Layout
from tacit.core.manifest import Components, Manifest
from tacit.core.marks import find_marked
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.shared import Shared

LEADER = "leader/"  # in the state of the client that alone opens totals: what was learnt from them


def contribute(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Compute this party's term of a sum, and protect it."""
    part = getattr(components, message["component"])
    function, mark = find_marked(part, message["contribution"], "contribution")
    if mark.family != "cells":
        check_counted(client.manifest_of(party), message["contribution"], shared)
    layout = client.layout_of(part, message["contribution"], shared.schema, party.cache)
    number, protection = read_integer(message, "sum", 1), components.protection
    half = client.protection_half(party, components)
    half.check_layout(message["contribution"], layout)
    again = (protection.restarts or protection.adds_noise) and _is_again(party, message, number, shared)
    clear: Mapping[str, Any]
    named: Mapping[str, Any] = {}
    if protection.restarts and again:
        vector, clear = party.state["vector"], strip_prefix("clear/", party.state)
    else:
        named = function(party, shared)
        with _naming_columns(named, layout, shared):
            vector = layout.pack(named)
        clear = {field.name: named[field.name] for field in layout.clear}
        if protection.restarts:
            party.state.update({"vector": vector, **add_prefix("clear/", clear)})
    term = Term(name_of(message), number, party.id)
    ticket = strip_prefix("ticket/", message)
    ticket |= {"sum": number, "term": term}
    with _naming_columns(named, layout, shared):
        protected = half.protect(ticket, vector, layout)
    if protection.adds_noise:
        party.notes.clear()  # what they say of the rows bears none
    return Message({**protected, **add_prefix("clear/", clear)}) if clear else protected


@contextmanager
def _naming_columns(named: Mapping[str, Any], layout: Layout, shared: Shared) -> Iterator[None]:
    """Say which column or target it is of which a sum is too large: the one with the largest sum."""
    try:
        yield
    except TooLargeError as error:
        schema, free = shared.schema, [field.name for field in layout.fields if field.bound is None]
        sums = {name: np.atleast_1d(np.abs(named[name])) for name in free if name in named}
        for name in sorted(sums, key=lambda name: -sums[name].max(initial=0.0)):
            top = sums[name].max(axis=tuple(range(sums[name].ndim - 1)), initial=0.0)
            target = name.startswith("target") or len(top) != schema.features
            words = schema.target_names if target else schema.feature_names
            if len(words) == len(top):
                kind = "target" if target else "column"
                text = f"{kind} '{words[int(np.argmax(top))]}' is too large for its sums: {error.public}"
                raise TooLargeError(text) from error
        raise


def _is_again(party: Party, message: Message, number: int, shared: Shared) -> bool:
    """Return whether this sum was asked for before; what was kept of it must not stand for something else."""
    asked = (number, name_of(message), shared.digest())
    before: tuple[Any, ...] = party.state.get("sum", (0,))
    party.state["sum"] = asked
    if before[0] == number and before != asked:
        raise ReplayError(
            f"{party.id} was asked for another contribution, or of other values, in sum {number}"
        )
    return before == asked


def check_counted(manifest: Manifest, contribution: str, shared: Shared) -> None:
    """Refuse a contribution before it is known which cells few rows have, if that was agreed.

    Where clients open totals, each has found that out itself.
    """
    if manifest.min_count > 1 and shared.get("min_count") != manifest.min_count:
        raise OpeningError(
            f"'{contribution}' is asked for before the federation has counted which classes and categories "
            f"occur in fewer than min_count = {manifest.min_count} rows: nothing is contributed"
        )


def disclose_total(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Open a total that is meant for the coordinator, and hand it over; others are refused by name."""
    part, name = getattr(components, message["component"]), message["contribution"]
    _, mark = find_marked(part, name, "contribution")
    layout = client.layout_of(part, name, shared.schema, party.cache)
    if not mark.revealed or any(field.columns for field in layout.fields):
        raise OpeningError(f"totals of {name} are not for the coordinator: {party.id} does not disclose them")
    _disclose_once(party, message)
    # Opening rounds to the digits that mean something: the rest of a decryption tells of the key.
    return Message(dict(client.open_at_client(party, components, shared.schema, message)))


def lead_total(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Open a total as the one who leads, apply it, and tell what the method lets others know of that."""
    kept = strip_prefix(LEADER, party.state)
    known = kept or client.initial_values(components, shared.schema, client.manifest_of(party))
    before = Shared(shared.schema, {**known, **shared})
    learnt = client.apply_entry(party, components, before, message)
    party.state.replace(LEADER, learnt)
    told = components.method.release(learnt)
    news = {name: value for name, value in told.items() if name not in before or value is not before[name]}
    return Message({"released": "\n".join(told).encode(), **add_prefix("shared/", news)})


def _disclose_once(party: Party, message: Message) -> None:
    """Hand over one total of a sum: a second one, over other clients, would show those in between."""
    number = read_integer(message, "sum", 1)
    roll = sorted(roll_fields(party.state).items())
    among = hashlib.sha256(repr((roll, message.get("in_total"))).encode()).hexdigest()
    last, before = party.state.get("disclosed", (0, among))
    if number < last or (number == last and among != before):
        raise OpeningError(f"{party.id} disclosed a total of sum {last} already, over other clients or later")
    party.state["disclosed"] = (number, among)


def adopt_model(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Keep what was learnt, and say by digest which replica this is; unused secrets go."""
    party.state.replace("shared/", shared)
    client.protection_half(party, components).discard_unused_keys()
    return Message(digest=told_digest(party, components, client.view_of(components, shared)))


def told_digest(party: Party, components: Components, values: Shared) -> str:
    """Return the digest of values that this party holds, as the coordinator may compare it with others'."""
    if client.manifest_of(party).experiment:
        return values.digest()
    return client.protection_half(party, components).conceal(values.digest())


def show_model(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Show the experimenter this party's replica; no deployed site does."""
    if not client.manifest_of(party).experiment:
        raise ConfigError(f"{party.id} shows its replica in experiments only: export the model at the site")
    return Message(add_prefix("shared/", shared))
