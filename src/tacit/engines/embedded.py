"""The embedded engine: all parties in this process, or in a few worker processes.

Every ask and reply is really encoded and decoded, so that bytes are real; what is the same for all
parties of a wave is encoded once, and decoded once per process. Replies come back in party order
whatever the number of workers, so that one seed gives one model.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import BinaryIO, cast

import numpy as np

from tacit.core.engine import Job, Reply, read_reply
from tacit.core.errors import ConfigError
from tacit.core.message import DEFAULT_LIMIT, Message
from tacit.core.replica import Assemble
from tacit.engines.assembly import assemble as assemble_installed
from tacit.engines.frames import read_frames, write_frames
from tacit.engines.sites import Holdings, Sites

BLOCK = 64  # parties that travel to a worker together
IN_FLIGHT = 2  # blocks a worker has at most


class EmbeddedEngine:
    """Parties in this process (``workers=0``) or in worker processes.

    Parameters
    ----------
    holdings : Holdings
        Who holds which rows.
    workers : int
        Worker processes; starting one costs a second or two of imports.
    seed : int
        Makes the parties' own randomness repeatable.
    timeout : float, optional
        Seconds a step may take.
    cold : bool
        Write out and read back every party's state between steps, as on a deployed engine.
    keep_replies : bool
        Store replies for repeated asks, as on a deployed engine.
    limit : int
        Largest message accepted, in bytes.
    """

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
        assemble: Assemble = assemble_installed,
    ) -> None:
        if workers < 0:
            raise ConfigError(f"workers is {workers}: 0 runs in this process, 2 uses two more")
        if timeout is not None and not timeout > 0:
            raise ConfigError(f"timeout is {timeout} s: it must be positive")
        self._names = holdings.names
        self._limit = limit
        self._timeout = timeout
        self._index = {name: index for index, name in enumerate(self._names)}
        self._sites: Sites | None = None
        self._workers: list[_Worker] = []
        if workers == 0:
            self._sites = Sites(
                holdings, assemble, seed=seed, cold=cold, keep_replies=keep_replies, limit=limit
            )
            return
        settings = Message(seed=seed, cold=cold, limit=limit, timeout=timeout).encode()
        owner = np.arange(len(self._names)) // BLOCK % workers
        for number in range(workers):
            part = holdings.part(np.flatnonzero(owner == number))
            self._workers.append(_Worker([settings, part.to_message().encode()]))

    def parties(self, role: str = "client") -> Sequence[str]:
        """Names of the parties in party order."""
        return self._names if role == "client" else ()

    def ask(self, call: bytes, jobs: Iterable[Job], timeout: float | None = None) -> Iterator[Reply]:
        """Ask each party of ``jobs``; replies stream back in that order."""
        if self._sites is None:
            return self._ask_workers(call, jobs)
        return self._ask_here(call, jobs, timeout or self._timeout)

    def _ask_here(self, call: bytes, jobs: Iterable[Job], timeout: float | None) -> Iterator[Reply]:
        assert self._sites is not None
        message = Message.decode(call, self._limit)
        down = len(call)
        for name, job in jobs:
            raw = self._sites.perform(name, message, job, timeout)
            yield read_reply(name, raw, down + len(job), limit=self._limit, inline=True)

    def _ask_workers(self, call: bytes, jobs: Iterable[Job]) -> Iterator[Reply]:
        pending: deque[tuple[_Worker, list[Job]]] = deque()
        told: set[int] = set()
        try:
            for block, group in groupby(jobs, key=lambda job: self._index[job[0]] // BLOCK):
                batch = list(group)
                number = block % len(self._workers)
                worker = self._workers[number]
                while worker.in_flight >= IN_FLIGHT:
                    yield from self._replies(*pending.popleft(), len(call))
                names = "\n".join(name for name, _ in batch).encode()
                worker.send([b"" if number in told else call, names, *(job for _, job in batch)])
                told.add(number)
                pending.append((worker, batch))
            while pending:
                yield from self._replies(*pending.popleft(), len(call))
        finally:
            # A wave that is given up half-way must not leave its replies for the next one.
            for worker, batch in pending:
                worker.receive(self._patience(batch))

    def _replies(self, worker: _Worker, batch: list[Job], down: int) -> Iterator[Reply]:
        raws = worker.receive(self._patience(batch))
        for position, (name, job) in enumerate(batch):
            size = down + len(job)
            if raws is None:
                yield Reply(name, Message(), "StepError: the worker process of this client ended", size, 0)
            else:
                yield read_reply(name, raws[position], size, limit=self._limit)

    def _patience(self, batch: list[Job]) -> float | None:
        return None if self._timeout is None else self._timeout * len(batch) + 10.0

    def close(self) -> None:
        """End the worker processes."""
        for worker in self._workers:
            worker.close()
        self._workers = []


class _Worker:
    """One worker process; a thread drains its replies, so that neither end waits for the other."""

    def __init__(self, first: list[bytes]) -> None:
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tacit.engines.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **single},
        )
        self._asks = cast(BinaryIO, self._process.stdin)
        self._inbox: queue.SimpleQueue[list[bytes] | None] = queue.SimpleQueue()
        self.in_flight = 0
        self._gone = False
        threading.Thread(target=self._drain, daemon=True).start()
        self._write(first)

    def _drain(self) -> None:
        replies = cast(BinaryIO, self._process.stdout)
        while (batch := read_frames(replies)) is not None:
            self._inbox.put(batch)
        self._inbox.put(None)

    def _write(self, pieces: list[bytes]) -> None:
        try:
            write_frames(self._asks, pieces)
        except (BrokenPipeError, ValueError):
            self._gone = True

    def send(self, pieces: list[bytes]) -> None:
        self.in_flight += 1
        self._write(pieces)

    def receive(self, patience: float | None) -> list[bytes] | None:
        """Give the next batch of replies; None if the process is gone or out of patience."""
        self.in_flight -= 1
        if self._gone:
            return None
        try:
            batch = self._inbox.get(timeout=patience)
        except queue.Empty:
            self._process.kill()
            batch = None
        self._gone = batch is None
        return batch

    def close(self) -> None:
        for stream in (self._asks, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    self._gone = True
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
