"""What travels in sums by secret sharing: words, names and what parties have signed, as bytes."""

from collections.abc import Iterable

import numpy as np

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
