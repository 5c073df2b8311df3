"""The draw of neighbours in masked sums: who sits where on the circle, and how a client checks it.

Each client's place on the circle is a hash of the batch's root and of a number to which it
committed at enrolment or in the batch before. The root covers all commitments: whoever changes one moves
everybody, and a client that is left out moves nobody else, so that there is nothing to grind for. A client
sees its neighbours' numbers, each with a proof of O(log n) hashes that it was committed to, and checks that
the arc to its furthest neighbour is no longer than chance and the agreed share of dropouts explain: a
coordinator that shows only its friends has to reach far. What remains: it chooses who is asked at all (no
fewer than min_clients), and may let chosen clients vanish once it knows the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import log

from tacit.protections.masked.wire import HASH, hashed

FALSE_ALARM_BITS = 20  # an honest draw looks suspicious to any of the clients at most once in 2^20


class Tree:
    """A hash tree over named commitments: one root for all, and a short proof for each.

    >>> tree = Tree({"ann": b"a", "bob": b"b", "eve": b"e"})
    >>> proof = tree.proof("eve")
    >>> proves(tree.root, 3, "eve", b"e", proof), proves(tree.root, 3, "eve", b"f", proof)
    (True, False)
    """

    def __init__(self, leaves: Mapping[str, bytes]) -> None:
        self._index = {name: index for index, name in enumerate(sorted(leaves))}
        level = [hashed(b"leaf", name.encode(), leaves[name]) for name in self._index]
        level += [bytes(HASH)] * ((1 << _depth(len(level))) - len(level))
        self._levels = [level]
        while len(level) > 1:
            level = [sha256(b"node" + level[i] + level[i + 1]).digest() for i in range(0, len(level), 2)]
            self._levels.append(level)
        self.root = hashed(b"root", len(leaves).to_bytes(8, "little"), level[0])

    def proof(self, name: str) -> bytes:
        """Position and siblings of a leaf, from the bottom up."""
        index = self._index[name]
        siblings = [level[(index >> height) ^ 1] for height, level in enumerate(self._levels[:-1])]
        return index.to_bytes(4, "little") + b"".join(siblings)


def proves(root: bytes, size: int, name: str, leaf: bytes, proof: bytes) -> bool:
    """Whether a named commitment belongs to the tree of that root and size."""
    if len(proof) != proof_bytes(size):
        return False
    index, node = int.from_bytes(proof[:4], "little"), hashed(b"leaf", name.encode(), leaf)
    for start in range(4, len(proof), HASH):
        sibling = proof[start : start + HASH]
        node = sha256(b"node" + (sibling + node if index & 1 else node + sibling)).digest()
        index >>= 1
    return index == 0 and hashed(b"root", size.to_bytes(8, "little"), node) == root


def proof_bytes(size: int) -> int:
    """Length of a proof in a tree of that size."""
    return 4 + HASH * _depth(size)


def _depth(size: int) -> int:
    return max(size - 1, 0).bit_length()


def place_of(root: bytes, number: bytes) -> int:
    """Place on the circle, a whole number below 2^64, of the client that committed to this number."""
    return int.from_bytes(hashed(b"place", root, number)[:8], "little")


def circle(places: Mapping[str, int], count: int) -> dict[str, tuple[str, ...]]:
    """Give each client itself and its neighbours, half of them on either side, in order of their names.

    >>> circle({"a": 5, "b": 1, "c": 3, "d": 9}, 2)["a"]
    ('a', 'c', 'd')
    """
    ring = sorted(places, key=lambda name: (places[name], name))
    size, half = len(ring), count // 2
    if count >= size - 1:
        everyone = tuple(sorted(ring))
        return dict.fromkeys(ring, everyone)
    return {
        name: tuple(sorted(ring[(index + step) % size] for step in range(-half, half + 1)))
        for index, name in enumerate(ring)
    }


def is_drawn(own: int, others: Sequence[int], clients: int, missing: float) -> bool:
    """Whether these may be the nearest on either side, of so many clients of whom a share is missing.

    If μ clients are expected in an arc, P[fewer than h] ≤ exp(-(μ - h - h ln(μ/h))) (Chernoff); an arc
    that holds h neighbours is too long if that is below 2^-20 for all clients together.
    """
    half = len(others) // 2
    ahead = sorted((other - own) % (1 << 64) for other in others)
    mean = float(half)
    while mean - half - half * log(mean / half) < FALSE_ALARM_BITS * log(2) + log(clients):
        mean += 1
    reach = mean / (clients * (1 - missing)) * 2.0**64
    return ahead[half - 1] <= reach and (1 << 64) - ahead[half] <= reach
