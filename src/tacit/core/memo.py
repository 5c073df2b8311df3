"""What a coordinator has to write down to go on after its process has ended: never a secret.

Keys of channels are in the coordinator's vault, which goes elsewhere. Serial numbers only rise, also from one
process to the next: each begins a block of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from tacit.core.client import under
from tacit.core.coordinator import Coordinator
from tacit.core.message import Message
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


def written(coordinator: Coordinator) -> Message:
    """What does not grow with the parties: schema, shared values or log, public keys."""
    lengths = np.array([len(entry) for entry in coordinator._log], dtype=np.int64)
    fields = {
        "schema": coordinator._schema_raw,
        "sums": coordinator._sums,
        "log": b"".join(coordinator._log),
        "lengths": lengths,
    }
    if coordinator.shared is not None:
        fields |= {f"shared/{name}": value for name, value in coordinator.shared.items()}
    for name, value in coordinator.memory.items():
        if isinstance(value, set):  # of names
            fields[f"names/{name}"] = "\n".join(sorted(value)).encode()
        elif isinstance(value, Mapping):
            fields |= {f"memory/{name}/{key}": item for key, item in value.items() if name != WRAPS}
        else:
            fields[f"memory/{name}"] = value
    return Message(fields)


def enrolled(coordinator: Coordinator) -> list[Enrolled]:
    """What is remembered of each party, in party order."""
    wraps = coordinator.memory.get(WRAPS, {})
    return [
        Enrolled(
            name,
            coordinator._known.get(name),
            coordinator.directory.get(name),
            wraps[name].data if name in wraps else None,
        )
        for name in coordinator.parties
    ]


def recall(coordinator: Coordinator, memo: Message, parties: Iterable[Enrolled], block: int) -> None:
    """Let a new coordinator go on where the one that wrote this down stood, with serial numbers of a new block."""
    coordinator._serial = block * BLOCK
    coordinator._sums = memo["sums"]
    coordinator._schema_raw = memo["schema"]
    coordinator.schema = coordinator.components.preparation.read_schema(Message.decode(memo["schema"]))
    ends = np.cumsum([0, *memo["lengths"].tolist()])
    coordinator._log = [memo["log"][a:b] for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    if coordinator._opens == "coordinator":
        coordinator.shared = Shared(coordinator.schema, under("shared/", memo))
    for name, value in under("memory/", memo).items():
        group, slash, key = name.partition("/")
        if slash:
            coordinator.memory.setdefault(group, {})[key] = value
        else:
            coordinator.memory[name] = value
    for name, value in under("names/", memo).items():
        coordinator.memory[name] = set(value.decode().split("\n")) - {""}
    if "keys" in coordinator.memory:  # a mapping that was empty left no trace
        coordinator.memory |= {name: coordinator.memory.get(name, {}) for name in ("sealers", "wishes")}
    coordinator.memory[WRAPS] = {}
    names = []
    for party in parties:
        names.append(party.name)
        if party.known is not None:
            coordinator._known[party.name] = party.known
        if party.signed is not None:
            coordinator.directory[party.name] = party.signed
        if party.wrap is not None:
            coordinator.memory[WRAPS][party.name] = Blob("sealed", party.wrap)
    coordinator.parties = tuple(names)
