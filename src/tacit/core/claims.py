"""What a protected total says of itself: which contribution of which sum it is, and whose.

Where clients open totals, a total comes with a *claim*, which its proof is checked against
(:mod:`tacit.protections.keys.proved_totals`). Names do not travel with every total: clients are told a *roll*
of names once, and each total carries one bit for each name on it.
"""

import re
import zlib
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, MessageError, OpeningError
from tacit.core.fields import MOST_CLIENTS
from tacit.core.message import Message

ROLL = "log/names/"  # fields that carry a stretch of the roll, by the place of its first name
MOST_BYTES = 1 << 26  # of the roll, all its stretches together
MOST_LINES = MOST_CLIENTS  # contributions to a total that stands, those that have left it too
HISTORY = "history"  # in a party's state: a digest of the totals that it has applied, in order
_IN_HISTORY = ("sum", "component", "contribution", "apply", "total/tag")
RECENT = 8  # claims that are kept in memory: a client opens few totals at a time

Made = TypeVar("Made")


@dataclass(frozen=True)
class Term:
    """A client's own term of a total, when it is asked for it."""

    contribution: str  # component and name
    number: int | None  # of the sum; None where the total stands longer than one
    label: str  # whose and which it is


@dataclass(frozen=True, eq=False)
class Claim:
    """Which terms are in a total, by the labels of all that could be, and how often each of them is."""

    contribution: str
    number: int | None
    labels: Sequence[str]
    counts: NDArray[np.uint64]
    source: Hashable  # what labels and counts were read from, for caches


@dataclass
class Roll:
    """The coordinator's list of clients that have contributed; it only grows."""

    names: list[str] = field(default_factory=list)
    told: dict[str, int] = field(default_factory=dict)  # party -> names that it knows
    _places: dict[str, int] = field(default_factory=dict)
    _written: dict[int, bytes] = field(default_factory=dict)  # the roll from a place on, made once

    def mark(self, names: Iterable[str]) -> bytes:
        """Return one bit for each name on the roll, set for those given; new ones are entered first."""
        chosen = list(names)
        for name in sorted(name for name in chosen if name not in self._places):
            self._places[name] = len(self.names)
            self.names.append(name)
            self._written.clear()
        bits = np.zeros(len(self.names), np.uint8)
        bits[[self._places[name] for name in chosen]] = 1
        return np.packbits(bits, bitorder="little").tobytes()

    def write(self, first: int = 0) -> dict[str, bytes]:
        """Return the field that carries the roll from that place on, if there is more."""
        if first >= len(self.names):
            return {}
        if first not in self._written:
            self._written[first] = zlib.compress("\n".join(self.names[first:]).encode())
        return {f"{ROLL}{first}": self._written[first]}

    def restore(self, fields: Mapping[str, Any]) -> None:
        """Go on with a roll that :meth:`write` returned from its beginning."""
        self.names = list(read_roll(roll_fields(fields)))
        self._places = {name: place for place, name in enumerate(self.names)}


def roll_fields(fields: Mapping[str, Any]) -> dict[str, bytes]:
    """Return those of a message's (or a party's) fields that carry the roll."""
    return {name: value for name, value in fields.items() if name.startswith(ROLL)}


def keep_roll(state: MutableMapping[str, Any], message: Mapping[str, Any]) -> None:
    """Let a party remember names that it was told; they replace those that it knew from that place on."""
    for name, raw in roll_fields(message).items():
        for old in [known for known in roll_fields(state) if _place(known) >= _place(name)]:
            del state[old]
        state[name] = raw


def _place(name: str) -> int:
    try:
        return int(name[len(ROLL) :])
    except ValueError:
        raise MessageError(f"'{name[:40]}' is no list of clients") from None


