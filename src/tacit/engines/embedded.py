"""The embedded engine: all parties in this process, or in a few worker processes.

Asks and replies are really encoded and decoded, so that bytes are real, and replies come back in party order
whatever the number of workers, so that one seed gives one model.
"""

import subprocess
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, groupby
from typing import Any, TypeAlias

import numpy as np

from tacit.core.client import Assemble
from tacit.core.engine import Job, Reply, read_reply
from tacit.core.errors import ConfigError, MessageError
from tacit.core.message import DEFAULT_LIMIT, Message
from tacit.core.parallel import cpu_seconds
from tacit.engines.assembly import assemble as assemble_installed
from tacit.engines.frames import WorkerProcess, read_frames, write_frames
from tacit.engines.holdings import Holdings
from tacit.engines.sites import Sites
from tacit.ledger.cost import peak_megabytes

BLOCK = 64  # parties that travel to a worker together
IN_FLIGHT = 2  # blocks a worker has at most
Frames: TypeAlias = "list[bytes] | None"  # what came from a worker; None if it is gone


class EmbeddedEngine:
    """Parties in this process (``workers=0``) or in worker processes."""

    persistent = False

    def __init__(
        self,
        holdings: Holdings,
        *,
        workers: int = 0,  # starting one costs a second or two of imports
        timeout: float | None = None,  # seconds a step may take
        limit: int = DEFAULT_LIMIT,
        services: Sequence[str] = (),  # parties without rows; they live in this process
        assemble: Assemble = assemble_installed,
        sites: Sites | None = None,  # the parties of this process, if not those that hold rows
        **settings: Any,  # of the parties: see ``Sites``
    ) -> None:
        if workers < 0:
            raise ConfigError(f"workers is {workers}: 0 runs in this process, 2 uses two more")
        if timeout is not None and not timeout > 0:
            raise ConfigError(f"timeout is {timeout} s: it must be positive")
        self._names = holdings.names if sites is None else sites.roster
        self._services = tuple(services)
        self._limit, self._timeout = limit, timeout
        self._index = {name: index for index, name in enumerate(self._names)}
        here = holdings if workers == 0 else holdings.part(np.empty(0, dtype=np.int64))
        settings |= {"limit": limit, "timeout": timeout}
        self._sites = sites or Sites(here, assemble, **settings)
        # They import at the same time; the first long write waits for the imports.
        self._workers = [_Worker() for _ in range(workers)]
        for number, worker in enumerate(self._workers):
            owner = np.arange(len(self._names)) // BLOCK % workers
            part = holdings.part(np.flatnonzero(owner == number))
            worker.begin([message.encode() for message in (Message(settings), *part.to_messages())])

    def parties(self, role: str = "client") -> Sequence[str]:
        """Return the names of the parties of a role, in party order."""
        return self._names if role == "client" else tuple(n for n in self._services if n == role)

    def present(self) -> Sequence[str]:
        """Return the names of all clients: they are always there."""
        return self._names

    @property
    def cause(self) -> Exception | None:
        """The last error that a party's step raised in this process."""
        return self._sites.last_error

    def ask(self, call: bytes, jobs: Iterable[Job]) -> Iterator[Reply]:
        """Ask each party of ``jobs``; replies stream back in that order."""
        if len(call) > self._limit:
            raise MessageError(f"message of {len(call):,} bytes, the limit is {self._limit:,}: send less")
        waiting = iter(jobs)
        first = next(waiting, None)
        if first is None:
            return iter(())
        here = not self._workers or first[0] in self._services
        return (self._ask_here if here else self._ask_workers)(call, chain([first], waiting))

    def _ask_here(self, call: bytes, jobs: Iterable[Job]) -> Iterator[Reply]:
        message = Message.decode(call, self._limit)
        for name, job in jobs:
            started = cpu_seconds()
            raw = self._sites.perform(name, message, job)
            spent = cpu_seconds() - started
            yield read_reply(name, raw, len(call) + len(job), limit=self._limit, inline=spent)

    def _ask_workers(self, call: bytes, jobs: Iterable[Job]) -> Iterator[Reply]:
        pending: deque[tuple[_Worker, Future[Frames], list[Job]]] = deque()
        patience = None if self._timeout is None else self._timeout * BLOCK + 10.0

        def first() -> Iterator[Reply]:
            worker, replies, batch = pending.popleft()
            raws = worker.receive(replies, patience)
            for position, (name, job) in enumerate(batch):
                size = len(call) + len(job)
                if raws is None:
                    reason = "StepError: the worker process of this client ended"
                    yield Reply(name, Message(), reason, size, 0)
                else:
                    yield read_reply(name, raws[position], size, limit=self._limit)

        try:
            for block, group in groupby(jobs, key=lambda job: self._index[job[0]] // BLOCK):
                batch = list(group)
                worker = self._workers[block % len(self._workers)]
                while sum(other is worker for other, _, _ in pending) >= IN_FLIGHT:
                    yield from first()
                pending.append((worker, worker.send(call, batch), batch))
            while pending:
                yield from first()
        finally:
            for _, replies, _ in pending:  # of a wave that is given up half-way
                replies.cancel()

    def close(self) -> None:
        """End the worker processes."""
        self.workers_mb = sum(peak_megabytes(worker.process.pid) for worker in self._workers)
        for worker in self._workers:
            worker.close()
        self._workers = []


class _Worker(WorkerProcess):
    """One worker process; a thread of its own writes asks to it and reads the replies, batch after batch."""

    def __init__(self) -> None:
        super().__init__("tacit.engines.worker")
        self._call: bytes | None = None  # that the process knows
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[Frames] | None = None

    def begin(self, pieces: list[bytes]) -> None:
        with suppress(BrokenPipeError):
            write_frames(self.asks, pieces)

    def send(self, call: bytes, batch: list[Job]) -> Future[Frames]:
        names = "\n".join(name for name, _ in batch).encode()
        self._last = self._thread.submit(self._exchange, call, [names, *(job for _, job in batch)])
        return self._last

    def _exchange(self, call: bytes, pieces: list[bytes]) -> Frames:
        """Write a batch, with its call unless that is known, and return the replies; None if it is gone."""
        try:
            write_frames(self.asks, [b"" if call is self._call else call, *pieces])
        except BrokenPipeError:
            return None
        self._call = call
        return read_frames(self.replies)

    def receive(self, replies: Future[Frames], patience: float | None) -> Frames:
        try:
            return replies.result(patience)
        except TimeoutError:
            self.process.kill()
            return None

    def close(self) -> None:
        if self._last is not None and not self._last.done():  # it works for a wave that was given up
            self.process.kill()
        self._thread.submit(self.asks.close)
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._thread.shutdown()
        self.process.wait()
        self.replies.close()
