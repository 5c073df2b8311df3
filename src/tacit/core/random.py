"""Randomness of three kinds, and never a shared stream.

*Public*: from the manifest's seed and a label; everybody can repeat it. *A party's own*: from the
site's secret and a label, so that the coordinator cannot predict which rows it drew. *Secret*: from
the operating system, only in ``crypto``.
"""

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
