"""Fields of asks: what each of them has to be, checked before a step looks at it.

An ask comes from outside. A field that holds something else than its name stands for is refused here, in one
place, instead of in whatever line first stumbles over it. Numbers are checked once more where they are
compared, with their limits (:mod:`tacit.core.numbers`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tacit.core.errors import MessageError, MissingFieldError
from tacit.core.numbers import MOST_CLIENTS
from tacit.core.values import Blob

Kind = tuple[str, Callable[[Any], bool]]  # in words, and whether a value is one
PREFIXES = frozenset(("earlier", "ticket", "total", "protection"))


def _is_names(value: Any) -> bool:
    try:
        return isinstance(value, bytes) and value.decode() is not None
    except UnicodeDecodeError:
        return False


INTEGER: Kind = "a whole number", lambda value: type(value) is int
CLIENTS: Kind = "a number of clients", lambda value: type(value) is int and 0 <= value <= MOST_CLIENTS
NUMBER: Kind = "a number", lambda value: type(value) in (int, float)
FLAG: Kind = "yes or no", lambda value: type(value) is bool
TEXT: Kind = "a text", lambda value: isinstance(value, str)
TEXTS: Kind = (
    "a list of texts",
    lambda value: isinstance(value, tuple) and all(isinstance(text, str) for text in value),
)
BYTES: Kind = "bytes", lambda value: isinstance(value, bytes)
NAMES: Kind = "names as bytes", _is_names
BLOB: Kind = "a blob", lambda value: isinstance(value, Blob)
ROWS: Kind = (
    "rows of bytes",
    lambda value: isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 2,
)
INTEGERS: Kind = (
    "a list of whole numbers",
    lambda value: isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == 1,
)
VECTOR: Kind = (
    "a vector",
    lambda value: isinstance(value, np.ndarray) and value.dtype == np.float64 and value.ndim == 1,
)
COMPONENT: Kind = (
    "'method' or 'preparation'",
    lambda value: isinstance(value, str) and value in ("method", "preparation"),
)

_COUNTED = ("$serial", "sum", "contributors", "summands", "log/first", "attempt", "changed")
KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(_COUNTED, INTEGER),
    **dict.fromkeys(("$step", "$manifest", "contribution", "apply", "id"), TEXT),
    **dict.fromkeys(("manifest", "schema", "log/entries", "in_total", "lines"), BYTES),
    "component": COMPONENT,
    "multiplied": FLAG,
    "log/lengths": INTEGERS,
    "sign": NUMBER,
    "accepted": TEXTS,
    "clients": CLIENTS,
}


def check_fields(fields: Mapping[str, Any], kinds: Mapping[str, Kind]) -> None:
    """Refuse fields that do not hold what they are named for; ``kinds`` are those of a protection.

    >>> check_fields({"sum": 3, "ticket/public": b"key"}, {"public": BYTES})
    >>> check_fields({"sum": "3"}, {})
    Traceback (most recent call last):
    ...
    tacit.core.errors.MessageError: field 'sum' is a str, not a whole number: this is no genuine message
    """
    for name, value in fields.items():
        kind = kinds.get(name) or KINDS.get(name)
        if kind is None and "/" in name:
            prefix, _, plain = name.partition("/")
            kind = (kinds.get(plain) or KINDS.get(plain)) if prefix in PREFIXES else None
        if kind is not None and not kind[1](value):
            raise MessageError(
                f"field '{name}' is a {type(value).__name__}, not {kind[0]}: this is no genuine message"
            )


class Fields(dict[str, Any]):
    """Fields of a message; one that is not there is an error of whoever wrote the message."""

    def __missing__(self, name: str) -> Any:
        raise MissingFieldError(name)


def strip_prefix(prefix: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields whose names start with a prefix, without it."""
    found = {name[len(prefix) :]: value for name, value in fields.items() if name.startswith(prefix)}
    return Fields(found)


def add_prefix(prefix: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with a prefix before their names."""
    return {prefix + name: value for name, value in fields.items()}
