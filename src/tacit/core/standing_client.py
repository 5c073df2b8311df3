"""The client half of a standing federation: bring rows, take them back, open the total when asked.

A client keeps a small ledger of what it brought: the name of each contribution, its rows, and a digest of its
vector. It withdraws by sending the negative of the same vector, computed again from the same rows.

A site of its own (:attr:`~tacit.core.manifest.Manifest.stands`) takes no word of the coordinator for what is
in a total: it chooses its rows itself, in *pieces* (docs/standing.md).
"""

import hashlib
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.core.claims import Term, name_of, piece_of, read_lines, read_standing_claim, standing_label
from tacit.core.client import layout_of, manifest_of, open_at_client, protection_half, view_of
from tacit.core.contribution import check_counted, told_digest
from tacit.core.errors import DataError, OpeningError, ReplayError, SchemaError, StepError
from tacit.core.fields import add_prefix, read_integer, strip_prefix
from tacit.core.manifest import Components
from tacit.core.marks import find_marked
from tacit.core.message import Message
from tacit.core.own_record import Pieces, check_pieces, remember_pieces
from tacit.core.party import Party
from tacit.core.protection import Vector
from tacit.core.shared import Shared, Total

LEDGER = "standing/ledger"  # what of a party's state outlives a run in which keys are made for one batch
TERMS = "standing/terms"
PIECES = "standing/pieces"  # of a site: where each piece of its rows ends, the first as it enrolled
DIGESTS = "standing/digests"  # of what it brought of each piece, by its number
WITHDRAWN = "standing/withdrawn"  # names of what it took back
MODEL = "standing/shared/"  # what it learnt from the standing total that it opened last
DONE = "standing"  # in a party's cache: what it has done in this step, for its own records


