"""What a coordinator has to write down to go on after its process has ended: never a secret.

Keys of channels are in the desk's vault, which goes elsewhere. Serial numbers only rise, also from one
process to the next: each begins a block of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from tacit.core.desk import Desk
from tacit.core.message import Message
from tacit.core.replica import under
from tacit.core.shared import Shared
from tacit.core.values import Blob

BLOCK = 1 << 32  # serial numbers of one process
WRAPS = "wraps"  # keys on their way, each sealed for one party


class Enrolled(NamedTuple):
    """A party as the coordinator remembers it: what it was told, its exchange key, a key on its way."""

    name: str
    known: int | None
    signed: bytes | None
    wrap: bytes | None


def written(desk: Desk) -> Message:
    """What does not grow with the parties: schema, shared values or log, public keys."""
    lengths = np.array([len(entry) for entry in desk._log], dtype=np.int64)
    fields = {"schema": desk._schema_raw, "sums": desk._sums, "log": b"".join(desk._log), "lengths": lengths}
    if desk.shared is not None:
        fields |= {f"shared/{name}": value for name, value in desk.shared.items()}
    for name, value in desk.memory.items():
        if isinstance(value, set):  # of names
            fields[f"names/{name}"] = "\n".join(sorted(value)).encode()
        elif isinstance(value, Mapping):
            fields |= {f"memory/{name}/{key}": item for key, item in value.items() if name != WRAPS}
        else:
            fields[f"memory/{name}"] = value
    return Message(fields)


def enrolled(desk: Desk) -> list[Enrolled]:
    """What is remembered of each party, in party order."""
    wraps = desk.memory.get(WRAPS, {})
    return [
        Enrolled(
            name,
            desk._known.get(name),
            desk.directory.get(name),
            wraps[name].data if name in wraps else None,
        )
        for name in desk.parties
    ]


def recall(desk: Desk, memo: Message, parties: Iterable[Enrolled], block: int) -> None:
    """Let a new desk go on where the one that wrote this down stood, with serial numbers of a new block."""
    desk._serial = block * BLOCK
    desk._sums = memo["sums"]
    desk._schema_raw = memo["schema"]
    desk.schema = desk.parts.preparation.read_schema(Message.decode(memo["schema"]))
    ends = np.cumsum([0, *memo["lengths"].tolist()])
    desk._log = [memo["log"][a:b] for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    if desk._opens == "coordinator":
        desk.shared = Shared(desk.schema, under("shared/", memo))
    for name, value in under("memory/", memo).items():
        group, slash, key = name.partition("/")
        if slash:
            desk.memory.setdefault(group, {})[key] = value
        else:
            desk.memory[name] = value
    for name, value in under("names/", memo).items():
        desk.memory[name] = set(value.decode().split("\n")) - {""}
    if "keys" in desk.memory:  # a mapping that was empty left no trace
        desk.memory |= {name: desk.memory.get(name, {}) for name in ("sealers", "wishes")}
    desk.memory[WRAPS] = {}
    names = []
    for party in parties:
        names.append(party.name)
        if party.known is not None:
            desk._known[party.name] = party.known
        if party.signed is not None:
            desk.directory[party.name] = party.signed
        if party.wrap is not None:
            desk.memory[WRAPS][party.name] = Blob("sealed", party.wrap)
    desk.parties = tuple(names)
