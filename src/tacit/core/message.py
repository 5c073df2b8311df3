"""Messages: the only thing that ever travels, and the one binary form in which it does.

A message is a flat, frozen mapping from names to arrays, bytes, :class:`Blob` and plain values.
Its bytes are a small MessagePack header (made and read by :mod:`msgspec`) and then the raw buffers:

    b"TCT" version | header length, uint32 | header | padding | buffer | padding | buffer | …

The header lists ``[name, value]`` for plain values, ``[name, "array", dtype, shape]`` and
``[name, kind, length]`` for buffers, sorted by name. There is exactly one encoding of a message:
decoding refuses all others, so equal messages are equal bytes and digests mean something. Every
length is checked against the bytes that are really there before anything is allocated.
"""

import hashlib
import struct
from collections.abc import ItemsView, Iterator, Mapping
from math import prod
from typing import Any, get_args

import msgspec
import numpy as np

from tacit.core import values
from tacit.core.errors import MessageError, MissingFieldError
from tacit.core.values import Array, Blob, BlobKind, Value, readonly

VERSION = 1
MAX_HEADER = 64 * 1024
DEFAULT_LIMIT = 1 << 30

_PREFIX = struct.Struct("<3sBI")
_ALIGNMENT = 8  # so that decoded arrays can be used in place
_BUFFERS = frozenset(("bytes", *get_args(BlobKind)))
_PADDING = tuple(b"\0" * n for n in range(_ALIGNMENT))
_encoder = msgspec.msgpack.Encoder(order="deterministic", enc_hook=dict)
_decoder = msgspec.msgpack.Decoder(list[list[Any]])


