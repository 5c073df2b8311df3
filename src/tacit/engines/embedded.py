"""The embedded engine: all parties in this process, or in a few worker processes.

Every ask and reply is really encoded and decoded, so that bytes are real; what is the same for all
parties of a wave is encoded once, and decoded once per process. Replies come back in party order
whatever the number of workers, so that one seed gives one model.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import BinaryIO, cast

import numpy as np

from tacit.core.client import Assemble
from tacit.core.engine import Job, Reply, read_reply
from tacit.core.errors import ConfigError, MessageError
from tacit.core.message import DEFAULT_LIMIT, Message
from tacit.core.parallel import cpu_seconds
from tacit.engines.assembly import assemble as assemble_installed
from tacit.engines.frames import read_frames, write_frames
from tacit.engines.holdings import Holdings
from tacit.engines.sites import Sites

BLOCK = 64  # parties that travel to a worker together
IN_FLIGHT = 2  # blocks a worker has at most


class EmbeddedEngine:
    """Parties in this process (``workers=0``) or in worker processes.

    Parameters
    ----------
    workers : int
        Worker processes; starting one costs a second or two of imports.
    timeout : float, optional
        Seconds a step may take.
    cold : bool
        Write out and read back every party's state between steps, as on a deployed engine.
    keep_replies : bool
        Store replies for repeated asks, as on a deployed engine.
    services : sequence of str
        Parties without rows that a protection needs, such as a key server; they live in this process.
    """

    persistent = False

    def __init__(
        self,
        holdings: Holdings,
        *,
        workers: int = 0,
        seed: int = 0,
        timeout: float | None = None,
        cold: bool = False,
        keep_replies: bool = False,
        limit: int = DEFAULT_LIMIT,
        services: Sequence[str] = (),
        assemble: Assemble = assemble_installed,
    ) -> None:
        if workers < 0:
            raise ConfigError(f"workers is {workers}: 0 runs in this process, 2 uses two more")
        if timeout is not None and not timeout > 0:
            raise ConfigError(f"timeout is {timeout} s: it must be positive")
        self._names, self._services = holdings.names, tuple(services)
        self._limit, self._timeout = limit, timeout
        self._index = {name: index for index, name in enumerate(self._names)}
        here = holdings if workers == 0 else holdings.part(np.empty(0, dtype=np.int64))
        self._sites = Sites(here, assemble, seed=seed, cold=cold, keep_replies=keep_replies, limit=limit)
        settings = Message(seed=seed, cold=cold, keep_replies=keep_replies, limit=limit).encode()
        # They import at the same time; the first long write waits for the imports.
        self._workers = [_Worker() for _ in range(workers)]
        for number, worker in enumerate(self._workers):
            owner = np.arange(len(self._names)) // BLOCK % workers
            part = holdings.part(np.flatnonzero(owner == number))
            worker.begin([settings, *(message.encode() for message in part.to_messages())])

    def parties(self, role: str = "client") -> Sequence[str]:
        """Return the names of the parties of a role, in party order."""
        return self._names if role == "client" else tuple(n for n in self._services if n == role)

    def present(self) -> Sequence[str]:
        """Return the names of all clients: they are always there."""
        return self._names

    @property
    def cause(self) -> Exception | None:
        """The last error that a party's step raised in this process."""
        return self._sites.errors[0] if self._sites.errors else None

    def ask(self, call: bytes, jobs: Iterable[Job], timeout: float | None = None) -> Iterator[Reply]:
        """Ask each party of ``jobs``; replies stream back in that order."""
        if len(call) > self._limit:
            raise MessageError(f"message of {len(call):,} bytes, the limit is {self._limit:,}: send less")
        waiting = iter(jobs)
        first = next(waiting, None)
        if first is None:
            return iter(())
        here = not self._workers or first[0] in self._services
        ask = self._ask_here if here else self._ask_workers
        return ask(call, chain([first], waiting), timeout or self._timeout)

    def _ask_here(self, call: bytes, jobs: Iterable[Job], timeout: float | None) -> Iterator[Reply]:
        message = Message.decode(call, self._limit)
        for name, job in jobs:
            started = cpu_seconds()
            raw = self._sites.perform(name, message, job, timeout)
            spent = cpu_seconds() - started
            yield read_reply(name, raw, len(call) + len(job), limit=self._limit, inline=spent)

    def _ask_workers(self, call: bytes, jobs: Iterable[Job], timeout: float | None) -> Iterator[Reply]:
        pending: deque[tuple[_Worker, int, list[Job]]] = deque()
        patience = None if timeout is None else timeout * BLOCK + 10.0

        def first() -> Iterator[Reply]:
            worker, ticket, batch = pending.popleft()
            return self._replies(worker.receive(ticket, patience), batch, len(call))

        try:
            for block, group in groupby(jobs, key=lambda job: self._index[job[0]] // BLOCK):
                batch = list(group)
                worker = self._workers[block % len(self._workers)]
                while sum(other is worker for other, _, _ in pending) >= IN_FLIGHT:
                    yield from first()
                pending.append((worker, worker.send(call, timeout, batch), batch))
            while pending:
                yield from first()
        finally:
            # A wave that is given up half-way must not leave its replies for the next one.
            for worker, ticket, _ in pending:
                worker.forget(ticket)

    def _replies(self, raws: list[bytes] | None, batch: list[Job], down: int) -> Iterator[Reply]:
        for position, (name, job) in enumerate(batch):
            size = down + len(job)
            if raws is None:
                yield Reply(name, Message(), "StepError: the worker process of this client ended", size, 0)
            else:
                yield read_reply(name, raws[position], size, limit=self._limit)

    def close(self) -> None:
        """End the worker processes."""
        for worker in self._workers:
            worker.close()
        self._workers = []


class _Worker:
    """One worker process; a thread drains its replies, so that neither end waits for the other."""

    def __init__(self) -> None:
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tacit.engines.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **single},
            start_new_session=True,  # Ctrl-C is the parent's affair, which then ends its workers
        )
        self._asks = cast(BinaryIO, self._process.stdin)
        self._inbox: queue.SimpleQueue[list[bytes] | None] = queue.SimpleQueue()
        # Batches are numbered: the process answers in order, whichever wave is read first.
        self._sent = self._received = 0
        self._arrived: dict[int, list[bytes]] = {}
        self._forgotten: set[int] = set()
        self._call: bytes | None = None
        self._gone = False
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        replies = cast(BinaryIO, self._process.stdout)
        while (batch := read_frames(replies)) is not None:
            self._inbox.put(batch)
        self._inbox.put(None)

    def begin(self, pieces: list[bytes]) -> None:
        """Write to the process; one that is gone is noticed when its replies are wanted."""
        with contextlib.suppress(BrokenPipeError):
            write_frames(self._asks, pieces)

    def send(self, call: bytes, timeout: float | None, batch: list[Job]) -> int:
        """Ask for a batch, and return the ticket for its replies; the same call is sent once."""
        names = "\n".join(name for name, _ in batch).encode()
        seconds = b"" if timeout is None else repr(timeout).encode()
        self.begin([b"" if call is self._call else call, seconds, names, *(job for _, job in batch)])
        self._call = call
        self._sent += 1
        return self._sent

    def receive(self, ticket: int, patience: float | None) -> list[bytes] | None:
        """Return a batch of replies; None if the process is gone or out of patience."""
        while ticket not in self._arrived and not self._gone:
            try:
                batch = self._inbox.get(timeout=patience)
            except queue.Empty:
                self._process.kill()
                batch = None
            if batch is None:
                self._gone = True
                break
            self._received += 1
            if self._received in self._forgotten:
                self._forgotten.discard(self._received)
            else:
                self._arrived[self._received] = batch
        return self._arrived.pop(ticket, None)

    def forget(self, ticket: int) -> None:
        """Throw the replies of this ticket away, whenever they come."""
        if self._arrived.pop(ticket, None) is None:
            self._forgotten.add(ticket)

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._asks.close()
        try:
            # One that still works for a wave that was given up is not waited for.
            self._process.wait(timeout=5 if self._sent == self._received else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()
        cast(BinaryIO, self._process.stdout).close()
