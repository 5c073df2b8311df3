"""What a client shows of what it has opened: totals meant for the coordinator, and its model's digest."""

from __future__ import annotations

import hashlib

from tacit.core.claims import roll_fields
from tacit.core.client import (
    add_prefix,
    keep_replica,
    layout_of,
    manifest_of,
    open_at_client,
    protection_half,
    view_of,
)
from tacit.core.errors import ConfigError, OpeningError
from tacit.core.manifest import Components
from tacit.core.marks import find_marked
from tacit.core.message import Message
from tacit.core.numbers import read_integer
from tacit.core.party import Party
from tacit.core.shared import Shared


def disclose_total(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Open a total that is meant for the coordinator, and hand it over; others are refused by name."""
    part, name = getattr(components, message["component"]), message["contribution"]
    _, mark = find_marked(part, name, "contribution")
    layout = layout_of(part, name, shared.schema, party.cache)
    if not mark.revealed or any(field.columns for field in layout.fields):
        raise OpeningError(f"totals of {name} are not for the coordinator: {party.id} does not disclose them")
    _disclose_once(party, message)
    # Opening rounds to the digits that mean something: the rest of a decryption tells of the key.
    return Message(dict(open_at_client(party, components, shared.schema, message)))


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
    keep_replica(party, shared)
    protection_half(party, components).discard_unused_keys()
    return Message(digest=told_digest(party, components, view_of(components, shared)))


def told_digest(party: Party, components: Components, values: Shared) -> str:
    """Return the digest of values that this party holds, as the coordinator may compare it with others'."""
    digest = values.digest()
    return digest if manifest_of(party).experiment else protection_half(party, components).conceal(digest)


def show_model(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Show the experimenter this party's replica; no deployed site does."""
    if not manifest_of(party).experiment:
        raise ConfigError(f"{party.id} shows its replica in experiments only: export the model at the site")
    return Message(add_prefix("shared/", shared))
