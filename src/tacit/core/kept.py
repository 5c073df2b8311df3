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

from tacit.core.errors import ConfigError, DataError, FederationError, StepError
from tacit.core.events import Events, Noted
from tacit.core.manifest import Parts
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.replica import attempts, manifest_of, over, remember, replica_at, under, write_log
from tacit.core.shared import Shared
from tacit.core.waves import some

if TYPE_CHECKING:
    from tacit.core.desk import Desk

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


def point(desk: Desk) -> Kept | None:
    """What a desk can go on from, now that a round is complete; None if nobody has a whole round yet."""
    shared, progress, log = desk.shared, desk.progress, Message()
    if shared is None:
        desk._marks[len(desk._log)] = desk.progress
        if desk.engine.recalls:
            least = min(desk._known.get(party, 0) for party in desk.parties)
            log = Message(write_log(least + 1, desk._log[least:]))
        elif (found := _read(desk)) is not None:
            shared, progress = found
        else:
            return None
    return _kept(desk, progress, shared, log)


def last_point(desk: Desk, shared: Shared) -> Kept:
    """The same after the last round, when the experimenter has read what was learnt."""
    return _kept(desk, desk.progress, shared, Message())


def _kept(desk: Desk, progress: Mapping[str, Any], shared: Shared | None, log: Message) -> Kept:
    lag = int(desk.progress["round"]) - int(progress["round"])
    attempt, sums = desk.manifest.attempt, desk.begun + desk._sums
    return Kept(desk.schema, progress, shared, log, attempt, attempt + 1, sums, desk.repeats + lag)


def _read(desk: Desk) -> tuple[Shared, Mapping[str, Any]] | None:
    """A client's replica after a round that it has opened, which may be the one before the last.

    It is asked for nothing else: the last total would be opened out of turn. The experimenter's reading is
    no traffic of the federation.
    """
    whole = [party for party in desk.parties if desk._known.get(party) in desk._marks]
    if not whole:
        return None
    chosen = max(whole, key=lambda party: desk._known[party])
    if not desk.read:
        text = f"checkpoints hold the model: the experimenter reads it at {chosen} after each round"
        desk.events.emit(Noted("run", text, "warning"))
        desk.read = True
    position, told = desk._known[chosen], desk.events
    desk._marks = {at: progress for at, progress in desk._marks.items() if at >= position}
    desk.events = Events()
    try:
        replies = list(desk._wave("desk.hand_over", (chosen,), {}, {}, failures={}, news=False))
    finally:
        desk.events = told
    if not replies:
        return None
    return Shared(desk.schema, under("shared/", replies[0].message)), desk._marks[position]


def resume(desk: Desk, kept: Kept, sums: int) -> None:
    """Let a desk whose parties are enrolled go on.

    Whatever is spent by being computed counts as spent: in each attempt since, one round of so many ``sums``
    may have begun.
    """
    if desk.schema != kept.schema:
        raise DataError("the clients' schema is not that of the run they go on with: bring the same columns")
    since = desk.manifest.attempt - kept.attempt
    desk.progress, desk.repeats, desk.begun = kept.progress, kept.repeats + since, kept.sums + since * sums
    desk.parts.protection.resume(desk, desk.begun)
    if desk.shared is not None:
        if kept.shared is None:
            raise ConfigError("this run opened its totals at the clients, and cannot go on opening them here")
        desk.shared = desk.shared | kept.shared
        return
    if kept.shared is not None:
        call = over("shared/", kept.shared)
    else:
        call = over(EARLIER, {**kept.log, "attempt": kept.attempt})
    failures: dict[str, str] = {}
    digests = {
        reply.party: str(reply.message.get("digest"))
        for reply in desk._wave("desk.restore", desk.parties, call, {}, failures=failures)
    }
    desk._check_quorum("going on", desk.parties, list(digests), failures)
    expected = Counter(digests.values()).most_common(1)[0][0]
    if odd := [party for party, digest in digests.items() if digest != expected]:
        raise FederationError(
            f"{len(odd)} of {len(digests)} replicas differ from the rest ({some(odd)}): the run cannot go on"
        )
    desk.parties = tuple(party for party in desk.parties if party in digests)


# -- client --------------------------------------------------------------------------------------------


def restore(party: Party, message: Message, parts: Parts, shared: Shared) -> Message:
    """Take up what was learnt before the run was stopped: one's own replica; in experiments a given one."""
    if EARLIER + "attempt" in message:
        replica = _own(party, under(EARLIER, message), parts, shared.schema)
    elif manifest_of(party).experiment:
        replica = Shared(shared.schema, under("shared/", message))
    else:
        raise ConfigError(f"{party.id} takes a model that it did not learn in experiments only")
    party.state["position"] = 0
    remember(party, replica)
    return Message(digest=replica.digest())


def _own(party: Party, earlier: Mapping[str, Any], parts: Parts, schema: Any) -> Shared:
    """This site's own replica, brought to where the earlier attempt stood."""
    manifest, attempt = manifest_of(party), earlier["attempt"]
    known = attempts(party).get(attempt)
    if known is None:
        raise StepError(f"{party.id} remembers nothing of attempt {attempt} at run {manifest.run}")
    if known.state.get("schema") != party.state["schema"]:
        raise DataError(f"{party.id} learnt under another schema in attempt {attempt} at run {manifest.run}")
    log = Message(earlier)
    return replica_at(known, parts, schema, log, log["log/first"] + len(log["log/lengths"]) - 1)
