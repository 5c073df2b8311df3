"""Pads on a total that one party adds and others open: they have a key, and the adder has not.

Who holds the key gives each vector x_u of a sum, beside all masks, some of the pads P_1 … P_d of that sum,

    x_u · 2^s + Σ_j a_uj P_j    modulo 2^w,

where pads and choices a_uj follow from the key and from all that tells one sum from another (its *place*).
The adder gets totals T = X · 2^s + Σ_j N_j P_j with N_j = Σ_u a_uj, and learns nothing of X:

**If one total of a place can be had**, then d = 1, every a_u = 1, and N is the number n of vectors. Write
n = 2^v m with m odd, and take s ≥ v. T is a multiple of 2^v, and T / 2^v = X · 2^(s-v) + m P modulo 2^(w-v).
As m is odd, m P is uniform modulo 2^(w-v) if P is: the low bits that a pad leaves alone hold nothing. n is at
most the number of clients c, so s = ⌊log2 c⌋ suffices, and s bits more travel.

**If up to q totals can be had**, over disjoint sets of vectors, then d = 64, s = 0, and the a_uj are secret
coins, 64 of them for each u and place. Modulo 2 the rows N of these totals are independent and uniform to
whoever does not have the key, so together they have rank q but with a probability below 2^(q-64). If they
have, N has q columns whose determinant is odd, thus invertible modulo 2^w, and N P is uniform: the totals
together say nothing of X_1 … X_q, nor of any combination of them. Sets may be chosen one after the other,
since nothing that was seen before tells of the coins.

Who opens a total knows whose vectors are in it, and so N. No pad may ever serve two places.
"""

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tacit.core.secret import Secret
from tacit.crypto.channel import bound
from tacit.crypto.linear_tag import DerivedKey, label_blocks
from tacit.crypto.masking import Words, expand

COINS = 64  # pads of a place of which several totals can be had
SECURITY_BITS = 40
MOST_TOTALS = COINS - SECURITY_BITS  # q: more of them might not be hidden

Counts = NDArray[np.uint64]

_WORDS = 1 << 15  # of pads that are expanded at a time


class PadKey(DerivedKey):
    """Makes the pads of every place from a key that the adder must not have."""

    def __init__(self, secret: Secret) -> None:
        super().__init__(secret, b"tacit pads")

    def choose(self, place: bytes, labels: bytes) -> Counts:
        """Return how often each pad is in a total over these labels, given by their digests."""
        coins = label_blocks(self.derive("coins", place), labels)[:, : COINS // 32].copy()
        tossed = np.unpackbits(coins.view(np.uint8), axis=1, bitorder="little")
        counts: Counts = tossed.sum(axis=0, dtype=np.uint64)
        return counts

    def add(self, vector: Words, place: bytes, counts: Counts) -> None:
        """Add pads to a vector, in place, each as often as ``counts`` says."""
        vector += self.combine(place, counts, len(vector), vector.dtype)

    def combine(self, place: bytes, counts: Counts, length: int, dtype: DTypeLike) -> Words:
        """Return the sum of pads for vectors of that length, each pad as often as ``counts`` says."""
        found, weights = np.empty(length, dtype), counts.astype(dtype)
        # All pads of a value stand side by side in one stream.
        for start in range(0, length, step := _WORDS // len(counts)):
            seed = Secret(self.derive("pads", bound(place, str(start))))
            part = found[start : start + step]
            np.matmul(expand(seed, part.size * len(counts), dtype).reshape(part.size, -1), weights, out=part)
        return found
