"""Who received what: messages sorted into exposure classes as they pass the coordinator.

Beside the kinds of a :class:`~tacit.core.values.Blob`, ``plain`` and ``aggregate`` (made of a total).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.core.briefing import read_log
from tacit.core.claims import ROLL
from tacit.core.events import Events, Received
from tacit.core.message import Message
from tacit.core.protection import Protection
from tacit.core.values import Blob

COORDINATOR = "coordinator"
EXPERIMENTER = "experimenter"
CLIENT = "client"
EACH = "each client"
ALL = "all clients together"
OTHER = "another client"
KEYS = "the keys"
RUN = "the run"
STARTING = "starting values"
NAMES = "names of the clients"
CLEAR = "plain"  # of what is no cryptography
INTRODUCTION = "introduction"
VOCABULARY = f"{INTRODUCTION}: labels and categories"
FIELDS = {  # of asks and replies that every protection has, in words
    "signature": f"{INTRODUCTION}: columns",
    "vocabulary": VOCABULARY,
    "schema": "agreed schema",
    "digest": "digest of its model",
}


class Exposure:
    """Counts, for one wave, what each kind of party received; tells it as events."""

    def __init__(
        self, wave: int, step: str, protection: Protection, *, starting: bool = False, aggregate: bool = False
    ) -> None:
        self._wave = wave
        self._step = step
        self._starting = starting
        self._keys = protection.key_fields
        self._names = {**protection.field_names, **FIELDS}
        self._aggregate = aggregate or step in ("client.disclose_total", "client.lead_total")
        self._contribution = ""
        self._seen: dict[tuple[str, str, str, str, str], list[int]] = {}
        self._forms: dict[int, str] = {}  # of totals, by their number: thousands may be told the same
        self.hidden = {"": 0}  # bytes of cryptography to all parties, and to each until it replies

    def replied(self, party: str, fields: Mapping[str, Any], service: bool) -> int:
        """Count what the coordinator received in a reply; return how many bytes of it are cryptography."""
        hidden, shown = 0, self._step in ("client.show_model", "client.open_standing_total")
        receiver = EXPERIMENTER if shown else COORDINATOR
        for name, value in fields.items():
            kind, size = classified(value)
            size = size or _scalar(value)
            if name[0] == "$" or not size or name == "released":  # the names of shared values
                continue
            field, form = name.removeprefix("protection/").removeprefix("shared/"), _form(name, kind)
            hidden += size * (form != CLEAR)
            words = self._names.get(field, field)
            if self._aggregate or receiver == EXPERIMENTER:
                self._add(receiver, ALL, "aggregate", words, form, size)
            elif kind == "sealed" and field in self._keys:
                self._add(receiver, KEYS, kind, words, form, size)
            else:
                # A digest that all must agree on; a key that was made to be shown.
                public = self._step == "client.adopt_model" or name.startswith("protection/")
                about = party if service else EACH
                self._add(receiver, about, "public" if public else kind, words, form, size)
        return hidden

    def asked(self, receiver: str, fields: Mapping[str, Any], parties: int = 1, party: str = "") -> None:
        """Count what all parties received in an ask, or one of them."""
        hidden, self._contribution = 0, str(fields.get("contribution", self._contribution))
        for name, value in fields.items():
            kind, size = classified(value)
            if not size or name[0] == "$":
                continue
            place, slash, rest = name.partition("/")
            rest, form = rest if slash else name, _form(name, kind)
            seen = RUN, "public", self._names.get(rest, rest)
            if name.startswith(ROLL):
                seen = RUN, "public", NAMES
            elif place == "shared":
                seen = (RUN, "public", STARTING) if self._starting else (ALL, "aggregate", rest)
            elif place == "log":
                if (first := fields["log/first"]) not in self._forms:
                    self._forms[first] = _form_of_totals(fields)
                seen, form = (ALL, "aggregate", "totals"), self._forms[first]
            elif place in ("total", "clear") or kind == "cipher":
                seen = ALL, "aggregate", "total"
            elif kind in ("sealed", "share", "masked"):
                seen = KEYS if rest in self._keys else OTHER, kind, self._names.get(rest, rest)
            hidden += size * (form != CLEAR)
            self._add(receiver, *seen, form, size, parties)
        self.hidden[party] = hidden

    def _add(
        self, receiver: str, about: str, kind: str, what: str, form: str, size: int, times: int = 1
    ) -> None:
        entry = self._seen.setdefault((receiver, about, kind, what, form), [0, 0])
        entry[0] += times
        entry[1] += size * times

    def tell(self, events: Events, contributors: int) -> None:
        """Emit what was counted."""
        for (receiver, about, kind, what, form), (times, size) in self._seen.items():
            seen = (receiver, about, kind, what, contributors if kind == "aggregate" else 1, times, size)
            events.emit(Received(self._wave, self._step, *seen, self._contribution, form))


def _form(name: str, kind: str) -> str:
    return "key" if kind == "plain" and name.startswith("protection/") else kind


def _form_of_totals(fields: Mapping[str, Any]) -> str:
    """Return the form of the log that an ask carries: that of the largest hidden part of its first total."""
    parts = map(classified, Message.decode(read_log(fields)[0][1]).values())
    hidden = [(size, kind) for kind, size in parts if kind not in ("plain", "public")]
    return max(hidden, default=(0, "plain"))[1]


def classified(value: Any) -> tuple[str, int]:
    """Return the exposure class and size of a value; plain values of a few bytes count as nothing."""
    if isinstance(value, Blob):
        return value.kind, len(value.data)
    if isinstance(value, np.ndarray):
        return "plain", value.nbytes
    return "plain", len(value) if isinstance(value, bytes) else 0


def _scalar(value: Any) -> int:
    if isinstance(value, int | float):
        return 8
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list | tuple):
        return sum(map(_scalar, value))
    return sum(map(_scalar, value.values())) if isinstance(value, Mapping) else 0
