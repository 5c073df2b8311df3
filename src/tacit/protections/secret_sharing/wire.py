"""What travels in sums by secret sharing: words, names and what parties have signed, as bytes."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.crypto.field import Ring

OVERHEAD = 12 + 16  # of a sealed blob: nonce and tag


def words_to_bytes(values: Ring) -> bytes:
    """Return words as bytes, the same on every machine."""
    return values.astype("<u8", copy=False).tobytes()


def words_from_bytes(raw: bytes) -> Ring:
    """Read what :func:`words_to_bytes` returned."""
    return np.frombuffer(raw, "<u8").astype(np.uint64)


def names_to_bytes(names: Iterable[str]) -> bytes:
    """Return names as bytes: thousands of them fit no message's header."""
    return "\n".join(names).encode()


def names_from_bytes(raw: bytes) -> list[str]:
    """Read what :func:`names_to_bytes` returned."""
    return raw.decode().split("\n") if raw else []


def stack_rows(signed: Mapping[str, bytes], names: Sequence[str]) -> NDArray[np.uint8]:
    """Return what these parties have signed, one a row."""
    raw = b"".join(signed[name] for name in names)
    return np.frombuffer(raw, np.uint8).reshape(len(names), len(raw) // max(len(names), 1))
