"""Changed messages: fields dropped, swapped, of other types and sizes; bytes flipped, cut and moved."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan
from typing import Any

import numpy as np

from tacit.core.errors import MessageError
from tacit.core.message import Message
from tacit.core.values import Blob

ODD: list[Any] = [
    nan, inf, -inf, -1, 0, 1, -(2**63), 2**31, 2**63 - 1, 2**64 - 1, 0.5, 1e308, -0.0, True, False, None,
    "", "x", "client-1", "coordinator", "\n", "é" * 50, "x" * 2000, b"", b"\xff\xfe", b"a\nb", bytes(32),
    (), (1,), (nan, nan), ((((1,),),),), ("a", "b"), {}, {"a": {"b": (1,)}},
    np.zeros(0), np.zeros((0, 5), np.uint8), np.array(nan), np.full(3, inf), np.arange(4, dtype=np.int64),
    np.zeros((1,) * 8), np.zeros((3, 96), np.uint8), np.array([True]), np.full(2, -(2**63)),
    Blob("public", b""), Blob("sealed", bytes(40)), Blob("cipher", b"TCT"), Blob("share", bytes(7)),
    Blob("masked", bytes(64)),
]  # fmt: skip
STRAYS = ("$failure", "$reply", "$tag", "ticket/stray", "total/stray", "shared/stray", "schema", "rows")


class Mutator:
    """Makes changed messages from genuine ones; all that it was ever shown may be swapped into another."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._seen: dict[str, list[Any]] = {}
        self._raws: list[bytes] = []

    def show(self, *messages: Message) -> None:
        """Remember genuine messages."""
        for message in messages:
            self._raws = [*self._raws[-40:], message.encode()]
            for name, value in message.items():
                known = self._seen.setdefault(name, [])
                if len(known) < 12:
                    known.append(value)

    def changed(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a message with one to three changes."""
        fields = dict(message)
        for _ in range(1 + int(self.rng.integers(3)) * int(self.rng.integers(2))):
            self._change(fields)
        return fields

    def _change(self, fields: dict[str, Any]) -> None:
        names = sorted(fields)
        name = names[self._below(len(names))] if names else "stray"
        match self._below(8):
            case 0:
                fields.pop(name, None)
            case 1 | 2:
                fields[name] = ODD[self._below(len(ODD))]
            case 3 | 4:
                fields[name] = self._near(fields.get(name))
            case 5:
                known = self._seen.get(name) or [None]
                fields[name] = known[self._below(len(known))]
            case 6:
                other = sorted(self._seen)[self._below(len(self._seen))] if self._seen else "x"
                fields[name] = (self._seen.get(other) or [0])[0]
            case _:
                fields[STRAYS[self._below(len(STRAYS))]] = ODD[self._below(len(ODD))]

    def _near(self, value: Any) -> Any:
        """Return something of the same kind that is a little different."""
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return value + (-1, 1, 2, 2**40, -value * 2)[self._below(5)]
        if isinstance(value, float):
            return (-value, value + 1, nan)[self._below(3)]
        if isinstance(value, str):
            return (value[:-1], value + "x", value.upper(), value[::-1])[self._below(4)]
        if isinstance(value, bytes):
            return self.damaged(value)
        if isinstance(value, Blob):
            return Blob(value.kind, self.damaged(value.data))
        if isinstance(value, np.ndarray):
            return self._near_array(value)
        if isinstance(value, Mapping):
            nested = dict(value)
            self._change(nested)
            return nested
        if isinstance(value, tuple):
            return (value[1:], value * 2, (value,))[self._below(3)]
        return 0

    def _near_array(self, array: Any) -> Any:
        if array.dtype.kind not in "iuf":
            return array[:-1] if array.ndim else array[None]
        match self._below(6):
            case 0:
                return array.astype(np.float64)
            case 1:
                return array.reshape(-1)
            case 2:
                return array[:-1] if array.ndim and len(array) else array[None]
            case 3:
                return np.concatenate([array, array]) if array.ndim else array[None]
            case 4:
                return np.zeros(array.shape, np.int8)
            case _:
                changed = np.array(array)
                if changed.size:
                    changed.flat[self._below(changed.size)] = self._below(100)
                return changed

    def damaged(self, raw: bytes) -> bytes:
        """Return bytes that were flipped, cut, lengthened, overwritten or moved."""
        if not raw:
            return b"\0"
        at = self._below(len(raw))
        match self._below(7):
            case 0 | 1 | 2:
                return raw[:at] + bytes([raw[at] ^ (1 << self._below(8))]) + raw[at + 1 :]
            case 3:
                return raw[:at]
            case 4:
                return raw + self.rng.bytes(1 + self._below(16))
            case 5:
                return raw[:at] + bytes(min(8, len(raw) - at)) + raw[at + 8 :]
            case _:
                other = self._raws[self._below(len(self._raws))] if self._raws else raw[::-1]
                return raw[:at] + other[at:]

    def _below(self, end: int) -> int:
        return int(self.rng.integers(end))


def encoded(fields: Mapping[str, Any]) -> Message | None:
    """Return fields as a message, if they fit one."""
    try:
        message = Message(fields)
        return Message.decode(message.encode())
    except (MessageError, OverflowError):
        return None
