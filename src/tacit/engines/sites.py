"""The parties of one process, and how an ask is performed among them."""

import ctypes
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from types import FrameType
from typing import Any

import numpy as np

from tacit.core.client import Assemble
from tacit.core.errors import ConfigError, StepTimeoutError
from tacit.core.message import Message
from tacit.core.parallel import cpu_seconds
from tacit.core.party import Party, identity_of
from tacit.core.random import derive
from tacit.core.secret import Secret
from tacit.core.steps import perform
from tacit.crypto.channel import identity_public
from tacit.data.table import Table
from tacit.engines.holdings import Holdings

TRIM_EVERY = 64  # steps


def site_secret(seed: int, name: str) -> Secret:
    """Derive a party's secret in an experiment: repeatable, because one person plays all parties."""
    return Secret(derive(b"experiment", (seed, name)))


@cache
def pinned_identity(seed: int, name: str) -> bytes:
    """Return the identity key that everybody in an experiment has pinned for a party."""
    return identity_public(identity_of(site_secret(seed, name)))


class Sites:
    """The parties of this process, made when first asked.

    ``seed`` makes their own randomness repeatable, as an experiment needs it. If ``cold``, they forget after
    each step all that a new process would not have. ``roster`` names the clients that they know of: all that
    hold rows, if left out.
    """

    def __init__(
        self,
        holdings: Holdings,
        assemble: Assemble,
        *,
        seed: int = 0,
        cold: bool = False,
        keep_replies: bool = False,
        limit: int,
        roster: Sequence[str] | None = None,
    ) -> None:
        self._holdings, self._assemble, self._seed, self._cold = holdings, assemble, seed, cold
        self._index = {name: index for index, name in enumerate(holdings.names)}
        self.roster = tuple(holdings.names if roster is None else roster)
        self.last_error: Exception | None = None  # that a step raised, with its traceback
        self._settings = {
            "keep_reply": keep_replies,
            "limit": limit,
            "caught": partial(setattr, self, "last_error"),
        }
        self._cache: dict[Any, Any] = {}
        self._parties: dict[str, Party] = {}
        self._performed = 0
        # The GNU C library hands back blocks as large as the largest that was freed only above that size, and
        # clears each anew: with vectors of 100,000 values that was a fourth of the time of a masked sum.
        np.empty(31 << 17)  # 31 MiB, never touched; from 32 on it takes no notice

    def party(self, name: str) -> Party:
        """Return the party of that name."""
        if name not in self._parties:
            index = self._index.get(name)
            self._parties[name] = Party(
                name,
                _no_rows if index is None else partial(self._holdings.rows, index),
                site_secret(self._seed, name),
                read_holdout=_no_rows if index is None else partial(self._holdings.holdout_rows, index),
                cache=self._cache,
                pinned=partial(pinned_identity, self._seed),
                roster=self.roster,
            )
        return self._parties[name]

    def perform(self, name: str, call: Message, job: bytes, timeout: float | None) -> bytes:
        """Let a party perform an ask, within its time."""
        party = self.party(name)
        raw = perform_in_time(party, call, job, self._assemble, timeout=timeout, **self._settings)
        if self._cold:
            party.cool()
        self._performed += 1
        if self._performed % TRIM_EVERY == 0:
            # Under ``bfv`` half a megabyte of every client would stay otherwise, 5.5 GB of 20,000.
            with suppress(AttributeError, OSError, TypeError):  # only the GNU one has this
                ctypes.CDLL(None).malloc_trim(0)
        return raw


def perform_in_time(
    party: Party, call: Message, job: bytes, assemble: Assemble, *, timeout: float | None, **settings: Any
) -> bytes:
    """Let a party perform an ask, within its time; see :func:`tacit.core.steps.perform`."""
    if timeout is None:
        return perform(party, call, job, assemble, **settings)
    started, spent = time.perf_counter(), cpu_seconds()
    try:
        # A step that is told to have failed must not have happened, whenever the alarm rang, and
        # where there is none.
        with party.transaction(), deadline(timeout):
            raw = perform(party, call, job, assemble, **settings)
            if time.perf_counter() - started > timeout:
                raise StepTimeoutError(_late(timeout))
        return raw
    except StepTimeoutError as error:
        cpu = cpu_seconds() - spent
        return Message({"$failure": f"StepTimeoutError: {error}", "$cpu": cpu}).encode()


def _no_rows() -> Table:
    raise ConfigError("a service holds no rows: ask it only what its protection needs")


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Interrupt the block after some seconds, where the platform can; a step then raises and rolls back."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise StepTimeoutError(_late(seconds))

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _late(seconds: float) -> str:
    return f"the step took longer than its {seconds:g} s: give it more time, or less to do"
