"""What opened totals tell together: whoever sees several can add and subtract them.

An opened total is a set of contributions, each some rows of a client; the moments by which the founders
settled the scale are one, too, of all their rows. Cut at the ends of all of them, rows fall into pieces that
always came and went together, and pieces that were in the same totals can never be told apart. What shows too
few clients is a difference of two totals, or a sum or difference of several that leaves rows of a few clients
alone, as far as :mod:`tacit.core.row_space` searches for them.

How many rows a client holds is not known here, so "all rows" may be the same as parts that were named, and
rows may have changed before they came again. So both views are tried: that what may be equal is equal, and
that no two contributions are. Only a total that has the same contributions as one before may open again.
Sites on other machines name pieces, by their numbers, in place of rows.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tacit.core.row_space import Piece, left_alone


class Contribution(NamedTuple):
    """Rows of a client, None for all that it holds, under a name; and whether they are in the total."""

    id: str
    client: str
    first: int | None
    last: int | None
    present: bool = True

    @property
    def rows(self) -> tuple[int, int] | None:
        """Rows of the client that are in it."""
        return None if self.first is None or self.last is None else (self.first, self.last)


Lines = frozenset[Contribution]  # in a total


def all_rows(client: str) -> Contribution:
    """Return the contribution of all rows that a client holds."""
    return Contribution(f"{client}:all", client, None, None)


def first_piece(client: str) -> Contribution:
    """Return the contribution of the rows with which a site enrolled; the next piece are rows 1 to 2."""
    return Contribution(f"{client}:1", client, 0, 1)


def count_differing(one: Lines, other: Lines) -> int:
    """Count the clients by which two totals differ for certain."""
    return _clients_between(*_pieces([one, other]))


def _clients_between(one: set[Piece], other: set[Piece]) -> int:
    return len({client for client, _ in one ^ other})


def nearest(opened: Sequence[Lines], now: Lines) -> int | None:
    """Count the clients by which a total differs from the nearest opened one; None if it is one of them."""
    if now in opened or not now:
        return None
    *before, last = _pieces([frozenset(), *opened, now])
    return min(_clients_between(one, last) for one in before)


def find_exposed(opened: Sequence[Lines], now: Lines, least: int) -> list[str]:
    """Return clients, fewer than ``least``, that sums and differences show with this total and not before."""
    totals = [*opened, now]
    by_name: list[set[Piece]] = [{(line.client, line.id) for line in total} for total in totals]
    for pieces in (_pieces(totals), by_name):
        if found := left_alone(pieces, least):
            return sorted(found)
    return []


def _pieces(totals: Sequence[Lines]) -> list[set[Piece]]:
    ends: dict[str, set[int]] = defaultdict(set)
    for line in set[Contribution]().union(*totals):
        ends[line.client].update(line.rows or (0,))
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
