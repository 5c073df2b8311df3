"""What a message may carry: arrays, bytes, blobs and plain values, frozen; never a secret."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import MessageError, SecretError
from tacit.core.secret import Secret

BlobKind = Literal["public", "cipher", "sealed", "masked", "share"]
Plain: TypeAlias = "bool | int | float | str | tuple[Plain, ...] | Mapping[str, Plain] | None"
Array: TypeAlias = NDArray[Any]
Value: TypeAlias = "Plain | bytes | Array | Blob"

MAX_DEPTH = 8
MAX_DIMENSIONS = 8
DTYPES = {
    code: np.dtype("<" + code if code[-1] != "1" else "|" + code)
    for code in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
_PLAIN: dict[type, Callable[[Any], bool | int | float | str]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
}
_EXACT = (bool, int, float, str)
_AS_THEY_ARE = frozenset((*_EXACT, bytes, type(None)))


@dataclass(frozen=True, slots=True)
class Blob:
    """Opaque bytes with their exposure class: what a receiver can make of them.

    ``public`` anyone may read; ``cipher`` encrypted under a key that the receiver does not hold;
    ``sealed`` for one other party's eyes, only relayed; ``masked`` hidden by masks that cancel in
    the sum; ``share`` one share of a shared value.
    """

    kind: BlobKind
    data: bytes

    def __post_init__(self) -> None:
        if self.kind not in get_args(BlobKind):
            raise MessageError(f"blob kind '{self.kind}' is unknown: use one of {get_args(BlobKind)}")
        if not isinstance(self.data, bytes):
            raise MessageError(f"a blob holds bytes, not {type(self.data).__name__}")

    def __repr__(self) -> str:
        return f"Blob({self.kind}, {len(self.data)} bytes)"


def freeze(value: Any, name: str) -> Value:
    """Make a value one that a message may carry, or refuse it by name."""
    if type(name) is not str or not name:
        raise MessageError(f"a field is named {name!r}: names are text, and not empty")
    if type(value) in _AS_THEY_ARE:
        return value  # type: ignore[no-any-return]
    if isinstance(value, np.ndarray):
        dtype = value.dtype if value.dtype in CODES else value.dtype.newbyteorder("<")
        if dtype not in CODES:
            raise MessageError(f"field '{name}': arrays of {value.dtype} do not travel; use {sorted(DTYPES)}")
        if value.ndim > MAX_DIMENSIONS:
            raise MessageError(f"field '{name}': {value.ndim} dimensions, the limit is {MAX_DIMENSIONS}")
        # Whoever made a writeable array can still change it: take a copy, so that frozen is frozen.
        if not (_is_frozen(value) and value.flags.c_contiguous and value.dtype == dtype):
            return readonly(np.array(value, dtype=dtype, order="C"))
        return readonly(value)
    if isinstance(value, Blob | bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return freeze_plain(value, name)


def _is_frozen(array: Array) -> bool:
    """Return whether no writeable array shares the values; a read-only view of one is not frozen."""
    if type(array) is not np.ndarray:
        return False
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return owner is None or isinstance(owner, bytes)


def thawed(value: Any) -> Any:
    """Return plain lists and dictionaries again, for what takes no frozen ones."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    return [thawed(item) for item in value] if isinstance(value, list | tuple) else value


def freeze_plain(value: Any, name: str, depth: int = 0) -> Plain:
    """Make numbers, text, lists and mappings of those plain and frozen, or refuse them by name."""
    if value is None or (isinstance(value, bool | int | float | str) and type(value) in _EXACT):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biufU" and value.dtype.char != "g":
        return freeze_plain(value.item(), name, depth)
    for base, made in _PLAIN.items():
        if isinstance(value, base):  # an enumeration's member, say: its plain value travels
            return made(value)
    if isinstance(value, Secret):
        raise SecretError(f"field '{name}' holds a Secret: secrets stay in the vault and never travel")
    if depth >= MAX_DEPTH:
        raise MessageError(f"field '{name}': nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, list | tuple):
        return tuple(freeze_plain(item, name, depth + 1) for item in value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise MessageError(f"field '{name}': keys of a mapping must be text")
        return MappingProxyType({key: freeze_plain(item, name, depth + 1) for key, item in value.items()})
    raise MessageError(
        f"field '{name}' holds a {type(value).__name__}: a message carries arrays, bytes, blobs, "
        "None, bool, int, float, str, and lists or mappings of those"
    )


def readonly(array: Array) -> Array:
    """Mark an array as one that is not written to."""
    array.flags.writeable = False
    return array