class Message(Mapping[str, Any]):
    """A frozen mapping of names to arrays, bytes, blobs and plain values."""

    __slots__ = ("_fields",)
    _fields: dict[str, Value]

    def __init__(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        if isinstance(fields, Message) and not more:  # frozen already
            self._fields = fields._fields
            return
        source = {**fields, **more} if fields else more
        self._fields = {name: values.freeze(value, name) for name, value in source.items()}

    @classmethod
    def _trusted(cls, fields: dict[str, Value]) -> "Message":
        message = cls.__new__(cls)
        message._fields = fields
        return message

    def __getitem__(self, name: str) -> Any:
        try:
            return self._fields[name]
        except KeyError:
            raise MissingFieldError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    # The inherited forms go through __getitem__ for every name; these are what a step spends time on.
    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def get(self, name: str, default: Any = None) -> Any:
        return self._fields.get(name, default)

    def items(self) -> ItemsView[str, Any]:
        return self._fields.items()

    def __or__(self, new: Mapping[str, Any]) -> "Message":
        """Join with further fields; what is frozen already is not looked at again."""
        more = new if isinstance(new, Message) else Message(new)
        return Message._trusted({**self._fields, **more._fields})

    def without(self, name: str) -> "Message":
        """Return the same message without one field."""
        return Message._trusted({key: value for key, value in self._fields.items() if key != name})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash(self.encode())

    def __repr__(self) -> str:
        return f"Message({', '.join(f'{name}={_shape(self[name])}' for name in sorted(self))})"

    def digest(self) -> str:
        """Return the SHA-256 of the encoded message, in hexadecimal."""
        return hashlib.sha256(self.encode()).hexdigest()

    def encode(self) -> bytes:
        """Encode: the same bytes for equal messages, on every machine."""
        entries: list[list[Any]] = []
        buffers: list[Any] = []
        for name in sorted(self._fields):
            value = self._fields[name]
            if isinstance(value, np.ndarray):
                entries.append([name, "array", values.CODES[value.dtype], value.shape])
                buffers.append(value.reshape(-1).view(np.uint8).data if value.size else b"")
            elif isinstance(value, bytes):
                entries.append([name, "bytes", len(value)])
                buffers.append(value)
            elif isinstance(value, Blob):
                entries.append([name, value.kind, len(value.data)])
                buffers.append(value.data)
            else:
                entries.append([name, value])
        try:
            header = _encoder.encode(entries)
        except (OverflowError, RecursionError, TypeError, ValueError) as error:
            raise MessageError(f"a plain value cannot be encoded: {error}") from None
        if len(header) > MAX_HEADER:
            raise MessageError(
                f"the message's header takes {len(header):,} bytes, the limit is {MAX_HEADER:,}: "
                "send long lists as arrays or bytes"
            )
        pieces: list[Any] = [_PREFIX.pack(b"TCT", VERSION, len(header)), header]
        pieces.append(_PADDING[-(len(header) + _PREFIX.size) % _ALIGNMENT])
        for buffer in buffers:
            pieces.append(buffer)
            pieces.append(_PADDING[-len(buffer) % _ALIGNMENT])
        return b"".join(pieces)

    @classmethod
    def decode(cls, raw: bytes, limit: int = DEFAULT_LIMIT) -> "Message":
        """Decode bytes that are exactly what :meth:`encode` would give; arrays are read-only views."""
        size = len(raw)
        if size > limit:
            raise MessageError(f"message of {size:,} bytes, the limit is {limit:,}: send less, or raise it")
        entries, position = _read_header(raw, size)
        position = _skip_padding(raw, position, size)
        fields: dict[str, Value] = {}
        previous = ""
        for entry in entries:
            previous = name = _name(entry, previous)
            if len(entry) == 2:
                fields[name] = values.freeze_plain(entry[1], name)
                continue
            kind = entry[1]
            length, shape, dtype = _buffer_of(entry, name, kind)
            if length > size - position:
                missing = length - (size - position)
                raise MessageError(
                    f"message is truncated: {missing:,} of {length:,} bytes missing in field '{name}'"
                )
            if dtype is not None:
                fields[name] = _array(raw, position, length, shape, dtype, name)
            else:
                data = raw[position : position + length]
                fields[name] = data if kind == "bytes" else Blob(kind, data)
            position = _skip_padding(raw, position + length, size)
        if position != size:
            raise MessageError(f"{size - position:,} bytes too many after the last field")
        return cls._trusted(fields)


def _read_header(raw: bytes, size: int) -> tuple[list[list[Any]], int]:
    if size < _PREFIX.size:
        raise MessageError(f"message of {size} bytes: even an empty one has {_PREFIX.size + 1}")
    magic, version, length = _PREFIX.unpack_from(raw)
    if magic != b"TCT":
        raise MessageError("not a Tacit message: the first bytes are wrong")
    if version != VERSION:
        raise MessageError(
            f"message of format version {version}, this Tacit reads {VERSION}: install the same release"
        )
    if length > MAX_HEADER:
        raise MessageError(f"header of {length:,} bytes announced, the limit is {MAX_HEADER:,}")
    position = _PREFIX.size + length
    if position > size:
        raise MessageError(f"message is truncated: header of {length:,} bytes, {size - 8:,} there")
    header = raw[_PREFIX.size : position]
    try:
        entries = _decoder.decode(header)
        canonical = _encoder.encode(entries) == header
    except (msgspec.MsgspecError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise MessageError(f"header cannot be read: {error}") from None
    if not canonical:
        raise MessageError("header is not in its one canonical form")
    return entries, position


def _name(entry: list[Any], previous: str) -> str:
    if len(entry) < 2 or not isinstance(entry[0], str):
        raise MessageError("header entry without a name")
    name: str = entry[0]
    if not name or name <= previous:
        raise MessageError(f"field '{name}' is repeated, unnamed or out of order")
    return name


def _buffer_of(entry: list[Any], name: str, kind: Any) -> tuple[int, tuple[int, ...], np.dtype[Any] | None]:
    if kind == "array" and len(entry) == 4:
        dtype = values.DTYPES.get(entry[2]) if isinstance(entry[2], str) else None
        shape = entry[3]
        if dtype is None:
            raise MessageError(f"field '{name}': dtype {entry[2]!r} is not one that travels")
        if not _is_shape(shape, dtype.itemsize):
            raise MessageError(f"field '{name}': impossible shape {str(shape)[:80]}")
        return prod(shape) * dtype.itemsize, tuple(shape), dtype
    if isinstance(kind, str) and kind in _BUFFERS and len(entry) == 3 and _is_length(entry[2]):
        return entry[2], (), None
    raise MessageError(f"field '{name}': no such kind of field")


def _is_shape(shape: Any, itemsize: int) -> bool:
    if not isinstance(shape, list) or len(shape) > values.MAX_DIMENSIONS or not all(map(_is_length, shape)):
        return False
    # Even an empty array must have strides that fit.
    return bool(prod(max(length, 1) for length in shape) * itemsize < 1 << 63)


def _is_length(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 40


def _array(
    raw: bytes, position: int, length: int, shape: tuple[int, ...], dtype: np.dtype[Any], name: str
) -> Array:
    if not length:
        return readonly(np.empty(shape, dtype))
    if dtype.kind == "b" and np.frombuffer(raw, np.uint8, length, position).max() > 1:
        raise MessageError(f"field '{name}': a truth value other than 0 and 1")
    return readonly(np.frombuffer(raw, dtype, length // dtype.itemsize, position).reshape(shape))


def _skip_padding(raw: bytes, position: int, size: int) -> int:
    padding = -position % _ALIGNMENT
    if padding and raw[position : position + padding] != _PADDING[padding]:
        raise MessageError("padding between fields is missing or not zero")
    return min(position + padding, size)


def _shape(value: Value) -> str:
    """Describe a value without showing it: data must not leak through a log."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return repr(value) if isinstance(value, Blob) else type(value).__name__
