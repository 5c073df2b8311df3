"""What parties are told beside a step: the agreed schema, then the shared values or the totals to open."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tacit.core.claims import Roll
from tacit.core.errors import MessageError
from tacit.core.fields import read_integer
from tacit.core.shared import Shared

LEAST = 8  # bytes of an entry, which is a message


class Briefing:
    """What the coordinator shares with the parties, and how far each of them is."""

    def __init__(self, view: Callable[[Shared], Shared]) -> None:  # gives what the clients need of the values
        self.schema: Any = None
        self.schema_raw = b""
        self.shared: Shared | None = None  # None where totals open at the clients
        self.log: list[bytes] = []  # protected totals that the clients open
        self.known: dict[str, int] = {}  # party -> log entries it has; absent: not told the schema
        self.roll = Roll()  # clients that are in totals which name their contributors
        self._view = view
        self.initial: Shared | None = None  # what the public seed gives, before anything is learnt

    def agree(self, schema: Any) -> None:
        """Settle the schema."""
        self.schema, self.schema_raw = schema, schema.to_message().encode()

    def write(
        self, parties: Sequence[str], step: str
    ) -> tuple[Mapping[str, Any], Callable[[str], Mapping[str, Any]]]:
        """Return what all of these parties are told, and a function that gives what one alone is told."""
        fields: dict[str, Any] = {}
        if self.shared is not None and not step.startswith("protection."):
            fields.update({f"shared/{name}": value for name, value in self._view(self.shared).items()})
        # Parties mostly know the same: then the news is encoded once, for all.
        if len({(self.known.get(party), self.roll.told.get(party)) for party in parties}) == 1:
            fields.update(self._news(parties[0]))
            return fields, lambda party: {}
        return fields, self._news

    def told(self, party: str) -> None:
        """Note that a party knows all there is so far."""
        if self.schema is not None:
            self.known[party] = len(self.log)
            self.roll.told[party] = len(self.roll.names)

    def write_all(self, first: int = 1) -> dict[str, Any]:
        """Return the log from that entry on, and the whole roll, for whoever goes on in another process."""
        return {**write_log(first, self.log[first - 1 :]), **self.roll.write()}

    def _news(self, party: str) -> dict[str, Any]:
        known = self.known.get(party)
        if known is None and self.schema is None:
            return {}
        news: dict[str, Any] = {"schema": self.schema_raw} if known is None else {}
        if missed := self.log[known or 0 :]:
            news |= write_log((known or 0) + 1, missed)
        return news | self.roll.write(self.roll.told.get(party, 0))


def write_log(first: int, entries: Sequence[bytes]) -> dict[str, Any]:
    """Return the fields of an ask that carry log entries, the first of them with its number."""
    return {"log/first": first, "log/entries": msgspec.msgpack.encode(entries)}


def read_log(message: Mapping[str, Any]) -> list[tuple[int, bytes]]:
    """Return the numbered log entries that an ask carries."""
    if "log/entries" not in message:
        return []
    try:
        entries = msgspec.msgpack.decode(message["log/entries"], type=list[bytes])
    except msgspec.MsgspecError:
        entries = [b""]
    if len(entries) * LEAST > len(message["log/entries"]):  # millions of empty ones take memory for each
        raise MessageError("log entries cannot be read: this is no genuine message")
    return list(enumerate(entries, read_integer(message, "log/first", 1)))
