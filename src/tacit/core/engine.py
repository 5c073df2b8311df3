"""Engines: where parties live, and how asks reach them. This is their interface."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import msgspec

from tacit.core.errors import MessageError
from tacit.core.message import Message

Job = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Reply:
    """One party's answer to an ask, or why there is none."""

    party: str
    message: Message
    failure: str | None
    bytes_down: int
    bytes_up: int
    cpu_s: float = 0.0
    inline: bool = False  # whether the party's CPU time was spent on the coordinator's own thread


class Engine(Protocol):
    """Holds the parties and carries encoded asks to them."""

    persistent: bool  # whether a party that enrols again finds what it knew in an earlier attempt at the run

    def parties(self, role: str = "client") -> Sequence[str]:
        """Return the names of the parties of a role, in party order."""

    def present(self) -> Sequence[str]:
        """Return the names of the parties that could be asked now."""

    def ask(self, call: bytes, jobs: Iterable[Job]) -> Iterator[Reply]:
        """Ask each party of ``jobs``; replies stream back in that order, one for each job."""

    def close(self) -> None:
        """Release what the engine holds for the parties."""


def read_reply(party: str, raw: bytes, down: int, *, limit: int, inline: float | None = None) -> Reply:
    """Decode what came back from a party; bytes that are no message are that party's failure."""
    try:
        message = Message.decode(raw, limit)
        cpu = message.get("$cpu")
        if not isinstance(cpu, float) or not isfinite(cpu) or cpu < 0:
            raise MessageError("reply without its CPU time")
        if not isinstance(message.get("$failure", ""), str):
            raise MessageError("reply whose failure is no text")
        msgspec.convert(message.get("$notes", ()), tuple[tuple[str, str], ...])
    except msgspec.ValidationError:
        error = "reply whose notes are no texts with their levels"
        return Reply(party, Message(), f"MessageError: {error}", down, len(raw))
    except MessageError as error:
        return Reply(party, Message(), f"MessageError: {error}", down, len(raw))
    # What a party says of itself leaves out the end: the coordinator's own thread knows better.
    spent = cpu if inline is None else inline
    return Reply(party, message, message.get("$failure"), down, len(raw), spent, inline is not None)
