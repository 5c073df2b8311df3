"""The exposure ledger: who saw what, about whom, over how many; read from a run's events alone.

Rows are ordered worst first. What their words mean, and what they leave out, is in docs/exposure.md.
"""

from html import escape
from typing import Any, NamedTuple

from tacit.core.display import Shown, html_table
from tacit.core.events import Event, Received, Relayed, Replied, RunStarted, TotalOpened, WaveStarted
from tacit.core.exposure import ALL, CLIENT, COORDINATOR, EACH, EXPERIMENTER, KEYS, OTHER, RUN, VOCABULARY
from tacit.ledger.sentences import INTRODUCTION, saw, sentences

CLIENTS = "clients"
OTHERS = {ALL, CLIENT, COORDINATOR, EACH, EXPERIMENTER, KEYS, OTHER, RUN}  # who and whom, but for services
FACTS = ("who", "what", "about", "class", "over", "times", "bytes", "openable")  # of a row
EMPTY = 2  # bytes of a vocabulary that tells nothing
Count = tuple[int, int]  # times, bytes


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


RELAYED = _Kind(COORDINATOR, "messages between clients", OTHER, "sealed", 1, openable=False)


class ExposureLedger(Shown):
    """Collects who saw what; subscribe it to the run's events.

    Memory grows with the kinds of things that were seen, not with clients or waves.
    """

    def __init__(self) -> None:
        self._rows: dict[_Kind, Count] = {}
        self._steps: dict[int, str] = {}
        self._ciphers: dict[str, Count] = {}  # of the sum that is under way, at the coordinator
        self._logged: dict[str, None] = {}  # contributions whose totals the clients opened
        self._relayed: dict[_Kind, Count] = {}
        self._services: dict[str, None] = {}
        self._disclosing = False
        self._over = 0
        self._opens = CLIENTS

    def __call__(self, number: int, event: Event) -> None:
        match event:
            case RunStarted():
                self._opens = event.opens
            case WaveStarted():
                self._steps = {event.wave: event.step}
                self._disclosing = event.step == "client.disclose_total"
            case Replied() if self._steps.get(event.wave) == "client.show_model" and not event.failure:
                model = _Kind(EXPERIMENTER, "the model", ALL, "aggregate", self._over)
                _add(self._rows, model, 1, event.bytes_up)
            case Relayed():
                _add(self._relayed, RELAYED, event.times, event.bytes)
            case Received():
                self._received(event)
            case TotalOpened():
                self._opened(event)

    def _received(self, event: Received) -> None:
        if event.step.startswith("protection."):  # a method's own services open no totals
            self._services |= dict.fromkeys({event.receiver, event.about} - OTHERS)
        led = event.step == "client.lead_total"
        handed_over = (led or event.step == "client.disclose_total") and event.what == "total"
        shown = not led if event.receiver != EXPERIMENTER else event.step == "client.show_model"
        if event.kind == "aggregate" and (handed_over if event.receiver == CLIENT else shown):
            return  # part of an opening, which other events tell
        if event.what == VOCABULARY and event.bytes == EMPTY * event.times:
            return
        if (event.receiver, event.kind) == (COORDINATOR, "cipher"):
            _add(self._ciphers, event.contribution, event.times, event.bytes)
            return
        who = CLIENTS if event.receiver == CLIENT else event.receiver
        # What is sealed for a client it can unseal, but only a key is of use to it alone.
        openable = event.kind in ("plain", "aggregate", "public") or (who == CLIENTS and event.about == KEYS)
        openable |= event.kind == "sealed" and event.receiver not in OTHERS
        summed = event.kind not in ("aggregate", "public") and event.about != KEYS
        what = _words(event.what, event.contribution if summed else "")
        kind = _Kind(who, what, event.about, event.kind, event.over, openable)
        _add(self._rows, kind, event.times, event.bytes)

    def _opened(self, event: TotalOpened) -> None:
        self._over = event.contributors
        ciphers = self._ciphers.pop(event.contribution, None)
        told = event.at == COORDINATOR or self._disclosing
        if event.at == CLIENTS and not told:
            self._logged[event.contribution] = None
        else:
            others = self._services if event.at == COORDINATOR else [event.at]  # a leader, by name
            for who in (COORDINATOR, *others) if told else others:
                total = _Kind(who, f"{event.contribution}: total", ALL, "aggregate", event.contributors)
                _add(self._rows, total, 1, 8 * event.values)
        # A coordinator that opens totals without anyone's help holds the key. It does no harm where it
        # gets the total alone, as in a ring; ciphertexts of single clients would be open to it.
        own = event.at == COORDINATOR and not self._services
        if ciphers is not None and not (own and ciphers[0] < event.contributors):
            _add(self._rows, _cipher(event.contribution, own), *ciphers)

    def summary(self) -> list[dict[str, Any]]:
        """Return the rows, worst first, as plain values; docs/exposure.md explains them."""
        rows = dict(self._rows)
        # A sum that never ended: nobody opened anything, but whoever holds the key still could.
        own = self._opens == COORDINATOR and not self._services
        for contribution, count in self._ciphers.items():
            _add(rows, _cipher(contribution, own), *count)
        if self._relayed:  # what the coordinator received sealed is what it relayed
            rows = {kind: n for kind, n in rows.items() if kind[0::3] != (COORDINATOR, "sealed")}
        rows |= self._relayed
        totals = "totals: " + ", ".join(self._logged)
        found = []
        for kind, counts in sorted(rows.items(), key=lambda item: item[0].rank()):
            told = kind._replace(what=totals) if kind.what == "totals" and self._logged else kind
            found.append(dict(zip(FACTS, (*told[:5], *counts, told.openable), strict=True)))
        return found

    def facts(self) -> dict[str, Any]:
        return {"the coordinator saw": saw(self.summary())}

    def _repr_html_(self) -> str:
        told = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences())
        return told + html_table([[row[name] for name in FACTS[:6]] for row in self.summary()], FACTS[:6])

    def sentences(self) -> list[str]:
        """Say the same to people, worst first."""
        return sentences(self.summary())


def _add(counts: dict[Any, Count], key: object, times: int, size: int) -> None:
    before = counts.get(key, (0, 0))
    counts[key] = before[0] + times, before[1] + size


def _cipher(contribution: str, openable: bool) -> _Kind:
    return _Kind(COORDINATOR, _words("vector", contribution), EACH, "cipher", 1, openable)


def _words(name: str, contribution: str) -> str:
    name = name.removeprefix("clear/")
    return f"{contribution}: {name}" if contribution else name
