"""What opened totals tell together: whoever sees several can add and subtract them.

An opened total is a set of contributions, each some rows of a client. Cut at the ends of all of them, rows
fall into pieces that always came and went together, and pieces that were in the same totals can never be
told apart. With a column for each such group of pieces and a row for each opened total, sums and differences
of totals are the row space of a small matrix of zeros and ones, searched for what shows too few clients:

* a difference of two totals, whatever the least number of clients is;
* of any number of totals, a combination that leaves rows of one or two clients alone, or of more (but fewer
  than the least number) where there are not too many sets of them to try. With P the projection onto the row
  space, there are as many such combinations for some groups as P, cut to them, has eigenvalues of 1.

How many rows a client holds is not known here, so "all rows" may be the same as parts that were named, and
rows may have changed before they came again. So both views are tried: that what may be equal is equal, and
that no two contributions are. Only a total that has the same contributions as one before may open again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
WHOLE = 1 - 1e-9  # an eigenvalue that is 1 but for rounding
MOST_SETS = 5_000  # of three clients or more


class Line(NamedTuple):
    """A contribution in a total: its name, and rows of a client; without an end, all of them."""

    id: str
    client: str
    first: int | None
    last: int | None


Lines = frozenset[Line]
Piece = tuple[str, int | str]  # client, and the first row or a name


def differing(one: Lines, other: Lines) -> int:
    """Count the clients by which two totals differ for certain.

    >>> first = frozenset([Line("a:all", "a", None, None), Line("b:all", "b", None, None)])
    >>> again = frozenset([Line("a:all", "a", None, None), Line("anew", "b", 0, 7)])
    >>> differing(first, again), differing(first, frozenset())
    (0, 2)
    """
    return _clients_between(*_pieces([one, other]))


def _clients_between(one: set[Piece], other: set[Piece]) -> int:
    return len({client for client, _ in one ^ other})


def nearest(opened: Sequence[Lines], now: Lines) -> int | None:
    """Count the clients by which a total differs from the nearest opened one, the empty one included.

    None if it is one that was opened.
    """
    if now in opened or not now:
        return None
    *before, last = _pieces([frozenset(), *opened, now])
    return min(_clients_between(one, last) for one in before)


def shown(opened: Sequence[Lines], now: Lines, least: int) -> list[str]:
    """Return clients, fewer than ``least``, that sums and differences show with this total and not before.

    >>> whole = frozenset(Line(c, c, None, None) for c in "abcdef")
    >>> three = frozenset(line for line in whole if line.client in "abc")
    >>> seven = frozenset([*whole - three, Line("g", "g", None, None)])
    >>> shown([three, whole], seven, 3)
    ['g']
    """
    totals = [*opened, now]
    by_name: list[set[Piece]] = [{(line.client, line.id) for line in total} for total in totals]
    for pieces in (_pieces(totals), by_name):
        if found := _left_alone(pieces, least):
            return sorted(found)
    return []


def _left_alone(totals: Sequence[set[Piece]], least: int) -> frozenset[str]:
    """Find fewer than ``least`` clients of whom the last total leaves more alone than those before did."""
    groups = list(_groups(totals))
    matrix = np.array([members for members, _ in groups], dtype=np.float64).T  # total × group
    owners = [frozenset(clients) for _, clients in groups]
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
    """Return orthonormal rows that span the same space."""
    _, values, rows = np.linalg.svd(matrix, full_matrices=False)
    found: Matrix = rows[values > values.max(initial=0.0) * 1e-10]
    return found


def _alone(basis: Matrix, inside: Sequence[int]) -> int:
    """Count the independent combinations that leave nothing but these groups."""
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
        yield from _heavy_sets(heavy, weight, size)


def _heavy_sets(heavy: Sequence[str], weight: Mapping[str, float], size: int) -> Iterator[frozenset[str]]:
    """Yield sets of this size whose groups could have an eigenvalue of 1; clients come by falling weight."""
    if size > 2:
        yield from (frozenset(clients) for clients in combinations(heavy, size))
        return
    for place, client in enumerate(heavy):
        if size * weight[client] < WHOLE:
            return
        for other in heavy[place + 1 :] if size == 2 else (client,):
            if size == 2 and weight[client] + weight[other] < WHOLE:
                break
            yield frozenset((client, other))


def _pieces(totals: Sequence[Lines]) -> list[set[Piece]]:
    """Return the pieces of rows in each total, cut at the ends of all contributions."""
    ends: dict[str, set[int]] = defaultdict(set)
    for _, client, first, last in set().union(*totals):
        ends[client].update((0,) if first is None or last is None else (first, last))
    cuts = {client: sorted(found) for client, found in ends.items()}
    # What lies behind the last named row may be nothing; where no row is named, it is all there is.
    return [set(_cut(total, cuts)) for total in totals]


def _cut(total: Lines, cuts: dict[str, list[int]]) -> Iterator[Piece]:
    for line in total:
        own = cuts[line.client]
        last = own[-1] if line.last is None else line.last
        yield from ((line.client, start) for start in own if (line.first or 0) <= start < last)
        if own == [0]:
            yield line.client, 0


def _groups(totals: Sequence[set[Piece]]) -> Iterator[tuple[tuple[bool, ...], set[str]]]:
    """Group pieces that were in the same totals: yield in which, and of which clients."""
    found: dict[tuple[bool, ...], set[str]] = defaultdict(set)
    for piece in set().union(*totals):
        found[tuple(piece in total for total in totals)].add(piece[0])
    yield from found.items()
