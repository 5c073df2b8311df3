"""Settings groups: settings of a component that belong together, with their own checks and logic.

In a manifest, in TOML and on the command line they stand beside the component's own, under unique names.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

from tacit.core.errors import ConfigError, nearest

Rule = tuple[str, bool, str]  # name of a setting, whether its value will do, what to give instead


@dataclass(frozen=True)
class SettingsGroup:
    """Base of settings groups: frozen dataclasses, each setting described under ``Parameters``."""

    prefix: ClassVar[str] = ""  # before the names of the group's settings wherever they are flat

    def __post_init__(self) -> None:
        check_settings(type(self), vars(self), type(self).__name__)
        check_rules(self, self.rules(), self.prefix)

    def rules(self) -> Iterable[Rule]:
        """Return what the values must satisfy."""
        return ()

    def config(self) -> dict[str, Any]:
        """Return the settings as plain values, by their flat names."""
        return {self.prefix + field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


class Setting(NamedTuple):
    """A setting of a component or of one of its groups: its field, the class that has it, its default."""

    field: dataclasses.Field[Any]
    owner: type
    default: Any
    group: str  # field of the component that holds the group; empty for the component's own settings

    @property
    def hint(self) -> Any:
        """Type of the setting."""
        return _hints(self.owner)[self.field.name]

    @property
    def words(self) -> list[str]:
        """Words of which its value must be one; empty if any will do."""
        return [word for word in _allowed(self.hint) if isinstance(word, str)]


def settings_of(kind: type) -> Mapping[str, Setting]:
    """Return all settings of a dataclass by their flat names, those of its groups among them."""
    return _inspect(kind)[0]


def groups_of(kind: type) -> Mapping[str, SettingsGroup]:
    """Return the default groups of a dataclass by the names of their fields."""
    return _inspect(kind)[1]


@functools.cache
def _inspect(kind: type) -> tuple[dict[str, Setting], dict[str, SettingsGroup]]:
    settings: dict[str, Setting] = {}
    groups: dict[str, SettingsGroup] = {}
    for field in dataclasses.fields(kind):
        default = None if field.default is dataclasses.MISSING else field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        found = {field.name: Setting(field, kind, default, "")}
        if isinstance(default, SettingsGroup):
            groups[field.name] = default
            found = {
                default.prefix + inner.name: Setting(
                    inner, type(default), getattr(default, inner.name), field.name
                )
                for inner in dataclasses.fields(default)
            }
        if twice := settings.keys() & found:
            raise TypeError(f"{kind.__name__} has two settings called {sorted(twice)}: names must be unique")
        settings |= found
    return settings, groups


def check_rules(part: object, rules: Iterable[Rule], prefix: str = "") -> None:
    """Refuse the first value that will not do, and say what to give instead."""
    for name, fine, way_out in rules:
        if not fine:
            raise ConfigError(f"{prefix}{name} is {getattr(part, name)}: {way_out}")


def check_settings(kind: type, values: Mapping[str, Any], where: str) -> None:
    """Refuse a setting that is none of its type's words, or no whole number, and a group of another class."""
    for name, allowed in _choices(kind).items():
        if (value := values.get(name, getattr(kind, name, allowed[0]))) not in allowed:
            way_out = nearest(str(value), [str(word) for word in allowed])
            raise ConfigError(f"{where}: option {name} = {value!r}: {way_out}")
    for field in dataclasses.fields(kind):
        value = values.get(field.name, getattr(kind, field.name, 0))
        if field.type in (int, "int") and not isinstance(value, Integral):
            raise ConfigError(f"{where}: option {field.name} = {value!r}: give a whole number")
    for name, default in groups_of(kind).items():
        if type(value := values.get(name, default)) is not type(default):
            raise ConfigError(f"{where}: {name} is {value!r}: give {name}={type(default).__name__}(…)")


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@functools.cache
def _choices(kind: type) -> dict[str, tuple[Any, ...]]:
    try:
        hints = _hints(kind)
    except NameError:  # a class of a notebook or a function, whose types have no names here
        return {}
    found = {field.name: _allowed(hints[field.name]) for field in dataclasses.fields(kind)}
    return {name: allowed for name, allowed in found.items() if allowed}


def _allowed(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    members = [(None,) if member is type(None) else _allowed(member) for member in typing.get_args(hint)]
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return tuple(value for values in members for value in values) if is_union and all(members) else ()
