"""Sums and differences of totals: which few contributors could be told from the rest.

With a column for each group of pieces that were always in the same totals, and a row for each total, sums and
differences of totals are the row space of a small matrix of zeros and ones. It is searched for combinations
that leave pieces of one or two owners alone, or of more (but fewer than the least number) where there are not
too many sets of them to try. With P the projection onto the row space, there are as many such combinations
for some groups as P, cut to them, has eigenvalues of 1.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import comb

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Piece = tuple[str, int | str]  # its owner, and which of the owner's pieces it is
WHOLE = 1 - 1e-9  # an eigenvalue that is 1 but for rounding
MOST_SETS = 5_000  # of three owners or more


def left_alone(totals: Sequence[AbstractSet[Piece]], least: int) -> frozenset[str]:
    """Return fewer owners than ``least`` of whom the last total shows more than those before did; or none."""
    groups: dict[tuple[bool, ...], set[str]] = defaultdict(set)
    for piece in set().union(*totals):
        groups[tuple(piece in total for total in totals)].add(piece[0])
    matrix = np.array(list(groups), dtype=np.float64).T  # total × group
    owners = [frozenset(clients) for clients in groups.values()]
    small = [place for place, clients in enumerate(owners) if len(clients) < least]
    if least < 2 or not small:
        return frozenset()
    owners = [owners[place] for place in small]
    after, before = (_basis(part)[:, small] for part in (matrix, matrix[:-1]))
    # No eigenvalue is larger than the sum of all: most sets need no closer look.
    sizes = (after * after).sum(axis=0)
    held: dict[str, list[int]] = defaultdict(list)
    for place, clients in enumerate(owners):
        for client in clients:
            held[client].append(place)
    for clients in _sets(owners, sizes, least - 1):
        inside = sorted({place for name in clients for place in held[name] if owners[place] <= clients})
        if sizes[inside].sum() >= WHOLE and _alone(after, inside) > _alone(before, inside):
            return clients
    return frozenset()


def _basis(matrix: Matrix) -> Matrix:
    _, values, rows = np.linalg.svd(matrix, full_matrices=False)
    found: Matrix = rows[values > values.max(initial=0.0) * 1e-10]
    return found


def _alone(basis: Matrix, inside: Sequence[int]) -> int:
    """How many independent combinations leave nothing but these groups."""
    found = np.linalg.svd(basis[:, inside], compute_uv=False)
    return int(np.count_nonzero(found**2 >= WHOLE))


def _sets(owners: Sequence[frozenset[str]], sizes: Matrix, most: int) -> Iterator[frozenset[str]]:
    """Yield sets of clients of whom groups could be left alone: single ones, pairs, more if not too many."""
    weight: dict[str, float] = defaultdict(float)
    for clients, size in zip(owners, sizes, strict=True):
        for client in clients:
            weight[client] += float(size)
    heavy = sorted(weight, key=lambda client: (-weight[client], client))
    for size in range(1, most + 1):
        if size > 2 and comb(len(heavy), size) > MOST_SETS:
            return
        yield from _heavy_sets(heavy, weight, size, WHOLE)


def _heavy_sets(
    heavy: Sequence[str], weight: Mapping[str, float], size: int, least: float
) -> Iterator[frozenset[str]]:
    """Yield sets of this size that together weigh ``least`` or more; clients come by falling weight."""
    for place, client in enumerate(heavy):
        if size * weight[client] < least:
            return
        if size == 1:
            yield frozenset((client,))
            continue
        for others in _heavy_sets(heavy[place + 1 :], weight, size - 1, least - weight[client]):
            yield others | {client}
