"""How a coordinator relays keys that it cannot read: from the client that makes them to all others.

Its memory of them: ``keys`` (the encrypted bundle, and who made it), ``wraps`` (content keys sealed for those
who have none yet), ``sealers`` (who sealed one, if not the maker), ``holders``, what is public, how many
sums the key was ``used`` for, and the ``wishes`` with which it was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tacit.core.errors import MessageError, ProtectionError
from tacit.core.message import Message
from tacit.core.protection import Sum
from tacit.core.transport import some
from tacit.core.values import Blob
from tacit.protections.keys.authenticated import WRAPPED


def take_keys(coordinator: Any, step: Any, maker: str, wishes: Mapping[str, Any]) -> None:
    """Ask a client for a new key, sealed for all other parties of a coordinator (or of a sum).

    Raises
    ------
    MessageError
        If what came back is no key; whatever was in use stays so.
    """
    others = [name for name in coordinator.parties if name != maker]
    common = {**_addressed(coordinator.directory, others), **wishes}
    fields: dict[str, Any] = {}
    for _, reply in coordinator.ask(step, common, parties=[maker]):
        fields = {name: value for name, value in reply.items() if not name.startswith("$")}
    keep_keys(coordinator, maker, others, fields, wishes)


def keep_keys(
    coordinator: Any, maker: str, others: Sequence[str], made: Mapping[str, Any], wishes: Mapping[str, Any]
) -> None:
    """Keep what a maker of keys sent: what is sealed for the others, and what is public."""
    fields = dict(made)
    bundle, wraps = fields.pop("bundle", None), fields.pop("wraps", None)
    if not (
        isinstance(bundle, Blob)
        and "public" in fields
        and all(isinstance(value, Blob) for value in fields.values())
        and _fits(wraps, others)
    ):
        coordinator.failures[maker] = "MessageError: keys that are not what was agreed"
        raise MessageError(f"{maker} made keys that are not what was agreed")
    # Clients never take a public key from the coordinator, which could put its own there.
    coordinator.memory.update({name: value.data for name, value in fields.items()})
    coordinator.memory.update(
        keys={"bundle": bundle, "maker": maker},
        wraps=_cut(wraps, others),
        sealers={},
        holders={maker},
        wishes={name: value for name, value in wishes.items() if name != "renew"},
        used=0,
    )


def hand_on(
    memory: Mapping[str, Any],
    directory: Mapping[str, bytes],
    late: Sequence[str],
    others: Sequence[str],
    ask: Callable[[str, Mapping[str, Any]], Iterable[tuple[str, Message]]],
) -> None:
    """Let any of the others that holds the key seal it for those who came after it was made."""
    wraps, holders = memory["wraps"], memory["holders"]
    late = [name for name in late if name not in wraps and name not in holders]
    if not late:
        return
    common = _addressed(directory, late)
    for holder in [name for name in others if name in holders]:
        for _, reply in list(ask(holder, common)):
            if _fits(reply.get("wraps"), late):
                wraps.update(_cut(reply["wraps"], late))
                memory["sealers"].update(dict.fromkeys(late, holder))
                return
    raise ProtectionError(f"no client that holds the key handed it on to {some(late)}: ask again later")


def riding(pending: Sum) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]]]:
    """What rides on the next ask, for all and for each: keys for those who have none yet."""
    memory, directory = pending.memory, pending.directory
    wraps: dict[str, Blob] = memory["wraps"]
    lacking = [name for name in pending.parties if name in wraps]
    if not lacking:
        return {}, {}
    bundle = memory["keys"]["bundle"]
    maker, early = memory["keys"]["maker"], memory["keys"].get("standing", False)
    # Who sealed for whom, and whether under standing keys: only the maker does, at enrolment.
    origins = {
        name: (memory["sealers"].get(name, maker), early and name not in memory["sealers"])
        for name in lacking
    }
    for name, (sealer, _) in origins.items():
        pending.relayed(sealer, name, WRAPPED + len(bundle.data))
    told = {
        origin: {"maker": origin[0], "exchange": directory[origin[0]], "standing": origin[1]}
        for origin in set(origins.values())
    }
    own: dict[str, Mapping[str, Any]] = {name: {"wrap": wraps[name]} for name in lacking}
    if len(told) == 1:  # as it mostly is: then all are told alike
        return {"bundle": bundle, **next(iter(told.values()))}, own
    return {"bundle": bundle}, {name: {**own[name], **told[origins[name]]} for name in lacking}


def _addressed(directory: Mapping[str, bytes], names: Sequence[str]) -> dict[str, Any]:
    """Who is to get a key, with their signed exchange keys."""
    exchanges = np.frombuffer(b"".join(directory[name] for name in names), dtype=np.uint8)
    return {"names": "\n".join(names).encode(), "exchanges": exchanges.reshape(len(names), -1)}


def _fits(wraps: Any, names: Sequence[str]) -> bool:
    return isinstance(wraps, Blob) and len(wraps.data) == len(names) * WRAPPED


def _cut(wraps: Blob, names: Sequence[str]) -> dict[str, Blob]:
    """One sealed content key for each name."""
    pieces = (wraps.data[at : at + WRAPPED] for at in range(0, len(wraps.data), WRAPPED))
    return {name: Blob("sealed", piece) for name, piece in zip(names, pieces, strict=True)}
