"""What the core asks of a preparation, which lives in a room above it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tacit.core.message import Message
from tacit.core.party import Party

if TYPE_CHECKING:
    from tacit.core.coordinator import Coordinator
    from tacit.core.protection import Protection


class Agreement(Protocol):
    """Introductions of parties, from which the schema follows."""

    def add(self, party: str, introduction: Mapping[str, Any]) -> None:
        """Take an introduction into account, or refuse it."""

    def hold(self, schema: Any) -> None:
        """Accept only introductions that fit a schema that was agreed before."""

    def outvoted(self) -> Mapping[str, str]:
        """Return the parties that differ from most, with what differs."""

    def make_schema(self, *, without: Collection[str] = ()) -> Any:
        """Return the schema that all introductions, but for those of some, agree on."""


class DataPreparation(Protocol):
    """How the federation agrees on schema and scale: see :class:`tacit.data.preparation.Preparation`."""

    @classmethod
    def registered_name(cls) -> str:
        """Return the name under which a party finds the class."""

    def config(self) -> dict[str, Any]:
        """Return the settings as plain values."""

    def carry_over(self, party: Party, earlier: Party) -> None:
        """Take over what a client must not count anew from an earlier attempt at the same run."""

    @property
    def scale(self) -> str:
        """How features are scaled."""

    @property
    def missing(self) -> str:
        """How missing values are treated."""

    @property
    def sums(self) -> int:
        """How many sums :meth:`train` forms."""

    def count_sums(self, method: Any, protection: Protection) -> int:
        """Return how many sums :meth:`train` forms for a method under a protection."""

    def is_needless_for(self, method: Any) -> bool:
        """Return whether nothing has to be agreed for a method."""

    def check_clients(self, protection: Protection, clients: int) -> None:
        """Refuse a scale that would show single ones of so few clients."""

    def count_cells(
        self, coordinator: Coordinator, parties: Sequence[str] | None = None, *, continued: bool = False
    ) -> tuple[str, ...]:
        """Count the rows of every class and category; return the parties that took part."""

    def train(self, coordinator: Coordinator) -> tuple[str, ...]:
        """Agree on scale and fill values; return the parties that took part."""

    def introduce(self, party: Party, declared: Mapping[str, Any]) -> Message:
        """Check a party's rows and describe them."""

    def agreement(self, declared: Mapping[str, Any]) -> Agreement:
        """Start collecting introductions."""

    def read_schema(self, message: Message) -> Any:
        """Read the agreed schema."""
