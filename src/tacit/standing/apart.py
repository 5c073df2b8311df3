"""What opened totals tell together: whoever sees several can add and subtract them.

An opened total is a set of contributions, each some rows of a client. Cut at the ends of all of them, rows
fall into pieces that always came and went together, and pieces that were in the same totals can never be
told apart. With a column for each such group of pieces and a row for each opened total, sums and differences
of totals are the row space of a small matrix of zeros and ones, searched for what shows too few clients:

* a difference of two totals, whatever the least number of clients is;
* of any number of totals, a combination in which one or two groups are left. With P the projection onto
  the row space, some combination leaves only groups of a set S if and only if the largest eigenvalue of P,
  cut to S, is 1.

How many rows a client holds is not known here, so "all rows" may be the same as parts that were named: what
*may* be equal counts as no difference, and only what is the same for certain may open again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
WHOLE = 1 - 1e-9  # an eigenvalue that is 1 but for rounding
BLOCK = 512  # groups that are compared with all others at a time


class Line(NamedTuple):
    """A contribution in a total: its name, and rows of a client; without an end, all of them."""

    id: str
    client: str
    first: int | None
    last: int | None


Lines = frozenset[Line]
Piece = tuple[str, int]  # client, first row


def differing(one: Lines, other: Lines) -> int:
    """By how many clients two totals differ for certain.

    >>> first = frozenset([Line("a:all", "a", None, None), Line("b:all", "b", None, None)])
    >>> again = frozenset([Line("a:all", "a", None, None), Line("anew", "b", 0, 7)])
    >>> differing(first, again), differing(first, frozenset())
    (0, 2)
    """
    return _clients_between(*_pieces([one, other]))


def _clients_between(one: set[Piece], other: set[Piece]) -> int:
    return len({client for client, _ in one ^ other})


def nearest(opened: Sequence[Lines], now: Lines) -> int | None:
    """By how many clients a total differs from the nearest that was opened, the empty one included.

    None if it is one that was opened.
    """
    if now in opened or not now:
        return None
    *before, last = _pieces([frozenset(), *opened, now])
    return min(_clients_between(one, last) for one in before)


def shown(opened: Sequence[Lines], now: Lines, least: int) -> list[str]:
    """Clients, fewer than the least number, that sums and differences show with this total and not before.

    >>> whole = frozenset(Line(c, c, None, None) for c in "abcdef")
    >>> three = frozenset(line for line in whole if line.client in "abc")
    >>> seven = frozenset([*whole - three, Line("g", "g", None, None)])
    >>> shown([three, whole], seven, 3)
    ['g']
    """
    pieces = _pieces([*opened, now])
    after = _left_alone(pieces, least) - _left_alone(pieces[:-1], least)
    return min(sorted(map(sorted, after)), key=len, default=[])


def _left_alone(totals: Sequence[set[Piece]], least: int) -> set[frozenset[str]]:
    """Fewer clients than the least number, of one or two groups, that some combination leaves alone."""
    groups = list(_groups(totals))
    if least < 2 or not groups:
        return set()
    clients = [group for _, group in groups]
    matrix = np.array([members for members, _ in groups], dtype=np.float64).T  # total × group
    small = np.array([place for place, group in enumerate(clients) if len(group) < least], dtype=np.int64)
    _, values, rows = np.linalg.svd(matrix, full_matrices=False)
    basis = rows[values > values[0] * 1e-10][:, small]
    own = (basis * basis).sum(axis=0)
    found = {frozenset(clients[small[place]]) for place in np.flatnonzero(own >= WHOLE)}
    single = own >= WHOLE
    for start in range(0, len(small), BLOCK):
        part = slice(start, start + BLOCK)
        cross = basis[:, part].T @ basis
        one, other = own[part, None], own[None]
        largest = (one + other + np.sqrt((one - other) ** 2 + 4 * cross**2)) / 2
        for row, column in zip(*np.nonzero(largest >= WHOLE), strict=True):
            pair = clients[small[start + row]] | clients[small[column]]
            if start + row != column and not (single[start + row] or single[column]) and len(pair) < least:
                found.add(frozenset(pair))
    return found


def _pieces(totals: Sequence[Lines]) -> list[set[Piece]]:
    """Pieces of rows in each total, cut at the ends of all contributions."""
    ends: dict[str, set[int]] = defaultdict(set)
    for line in set().union(*totals):
        ends[line.client].update(_ends(line))
    cuts = {client: sorted(found) for client, found in ends.items()}
    # What lies behind the last named row may be nothing; where no row is named, it is all there is.
    return [set(_cut(total, cuts)) for total in totals]


def _ends(line: Line) -> Iterable[int]:
    return (0,) if line.first is None or line.last is None else (line.first, line.last)


def _cut(total: Lines, cuts: dict[str, list[int]]) -> Iterator[Piece]:
    for line in total:
        own = cuts[line.client]
        last = own[-1] if line.last is None else line.last
        yield from ((line.client, start) for start in own if (line.first or 0) <= start < last)
        if own == [0]:
            yield line.client, 0


def _groups(totals: Sequence[set[Piece]]) -> Iterator[tuple[tuple[bool, ...], set[str]]]:
    """Pieces that were in the same totals: in which, and of which clients."""
    found: dict[tuple[bool, ...], set[str]] = defaultdict(set)
    for piece in set().union(*totals):
        found[tuple(piece in total for total in totals)].add(piece[0])
    yield from found.items()
