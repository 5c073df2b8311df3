"""The parties of one process, and how an ask is performed among them."""

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from tacit.core.client import Assemble
from tacit.core.errors import ConfigError
from tacit.core.message import DEFAULT_LIMIT, Message
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


@dataclass(eq=False, repr=False)
class Sites:
    """The parties of this process, made when first asked."""

    holdings: Holdings
    assemble: Assemble
    _: KW_ONLY
    seed: int = 0  # makes their own randomness repeatable, as an experiment needs it
    cold: bool = False  # whether they forget after each step all that a new process would not have
    keep_replies: bool = False  # for repeated asks, as on a deployed engine
    limit: int = DEFAULT_LIMIT  # bytes of a message
    timeout: float | None = None  # seconds that a step may take
    names: InitVar[Sequence[str] | None] = None  # clients that they know of: all that hold rows, if left out
    last_error: Exception | None = None  # that a step raised, with its traceback

    def __post_init__(self, names: Sequence[str] | None) -> None:
        self._index = {name: index for index, name in enumerate(self.holdings.names)}
        self.roster = tuple(self.holdings.names if names is None else names)
        self._settings: dict[str, Any] = {"limit": self.limit, "timeout": self.timeout}
        self._settings |= {"keep_reply": self.keep_replies, "caught": partial(setattr, self, "last_error")}
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
                _no_rows if index is None else partial(self.holdings.rows, index),
                site_secret(self.seed, name),
                read_holdout=_no_rows if index is None else partial(self.holdings.holdout_rows, index),
                cache=self._cache,
                pinned=partial(pinned_identity, self.seed),
                roster=self.roster,
            )
        return self._parties[name]

    def perform(self, name: str, call: Message, job: bytes) -> bytes:
        """Let a party perform an ask, within its time."""
        party = self.party(name)
        raw = perform(party, call, job, self.assemble, **self._settings)
        if self.cold:
            party.cool()
        self._performed += 1
        if self._performed % TRIM_EVERY == 0:
            # Under ``bfv`` half a megabyte of every client would stay otherwise, 5.5 GB of 20,000.
            with suppress(AttributeError, OSError, TypeError):  # only the GNU one has this
                ctypes.CDLL(None).malloc_trim(0)
        return raw


def _no_rows() -> Table:
    raise ConfigError("a service holds no rows: ask it only what its protection needs")
