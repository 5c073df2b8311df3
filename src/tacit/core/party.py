"""Parties: what one of them holds, and how a step changes it.

A party's *state* holds message types only and its *vault* holds secrets; a step works on both and
either commits them whole or leaves them as they were. Its *cache* may vanish at any time. Nothing
else survives a step, because on a deployed engine each step is a new process.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np

from tacit.core.charge import Charge
from tacit.core.errors import ConfigError, SecretError
from tacit.core.events import Noted
from tacit.core.message import Message
from tacit.core.random import derive, generator
from tacit.core.secret import Secret
from tacit.core.values import freeze


class State(UserDict[str, Any]):
    """What a party remembers between steps: a mutable mapping of message values."""

    def __setitem__(self, name: str, value: Any) -> None:
        self.data[name] = freeze(value, name)

    def __repr__(self) -> str:
        return f"State({len(self)} fields)"

    def to_bytes(self) -> bytes:
        """Write out, as a deployed site does after every step."""
        return Message(self.data).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> State:
        """Read back what :meth:`to_bytes` wrote."""
        return cls(Message.decode(raw))


class Vault(UserDict[str, Secret]):
    """A party's secrets. It never becomes part of a message, a representation or a log."""

    def __setitem__(self, name: str, value: Secret) -> None:
        if not isinstance(value, Secret):
            raise SecretError(f"vault entry '{name}' is a {type(value).__name__}: only a Secret goes in")
        self.data[name] = value

    def __repr__(self) -> str:
        return f"Vault({len(self)} secrets, hidden)"


def identity_of(secret: Secret) -> Secret:
    """Derive the signing key that belongs to a site's secret."""
    return Secret(derive(secret.reveal(), ("identity",)))


class Party:
    """One party as its own steps see it."""

    __slots__ = (
        "_charge",
        "_data",
        "_earlier",
        "_holdout",
        "_identity",
        "_pinned",
        "_preshared",
        "_secret",
        "arrange",
        "asked",
        "cache",
        "id",
        "names_score",
        "notes",
        "roster",
        "state",
        "vault",
    )

    def __init__(
        self,
        id: str,  # noqa: A002  # the word users know it by
        data: Callable[[], Any],  # its own rows, when they are needed: the engine decides where they live
        secret: Secret,  # the site's own, from which rng() draws
        *,
        holdout: Callable[[], Any] | None = None,  # rows kept aside
        cache: dict[Any, Any] | None = None,  # shared by the parties of a process; may vanish at any time
        pinned: Callable[[str], bytes] | None = None,  # identity keys of other parties
        identity: Secret | None = None,  # signing key, where it is not the one that belongs to ``secret``
        preshared: Callable[[str], tuple[Secret, bytes]] | None = None,  # preshared exchange keys
        earlier: Callable[[str], Party | None] | None = None,  # itself under another manifest, by digest
        charge: Callable[[Charge], None] | None = None,  # counts noise durably, and refuses too much of it
        roster: Collection[str] = (),  # all clients of the federation, where this site knows them by itself
        names_score: bool = False,  # whether it agrees that its own score is told under its name
    ) -> None:
        self.id = id
        self._data = data
        self._holdout = holdout
        self._secret = secret
        self._pinned = pinned
        self._identity = identity
        self._preshared = preshared
        self._earlier = earlier
        self._charge = charge
        self.roster = roster
        self.names_score = names_score
        self.state = State()
        self.vault = Vault()
        self.cache = {} if cache is None else cache
        self.notes: list[Noted] = []
        self.arrange: Callable[[Any], Any] = lambda rows: rows  # puts columns into the agreed order
        self.asked = b""  # digest of what all parties are asked in the present step, where there is a channel

    @property
    def data(self) -> Any:
        """The party's own training rows."""
        return self.arrange(self._data())

    @property
    def holdout(self) -> Any:
        """The party's own rows kept aside for evaluation."""
        if self._holdout is None:
            raise ConfigError(f"{self.id} keeps no rows aside: ask for a federated hold-out first")
        return self.arrange(self._holdout())

    @contextmanager
    def only_rows(self, start: int, stop: int) -> Iterator[None]:
        """Let the party see only some of its rows within the block."""
        whole = self._data
        self._data = lambda: whole().take(slice(start, stop))
        try:
            yield
        finally:
            self._data = whole

    @property
    def identity(self) -> Secret:
        """The site's signing key, of which the others have pinned the public half."""
        return identity_of(self._secret) if self._identity is None else self._identity

    def pinned(self, name: str) -> bytes:
        """Return the identity key that this site has pinned for another party."""
        if self._pinned is None:
            raise ConfigError(f"{self.id} has pinned no identities: give it the federation's roster")
        return self._pinned(name)

    def preshared(self, name: str) -> tuple[Secret, bytes]:
        """Return the site's preshared exchange key, and the one that it has pinned for another party."""
        if self._preshared is None:
            raise ConfigError(f"{self.id} has no preshared exchange keys: its roster must hold them")
        return self._preshared(name)

    def earlier(self, manifest: str) -> Party | None:
        """Return this party as it was under another manifest, where its engine remembers that."""
        return None if self._earlier is None else self._earlier(manifest)

    @property
    def persistent(self) -> bool:
        """Whether what this party knows now can be found by :meth:`earlier` later."""
        return self._earlier is not None

    def charge(self, charge: Charge) -> None:
        """Count noise before it is drawn, where the site keeps an account; the site may refuse it."""
        if self._charge is not None:
            self._charge(charge)

    def rng(self, *label: object) -> np.random.Generator:
        """Return randomness of this party alone; the same label gives the same stream."""
        return generator(self._secret.reveal(), *label)

    def note(self, text: str, level: str = "info") -> None:
        """Tell the run's events something; never a value from the data."""
        self.notes.append(Noted(self.id, text, level))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep what the block did to state and vault only if it ends well."""
        state, vault = copy(self.state), copy(self.vault)
        try:
            yield
        except BaseException:
            self.state, self.vault = state, vault
            self.notes.clear()
            raise

    def cool(self) -> None:
        """Forget all that a new process would not have: state goes through its written form."""
        self.state = State.from_bytes(self.state.to_bytes())
        self.vault = Vault({name: Secret(secret.reveal()) for name, secret in self.vault.items()})
        self.cache = {}

    def __repr__(self) -> str:
        return f"Party({self.id})"
