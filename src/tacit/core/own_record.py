"""What a client remembers of the totals that it opened: who was in them, by the names that they prove.

The coordinator compares totals before one opens (:mod:`tacit.core.differencing`). Where clients open totals
that prove whose contributions they hold, each client compares them by itself as well, so that a coordinator
which skips its check has no total opened that with those opened here before shows a few. Of each total one
bit is kept for each name on the roll.
"""

from __future__ import annotations

import numpy as np

from tacit.core.claims import Claim, recent
from tacit.core.differencing import CELLS, ROWS, Subject, Subjects, check_cells, check_totals
from tacit.core.party import Party

OPENED = "opened/"  # fields of a party's state: by subject, then by number


def check_own(party: Party, what: str, subjects: Subjects, claim: Claim, least: int) -> None:
    """Refuse a total that with those opened at this client would show fewer than ``least`` clients."""
    now = _bits(party, claim)
    for subject in subjects if least > 1 else ():
        known = list(_known(party, subject).values())
        if now not in known:
            check_totals(what, [_names(claim, bits) for bits in known], _names(claim, now), least)
    if subjects == ROWS and now not in (counted := list(_known(party, CELLS).values())):
        check_cells(what, [_names(claim, bits) for bits in counted], _names(claim, now))


def remember_own(party: Party, subjects: Subjects, claim: Claim) -> None:
    """Note that a total was opened at this client; what followed from other shared values is forgotten."""
    now, states = _bits(party, claim), {subject.state for subject in subjects} | {""}
    for name in [one for one in party.state if one.startswith(OPENED) and one.split("/")[2] not in states]:
        del party.state[name]
    for subject in subjects:
        known = _known(party, subject)
        if now not in known.values():
            party.state[f"{_prefix(subject)}{len(known)}"] = now


def _known(party: Party, subject: Subject) -> dict[str, bytes]:
    prefix = _prefix(subject)
    return {name: value for name, value in party.state.items() if name.startswith(prefix)}


def _prefix(subject: Subject) -> str:
    return f"{OPENED}{subject.name}/{subject.state}/"


def _bits(party: Party, claim: Claim) -> bytes:
    """Return one bit for each name on the roll, the same however long the roll has become since."""

    def make() -> bytes:
        return np.packbits(claim.counts > 0, bitorder="little").tobytes().rstrip(b"\0")

    return recent(party.cache, "bits", claim.source, make)


def _names(claim: Claim, bits: bytes) -> frozenset[str]:
    marks = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return frozenset(name for name, mark in zip(claim.labels, marks, strict=False) if mark)
