"""What a coordinator, or whoever runs the SuperLink, sends instead of what the protocol says.

Each lie takes the engine's own ``ask``, what all are asked, and what each party alone is told. What became of
it is written to the file that TACIT_LIE_TOLD names, a line of JSON each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tacit.core.coordinator import Coordinator
from tacit.core.engine import Job, Reply
from tacit.core.manifest import Manifest
from tacit.core.message import Message
from tests.helpers.lying import CONTRIBUTE, UNMASK, forged, pack_flags

Ask = Callable[[bytes, list[Job]], Iterator[Reply]]
VICTIM, OTHER = "north", "south"
_seen: dict[str, Any] = {}


def tell(**facts: Any) -> None:
    """Write down what happened."""
    with Path(os.environ["TACIT_LIE_TOLD"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(facts) + "\n")


def altered(ask: Ask, call: bytes, jobs: list[Job]) -> Iterator[Reply]:
    """Change the manifest once it is signed, and its digest with it."""
    message = Message.decode(call)
    if message["$step"] != "client.enrol":
        return ask(call, jobs)
    fields = Message.decode(message["manifest"]) | {"seed": 1234}
    changed = Manifest.from_message(fields)
    told = message | {"manifest": changed.to_message().encode(), "$manifest": changed.digest}
    return ask(told.encode(), jobs)


def replayed(ask: Ask, call: bytes, jobs: list[Job]) -> Iterator[Reply]:
    """Ask one site for its second contribution with the very bytes of the first ask."""
    named = dict(jobs)
    if Message.decode(call)["$step"] != CONTRIBUTE or VICTIM not in named:
        yield from ask(call, jobs)
        return
    before = _seen.setdefault("ask", (call, named[VICTIM]))
    if before == (call, named[VICTIM]):
        yield from ask(call, jobs)
        return
    for name, job in jobs:
        yield from ask(before[0], [(name, before[1])]) if name == VICTIM else ask(call, [(name, job)])


def swapped(ask: Ask, call: bytes, jobs: list[Job]) -> Iterator[Reply]:
    """Hand over the reply of one site as that of another."""
    replies = list(ask(call, jobs))
    if Message.decode(call)["$step"] == CONTRIBUTE:
        by_name = {reply.party: reply for reply in replies}
        replies = [
            replace(reply, message=by_name[OTHER].message) if reply.party == VICTIM else reply
            for reply in replies
        ]
    yield from replies


def split(ask: Ask, call: bytes, jobs: list[Job]) -> Iterator[Reply]:
    """Tell one site another model than the others."""
    message = Message.decode(call)
    shared = [name for name in message if name.startswith("shared/") and hasattr(message[name], "dtype")]
    if message["$step"] != CONTRIBUTE or message.get("component") != "method" or not shared:
        yield from ask(call, jobs)
        return
    for name, job in jobs:
        if name == VICTIM:
            other = {shared[-1]: message[shared[-1]] + 1}
            tell(split=shared[-1])
            yield from ask(*_one(forged(_scene(), name, call, job, other), name))
        else:
            yield from ask(call, [(name, job)])


def both(ask: Ask, call: bytes, jobs: list[Job]) -> Iterator[Reply]:
    """After the shares of one list of survivors, ask for those by which one of them would have vanished."""
    yield from ask(call, jobs)
    if Message.decode(call)["$step"] != UNMASK or "both" in _seen:
        return
    _seen["both"] = True
    name, job = next((name, job) for name, job in jobs if name != VICTIM)
    holders = _scene().coordinator.protection.batch.holders[name]
    left = [holder for holder in holders if holder != VICTIM]
    (reply,) = ask(*_unmask(name, call, job, holders, left))
    tell(asked=name, failure=reply.failure)


def few(ask: Ask, call: bytes, jobs: list[Job]) -> Iterator[Reply]:
    """Ask for a total over two clients, where at least three were agreed on."""
    if Message.decode(call)["$step"] != UNMASK:
        yield from ask(call, jobs)
        return
    for name, job in jobs:
        holders = _scene().coordinator.protection.batch.holders[name]
        left = [name, next(holder for holder in holders if holder != name)]
        (reply,) = ask(*_unmask(name, call, job, holders, left))
        tell(asked=name, failure=reply.failure)
        yield reply


def _unmask(
    name: str, call: bytes, job: bytes, holders: list[str], left: list[str]
) -> tuple[bytes, list[Job]]:
    flags = pack_flags([holder in left for holder in holders])
    # An ask of its own, by its number: one that was answered already is not looked at again.
    told = {"survivors": len(left), "$serial": Message.decode(call)["$serial"] + 1}
    return _one(forged(_scene(), name, call, job, told, alive=flags), name)


def _one(pair: tuple[bytes, bytes], name: str) -> tuple[bytes, list[Job]]:
    call, job = pair
    return call, [(name, job)]


def _scene() -> Any:
    return SimpleNamespace(coordinator=_seen["coordinator"])


# What is said of each: in the error by which the run ends, in its failures, or to the liar itself.
REFUSALS = {
    "altered": "is signed by nobody whom this site has pinned",
    "replayed": "it is a replay",
    "swapped": "a message is not authentic",
    "split": "clients were asked different things",
    "both": "gave its shares",
    "few": "at least 3 were agreed: it stays shut",
}
LIES = {lie.__name__: lie for lie in (altered, replayed, swapped, split, both, few)}


def install(engine: Any, name: str) -> None:
    """Have all asks of an engine go through a lie."""
    ask, init, lie = engine.ask, Coordinator.__init__, LIES[name]

    def lying(self: Any, call: bytes, jobs: Any) -> Iterator[Reply]:
        return lie(partial(ask, self), call, list(jobs))

    def remembered(self: Any, *words: Any, **named: Any) -> None:
        init(self, *words, **named)
        _seen["coordinator"] = self

    engine.ask, Coordinator.__init__ = lying, remembered
