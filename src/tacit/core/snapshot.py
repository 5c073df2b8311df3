"""Snapshots: what a coordinator writes down so that another process can go on, and how all take it up again.

A *standing federation* goes on with the same parties and keys, a *run that was stopped* with what was learnt:
the coordinator's shared values, or each site's own replica, which opens, with the earlier attempt's key, what
the coordinator has written down. Only where parties vanish with the process, in experiments, the experimenter
reads the replica of a client and hands it to all of them. No secret is ever in a snapshot.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tacit.core.briefing import read_log
from tacit.core.claims import HISTORY
from tacit.core.client import attempts, manifest_of, replica_at
from tacit.core.contribution import told_digest
from tacit.core.differencing import OpenedTotals
from tacit.core.errors import ConfigError, DataError, StepError
from tacit.core.events import Noted
from tacit.core.fields import add_prefix, strip_prefix
from tacit.core.manifest import Components
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.shared import Shared

if TYPE_CHECKING:
    from tacit.core.coordinator import Coordinator

EARLIER = "earlier/"
OPENED = "opened/"
SERIALS = 1 << 32  # serial numbers of one process: they only rise
COUNTS = ("sums", "attempt", "following", "repeats", "learnt")


@dataclass(frozen=True)
class Snapshot:
    """What a coordinator can go on from."""

    schema: Any  # what was agreed on
    progress: Mapping[str, Any] = field(default_factory=dict)  # what the method counts by itself
    shared: Shared | None = None  # shared values, where they may be seen
    # Protected totals that clients open, as an ask carries them.
    log: Message = field(default_factory=Message)
    sums: int = 0  # that were begun so far, whether they are repeated or not
    attempt: int = 0  # in which attempt at the run this was, 0 for the first
    following: int = 1  # and which is the next
    repeats: int = 0  # rounds that clients have computed and will compute again
    protection: Mapping[str, Any] = field(default_factory=dict)  # what it needs to go on with the same keys
    learnt: int = 0  # totals behind these values, where totals open at the clients
    opened: Mapping[str, Any] = field(default_factory=dict)  # who was in the totals that were opened

    def to_message(self) -> Message:
        """Return the snapshot as a message."""
        fields = {
            "schema": self.schema.to_message().encode(),
            **{name: getattr(self, name) for name in COUNTS},
            **add_prefix("progress/", self.progress),
            **add_prefix("protection/", self.protection),
            **add_prefix(OPENED, self.opened),
            **self.log,
        }
        if self.shared is not None:
            fields |= {"shared": True, **add_prefix("shared/", self.shared)}
        return Message(fields)

    @classmethod
    def from_message(cls, message: Mapping[str, Any], read_schema: Callable[[Message], Any]) -> "Snapshot":
        """Read what :meth:`to_message` returned."""
        schema = read_schema(Message.decode(message["schema"]))
        return cls(
            schema,
            strip_prefix("progress/", message),
            Shared(schema, strip_prefix("shared/", message)) if "shared" in message else None,
            Message({name: value for name, value in message.items() if name.startswith("log/")}),
            protection=strip_prefix("protection/", message),
            opened=strip_prefix(OPENED, message),
            **{name: int(message[name]) for name in COUNTS},
        )


class EnrolledParty(NamedTuple):
    """A party in a snapshot: its name, log entries that it knows, and what the protection keeps of it."""

    name: str
    known: int | None
    protection: bytes


def take(coordinator: "Coordinator") -> Snapshot:
    """Return all that a coordinator with the same parties needs to go on."""
    log = Message(coordinator.link.briefing.write_all())
    kept = coordinator.protection.snapshot()
    return Snapshot(coordinator.schema, {}, coordinator.shared, log, sums=coordinator.sums, protection=kept)


def take_parties(coordinator: "Coordinator") -> list[EnrolledParty]:
    """Return what is to be written down of each party, in party order."""
    known, protection = coordinator.link.briefing.known, coordinator.protection
    return [
        EnrolledParty(name, known.get(name), Message(protection.party_snapshot(name)).encode())
        for name in coordinator.parties
    ]


def restore(
    coordinator: "Coordinator", snapshot: Snapshot, parties: Iterable[EnrolledParty], block: int
) -> None:
    """Let a new coordinator go on with the same parties, with serial numbers of a new block."""
    link, enrolled = coordinator.link, list(parties)
    link.transport.serial = block * SERIALS
    link.briefing.agree(snapshot.schema)
    link.briefing.log = [entry for _, entry in read_log(snapshot.log)]
    link.briefing.roll.restore(snapshot.log)
    link.briefing.known = {party.name: party.known for party in enrolled if party.known is not None}
    if coordinator.components.protection.opens == "coordinator":
        link.briefing.shared = snapshot.shared
    link.parties = tuple(party.name for party in enrolled)
    coordinator.sums = snapshot.sums
    kept = {party.name: Message.decode(party.protection) for party in enrolled}
    coordinator.protection.restore(snapshot.protection, kept)


def take_checkpoint(coordinator: "Coordinator") -> Snapshot | None:
    """Return what a run can go on from, now that a round is complete; None if no client has one whole."""
    link, shared, progress, log = coordinator.link, coordinator.shared, coordinator.progress, Message()
    learnt = coordinator.learnt
    if shared is None:
        known, entries = link.briefing.known, link.briefing.log
        coordinator.progress_at[len(entries)] = coordinator.progress
        if link.transport.engine.persistent:
            least = min(known.get(party, 0) for party in coordinator.parties)
            log = Message(link.briefing.write_all(least + 1))
        elif (found := _read_replica(coordinator)) is not None:
            shared, progress, learnt = found
        else:
            return None
    return make_checkpoint(coordinator, progress, shared, log, learnt)


def make_checkpoint(
    coordinator: "Coordinator",
    progress: Mapping[str, Any],
    shared: Shared | None,
    log: Message | None = None,
    learnt: int | None = None,
) -> Snapshot:
    """Return what a run can go on from that was so far when these values were learnt, from so many totals."""
    attempt, lag = coordinator.manifest.attempt, coordinator.progress["round"] - progress["round"]
    return Snapshot(
        coordinator.schema,
        progress,
        shared,
        log or Message(),
        sums=coordinator.begun + coordinator.sums,
        attempt=attempt,
        following=attempt + 1,
        repeats=coordinator.repeats + lag,
        learnt=coordinator.learnt if learnt is None else learnt,
        opened=coordinator.link.opened_totals.to_message(),
    )


def _read_replica(coordinator: "Coordinator") -> tuple[Shared, Mapping[str, Any], int] | None:
    """Return a client's replica after a round that it has opened, which may be the one before the last.

    With it come what the method counted by then, and the number of totals behind it. The client is told
    nothing new, or the last total would be opened out of turn.
    """
    transport, known = coordinator.link.transport, coordinator.link.briefing.known
    whole = [party for party in coordinator.parties if known.get(party) in coordinator.progress_at]
    if not whole:
        return None
    chosen = max(whole, key=lambda party: known[party])
    if not coordinator.replica_was_read:
        text = f"checkpoints hold the model: the experimenter reads it at {chosen} after each round"
        coordinator.events.emit(Noted("run", text, "warning"))
        coordinator.replica_was_read = True
    position = known[chosen]
    coordinator.progress_at = {at: mark for at, mark in coordinator.progress_at.items() if at >= position}
    with transport.unrecorded():
        replies = list(transport.wave("client.show_model", (chosen,), {}, failures={}))
    if not replies:
        return None
    shared = Shared(coordinator.schema, strip_prefix("shared/", replies[0].message))
    return shared, coordinator.progress_at[position], coordinator.learnt_before + position


def resume(coordinator: "Coordinator", snapshot: Snapshot, sums: int) -> None:
    """Let a coordinator whose parties enrolled anew go on; each attempt since has spent one round's sums."""
    if coordinator.schema != snapshot.schema:
        raise DataError("the clients' schema is not that of the run they go on with: bring the same columns")
    since = coordinator.manifest.attempt - snapshot.attempt
    coordinator.progress = snapshot.progress
    coordinator.repeats = snapshot.repeats + since
    coordinator.begun = snapshot.sums + since * sums
    coordinator.learnt_before = snapshot.learnt
    coordinator.link.opened_totals = OpenedTotals.from_message(snapshot.opened)
    coordinator.protection.resume(coordinator.begun)
    if coordinator.shared is not None:
        if snapshot.shared is None:
            raise ConfigError("this run opened its totals at the clients, and cannot go on opening them here")
        coordinator.shared = coordinator.shared | snapshot.shared
        return
    if snapshot.shared is not None:
        call = add_prefix("shared/", snapshot.shared)
    else:
        call = add_prefix(EARLIER, {**snapshot.log, "attempt": snapshot.attempt})
    _, holders = coordinator.link.compare_replicas("client.restore", call)
    coordinator.link.keep_only(holders)


def restore_replica(party: Party, message: Message, components: Components, shared: Shared) -> Message:
    """Take up, at a client, its own replica from before the run was stopped; in experiments a given one."""
    if EARLIER + "attempt" in message:
        attempt, run = message[EARLIER + "attempt"], manifest_of(party).run
        if (owner := attempts(party).get(attempt)) is None:
            raise StepError(f"{party.id} remembers nothing of attempt {attempt} at run {run}")
        if owner.state.get("schema") != party.state["schema"]:
            raise DataError(f"{party.id} learnt under another schema in attempt {attempt} at run {run}")
        log = Message(strip_prefix(EARLIER, message))
        end = log["log/first"] + len(read_log(log)) - 1
        replica = replica_at(owner, components, shared.schema, log, end)
    elif manifest_of(party).experiment:
        owner, replica = party, Shared(shared.schema, strip_prefix("shared/", message))
    else:
        raise ConfigError(f"{party.id} takes a model that it did not learn in experiments only")
    party.state["position"], party.state[HISTORY] = 0, replica.digest()
    party.state.replace("shared/", replica)
    # All have the key of the attempt in which they learnt this, and not yet that of the new one.
    return Message(digest=told_digest(owner, components, replica))
