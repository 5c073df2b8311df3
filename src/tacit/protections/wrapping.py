"""A protection around another: all it does not change is as the wrapped one has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tacit.core.layout import Layout
from tacit.core.party import Party
from tacit.core.protection import Place, Protection, Sum
from tacit.protections import PROTECTIONS


@dataclass(frozen=True)
class Wrapping(Protection):
    """Base of protections that change contributions and totals of another, which forms the sum.

    Parameters
    ----------
    inner : str
        The protection that forms the sum.
    inner_options : mapping
        Its settings.
    """

    inner: str = "plain"
    inner_options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("restarts", "key_fields", "field_names"):
            object.__setattr__(self, name, getattr(self.wrapped, name))

    @cached_property
    def wrapped(self) -> Protection:
        """The protection that forms the sum."""
        return PROTECTIONS.build(self.inner, self.inner_options)

    def __getattr__(self, name: str) -> Any:
        # Steps of the wrapped protection are this one's: that is how parties find them by name.
        if name.startswith("_") or name in type(self).__dataclass_fields__:
            raise AttributeError(name)
        return getattr(self.wrapped, name)

    @property
    def opens(self) -> Place:
        """Where the wrapped protection opens totals."""
        return self.wrapped.opens

    @property
    def rotates_keys(self) -> bool:
        """As the wrapped protection does."""
        return self.wrapped.rotates_keys

    def warnings_for(self, clients: int, scaled: bool) -> Sequence[str]:
        """Those of the wrapped protection."""
        return self.wrapped.warnings_for(clients, scaled)

    @property
    def services(self) -> tuple[str, ...]:
        """Those of the wrapped protection."""
        return self.wrapped.services

    def greet(self, coordinator: Any) -> Mapping[str, Any]:
        """As the wrapped protection does."""
        return self.wrapped.greet(coordinator)

    def introduce(self, party: Party, greeting: Mapping[str, Any]) -> Mapping[str, Any]:
        """As the wrapped protection does."""
        return self.wrapped.introduce(party, greeting)

    def welcome(self, coordinator: Any, party: str, fields: Mapping[str, Any]) -> None:
        """As the wrapped protection does."""
        self.wrapped.welcome(coordinator, party, fields)

    def admit(self, coordinator: Any, names: Sequence[str]) -> None:
        """As the wrapped protection does."""
        self.wrapped.admit(coordinator, names)

    def receive(self, party: Party, ticket: Mapping[str, Any]) -> None:
        """As the wrapped protection does."""
        self.wrapped.receive(party, ticket)

    def settle(self, holder: Any) -> None:
        """As the wrapped protection does."""
        self.wrapped.settle(holder)

    def min_contributions(self, agreed: int) -> int:
        """As the wrapped protection has it: key holders among its parties ask only that one."""
        return self.wrapped.min_contributions(agreed)


class Asking:
    """A sum under way as the wrapped protection sees it: bounds with noise, and more fields on every ask."""

    def __init__(self, pending: Sum, layout: Layout, told: Mapping[str, Any]) -> None:
        self._pending, self.layout, self._told = pending, layout, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pending, name)

    def contributions(self, tickets: Any = None, common: Any = None, parties: Any = None) -> Any:
        """Ask, and say more."""
        return self._pending.contributions(tickets, {**(common or {}), **self._told}, parties)
