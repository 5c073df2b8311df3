"""Protections: how a sum is formed without showing its components. This is their interface.

Each protection says in ``promises`` who holds which key, who sees what, which collusion breaks it,
what a dropout does, and what it costs. Docs, exposure report and contract tests read the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.core.component import Component
from tacit.core.layout import Layout
from tacit.core.message import Message
from tacit.core.party import Party

Place = Literal["coordinator", "clients"]
Vector = NDArray[np.float64]
FINE = 2.0**-40  # of its bound: how exact a total of a fine field is, with any protection


@dataclass(frozen=True)
class Promises:
    """What a protection promises, as data.

    Parameters
    ----------
    opens : {"coordinator", "clients"}
        Where totals open, and so where a method's ``apply`` runs.
    keys : mapping
        Who holds which key.
    sees : mapping
        What each kind of party sees of a single client's contribution.
    collusion : str
        Which parties together undo it.
    dropout : str
        What happens when a client vanishes.
    precision : float
        Largest error of a total, as a share of bound × contributions; 0 is exact up to float rounding.
        Values without a bound are exact to 2⁻⁶⁰.
    bytes_per_value : float
        Upload of one client for one value of the vector, for long vectors.
    per_client : bool
        Whether that is for each client that takes part: all of them are sent a vector.
    single : bool
        Whether one client alone may be summed.
    warnings : tuple of str
        Unsafe choices, said aloud in log and report.
    """

    opens: Place
    keys: Mapping[str, str]
    sees: Mapping[str, str]
    collusion: str
    dropout: str
    precision: float
    bytes_per_value: float
    per_client: bool = False
    single: bool = False
    warnings: tuple[str, ...] = ()

    def upload(self, clients: int) -> float:
        """Bytes that one of so many clients sends for a value."""
        return self.bytes_per_value * (clients if self.per_client else 1)

    def as_dict(self) -> dict[str, Any]:
        """Give the promises as plain values."""
        return asdict(self)


class Sum(Protocol):
    """A sum under way, as a protection's coordinator half sees it."""

    number: int
    contribution: str
    layout: Layout
    parties: tuple[str, ...]

    @property
    def memory(self) -> dict[str, Any]:
        """What the protection keeps at the coordinator during the run; never a secret."""

    @property
    def directory(self) -> Mapping[str, bytes]:
        """Signed exchange keys of the parties."""

    @property
    def failures(self) -> Mapping[str, str]:
        """Parties that failed in this sum, with the reason."""

    @property
    def lost(self) -> Mapping[str, str]:
        """Parties that failed in a step of the protection, with the last reason; not all of them matter."""

    def contributions(
        self,
        tickets: Mapping[str, Mapping[str, Any]] | None = None,
        common: Mapping[str, Any] | None = None,
        parties: Sequence[str] | None = None,
    ) -> Iterator[tuple[str, Message]]:
        """Ask for contributions, each with its ticket, and give them in party order as they come."""

    def ask(
        self,
        step: Callable[..., Any],
        common: Mapping[str, Any] | None = None,
        jobs: Mapping[str, Mapping[str, Any]] | None = None,
        parties: Sequence[str] | None = None,
    ) -> Iterator[tuple[str, Message]]:
        """Ask parties for a step of the protection; who fails is recorded, and how many may is its affair."""

    def serve(self, step: Callable[..., Any], service: str, fields: Mapping[str, Any]) -> Message:
        """Ask a service for one step of the protection."""

    def relayed(self, sender: str, receiver: str, size: int) -> None:
        """Tell that a sealed message from one party rides on the next ask to another."""

    def check(self, parties: Sequence[str] | None = None) -> None:
        """Refuse to go on if too few have contributed (or are left); asked before anything is opened."""

    def restart(self) -> None:
        """Begin again without those that failed."""

    def refuse(self, party: str, reason: str) -> None:
        """Record that what this party sent cannot be used; the sum goes on without it."""


