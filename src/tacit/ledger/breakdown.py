"""Costs of a run by party, step and round, added up from the events that its folder keeps."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Union

import msgspec

from tacit.core.errors import ConfigError, nearest
from tacit.core.events import Event, Replied, RoundEnded, RunStarted, WaveEnded, WaveStarted
from tacit.core.exposure import COORDINATOR

FACETS = ("party", "step", "round")
COUNTED = ("messages", "bytes_up", "bytes_down", "hidden_up", "hidden_down", "cpu_s")


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of a run's file; half a line, of a process that was killed, is none."""
    decode = msgspec.json.Decoder(Union[tuple(Event.__subclasses__())]).decode  # noqa: UP007
    try:
        with path.open("rb") as file:
            yield from (decode(line) for line in file if line.endswith(b"\n"))
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def break_down(told: Iterable[Event], by: Sequence[str] = FACETS) -> list[dict[str, Any]]:
    """Add up costs by some of ``FACETS``; rows are in order of first appearance."""
    if wrong := [name for name in by if name not in FACETS]:
        raise ConfigError(f"costs by '{wrong[0]}': {nearest(wrong[0], FACETS)}")
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    step, number, rounds = "", 1, None
    for event in told:
        match event:
            case RunStarted():
                number, rounds = 1, event.rounds
            case WaveStarted():
                step = event.step
            case RoundEnded():
                number = min(event.round + 1, rounds or event.round)
            case Replied() | WaveEnded():
                party = getattr(event, "party", COORDINATOR)
                place = {"party": party, "step": step, "round": number}
                chosen = {name: place[name] for name in by}
                row = found.setdefault(tuple(chosen.values()), {**chosen, **dict.fromkeys(COUNTED, 0)})
                for name in COUNTED[1:]:
                    row[name] += getattr(event, name, 0)
                if isinstance(event, Replied):  # silence is no message
                    row["messages"] += 1 + (event.failure is None or event.bytes_up > 0)
    return list(found.values())
