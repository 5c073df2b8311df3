"""Fields of asks: what each of them has to be, checked before a step looks at it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tacit.core.errors import MessageError, MissingFieldError
from tacit.core.values import Blob

MOST = 1 << 62  # no counter of a run comes near to it
MOST_CLIENTS = 1 << 20  # of a federation; what is computed from their number takes memory for each
MOST_SUMMANDS = 1 << 32  # contributions to one total
Kind = tuple[str, Callable[[Any], bool]]  # in words, and whether a value is one
PARTS = ("method", "preparation")
PREFIXES = frozenset(("earlier", "ticket", "total", "protection"))


def _is_names(value: Any) -> bool:
    try:
        return isinstance(value, bytes) and value.decode() is not None
    except UnicodeDecodeError:
        return False


def _array(types: str, dimensions: int) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, np.ndarray) and value.dtype.char in types and value.ndim == dimensions
    )


def _is_tuple(value: Any, kind: type) -> bool:
    return type(value) is tuple and all(type(item) is kind for item in value)


INTEGER: Kind = "a whole number", lambda value: type(value) is int
CLIENTS: Kind = "a number of clients", lambda value: type(value) is int and 0 <= value <= MOST_CLIENTS
SIGN: Kind = "1 (brought) or -1 (withdrawn)", lambda value: type(value) in (int, float) and value in (1, -1)
PLACES: Kind = "two whole numbers", lambda value: value is None or (_is_tuple(value, int) and len(value) == 2)
FLAG: Kind = "yes or no", lambda value: type(value) is bool
TEXT: Kind = "a text", lambda value: isinstance(value, str)
TEXTS: Kind = "a list of texts", lambda value: _is_tuple(value, str)
BYTES: Kind = "bytes", lambda value: isinstance(value, bytes)
NAMES: Kind = "names as bytes", _is_names
BLOB: Kind = "a blob", lambda value: isinstance(value, Blob)
ROWS: Kind = "rows of bytes", _array("B", 2)
INTEGERS: Kind = "a list of whole numbers", _array(np.typecodes["AllInteger"], 1)
VECTOR: Kind = "a vector", _array("d", 1)
COMPONENT: Kind = "'method' or 'preparation'", lambda value: isinstance(value, str) and value in PARTS

_COUNTED = ("$serial", "sum", "contributors", "summands", "log/first", "attempt", "changed")
KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(_COUNTED, INTEGER),
    **dict.fromkeys(("$step", "$manifest", "contribution", "apply", "id"), TEXT),
    **dict.fromkeys(("manifest", "schema", "log/entries", "in_total", "lines"), BYTES),
    "component": COMPONENT,
    "multiplied": FLAG,
    "sign": SIGN,
    "rows": PLACES,
    "accepted": TEXTS,
    "clients": CLIENTS,
}


def check_fields(fields: Mapping[str, Any], kinds: Mapping[str, Kind]) -> None:
    """Refuse fields that do not hold what they are named for; ``kinds`` are those of a protection."""
    for name, value in fields.items():
        kind = kinds.get(name) or KINDS.get(name)
        if kind is None and "/" in name:
            prefix, _, plain = name.partition("/")
            kind = (kinds.get(plain) or KINDS.get(plain)) if prefix in PREFIXES else None
        if kind is not None and not kind[1](value):
            raise MessageError(
                f"field '{name}' is a {type(value).__name__}, not {kind[0]}: this is no genuine message"
            )


def read_integer(fields: Mapping[str, Any], name: str, least: int = 0, most: int = MOST) -> int:
    """Return a whole number of a message, within limits that are part of what was agreed.

    A check such as ``number <= last`` lets NaN pass, which is never less than anything, and True, which is 1.
    Whoever compares a number that came by wire reads it here first.
    """
    value = fields.get(name)
    if type(value) is not int:
        raise MessageError(
            f"'{name}' is {'missing' if value is None else f'a {type(value).__name__}'}, not a whole number: "
            "this is no genuine message"
        )
    if not least <= value <= most:
        raise MessageError(f"'{name}' is {value}, outside of {least} to {most}: this is no genuine message")
    return value


class Fields(dict[str, Any]):
    """Fields of a message; one that is not there is an error of whoever wrote the message."""

    def __missing__(self, name: str) -> Any:
        raise MissingFieldError(name)


def strip_prefix(prefix: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields whose names start with a prefix, without it."""
    return Fields((name.removeprefix(prefix), fields[name]) for name in fields if name.startswith(prefix))


def add_prefix(prefix: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with a prefix before their names."""
    return {prefix + name: value for name, value in fields.items()}
