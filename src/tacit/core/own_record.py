"""What a client remembers of the totals that it opened: who was in them, by the names that they prove.

The coordinator compares totals before one opens (:mod:`tacit.core.differencing`). Where clients open totals
that prove whose contributions they hold, each client compares them by itself as well, so that a coordinator
which skips its check has no total opened that with those opened here before shows a few. Names are kept, not
their places on the roll: a coordinator may tell another roll later.
"""

import zlib

from tacit.core.claims import Claim, recent
from tacit.core.differencing import CELLS, ROWS, Subject, Subjects, check_cells, check_totals
from tacit.core.party import Party

OPENED = "opened/"  # fields of a party's state: by subject, then by number


def check_own(party: Party, what: str, subjects: Subjects, claim: Claim, least: int) -> None:
    """Refuse a total that with those opened at this client would show fewer than ``least`` clients."""
    now = _names(party, claim)
    for subject in subjects if least > 1 else ():
        if now not in (known := _known(party, subject)):
            check_totals(what, [_read(party, names) for names in known], _read(party, now), least)
    if subjects == ROWS and now not in (counted := _known(party, CELLS)):
        check_cells(what, [_read(party, names) for names in counted], _read(party, now))


def remember_own(party: Party, subjects: Subjects, claim: Claim) -> None:
    """Note that a total was opened at this client; what followed from other shared values is forgotten."""
    now, states = _names(party, claim), {subject.state for subject in subjects} | {""}
    for name in [one for one in party.state if one.startswith(OPENED) and one.split("/")[2] not in states]:
        del party.state[name]
    for subject in subjects:
        known = _known(party, subject)
        if now not in known:
            party.state[f"{_prefix(subject)}{len(known)}"] = now


def _known(party: Party, subject: Subject) -> list[bytes]:
    prefix = _prefix(subject)
    return [value for name, value in party.state.items() if name.startswith(prefix)]


def _prefix(subject: Subject) -> str:
    return f"{OPENED}{subject.name}/{subject.state}/"


def _names(party: Party, claim: Claim) -> bytes:
    """Return the names of those in a total: one object for all parties of a process."""

    def make() -> bytes:
        inside = (name for name, count in zip(claim.labels, claim.counts.tolist(), strict=True) if count)
        return zlib.compress("\n".join(sorted(inside)).encode())

    return recent(party.cache, "names", claim.source, make)


def _read(party: Party, names: bytes) -> frozenset[str]:
    return recent(party.cache, "read", names, lambda: frozenset(zlib.decompress(names).decode().split("\n")))