def read_roll(fields: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the names of a roll that came in one or more stretches."""
    names, room = list[str](), MOST_BYTES
    for place, raw in sorted((_place(name), raw) for name, raw in fields.items()):
        if place > len(names):
            raise MessageError(f"names of clients from place {place} on, but only {len(names)} are known")
        more = _unpacked(raw, room)
        room -= len(more)
        if place + more.count(b"\n") >= MOST_CLIENTS:
            raise MessageError(f"a list of more than {MOST_CLIENTS:,} clients: that is no federation")
        names[place:] = more.decode().split("\n")
    if len(set(names)) < len(names):
        raise OpeningError("a client is twice on the list of clients: its contribution would count double")
    return tuple(names)


def _unpacked(raw: bytes, room: int = MOST_BYTES) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(raw, max(room, 1))  # 0 would be no limit
    except zlib.error:
        raise MessageError("a list of clients is damaged") from None
    if not unpacking.eof:
        raise MessageError(f"a list of clients of more than {MOST_BYTES:,} bytes, or a damaged one")
    return found


def recent(
    cache: dict[Any, Any], kind: str, key: Hashable, make: Callable[[], Made], most: int = RECENT
) -> Made:
    """Return what was made for a key before, or make it; the last few of a kind are kept."""
    found: dict[Hashable, Made] = cache.setdefault(kind, {})
    made = found.get(key)
    if made is None:
        made = make()
        while len(found) >= most:
            found.pop(next(iter(found)), None)
        found[key] = made
    return made


def note_applied(state: MutableMapping[str, Any], entry: Mapping[str, Any]) -> None:
    """Add a total to a party's history: contributions of parties whose histories differ make no total."""
    noted = {name: entry[name] for name in entry if name in _IN_HISTORY or name.startswith("clear/")}
    state[HISTORY] = Message({**noted, "before": state.get(HISTORY, "")}).digest()


def name_of(entry: Mapping[str, Any]) -> str:
    """Return the contribution that an ask or a total names, with its component."""
    return f"{entry['component']}.{entry['contribution']}"


def read_claim(known: Mapping[str, Any], entry: Mapping[str, Any], cache: dict[Any, Any]) -> Claim:
    """Return what the total of a sum claims, by the roll that a party was told; each client is in it once."""
    roll, bits, number = roll_fields(known), entry["in_total"], entry["sum"]
    source = (*roll.items(), bits)

    def make() -> tuple[tuple[str, ...], NDArray[np.uint64]]:
        names = recent(cache, "roll", tuple(roll.items()), lambda: read_roll(roll))
        marks = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
        if len(marks) > (len(names) + 7) // 8 * 8 or marks[len(names) :].any():
            raise OpeningError(f"a total over clients of whom only {len(names)} are known by name")
        counts = np.zeros(len(names), np.uint64)
        counts[: len(marks)] = marks[: len(names)]
        return names, counts

    names, counts = recent(cache, "claim", source, make)
    if type(number) is not int or int(counts.sum()) != entry["contributors"]:
        raise OpeningError(
            f"a total over {entry['contributors']} contributions names {int(counts.sum())} clients"
        )
    return Claim(name_of(entry), number, names, counts, source)


class Line(NamedTuple):
    """A contribution that has joined a total that stands, so often, and has left it again, so often."""

    id: str
    client: str
    joined: int
    left: int


def standing_label(client: str, contribution: str, sign: int) -> str:
    """Return the label of a contribution that joins (1) or leaves (-1) a total that stands."""
    return repr((client, contribution, sign))


def write_lines(lines: Iterable[Line]) -> bytes:
    """Return the lines of a total, as an ask carries them."""
    return zlib.compress(msgspec.json.encode(list(lines)))


def read_lines(raw: bytes) -> list[Line]:
    """Return the lines of a total; a list that is too long is refused before anything is made of it."""
    text = _unpacked(raw)
    if text.count(b"]") > MOST_LINES + 1:  # one ends each line, and one the list
        raise MessageError(f"a total of more than {MOST_LINES:,} contributions: that is no federation")
    try:
        return msgspec.json.decode(text, type=list[Line])
    except ValueError:  # no JSON, not these fields, or not UTF-8
        raise MessageError("a list of contributions is damaged") from None


def piece_of(contribution: str, client: str) -> int:
    """Return which piece of its rows a site brought under a name: its first, or those that were new then."""
    found = re.fullmatch(
        r"([1-9]\d{0,8})(\.[1-9]\d{0,8})?", contribution.removeprefix(f"{client}:"), re.ASCII
    )
    if found is None or not contribution.startswith(f"{client}:"):
        raise ConfigError(
            f"'{contribution[:80]}' names no piece of {client}'s rows: it is {client}:1 for the first, "
            f"{client}:2 for what was new then, {client}:1.2 for the first once more"
        )
    return int(found[1])


def read_standing_claim(entry: Mapping[str, Any], least: int) -> Claim:
    """Return what a total that stands claims: its lines, each in it once or not any more."""
    lines = read_lines(entry["lines"])
    inside = {line.client for line in lines if line.joined > line.left}
    odd = any(not (0 <= line.left <= MOST_LINES and 0 <= line.joined - line.left <= 1) for line in lines)
    if odd or len({(line.id, line.client) for line in lines}) < len(lines):
        raise OpeningError("a contribution would count double in this total, or less than nothing")
    if len(inside) < least or len(inside) != entry["clients"]:
        raise OpeningError(f"a total over {entry['clients']} clients names {len(inside)}")
    labels = [standing_label(line.client, line.id, sign) for sign in (1, -1) for line in lines]
    counts = [line.joined for line in lines] + [line.left for line in lines]
    return Claim(name_of(entry), None, labels, np.array(counts, np.uint64), entry["lines"])
