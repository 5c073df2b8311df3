"""The Flower engine: parties at SuperNodes, asked through a SuperLink.

Messages are pushed and replies pulled as they arrive: the coordinator folds the first while others compute.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import tacit
from tacit.core.engine import Job, Reply, read_reply
from tacit.core.errors import ConfigError, FederationError, MessageError
from tacit.core.message import DEFAULT_LIMIT, Message

if TYPE_CHECKING:
    from flwr.app import RecordDict
    from flwr.serverapp import Grid

    from tacit.engines.sitefolder import Roster

KIND = "query.tacit"  # type of all our messages; what is asked is within
SMALL = 1 << 20  # bytes; above, an array record travels in pieces and faster
BATCH = 1000  # messages that are pushed together
POLL = (0.05, 0.25)  # seconds between looks for replies: at first, and when they take long
LONGEST = 1e7  # seconds of a step
GRACE = 60.0  # seconds beyond a step's own time: polls, and the way


def pack(call: bytes, job: bytes | None = None, seconds: float | None = None) -> "RecordDict":
    """Write an ask, or, as ``call`` alone, a reply into Flower's records.

    ``seconds`` are those that the step may take, or has taken. Each record is a request more on either side,
    so only what is the same for all parties, or large, has one of its own.
    """
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    about: dict[str, Any] = {"version": tacit.__version__, "seconds": seconds or 0.0}
    records: dict[str, Any] = {}
    for name, raw in (("call", call), ("job", job)):
        if raw is None:
            about[name] = b""
        elif len(raw) > SMALL:
            array = Array(dtype="uint8", shape=(len(raw),), stype="tacit", data=raw)
            records[name] = ArrayRecord({"raw": array})
        elif name == "call" and job is not None:
            records[name] = ConfigRecord({"raw": raw})
        else:
            about[name] = raw
    return RecordDict({**records, "about": ConfigRecord(about)})


def unpack(records: "RecordDict") -> tuple[bytes, bytes, float | None]:
    """Read what :func:`pack` wrote: call, job, and seconds."""
    try:
        about: Any = records["about"]
        version, seconds = str(about["version"]), float(about["seconds"])
        call, job = (
            _raw(records[name]) if name in records else _raw({"raw": about[name]}) for name in ("call", "job")
        )
        if not 0 <= seconds <= LONGEST:  # nobody signs them
            raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MessageError("records that are not Tacit's: the other end runs another app") from None
    if version != tacit.__version__:
        raise ConfigError(
            f"Tacit {tacit.__version__} here, and {version} at the other end: install the same version"
        )
    return call, job, seconds or None


def _raw(record: Any) -> bytes:
    value = record["raw"]
    raw = value if isinstance(value, bytes) else value.data
    if not isinstance(raw, bytes):
        raise TypeError
    return raw


def pause(elapsed: float, least: float, most: float) -> float:
    """Return for how long to wait before the next look: a tenth of the time that has passed, within limits.

    >>> pause(0.1, 0.05, 0.25), pause(2.0, 0.05, 0.25), pause(60, 0.1, 3.0)
    (0.05, 0.2, 3.0)
    """
    return min(max(elapsed / 10, least), most)


class FlowerEngine:
    """Parties at SuperNodes, each registered at the SuperLink under its party's name."""

    persistent = True

    def __init__(
        self, grid: "Grid", roster: "Roster", *, timeout: float | None = None, limit: int = DEFAULT_LIMIT
    ) -> None:
        self._grid, self._roster = grid, roster
        self._timeout, self._limit = timeout, limit
        self.messages = self.own_bytes = self.flower_bytes = 0
        self.waves, self.wave_s, self.sites_s = 0, 0.0, 0.0
        self._slowest = 0.0

    def parties(self, role: str = "client") -> Sequence[str]:
        """Return the names of the parties of a role, in party order."""
        if role == "client":
            return tuple(self._roster.clients)
        return tuple(name for name in self._roster.services if name == role)

    def wait(self, seconds: float, services: Sequence[str] = ()) -> None:
        """Wait until all sites are connected, or for so long; who is missing then fails its first ask."""
        wanted = {*self._roster.clients, *services}
        until = time.monotonic() + seconds
        while wanted - self._nodes().keys() and time.monotonic() < until:
            time.sleep(1.0)

    def _nodes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for node in self._grid.get_nodes():
            if node.name in found:
                raise FederationError(
                    f"two SuperNodes are registered as '{node.name}': unregister one of them"
                )
            if node.name in self._roster.clients or node.name in self._roster.services:
                found[node.name] = node.node_id
        return found

    def present(self) -> Sequence[str]:
        """Return the names of those whose SuperNodes are connected."""
        return tuple(self._nodes())

    def ask(self, call: bytes, jobs: Iterable[Job]) -> Iterator[Reply]:
        """Ask each party of ``jobs``; replies stream back in that order."""
        if len(call) > self._limit:
            raise MessageError(f"message of {len(call):,} bytes, the limit is {self._limit:,}: send less")
        nodes, waiting = self._nodes(), iter(jobs)
        while batch := list(islice(waiting, BATCH)):
            yield from self._ask(call, batch, nodes)

    def _ask(self, call: bytes, batch: Sequence[Job], nodes: dict[str, int]) -> Iterator[Reply]:
        from flwr.app import Message as FlowerMessage

        began, timeout = time.monotonic(), self._timeout
        there = [(name, job) for name, job in batch if name in nodes]
        messages = [
            FlowerMessage(pack(call, job, timeout), dst_node_id=nodes[name], message_type=KIND)
            for name, job in there
        ]
        for message, (_, job) in zip(messages, there, strict=True):
            self._count(message, len(call) + len(job))
        sent = [str(number) for number in self._grid.push_messages(messages)] if messages else []
        if len(sent) != len(messages):
            raise MessageError("the SuperLink did not take all messages of a wave: they are too large")
        del messages
        asked = {name: number for (name, _), number in zip(there, sent, strict=True)}
        arrived: dict[str, Reply] = {}
        downs = {name: len(call) + len(job) for name, job in batch}
        until = None if timeout is None else began + timeout + GRACE
        for name, _ in batch:
            if name not in nodes:
                yield Reply(name, Message(), "StepError: not connected to the SuperLink", 0, 0)
                continue
            while name not in arrived:
                self._pull(asked, downs, arrived)
                if name in arrived:
                    break
                if until is not None and time.monotonic() > until:
                    reason = f"StepTimeoutError: no reply within {timeout:g} s and {GRACE:g} s for the way"
                    arrived[name] = Reply(name, Message(), reason, downs[name], 0)
                    asked.pop(name)
                    break
                time.sleep(pause(time.monotonic() - began, *POLL))
            yield arrived.pop(name)
        self.waves, self.wave_s = self.waves + 1, self.wave_s + time.monotonic() - began
        self.sites_s, self._slowest = self.sites_s + self._slowest, 0.0

    def _pull(self, asked: dict[str, str], downs: dict[str, int], arrived: dict[str, Reply]) -> None:
        names = {number: name for name, number in asked.items()}
        for message in self._grid.pull_messages(list(names)):
            name = names.get(message.metadata.reply_to_message_id, "")
            if asked.pop(name, None) is None:
                continue  # a reply that nobody waits for
            arrived[name] = self._read(name, message, downs[name])

    def _read(self, name: str, message: Any, down: int) -> Reply:
        if message.has_error():
            code, reason = message.error.code, message.error.reason or "no reason given"
            # Whatever Flower says of a failure at a site may quote it: its first line is enough.
            text = f"StepError: Flower error {code}: {reason.splitlines()[0][:200]}"
            return Reply(name, Message(), text, down, 0)
        try:
            raw, _, seconds = unpack(message.content)
        except (ConfigError, MessageError) as error:
            return Reply(name, Message(), f"{type(error).__name__}: {error}", down, 0)
        self._count(message, len(raw))
        self._slowest = max(self._slowest, seconds or 0.0)
        return read_reply(name, raw, down, limit=self._limit)

    def _count(self, message: Any, own: int) -> None:
        from flwr.common.serde import message_to_proto

        self.messages += 1
        self.own_bytes += own
        self.flower_bytes += message_to_proto(message).ByteSize()

    def facts(self) -> dict[str, Any]:
        """Return what Flower added to our bytes and seconds, for the run's result.

        ``sites_s`` are the seconds of the slowest site of each wave, ``way_s`` the rest: Flower's part.
        """
        return {
            "name": "flower",
            "messages": self.messages,
            "own_bytes": self.own_bytes,
            "overhead_bytes": self.flower_bytes - self.own_bytes,
            "waves": self.waves,
            "sites_s": self.sites_s,
            "way_s": self.wave_s - self.sites_s,
        }

    def close(self) -> None:
        """Let the parties go: nothing of this run is left at the SuperLink."""
