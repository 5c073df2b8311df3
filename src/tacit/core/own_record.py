"""What a client remembers of the totals that it opened: who was in them, by the names that they prove.

The coordinator compares totals before one opens (:mod:`tacit.core.differencing`). Clients that open totals
compare them as well, so that a coordinator which skips its check has none opened that shows a few. Names are
kept, not their places on the roll: a coordinator may tell another roll later.
"""

import zlib
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from tacit.core.claims import Claim, recent
from tacit.core.differencing import ROWS, Subject, Subjects, check_opened
from tacit.core.errors import ConfigError, DifferencingError, OpeningError
from tacit.core.party import Party
from tacit.core.row_space import left_alone

Pieces = frozenset[tuple[str, int]]  # clients, and which piece of the rows of each

# Fields of a party's state: standing totals that were opened here, in order; the identity that each site had
# when it was known first; other totals, by subject, then by number.
STANDING, SITES, OPENED = "standing/opened", "standing/sites", "opened/"


def check_own(party: Party, what: str, subjects: Subjects, claim: Claim, least: int) -> None:
    """Refuse a total that with those opened at this client would show fewer than ``least`` clients."""
    now = _read(party, _names(party, claim))
    check_opened(what, subjects, now, least, lambda one: [_read(party, raw) for raw in _known(party, one)])


def remember_own(party: Party, subjects: Subjects, claim: Claim) -> None:
    """Note that a total was opened at this client; what followed from other shared values is forgotten."""
    now, states = _names(party, claim), {subject.state for subject in subjects} | {""}
    for name in [one for one in party.state if one.startswith(OPENED) and one.split("/")[2] not in states]:
        del party.state[name]
    for subject in subjects:
        known = _known(party, subject)
        if now not in known:
            party.state[f"{_prefix(subject)}{len(known)}"] = now


def check_pieces(party: Party, what: str, now: Pieces, least: int) -> None:
    """Refuse a standing total of these pieces of rows that with all opened here would show a few clients.

    What else was opened here, such as the founders' moments, is of the rows with which clients enrolled:
    of everybody's first piece.
    """
    owners = frozenset(owner for owner, _ in now)
    know_sites(party, owners)
    before = [frozenset((name, 1) for name in _read(party, names)) for names in _known(party, *ROWS)]
    before += _standing(party)
    if now in before:
        return
    changed = min((len({owner for owner, _ in earlier ^ now}) for earlier in before), default=least)
    if changed < least:
        raise DifferencingError(
            f"{what}: this total would differ by {changed} client{'s' * (changed != 1)} from one that "
            f"{party.id} opened before, and the difference would show them: at least {least} must have come, "
            "gone or brought more",
            owners,
        )
    if few := left_alone([*before, now], least):
        raise DifferencingError(
            f"{what}: added to and subtracted from those that {party.id} opened before, this total would "
            f"show {' and '.join(sorted(few))}: at least {least} must stay together",
            owners,
        )


def know_sites(party: Party, names: Iterable[str]) -> None:
    """Remember whose names these are; refuse one that was another site's: their pieces would pass for equal.

    A site that was revoked has no identity any more, and what it brought stays what it was.
    """
    raw = party.state.get(SITES)
    known = {} if raw is None else msgspec.json.decode(zlib.decompress(raw), type=dict[str, str])
    for name in names:
        identity = known.get(name, "")
        with suppress(ConfigError):
            identity = party.pinned(name).hex()
        if known.setdefault(name, identity) != identity:
            raise OpeningError(
                f"'{name}' was another site before, with another key: {party.id} opens no total with rows "
                "under that name. Add the new site under a name of its own"
            )
    party.state[SITES] = zlib.compress(msgspec.json.encode(known))


def remember_pieces(party: Party, now: Pieces) -> None:
    """Note that a standing total was opened at this client."""
    if now not in (known := _standing(party)):
        party.state[STANDING] = zlib.compress(msgspec.json.encode([sorted(one) for one in [*known, now]]))


def check_settled(party: Party, what: str) -> None:
    """Refuse another total than a standing one, once such a one was opened here: they are not compared."""
    if STANDING in party.state:
        raise OpeningError(
            f"{party.id} has opened a standing total, and opens no other any more, such as one of {what}: "
            "what was settled at the start stays"
        )


def _standing(party: Party) -> list[Pieces]:
    if (raw := party.state.get(STANDING)) is None:
        return []
    return msgspec.json.decode(zlib.decompress(raw), type=list[frozenset[tuple[str, int]]])


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