def change_contribution(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Bring a contribution, or withdraw it, as the coordinator's standing total asks for it."""
    terms = replace(manifest_of(party), run="").digest  # each batch may be a run of its own
    if party.state.setdefault(TERMS, terms) != terms:
        raise StepError(
            f"{party.id} agreed to other terms (method, protection, thresholds) for this standing federation"
        )
    _check_asked(components, message, 0)
    name, sign, own = message["id"], message["sign"], manifest_of(party).stands
    # What the coordinator never acknowledged was lost on the way, and what it no longer lists is withdrawn.
    listed = {*message["accepted"], name}
    ledger = {key: entry for key, entry in party.state.get(LEDGER, {}).items() if key in listed}
    known = ledger.get(name)
    if sign < 0 and known is None:
        raise StepError(f"{party.id} never contributed '{name}', or has withdrawn it: nothing to take back")
    _same_columns(party, shared)
    # "All" are those that it brought, if it did: a client may have more rows by now.
    start, stop = message.get("rows") or (known[:2] if known else (0, party.data.rows))
    if own:
        start, stop = _own_rows(party, message)
    _check_rows(party, name, (start, stop), ledger)
    check_counted(manifest_of(party), message["contribution"], shared)
    function, _ = find_marked(components.method, message["contribution"], "contribution")
    layout = layout_of(components.method, message["contribution"], shared.schema).growing()

    def vector_of(first: int, last: int) -> tuple[Vector, str]:
        part = copy(party)  # that sees some of the rows only
        part.read_rows = lambda: party.read_rows().take(slice(first, last))
        found = layout.pack(function(part, shared))
        return found, hashlib.sha256(found.tobytes()).hexdigest()

    vector, digest = vector_of(start, stop)
    if known is not None and known[2] != digest:
        raise ReplayError(
            f"'{name}' is no longer what {party.id} contributed: its rows have changed since. Put the same "
            "rows back, then withdraw them"
        )
    if own:
        _check_pieces_stay(party, name, digest, lambda first, last: vector_of(first, last)[1])
    party.state[LEDGER] = {**ledger, name: (start, stop, digest)}
    party.cache[DONE] = {"did": "contributed" if sign > 0 else "withdrew", "id": name, "rows": stop - start}
    term = Term(name_of(message), None, standing_label(party.id, name, int(sign)))
    ticket = strip_prefix("ticket/", message)
    ticket |= {"sum": read_integer(message, "sum", 1), "term": term}
    return protection_half(party, components).protect(ticket, sign * vector, layout)


def _check_asked(components: Components, message: Mapping[str, Any], place: int) -> None:
    standing, word = components.method.standing, ("contribution", "apply")[place]
    if message["component"] != "method" or standing is None or message[word] != standing[place]:
        raise StepError(f"'{message[word]}' is no {word} by which a standing federation learns")


def _own_rows(party: Party, message: Message) -> tuple[int, int]:
    """Return the rows of the piece that a name stands for; those of a new piece are all that are new."""
    name, least = message["id"], party.least_rows
    if message.get("rows") is not None:
        raise StepError(f"{party.id} says by itself which rows it brings: ask for none")
    withdrawn: tuple[str, ...] = party.state.get(WITHDRAWN, ())
    if message["sign"] < 0:
        party.state[WITHDRAWN] = (*(known for known in withdrawn if known != name), name)
    elif name in withdrawn:
        raise ReplayError(
            f"{party.id} has withdrawn '{name}': what was withdrawn comes back under a new name"
        )
    piece, ends = piece_of(name, party.id), party.state[PIECES]
    if piece == len(ends) + 1:
        if party.data.rows - ends[-1] < least:
            raise DataError(
                f"{party.id} has fewer than {least} rows that it did not have before, and brings no fewer: "
                "wait until there are more",
                private=f"there are {party.data.rows - ends[-1]}",
            )
        party.state[PIECES] = ends = (*ends, party.data.rows)
    if piece > len(ends):
        raise StepError(f"{party.id} has brought {len(ends)} pieces of its rows, and next comes not {piece}")
    return (0, *ends)[piece - 1], ends[piece - 1]


def _check_pieces_stay(party: Party, name: str, digest: str, digest_of: Callable[[int, int], str]) -> None:
    """Refuse if rows of a piece that was brought are others now: two totals would show the difference."""
    piece, ends = piece_of(name, party.id), (0, *party.state[PIECES])
    known = {str(piece): digest, **party.state.get(DIGESTS, {})}
    for other, expected in known.items():
        number = int(other)
        if expected != (digest if number == piece else digest_of(ends[number - 1], ends[number])):
            raise ReplayError(
                f"the rows that {party.id} brought as '{party.id}:{number}' have changed since: put the same "
                "rows back, new ones behind them, then ask again"
            )
    party.state[DIGESTS] = known


def _own_pieces(party: Party, message: Message, components: Components, schema: Any, least: int) -> Pieces:
    """Return the pieces that a total claims to hold; refuse one that this site must not open."""
    layout = layout_of(components.method, message["contribution"], schema).growing()
    if not components.protection.proves(layout):
        raise OpeningError(f"{party.id} opens no standing total that does not prove what it holds")
    inside = [line for line in read_lines(message["lines"]) if line.joined > line.left]
    pieces = [(line.client, piece_of(line.id, line.client)) for line in inside]
    if len(set(pieces)) < len(pieces):
        raise OpeningError("rows of a client would count double in this total")
    if odd := [line.id for line in inside if line.id in party.state.get(WITHDRAWN, ())]:
        raise OpeningError(f"{party.id} has withdrawn '{odd[0]}', and it is in this total: take it out first")
    check_pieces(party, message["contribution"], frozenset(pieces), least)
    return frozenset(pieces)


def _same_columns(party: Party, shared: Shared) -> None:
    agreed, own = ({c.name: c.kind for c in held.columns} for held in (shared.schema, party.data))
    if list(agreed.items()) == list(own.items()) and shared.schema.task == party.data.task:
        return
    odd = [name for name in {**agreed, **own} if agreed.get(name) != own.get(name)]
    what = f"'{odd[0]}' is not the same in both" if odd else "their order or the task differs"
    raise SchemaError(f"{party.id} has other columns than the federation agreed on: {what}")


def _check_rows(party: Party, name: str, rows: tuple[int, int], ledger: Mapping[str, Any]) -> None:
    start, stop = rows
    own = manifest_of(party).stands  # then nobody is told how many rows it has
    what = f"rows '{name}'" if own else f"rows {start}:{stop}"
    if not 0 <= start < stop <= party.data.rows:
        raise DataError(
            f"{party.id} has no {what}: give a part of those that it holds",
            private=f"it holds {party.data.rows}",
        )
    for other, (first, last, _) in ledger.items():
        if other == name and (first, last) != (start, stop):
            raise ReplayError(
                f"'{name}' of {party.id} has other rows: give the new contribution another name"
            )
        if other != name and start < last and first < stop:
            raise ReplayError(
                f"{what} of {party.id} overlap with its contribution '{other}'"
                f"{'' if own else f', rows {first}:{last}'}: bring other rows, or withdraw that one first"
            )


def open_standing_total(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Open the standing total, make a model of it, and show it to the experimenter if there is one."""
    manifest = manifest_of(party)
    least, own = components.protection.min_contributions(manifest.min_clients), manifest.stands
    for place in (0, 1):
        _check_asked(components, message, place)
    clients, changed = read_integer(message, "clients"), read_integer(message, "changed")
    if clients < least or 0 < changed < least:
        raise OpeningError(
            f"total over {clients} clients of which {changed} changed, agreed were at "
            f"least {least}: {party.id} does not open it"
        )
    pieces = _own_pieces(party, message, components, shared.schema, least) if own else frozenset()
    total = open_at_client(
        party, components, shared.schema, message, lambda: read_standing_claim(message, least)
    )
    result = apply_standing_total(components, message, total, shared)
    if own:
        remember_pieces(party, pieces)
        # What the total says beyond the model is not kept: it could be subtracted from the next.
        party.state.replace(MODEL, view_of(components, result))
        inside = sorted(f"{client}:{piece}" for client, piece in pieces)
        party.cache[DONE] = {"did": "opened", "total": inside, "clients": clients}
    shown = add_prefix("shared/", result) if manifest.experiment else {}
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
