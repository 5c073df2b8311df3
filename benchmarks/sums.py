"""Protected sums: the primitives that a client or the coordinator spends its time on."""

from __future__ import annotations

import numpy as np

from tacit.bench import Row, cpu
from tacit.core.secret import Secret
from tacit.crypto.masking import add_mask, expand

VALUES = 100_000  # of an update, as in the comparison with SecAgg+
ROUNDS = 20  # masks per measurement, so that the clock's resolution does not matter


def mask() -> Row:
    """Bytes of mask that are expanded from a seed and added to a vector, per second of one core."""
    vector, seed = np.zeros(VALUES, np.uint32), Secret(bytes(32))
    total = ROUNDS * vector.nbytes / 1e9

    def masked() -> None:
        for _ in range(ROUNDS):
            add_mask(vector, seed)

    def expanded() -> None:
        for _ in range(ROUNDS):
            expand(seed, VALUES, np.uint32)

    both, alone = cpu(masked, expanded, repeats=15)
    note = f"at least; AES-256-CTR expanded and added, {VALUES:,} uint32; expanded only {total / alone:.1f}"
    return Row("mask", total / both, "GB/s", target=2.0, at_least=True, note=note)


def rows() -> list[Row]:
    return [mask()]
