"""The client half of a standing federation: bring rows, take them back, open the total when asked.

A standing total stays shut while contributions join and leave it one by one. A client keeps a small ledger
of what it brought: the name of each contribution, its rows, and a digest of its vector. It withdraws by
sending the negative of the same vector, computed again from the same rows; the ledger refuses rows that
were brought already, and notices rows that have changed since.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.core.claims import Term, name_of, read_standing_claim, standing_label
from tacit.core.client import agreed_minimum, layout_of, manifest_of, open_at_client, protection_half
from tacit.core.contribution import check_counted, told_digest
from tacit.core.errors import DataError, MessageError, OpeningError, ReplayError, SchemaError, StepError
from tacit.core.fields import add_prefix, strip_prefix
from tacit.core.manifest import Components
from tacit.core.marks import find_marked
from tacit.core.message import Message
from tacit.core.numbers import read_integer
from tacit.core.party import Party
from tacit.core.shared import Shared, Total

LEDGER = "standing/ledger"  # what of a party's state outlives a run in which keys are made for one batch
TERMS = "standing/terms"


def change_contribution(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Bring a contribution, or withdraw it, as the coordinator's standing total asks for it."""
    _same_terms(party)
    name, sign = message["id"], message["sign"]
    if sign not in (1.0, -1.0):
        raise MessageError(f"a contribution is brought (1) or withdrawn (-1), not taken {sign} times")
    # What the coordinator never acknowledged was lost on the way, and what it no longer lists is withdrawn.
    listed = {*message["accepted"], name}
    ledger = {key: entry for key, entry in party.state.get(LEDGER, {}).items() if key in listed}
    known = ledger.get(name)
    if sign < 0 and known is None:
        raise StepError(f"{party.id} never contributed '{name}', or has withdrawn it: nothing to take back")
    _same_columns(party, shared)
    # "All" are those that it brought, if it did: a client may have more rows by now.
    start, stop = _read_rows(message) or (known[:2] if known else (0, party.data.rows))
    _check_rows(party, name, (start, stop), ledger)
    check_counted(manifest_of(party), message["contribution"], shared)
    with party.only_rows(start, stop):
        function, _ = find_marked(components.method, message["contribution"], "contribution")
        layout = layout_of(components.method, message["contribution"], shared.schema).growing()
        vector = layout.pack(function(party, shared))
    digest = hashlib.sha256(vector.tobytes()).hexdigest()
    if known is not None and known[2] != digest:
        raise ReplayError(
            f"'{name}' is no longer what {party.id} contributed: its rows have changed since. Put the same "
            "rows back, then withdraw them"
        )
    party.state[LEDGER] = {**ledger, name: (start, stop, digest)}
    term = Term(name_of(message), None, standing_label(party.id, name, int(sign)))
    ticket = strip_prefix("ticket/", message)
    ticket |= {"sum": read_integer(message, "sum", 1), "term": term}
    return protection_half(party, components).protect(ticket, sign * vector, layout)


def _same_terms(party: Party) -> None:
    """Refuse other terms than those of the first batch, though each batch may be a run of its own."""
    terms = replace(manifest_of(party), run="").digest
    if party.state.setdefault(TERMS, terms) != terms:
        raise StepError(
            f"{party.id} agreed to other terms (method, protection, thresholds) for this standing federation"
        )


def _same_columns(party: Party, shared: Shared) -> None:
    """Refuse rows with other columns than agreed: a client's file may have changed since it enrolled."""
    agreed, own = ({c.name: c.kind for c in held.columns} for held in (shared.schema, party.data))
    if list(agreed.items()) == list(own.items()) and shared.schema.task == party.data.task:
        return
    odd = [name for name in {**agreed, **own} if agreed.get(name) != own.get(name)]
    what = f"'{odd[0]}' is not the same in both" if odd else "their order or the task differs"
    raise SchemaError(f"{party.id} has other columns than the federation agreed on: {what}")


def _read_rows(message: Message) -> tuple[int, int] | None:
    """Return the first row and the one after the last that are asked for; None for all."""
    if (rows := message.get("rows")) is None:
        return None
    if not isinstance(rows, tuple) or len(rows) != 2:
        raise MessageError(f"rows are a {type(rows).__name__}: give the first and the one after the last")
    named = dict(zip(("first", "last"), rows, strict=True))
    return read_integer(named, "first"), read_integer(named, "last")


def _check_rows(party: Party, name: str, rows: tuple[int, int], ledger: Mapping[str, Any]) -> None:
    start, stop = rows
    if not 0 <= start < stop <= party.data.rows:
        raise DataError(
            f"{party.id} has no rows {start}:{stop}: give a part of those that it holds",
            private=f"it holds {party.data.rows}",
        )
    for other, (first, last, _) in ledger.items():
        if other == name and (first, last) != (start, stop):
            raise ReplayError(
                f"'{name}' of {party.id} has other rows: give the new contribution another name"
            )
        if other != name and start < last and first < stop:
            raise ReplayError(
                f"rows {start}:{stop} of {party.id} overlap with its contribution '{other}', rows "
                f"{first}:{last}: bring other rows, or withdraw that one first"
            )


def open_standing_total(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Open the standing total, make a model of it, and show it to the experimenter if there is one."""
    least = components.protection.min_contributions(agreed_minimum(party))
    clients, changed = read_integer(message, "clients"), read_integer(message, "changed")
    if clients < least or 0 < changed < least:
        raise OpeningError(
            f"total over {clients} clients of which {changed} changed, agreed were at "
            f"least {least}: {party.id} does not open it"
        )
    total = open_at_client(
        party, components, shared.schema, message, lambda: read_standing_claim(message, least)
    )
    result = apply_standing_total(components, message, total, shared)
    shown = add_prefix("shared/", result) if manifest_of(party).experiment else {}
    return Message(digest=told_digest(party, components, result), **shown)


def apply_standing_total(
    components: Components, entry: Mapping[str, Any], total: Total, shared: Shared
) -> Shared:
    """Apply a standing total to what was settled at the start; ``entry`` says how many changes are in it."""
    layout = layout_of(components.method, entry["contribution"], shared.schema).growing()
    for field in layout.fields:
        if field.total is not None and np.abs(total[field.name]).max(initial=0.0) > field.total * (1 + 1e-6):
            raise DataError(
                f"'{field.name}' of all clients exceeds {field.total:g}, the room left at the start: "
                "later clients brought too many rows or too large values; start again with all of them"
            )
    total.error = components.protection.error(layout, entry["contributors"], strip_prefix("total/", entry))
    function, _ = find_marked(components.method, entry["apply"], "apply")
    result: Shared = function(total, shared)
    return result
