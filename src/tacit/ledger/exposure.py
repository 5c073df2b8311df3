"""The exposure ledger: who saw what, about whom, over how many; read from a run's events alone.

A row's class says what its receiver can make of the bytes:

    plain       can be read as it is
    aggregate   a total over ``over`` clients, or what was made of one
    cipher      encrypted; ``openable`` says whether the receiver holds the key
    masked      hidden by masks that cancel in the sum
    share       one share, which alone opens nothing
    sealed      for another party's eyes, only relayed; or a key, sealed for its receiver
    public      was never a secret

Rows are ordered worst first. What the words mean, and what they leave out, is in docs/exposure.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from tacit.core.display import Shown, html_table
from tacit.core.events import Event, Received, Relayed, Replied, RunStarted, TotalOpened, WaveStarted
from tacit.core.exposure import (
    ALL,
    CLIENT,
    COORDINATOR,
    EACH,
    EXPERIMENTER,
    INTRODUCTION,
    KEYS,
    OTHER,
    VOCABULARY,
)

CLIENTS = "clients"
RELAYED = "messages between clients"
EMPTY = 2  # bytes of a vocabulary that tells nothing


class _Kind(NamedTuple):
    """What distinguishes a row from another."""

    who: str
    what: str
    about: str
    kind: str
    over: int
    openable: bool = True

    def rank(self) -> tuple[Any, ...]:
        """Return the place in the table: what tells most of a single client comes first."""
        single = self.openable and self.over == 1 and self.about in (EACH, OTHER, ALL)
        if single and self.kind != "public":
            place = 1 if self.what.startswith(INTRODUCTION) else 0
        else:
            place = {"aggregate": 2, "plain": 3, "public": 6}.get(self.kind, 5 if self.about == KEYS else 4)
        others = (COORDINATOR, EXPERIMENTER, CLIENTS)
        return place, others.index(self.who) if self.who in others else 1, self.over


@dataclass
class _Count:
    times: int = 0
    bytes: int = 0

    def add(self, times: int, size: int) -> None:
        self.times += times
        self.bytes += size


class ExposureLedger(Shown):
    """Collects who saw what; subscribe it to the run's events.

    Memory grows with the kinds of things that were seen, not with clients or waves.

    Examples
    --------
    >>> from tacit.core.events import Events
    >>> ledger = ExposureLedger()
    >>> events = Events(ledger)
    >>> seen = (COORDINATOR, EACH, "plain", "clear/factor", 1, 5, 1000, "terms")
    >>> events.emit(Received(3, "client.contribute", *seen))
    >>> events.emit(TotalOpened(2, "terms", "clients", 5, 15))
    >>> row = ledger.summary()[0]
    >>> row["who"], row["what"], row["about"], row["class"], row["over"], row["openable"]
    ('coordinator', 'terms: factor', 'each client', 'plain', 1, True)
    """

    def __init__(self) -> None:
        self._rows: dict[_Kind, _Count] = {}
        self._steps: dict[int, str] = {}
        self._ciphers: dict[str, _Count] = {}  # of the sum that is under way, at the coordinator
        self._logged: dict[str, None] = {}  # contributions whose totals the clients opened
        self._relayed = _Count()
        self._services: dict[str, None] = {}
        self._disclosing = False
        self._over = 0
        self._opens = CLIENTS

    def __call__(self, number: int, event: Event) -> None:
        """Take one event into account."""
        match event:
            case RunStarted():
                self._opens = event.opens
            case WaveStarted():
                self._steps = {event.wave: event.step}
                self._disclosing = event.step == "client.disclose_total"
            case Replied() if self._steps.get(event.wave) == "client.show_model" and not event.failure:
                self._add(_Kind(EXPERIMENTER, "the model", ALL, "aggregate", self._over), 1, event.bytes_up)
            case Relayed():
                self._relayed.add(1, event.bytes)
            case Received():
                self._received(event)
            case TotalOpened():
                self._opened(event)

    def _add(self, kind: _Kind, times: int, size: int) -> None:
        self._rows.setdefault(kind, _Count()).add(times, size)

    def _received(self, event: Received) -> None:
        if event.receiver not in (COORDINATOR, CLIENT, EXPERIMENTER):
            self._services[event.receiver] = None
        handed_over = event.step == "client.disclose_total" and event.what == "total"
        shown = event.receiver != EXPERIMENTER or event.step == "client.show_model"
        if event.kind == "aggregate" and (handed_over if event.receiver == CLIENT else shown):
            return  # part of an opening, which other events tell
        if event.what == VOCABULARY and event.bytes == EMPTY * event.times:
            return
        if (event.receiver, event.kind) == (COORDINATOR, "cipher"):
            self._ciphers.setdefault(event.contribution, _Count()).add(event.times, event.bytes)
            return
        who = CLIENTS if event.receiver == CLIENT else event.receiver
        # What is sealed for a client it can unseal, but only a key is of use to it alone.
        openable = event.kind in ("plain", "aggregate", "public") or (who == CLIENTS and event.about == KEYS)
        summed = event.kind not in ("aggregate", "public") and event.about != KEYS
        what = _words(event.what, event.contribution if summed else "")
        kind = _Kind(who, what, event.about, event.kind, event.over, openable)
        self._add(kind, event.times, event.bytes)

    def _opened(self, event: TotalOpened) -> None:
        self._over = event.contributors
        ciphers = self._ciphers.pop(event.contribution, None)
        if event.at == COORDINATOR or self._disclosing:
            others = self._services if event.at == COORDINATOR else [CLIENTS]
            for who in (COORDINATOR, *others):
                total = _Kind(who, f"{event.contribution}: total", ALL, "aggregate", event.contributors)
                self._add(total, 1, 8 * event.values)
        else:
            self._logged[event.contribution] = None
        # A coordinator that opens totals without anyone's help holds the key. It does no harm where it
        # gets the total alone, as in a ring; ciphertexts of single clients would be open to it.
        own = event.at == COORDINATOR and not self._services
        if ciphers is not None and not (own and ciphers.times < event.contributors):
            self._cipher(event.contribution, ciphers, own)

    def _cipher(self, contribution: str, count: _Count, openable: bool) -> None:
        kind = _Kind(COORDINATOR, _words("vector", contribution), EACH, "cipher", 1, openable)
        self._add(kind, count.times, count.bytes)

    def summary(self) -> list[dict[str, Any]]:
        """Return the rows, worst first, as plain values.

        ``who`` saw ``what`` ``about`` whom; its ``class``; ``over`` how many clients it is aggregated; how
        many ``times``, how many ``bytes``; whether the receiver can read it (``openable``).
        """
        seen = ExposureLedger()
        seen._rows = {kind: _Count(count.times, count.bytes) for kind, count in self._rows.items()}
        # A sum that never ended: nobody opened anything, but whoever holds the key still could.
        for contribution, count in self._ciphers.items():
            seen._cipher(contribution, count, self._opens == COORDINATOR and not self._services)
        if self._relayed.times:
            # What the coordinator received sealed is what it relayed.
            seen._rows = {kind: n for kind, n in seen._rows.items() if kind[0::3] != (COORDINATOR, "sealed")}
            relayed = _Kind(COORDINATOR, RELAYED, OTHER, "sealed", 1, openable=False)
            seen._add(relayed, self._relayed.times, self._relayed.bytes)
        totals = "totals: " + ", ".join(self._logged)
        ordered = sorted(seen._rows.items(), key=lambda item: item[0].rank())
        return [
            {
                "who": kind.who,
                "what": totals if kind.what == "totals" and self._logged else kind.what,
                "about": kind.about,
                "class": kind.kind,
                "over": kind.over,
                "times": count.times,
                "bytes": count.bytes,
                "openable": kind.openable,
            }
            for kind, count in ordered
        ]

    def facts(self) -> dict[str, Any]:
        """Return what the coordinator saw, in one line."""
        from tacit.ledger.sentences import saw

        return {"the coordinator saw": saw(self.summary())}

    def _repr_html_(self) -> str:
        rows = self.summary()
        names = ("who", "what", "about", "class", "over", "times")
        told = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences())
        return told + html_table([[row[name] for name in names] for row in rows], names)

    def sentences(self) -> list[str]:
        """Say the same to people, worst first."""
        from tacit.ledger.sentences import sentences

        return sentences(self.summary())


def _words(name: str, contribution: str) -> str:
    """Name what was received, with the sum that it belonged to.

    >>> _words("clear/factor", "terms"), _words("weights", "")
    ('terms: factor', 'weights')
    """
    name = name.removeprefix("clear/")
    return f"{contribution}: {name}" if contribution else name
