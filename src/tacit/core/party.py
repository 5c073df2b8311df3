"""Parties: what one of them holds, and how a step changes it.

A party's *state* holds message types only and its *vault* holds secrets; a step works on both and either
commits them whole or leaves them as they were. Its *cache* may vanish. Nothing else survives a step.
"""

from collections import UserDict
from collections.abc import Callable, Collection, ItemsView, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

import numpy as np

from tacit.core.errors import ConfigError, SecretError
from tacit.core.events import Noted
from tacit.core.fields import add_prefix
from tacit.core.message import Message
from tacit.core.random import derive, generator
from tacit.core.secret import Secret
from tacit.core.values import freeze

Value = TypeVar("Value")


class _Fields(UserDict[str, Value]):
    """A mapping whose inherited forms of these, which ask for each value by its name, would take longer."""

    def get(self, name: str, default: Any = None) -> Any:
        return self.data.get(name, default)

    def items(self) -> ItemsView[str, Value]:
        return self.data.items()


class State(_Fields[Any]):
    """What a party remembers between steps: a mutable mapping of message values."""

    def __setitem__(self, name: str, value: Any) -> None:
        self.data[name] = freeze(value, name)

    def __repr__(self) -> str:
        return f"State({len(self)} fields)"

    def replace(self, prefix: str, fields: Mapping[str, Any]) -> None:
        """Keep these fields under a prefix, and no others: what is not among them must not come back."""
        for name in [name for name in self if name.startswith(prefix) and name[len(prefix) :] not in fields]:
            del self[name]
        self.update(add_prefix(prefix, fields))

    def to_bytes(self) -> bytes:
        """Write out, as a deployed site does after every step."""
        return Message(self.data).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> "State":
        """Read back what :meth:`to_bytes` wrote."""
        return cls(Message.decode(raw))


class Vault(_Fields[Secret]):
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


def no_identities(name: str) -> bytes:
    """Refuse to name an identity key: none were pinned."""
    raise ConfigError(f"no identity is pinned for {name}: give this party the federation's roster")


def _no_exchange_keys(name: str) -> tuple[Secret, bytes]:
    raise ConfigError(f"no preshared exchange key for {name}: the roster of this party must hold them")


@dataclass(frozen=True)
class Charge:
    """Releases with noise that a party is about to make in a run, told before the noise is drawn."""

    unit: str  # whose privacy it is: "row" or "client"
    noise: float  # standard deviation of the discrete Gaussian over the L2 sensitivity
    sampling: float  # probability with which a unit is part of a release
    delta: float  # at which epsilon is told
    releases: int  # that follow now
    most: int  # that the agreed budget allows in the whole run


@dataclass(eq=False, repr=False, slots=True)
class Party:
    """One party as its own steps see it."""

    id: str
    read_rows: Callable[[], Any]  # when they are needed: the engine decides where they live
    secret: Secret  # the site's own, from which rng() draws
    _: KW_ONLY
    read_holdout: Callable[[], Any] | None = None  # rows kept aside
    cache: dict[Any, Any] = field(default_factory=dict)  # shared in a process; may vanish at any time
    pinned: Callable[[str], bytes] = no_identities  # identity keys of other parties
    signing_key: Secret | None = None  # where it is not the one that belongs to ``secret``
    preshared: Callable[[str], tuple[Secret, bytes]] = _no_exchange_keys  # its own key, and another's
    earlier: "Callable[[str], Party | None] | None" = None  # itself under another manifest, by digest
    charge: Callable[[Charge], None] = lambda charge: None  # counts noise durably, and refuses too much of it
    roster: Collection[str] = ()  # all clients of the federation, where this site knows them by itself
    least_rows: int = 1  # that it brings to a standing federation at a time
    names_score: bool = False  # whether it agrees that its own score is told under its name
    state: State = field(default_factory=State, init=False)
    vault: Vault = field(default_factory=Vault, init=False)
    notes: list[Noted] = field(default_factory=list, init=False)
    # Puts columns into the agreed order.
    arrange: Callable[[Any], Any] = field(default=lambda rows: rows, init=False)
    # Digest of what all parties are asked in the present step, where there is a channel.
    asked: bytes = field(default=b"", init=False)

    @property
    def data(self) -> Any:
        """The party's own training rows."""
        return self.arrange(self.read_rows())

    @property
    def holdout(self) -> Any:
        """The party's own rows kept aside for evaluation."""
        if self.read_holdout is None:
            raise ConfigError(f"{self.id} keeps no rows aside: ask for a federated hold-out first")
        return self.arrange(self.read_holdout())

    @property
    def identity(self) -> Secret:
        """The site's signing key, of which the others have pinned the public half."""
        return identity_of(self.secret) if self.signing_key is None else self.signing_key

    def rng(self, *label: object) -> np.random.Generator:
        """Return randomness of this party alone; the same label gives the same stream."""
        return generator(self.secret.reveal(), *label)

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
