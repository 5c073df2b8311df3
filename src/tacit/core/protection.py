"""Protections: how a sum is formed without showing its parts. This is their interface.

Each protection says in ``promises`` who holds which key, who sees what, which collusion breaks it,
what a dropout does, and what it costs. Docs, exposure report and contract tests read the same data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.core.layout import Layout
from tacit.core.message import Message
from tacit.core.parts import Part
from tacit.core.party import Party, Vault

Place = Literal["coordinator", "clients"]
Vector = NDArray[np.float64]


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
        Largest relative error of an opened total; 0 is exact up to float rounding.
    bytes_per_value : float
        Upload of one client for one value of the vector, for long vectors.
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
    single: bool = False
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Give the promises as plain values."""
        return asdict(self)


class Sum(Protocol):
    """A sum under way, as a protection's coordinator half sees it."""

    @property
    def number(self) -> int:
        """Rises with every sum; contributions are bound to it."""

    @property
    def layout(self) -> Layout:
        """How the vector is laid out."""

    @property
    def parties(self) -> tuple[str, ...]:
        """Who is asked, in party order."""

    def contributions(
        self, tickets: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Iterator[tuple[str, Message]]:
        """Ask for contributions, each with its ticket, and give them in party order as they come."""

    def refuse(self, party: str, reason: str) -> None:
        """Record that what this party sent cannot be used; the sum goes on without it."""


@dataclass(frozen=True)
class Protection(Part):
    """Base of all protected sums."""

    # A ring may have to start again without a hop: then clients keep their vector until the next
    # sum, so that nobody computes a contribution twice.
    restarts: ClassVar[bool] = False

    # Where totals open; a protection that leaves the choice has it as a setting.
    opens: Place = "coordinator"

    @property
    def promises(self) -> Promises:
        """What this protection promises with these settings."""
        raise TypeError(f"{type(self).__name__} must state its promises")

    def fits(self, method: Part) -> str | None:
        """Why this protection cannot serve a method, if so; asked before anything is sent."""
        return None

    def prepare(self, desk: Any, sums: int) -> None:
        """Agree keys and shares for that many sums, in as few waves as possible; plain needs none."""

    def protect(self, party: Party, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Party half: wrap this party's vector."""
        raise TypeError(f"{type(self).__name__} must say how a vector is protected")

    def gather(self, pending: Sum) -> Mapping[str, Any]:
        """Coordinator half: form the protected total, folding contributions one by one."""
        raise TypeError(f"{type(self).__name__} must say how contributions are gathered")

    def open(self, vault: Vault, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Open a protected total with the keys in this vault."""
        raise TypeError(f"{type(self).__name__} must say how a total is opened")
