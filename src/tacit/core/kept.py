"""Going on with a run that was stopped: what is written down after a round, and how all take it up again.

Keys are agreed anew, so a run that goes on enrols again, under the same manifest but for the number of the
*attempt*. Where totals open at the coordinator, it has the shared values and simply tells them. Where they
open at the clients, it has none. Then each site takes up its own replica of the earlier attempt from its own
store, and opens with that attempt's key the totals that it has not seen yet; all the coordinator wrote down
are those totals, which it cannot open. Only on an engine whose parties vanish with the process, which is for
experiments, the experimenter reads the replica of a client and hands it to all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tacit.core.client import attempts, manifest_of, over, remember, replica_at, under, write_log
from tacit.core.errors import ConfigError, DataError, FederationError, StepError
from tacit.core.events import Events, Noted
from tacit.core.manifest import Components
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.shared import Shared
from tacit.core.transport import some

if TYPE_CHECKING:
    from tacit.core.coordinator import Coordinator

EARLIER = "earlier/"


@dataclass(frozen=True)
class Kept:
    """What a run can go on from.

    Parameters
    ----------
    schema : Schema
        What was agreed on.
    progress : mapping
        What the method counts by itself: the ``round``, and what it needs besides.
    shared : Shared or None
        Shared values after that round, where they may be seen.
    log : Message
        Else: totals that some clients may not have opened yet.
    attempt : int
        In which attempt at the run this was, 0 for the first.
    following : int
        Which attempt is the next.
    sums : int
        That were begun so far, whether they are repeated or not.
    repeats : int
        Rounds that clients have computed and will compute again.
    """

    schema: Any
    progress: Mapping[str, Any]
    shared: Shared | None = None
    log: Message = field(default_factory=Message)
    attempt: int = 0
    following: int = 1
    sums: int = 0
    repeats: int = 0


# -- coordinator ---------------------------------------------------------------------------------------


def point(coordinator: Coordinator) -> Kept | None:
    """What a coordinator can go on from, now that a round is complete; None if nobody has a whole round yet."""
    shared, progress, log = coordinator.shared, coordinator.progress, Message()
    if shared is None:
        coordinator._marks[len(coordinator._log)] = coordinator.progress
        if coordinator.engine.recalls:
            least = min(coordinator._known.get(party, 0) for party in coordinator.parties)
            log = Message(write_log(least + 1, coordinator._log[least:]))
        elif (found := _read(coordinator)) is not None:
            shared, progress = found
        else:
            return None
    return _kept(coordinator, progress, shared, log)


def last_point(coordinator: Coordinator, shared: Shared) -> Kept:
    """The same after the last round, when the experimenter has read what was learnt."""
    return _kept(coordinator, coordinator.progress, shared, Message())


def _kept(coordinator: Coordinator, progress: Mapping[str, Any], shared: Shared | None, log: Message) -> Kept:
    lag = int(coordinator.progress["round"]) - int(progress["round"])
    attempt, sums = coordinator.manifest.attempt, coordinator.begun + coordinator._sums
    return Kept(
        coordinator.schema, progress, shared, log, attempt, attempt + 1, sums, coordinator.repeats + lag
    )


def _read(coordinator: Coordinator) -> tuple[Shared, Mapping[str, Any]] | None:
    """A client's replica after a round that it has opened, which may be the one before the last.

    It is asked for nothing else: the last total would be opened out of turn. The experimenter's reading is
    no traffic of the federation.
    """
    whole = [party for party in coordinator.parties if coordinator._known.get(party) in coordinator._marks]
    if not whole:
        return None
    chosen = max(whole, key=lambda party: coordinator._known[party])
    if not coordinator.read:
        text = f"checkpoints hold the model: the experimenter reads it at {chosen} after each round"
        coordinator.events.emit(Noted("run", text, "warning"))
        coordinator.read = True
    position, told = coordinator._known[chosen], coordinator.events
    coordinator._marks = {at: progress for at, progress in coordinator._marks.items() if at >= position}
    coordinator.events = Events()
    try:
        replies = list(coordinator._wave("client.show_model", (chosen,), {}, {}, failures={}, news=False))
    finally:
        coordinator.events = told
    if not replies:
        return None
    return Shared(coordinator.schema, under("shared/", replies[0].message)), coordinator._marks[position]


def resume(coordinator: Coordinator, kept: Kept, sums: int) -> None:
    """Let a coordinator whose parties are enrolled go on.

    Whatever is spent by being computed counts as spent: in each attempt since, one round of so many ``sums``
    may have begun.
    """
    if coordinator.schema != kept.schema:
        raise DataError("the clients' schema is not that of the run they go on with: bring the same columns")
    since = coordinator.manifest.attempt - kept.attempt
    coordinator.progress, coordinator.repeats, coordinator.begun = (
        kept.progress,
        kept.repeats + since,
        kept.sums + since * sums,
    )
    coordinator.components.protection.resume(coordinator, coordinator.begun)
    if coordinator.shared is not None:
        if kept.shared is None:
            raise ConfigError("this run opened its totals at the clients, and cannot go on opening them here")
        coordinator.shared = coordinator.shared | kept.shared
        return
    if kept.shared is not None:
        call = over("shared/", kept.shared)
    else:
        call = over(EARLIER, {**kept.log, "attempt": kept.attempt})
    failures: dict[str, str] = {}
    digests = {
        reply.party: str(reply.message.get("digest"))
        for reply in coordinator._wave("client.restore", coordinator.parties, call, {}, failures=failures)
    }
    coordinator._check_quorum("going on", coordinator.parties, list(digests), failures)
    expected = Counter(digests.values()).most_common(1)[0][0]
    if odd := [party for party, digest in digests.items() if digest != expected]:
        raise FederationError(
            f"{len(odd)} of {len(digests)} replicas differ from the rest ({some(odd)}): the run cannot go on"
        )
    coordinator.parties = tuple(party for party in coordinator.parties if party in digests)


# -- client --------------------------------------------------------------------------------------------


def restore(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Take up what was learnt before the run was stopped: one's own replica; in experiments a given one."""
    if EARLIER + "attempt" in message:
        replica = _own(party, under(EARLIER, message), components, shared.schema)
    elif manifest_of(party).experiment:
        replica = Shared(shared.schema, under("shared/", message))
    else:
        raise ConfigError(f"{party.id} takes a model that it did not learn in experiments only")
    party.state["position"] = 0
    remember(party, replica)
    return Message(digest=replica.digest())


def _own(party: Party, earlier: Mapping[str, Any], components: Components, schema: Any) -> Shared:
    """This site's own replica, brought to where the earlier attempt stood."""
    manifest, attempt = manifest_of(party), earlier["attempt"]
    known = attempts(party).get(attempt)
    if known is None:
        raise StepError(f"{party.id} remembers nothing of attempt {attempt} at run {manifest.run}")
    if known.state.get("schema") != party.state["schema"]:
        raise DataError(f"{party.id} learnt under another schema in attempt {attempt} at run {manifest.run}")
    log = Message(earlier)
    return replica_at(known, components, schema, log, log["log/first"] + len(log["log/lengths"]) - 1)
