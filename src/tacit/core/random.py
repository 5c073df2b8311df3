"""Randomness from a key and a label, which can be repeated: public, or a party's own."""

import hashlib
from collections.abc import Iterable

import numpy as np


def generator(key: bytes, *label: object) -> np.random.Generator:
    """Make a generator from a key and a label; another label gives an independent stream."""
    return np.random.default_rng(int.from_bytes(derive(key, label), "little"))


def derive(key: bytes, label: Iterable[object]) -> bytes:
    """Derive 32 bytes from a key and a label, each part length-prefixed so that none run together."""
    digest = hashlib.blake2b(key=key[:64], digest_size=32, person=b"tacit-random")
    for part in label:
        # The label 1 is kept apart from the label "1"; whole numbers are alike whoever made them.
        raw = (b"#" if isinstance(part, int | np.integer) else b"=") + str(part).encode()
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.digest()
