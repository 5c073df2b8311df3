"""Components: methods, protections and preparations, rebuilt from names and settings at every party.

The manifest carries the names and settings of these frozen dataclasses, never their code: each party builds
its own copy from what it has installed. A :class:`Registry` has components of one kind by name.
"""

import dataclasses
import functools
import importlib
import inspect
import math
import re
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from tacit.core.errors import ConfigError, nearest
from tacit.core.party import Party
from tacit.core.settings_group import Setting, SettingsGroup, check_settings, groups_of, settings_of

Built = TypeVar("Built")


@dataclass(frozen=True)
class Option:
    """A setting of a component, as the command line and the docs show it."""

    name: str
    type: str
    default: Any
    doc: str


@dataclass(frozen=True)
class Component:
    """Base of methods, protections and preparations: settings that check themselves.

    A subclass is a frozen dataclass. The first line of its docstring is its summary, and each setting is
    described under ``Parameters``. ``Literal`` settings are checked before its own ``__post_init__``.
    """

    name: ClassVar[str] = ""  # how manifest and command line know it

    def __new__(cls, *values: Any, **settings: Any) -> typing.Self:
        """Refuse values that will not do, and settings that are in a group: say how to write them."""
        named = (field.name for field in dataclasses.fields(cls) if field.init and not field.kw_only)
        check_settings(cls, {**dict(zip(named, values, strict=False)), **settings}, cls.registered_name())
        known, moved = settings_of(cls), dict[str, list[str]]()
        for name in sorted(settings.keys() & (known.keys() - groups_of(cls))):
            if group := known[name].group:
                word = f"{known[name].field.name}={settings[name]!r}"
                moved.setdefault(f"{group}={known[name].owner.__name__}", []).append(word)
        if moved:
            words = ", ".join(f"{group}({', '.join(inner)})" for group, inner in sorted(moved.items()))
            raise ConfigError(f"{cls.__name__} has these settings in groups: write {cls.__name__}({words})")
        return super().__new__(cls)

    @classmethod
    def registered_name(cls) -> str:
        """Return the name under which a party finds this class: its own, or ``module:Class`` if none."""
        return cls.__dict__.get("name") or f"{cls.__module__}:{cls.__qualname__}"

    def config(self) -> dict[str, Any]:
        """Return the settings as plain values, those of groups among them."""
        flat: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            flat |= value.config() if isinstance(value, SettingsGroup) else {field.name: value}
        return flat

    def carry_over(self, party: Party, earlier: Party) -> None:
        """Take over what a client must not count anew from an earlier attempt at the same run."""

    @property
    def own_epsilon(self) -> float:
        """Epsilon that a run costs at most by noise that clients add themselves; infinite without such."""
        return math.inf

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> typing.Self:
        """Build from plain settings; a typo gets the nearest valid name, a wrong type says which."""
        return from_plain(cls, config, cls.registered_name(), "option")

    @classmethod
    def options(cls) -> list[Option]:
        """Return the settings with type, default and description, those of groups among them."""
        return list_options(cls)

    @classmethod
    def summary(cls) -> str:
        """Return the first line of the class's docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]


def list_options(kind: type) -> list[Option]:
    """Return the settings of a dataclass, each as its docstring describes it."""
    return [
        Option(name, _type_name(one), one.default, _descriptions(one.owner).get(one.field.name, ""))
        for name, one in settings_of(kind).items()
    ]


def _type_name(one: Setting) -> str:
    kind = one.field.type
    written = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    with suppress(NameError):  # of a class in a function, whose types have no names here
        if words := one.words:
            return f"Literal{words}" + " | None" * (type(None) in typing.get_args(one.hint))
    return written


def from_plain(kind: type[Built], config: Mapping[str, Any], where: str, what: str = "key") -> Built:
    """Build a dataclass from plain values; refuse unknown keys, and values that are not of a field's type."""
    known, groups = settings_of(kind), groups_of(kind)
    values: dict[str, Any] = {}
    grouped: dict[str, dict[str, Any]] = {name: {} for name in groups}
    for key, value in config.items():
        if key not in known:
            raise ConfigError(f"{where} has no {what} '{key}': {nearest(key, known)}")
        found = known[key]
        try:
            fitting = msgspec.convert(value, found.hint, strict=False)
        except msgspec.ValidationError as error:
            way_out = nearest(value, found.words) if found.words and isinstance(value, str) else str(error)
            raise ConfigError(f"{where}: {what} {key} = {value!r}: {way_out}") from None
        grouped.get(found.group, values)[found.field.name] = fitting
    return kind(**values, **{name: dataclasses.replace(groups[name], **own) for name, own in grouped.items()})


@functools.cache
def _descriptions(kind: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("Parameters\n----------\n")[2]
        section, *_ = re.split(r"^\S.*\n-+$", section, flags=re.MULTILINE)  # up to the next heading
        pieces = re.split(r"^(\S.*)$", section, flags=re.MULTILINE)
        names = (head.split(":")[0].strip() for head in pieces[1::2])
        found |= {name: " ".join(text.split()) for name, text in zip(names, pieces[2::2], strict=True)}
    return found


P = TypeVar("P", bound=Component)


class Registry(Generic[P]):
    """Components of one kind by name: Tacit's own and those of installed packages, imported if asked for."""

    def __init__(self, kind: str, own: Mapping[str, str], group: str) -> None:
        self.kind = kind
        self._own = dict(own)
        self._group = group
        self.classes = {target.partition(":")[2]: name for name, target in own.items()}  # Tacit's own

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted({*self._own, *metadata.entry_points(group=self._group).names})

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
