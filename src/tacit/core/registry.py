"""Registries: components of one kind by name, Tacit's own and those that installed packages bring."""

import importlib
import typing
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any, Generic, TypeVar

from tacit.core.component import Component
from tacit.core.errors import ConfigError, nearest

P = TypeVar("P", bound=Component)


class Registry(Generic[P]):
    """Components of one kind by name: Tacit's own, and those that installed packages bring.

    Classes are imported when first asked for, so that listing names costs nothing.
    """

    def __init__(self, kind: str, own: Mapping[str, str], group: str) -> None:
        self.kind = kind
        self._own = dict(own)
        self._group = group
        self.classes = {target.partition(":")[2]: name for name, target in own.items()}  # Tacit's own

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted({*self._own, *(point.name for point in metadata.entry_points(group=self._group))})

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self.names()  # looking for packages takes long

    def get(self, name: str) -> type[P]:
        """Import the class of that name, or refuse with the nearest one."""
        target = self._own.get(name)
        if target is None:
            points = {point.name: point.value for point in metadata.entry_points(group=self._group)}
            target = points.get(name) or (name if ":" in name else None)
        if target is None:
            raise ConfigError(f"unknown {self.kind} '{name}': {nearest(name, self.names())}")
        module, _, attribute = target.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise ConfigError(f"{self.kind} '{name}' cannot be imported here: {error}") from None
        if not (isinstance(found, type) and issubclass(found, Component)):
            raise ConfigError(f"{self.kind} '{name}' is no part of a federation: name a class of that kind")
        return typing.cast(type[P], found)

    def build(self, name: str, config: Mapping[str, Any] | None = None) -> P:
        """Build a part from its name and settings."""
        return self.get(name).from_config(config or {})
