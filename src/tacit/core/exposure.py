"""Who received what: messages sorted into exposure classes as they pass the desk.

``plain`` can be read as it is; ``cipher``, ``sealed``, ``masked`` and ``share`` are blobs of that kind;
``aggregate`` is a total over several clients, or what was made of one; ``public`` was never a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tacit.core.events import Events, Received
from tacit.core.message import Blob

COORDINATOR = "coordinator"
EACH = "each client"
ALL = "all clients together"
AGGREGATES = ("desk.disclose", "protection.open_total")


class Exposure:
    """Counts, for one wave, what each kind of party received; tells it as events."""

    def __init__(self, wave: int, step: str) -> None:
        self._wave = wave
        self._step = step
        self._seen: dict[tuple[str, str, str, str], list[int]] = {}

    def replied(self, party: str, fields: Mapping[str, Any], service: bool) -> None:
        """Count what the coordinator received in a reply."""
        receiver = "experimenter" if self._step == "desk.hand_over" else COORDINATOR
        for name, value in fields.items():
            kind, size = classified(value)
            if name.startswith("$") or not size:
                continue
            if self._step in AGGREGATES or receiver == "experimenter":
                self._add(receiver, ALL, "aggregate", name, size)
            else:
                self._add(receiver, party if service else EACH, kind, name, size)

    def asked(self, receiver: str, fields: Mapping[str, Any], parties: int = 1) -> None:
        """Count what parties received in an ask."""
        for name, value in fields.items():
            kind, size = classified(value)
            if name.startswith("$") or not size:
                continue
            if name.startswith(("shared/", "log/")):
                self._add(
                    receiver,
                    ALL,
                    "aggregate",
                    name.split("/")[1] if name[0] == "s" else "totals",
                    size,
                    parties,
                )
            elif kind == "sealed":
                self._add(receiver, "another client", kind, name.removeprefix("ticket/"), size, parties)
            else:
                self._add(receiver, "the run", "public", name.removeprefix("ticket/"), size, parties)

    def _add(self, receiver: str, about: str, kind: str, what: str, size: int, times: int = 1) -> None:
        entry = self._seen.setdefault((receiver, about, kind, what), [0, 0])
        entry[0] += times
        entry[1] += size * times

    def tell(self, events: Events, contributors: int) -> None:
        """Emit what was counted."""
        for (receiver, about, kind, what), (times, size) in self._seen.items():
            over = contributors if kind == "aggregate" else 1
            events.emit(Received(self._wave, self._step, receiver, about, kind, what, over, times, size))


def classified(value: Any) -> tuple[str, int]:
    """Exposure class and size of a value; plain values of a few bytes count as nothing."""
    if isinstance(value, Blob):
        return value.kind, len(value.data)
    if isinstance(value, np.ndarray):
        return "plain", value.nbytes
    return "plain", len(value) if isinstance(value, bytes) else 0


def kinds(messages: Iterable[Mapping[str, Any]]) -> set[str]:
    """Exposure classes that occur in some messages."""
    return {classified(value)[0] for message in messages for value in message.values()}
