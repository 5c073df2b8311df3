"""Components: what a federation agrees to run, rebuilt from names and settings at every party.

A method, a protection and a preparation are *parts*: frozen dataclasses whose fields are their
settings. The manifest carries their names and settings, never their code; each party builds its own
copy from what it has installed. What a party can be asked to do is marked:

* ``@step`` ``(self, party, message) -> message``: any deed of a client;
* ``@contribution(layout)`` ``(self, party, shared) -> named arrays``: a client's term of a sum; pure;
* ``@apply`` ``(self, total, shared) -> shared``: what is made of the total; pure, and run wherever
  the protection lets the total open.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from tacit.core.errors import ConfigError, nearest

Function = TypeVar("Function", bound=Callable[..., Any])
Built = TypeVar("Built")


@dataclass(frozen=True)
class Mark:
    """What a marked function of a part is for."""

    kind: str
    layout: Callable[..., Any] | None = None


def _mark(function: Function, mark: Mark) -> Function:
    function.__dict__["tacit"] = mark
    return function


def step(function: Function) -> Function:
    """Mark a function that a client performs when asked."""
    return _mark(function, Mark("step"))


def contribution(layout: Callable[..., Any]) -> Callable[[Function], Function]:
    """Mark a function that computes a client's term of a sum laid out by ``layout(self, schema)``."""
    return lambda function: _mark(function, Mark("contribution", layout))


def apply(function: Function) -> Function:
    """Mark a function that turns an opened total into the next shared state."""
    return _mark(function, Mark("apply"))


def marked(part: object, name: str, kind: str) -> tuple[Callable[..., Any], Mark]:
    """Find a marked function of a part by name; nothing else can be called from outside.

    Raises
    ------
    ConfigError
        If the part has no such function of that kind.
    """
    function = getattr(part, name, None)
    mark = getattr(function, "tacit", None)
    if function is None or not isinstance(mark, Mark) or mark.kind != kind:
        valid = [
            n for n in dir(type(part)) if getattr(getattr(part, n, None), "tacit", Mark("")).kind == kind
        ]
        raise ConfigError(f"{type(part).__name__} has no {kind} '{name}': {nearest(name, valid)}")
    return function, mark


def layouts_of(part: object, schema: Any) -> list[Any]:
    """Layouts of all contributions of a part under the agreed schema."""
    found = (getattr(getattr(type(part), name, None), "tacit", None) for name in dir(type(part)))
    marks = [mark for mark in found if isinstance(mark, Mark) and mark.kind == "contribution"]
    return [mark.layout(part, schema) for mark in marks if mark.layout]


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

    def carry(self, party: typing.Any, known: typing.Any) -> None:
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
    import inspect

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


P = TypeVar("P", bound=Component)


class Registry(Generic[P]):
    """Components of one kind by name: Tacit's own, and those that installed packages bring.

    Classes are imported when first asked for, so that listing names costs nothing.
    """

    def __init__(self, kind: str, own: Mapping[str, str], group: str) -> None:
        self.kind = kind
        self._own = dict(own)
        self._group = group

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted({*self._own, *(point.name for point in metadata.entry_points(group=self._group))})

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

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
