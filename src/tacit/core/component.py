"""Components: what a federation agrees to run, rebuilt from names and settings at every party.

A method, a protection and a preparation are *components*: frozen dataclasses whose fields are their
settings. The manifest carries their names and settings, never their code; each party builds its own
copy from what it has installed. What a party can be asked to do is marked (:mod:`tacit.core.marks`).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import msgspec

from tacit.core.errors import ConfigError, nearest

if typing.TYPE_CHECKING:
    from tacit.core.party import Party

Built = TypeVar("Built")


@dataclass(frozen=True)
class Option:
    """A setting of a part, as the command line and the docs show it."""

    name: str
    type: str
    default: Any
    doc: str


@dataclass(frozen=True)
class Component:
    """Base of methods, protections and preparations: settings that check themselves.

    A subclass is a frozen dataclass. ``name`` is how manifest and command line know it; the first
    line of its docstring is its summary, and each setting is described under ``Parameters``. Settings
    that are one of some words (``Literal``) are checked before a subclass's own ``__post_init__``.
    """

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = cls.__dict__.get("__post_init__")
        if own is not None:

            @functools.wraps(own)
            def checked(self: Component) -> None:
                _check_words(self)
                own(self)

            cls.__post_init__ = checked  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        _check_words(self)

    @classmethod
    def registered_name(cls) -> str:
        """Name under which a party finds this class: its own, or ``module:Class`` if it has none."""
        return cls.__dict__.get("name") or f"{cls.__module__}:{cls.__qualname__}"

    def config(self) -> dict[str, Any]:
        """Give the settings as plain values."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def carry_over(self, party: Party, earlier: Party) -> None:
        """Take over what a client must not count anew from an earlier attempt at the same run."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> typing.Self:
        """Build from plain settings; a typo gets the nearest valid name, a wrong type says which.

        Examples
        --------
        >>> from tacit.protections.plain import Plain
        >>> Plain.from_config({"open": "clients"})
        Traceback (most recent call last):
        ...
        tacit.core.errors.ConfigError: plain has no option 'open': did you mean 'opens'? Valid: opens
        """
        return from_plain(cls, config, cls.registered_name(), "option")

    @classmethod
    def options(cls) -> list[Option]:
        """List the settings with type, default and description; a base class describes its own."""
        described: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            described |= _described(base.__doc__ or "")
        return [
            Option(
                field.name,
                str(field.type),
                _default(field),
                described.get(field.name, ""),
            )
            for field in dataclasses.fields(cls)
        ]

    @classmethod
    def summary(cls) -> str:
        """First line of the class's docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def from_plain(kind: type[Built], config: Mapping[str, Any], where: str, what: str = "key") -> Built:
    """Build a dataclass from plain values, each checked against its field's type.

    Raises
    ------
    ConfigError
        For an unknown key, with the nearest valid one, and for a value of the wrong type.
    """
    hints = typing.get_type_hints(kind)
    valid = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    values = {}
    for key, value in config.items():
        if key not in valid:
            raise ConfigError(f"{where} has no {what} '{key}': {nearest(key, valid)}")
        try:
            values[key] = msgspec.convert(value, hints[key], strict=False)
        except msgspec.ValidationError as error:
            words = _words(hints[key])
            way_out = nearest(value, words) if words and isinstance(value, str) else str(error)
            raise ConfigError(f"{where}: {what} {key} = {value!r}: {way_out}") from None
    return kind(**values)


def _check_words(part: Component) -> None:
    """Refuse a setting that is none of the words its type allows, with the nearest of them."""
    for name, allowed in _choices(type(part)).items():  # type: ignore[arg-type]
        if (value := getattr(part, name)) not in allowed:
            way_out = nearest(str(value), [str(word) for word in allowed])
            raise ConfigError(f"{part.registered_name()}: option {name} = {value!r}: {way_out}")


@functools.cache
def _choices(kind: type[Component]) -> dict[str, tuple[Any, ...]]:
    """What settings may be whose type is a Literal, or an optional one."""
    try:
        hints = typing.get_type_hints(kind)
    except NameError:  # a class of a notebook or a function, whose types have no names here
        return {}
    found = {field.name: _allowed(hints[field.name]) for field in dataclasses.fields(kind)}
    return {name: allowed for name, allowed in found.items() if allowed}


def _allowed(hint: Any) -> tuple[Any, ...]:
    """All values of a Literal, and None if it is optional; nothing for any other type."""
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    members = [(None,) if member is type(None) else _allowed(member) for member in typing.get_args(hint)]
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return tuple(value for values in members for value in values) if is_union and all(members) else ()


def _words(hint: Any) -> list[str]:
    """Texts that a type allows by name: those of a Literal, also of an optional one."""
    if typing.get_origin(hint) is typing.Literal:
        return [word for word in typing.get_args(hint) if isinstance(word, str)]
    return [word for member in typing.get_args(hint) for word in _words(member)]


def _described(docstring: str) -> dict[str, str]:
    """Descriptions under the Parameters heading of a numpy-form docstring."""
    lines = inspect.cleandoc(docstring).split("\n")
    found: dict[str, str] = {}
    if "Parameters" not in lines:
        return found
    current = ""
    for index in range(lines.index("Parameters") + 2, len(lines)):
        line = lines[index]
        if line and set(line) == {"-"}:
            found.pop(current, None)  # the line before the rule was the next heading
            break
        if line and not line.startswith(" "):
            current = line.split(":")[0].strip()
            found[current] = ""
        elif current and line.strip():
            found[current] = f"{found[current]} {line.strip()}".strip()
    return found