@dataclass(frozen=True)
class Protection(Component):
    """Base of all protected sums."""

    # A ring may have to start again without a hop: then clients keep their vector until the next
    # sum, so that nobody computes a contribution twice.
    restarts: ClassVar[bool] = False

    # Whether contributions can join a total that stays shut one by one, today and next year. Where they
    # cannot (masks, shares), a batch of clients is the unit, and keys are made for each.
    joins: ClassVar[bool] = False

    # What others must know of it, so that nobody has to ask for its name.
    adds_noise: ClassVar[bool] = False  # totals are not exact, and every run spends a privacy budget
    shows_contributions: ClassVar[bool] = False  # the coordinator sees them as they are

    # What an exposure report must know of its messages: which sealed fields hold a key, and the words to
    # show for a field instead of its name.
    key_fields: ClassVar[Collection[str]] = ()
    field_names: ClassVar[Mapping[str, str]] = {}

    if TYPE_CHECKING:

        @property
        def opens(self) -> Place:
            """Where totals open: fixed by the protection, or one of its settings."""

    @property
    def rotates_keys(self) -> bool:
        """Whether a new key replaces the one before it during a run."""
        return False

    @property
    def services(self) -> tuple[str, ...]:
        """Parties without rows that this protection needs, such as a key server."""
        return ()

    @property
    def promises(self) -> Promises:
        """What this protection promises with these settings."""
        raise TypeError(f"{type(self).__name__} must state its promises")

    # -- enrolment: how coordinator and parties come to trust each other; plain has nothing to trust ---

    def greet(self, coordinator: Any) -> Mapping[str, Any]:
        """Coordinator half: what rides on the first ask."""
        return {}

    def introduce(self, party: Party, greeting: Mapping[str, Any]) -> Mapping[str, Any]:
        """Party half: what goes back with the introduction."""
        return {}

    def welcome(self, coordinator: Any, party: str, fields: Mapping[str, Any]) -> None:
        """Coordinator half: check what came back."""

    def receive(self, party: Party, ticket: Mapping[str, Any]) -> None:
        """Party half: take a key that rides on an ask, before any total is opened."""

    # -- sums --------------------------------------------------------------------------------------

    def min_contributions(self, agreed: int) -> int:
        """Fewest contributions over which a total opens: as agreed, but one alone hides nothing."""
        return max(agreed, 1 if self.promises.single else 2)

    def error(self, layout: Layout, contributions: int, total: Mapping[str, Any] | None = None) -> float:
        """Typical (root mean square) error of a total, as a share of its values' bound; noise not counted.

        The protected ``total`` itself tells how exact it is where the coordinator has multiplied it.
        """
        rounding = sqrt(contributions / 12) * max(self.promises.precision, np.finfo(np.float64).eps)
        # Values without a bound have digits of their own, finer than any share of a bound.
        bounded = np.isfinite(layout.bounds)
        return min(rounding, FINE) if layout.fine[bounded].all() else rounding

    def incompatibility(self, method: Component) -> str | None:
        """Return why this protection cannot serve a method, if so; asked before anything is sent."""
        return None

    def warnings_for(self, clients: int, scaled: bool) -> Sequence[str]:
        """Return what to know before so many clients begin; ``scaled``: sums agree on a scale first."""
        return ()

    def prepare(self, coordinator: Any, sums: int) -> None:
        """Agree keys and shares for that many sums, in as few waves as possible; plain needs none."""

    def resume(self, coordinator: Any, sums: int) -> None:
        """Count as spent that many of the prepared sums: the run was stopped and goes on."""

    def spent(self, coordinator: Any) -> float:
        """Epsilon that the sums have cost so far; 0 where there is no noise."""
        return 0.0

    def left(self, coordinator: Any) -> int | None:
        """How many sums may still be formed, where there is a limit."""
        return None

    def protect(self, party: Party, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Party half: wrap this party's vector."""
        raise TypeError(f"{type(self).__name__} must say how a vector is protected")

    def gather(self, pending: Sum) -> Mapping[str, Any]:
        """Coordinator half: form the protected total, folding contributions one by one."""
        raise TypeError(f"{type(self).__name__} must say how contributions are gathered")

    def settle(self, holder: Any) -> None:
        """Forget, at a party or at the coordinator, what was prepared for sums that never came: a run is over."""

    def map(
        self, pending: Sum, total: Mapping[str, Any], operator: Callable[[], Any]
    ) -> Mapping[str, Any] | None:
        """Coordinator half: multiply an unopened total of columns by the matrix that the method gives.

        The result carries ``mapped``. None, if this protection cannot: then whoever opens does it.
        """
        return None

    # -- standing totals: only of protections that ``joins`` -------------------------------------------

    def admit(self, coordinator: Any, names: Sequence[str]) -> None:
        """Give parties that come later the keys they need."""

    def arriving(self, pending: Sum, summands: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Coordinator half: good contributions one by one, made for a total of at most so many."""
        raise TypeError(f"{type(self).__name__} forms totals of whole batches only")

    def joined(
        self, memory: Mapping[str, Any], total: Mapping[str, Any] | None, more: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Coordinator half: a protected total with a contribution, or another total, added to it."""
        raise TypeError(f"{type(self).__name__} forms totals of whole batches only")

    def open(self, holder: Any, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Open a protected total with the keys of a party or of the coordinator; only meaningful digits leave."""
        raise TypeError(f"{type(self).__name__} must say how a total is opened")
