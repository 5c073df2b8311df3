"""How a client contributes to a sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.core.claims import Term, name_of
from tacit.core.client import add_prefix, layout_of, manifest_of, protection_half, strip_prefix
from tacit.core.counting import check_counted
from tacit.core.errors import ReplayError
from tacit.core.manifest import Components
from tacit.core.marks import find_marked
from tacit.core.message import Message
from tacit.core.numbers import read_integer
from tacit.core.party import Party
from tacit.core.shared import Shared


def contribute(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Compute this party's term of a sum, and protect it."""
    part = getattr(components, message["component"])
    function, _ = find_marked(part, message["contribution"], "contribution")
    check_counted(manifest_of(party), components.preparation.counts, message["contribution"], shared)
    layout = layout_of(part, message["contribution"], shared.schema, party.cache)
    number, protection = read_integer(message, "sum", 1), components.protection
    again = (protection.restarts or protection.adds_noise) and _is_again(party, message, number, shared)
    clear: Mapping[str, Any]
    if protection.restarts and again:
        vector, clear = party.state["vector"], strip_prefix("clear/", party.state)
    else:
        named = function(party, shared)
        vector = layout.pack(named)
        clear = {field.name: named[field.name] for field in layout.clear}
        if protection.restarts:
            party.state.update({"vector": vector, **add_prefix("clear/", clear)})
    term = Term(name_of(message), number, party.id)
    ticket = strip_prefix("ticket/", message)
    ticket |= {"sum": number, "term": term}
    half = protection_half(party, components)
    protected = half.protect(ticket, vector, layout)
    return Message({**protected, **add_prefix("clear/", clear)}) if clear else protected


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
