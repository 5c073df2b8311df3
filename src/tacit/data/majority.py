"""Whole numbers of rows for every client and class when some cells and both margins are fixed.

Used by the partitions with majority classes. The free cells are fitted by iterative proportional
fitting (Deming & Stephan 1940) and rounded so that every client keeps its size and every class its rows.
"""

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError

Counts = NDArray[np.int64]
Shares = NDArray[np.float64]


def majority_counts(sizes: Counts, totals: Counts, share: float, each: int) -> Counts:
    """Return the rows of every class at every client, the first clients having majority classes.

    ``sizes`` are the rows of every client, ``totals`` those of every class. The majority classes of a skewed
    client i are i·each to i·each + each − 1; they make up ``share`` of its rows, if they have rows enough.

    >>> majority_counts(np.full(3, 8), np.full(2, 12), share=0.75, each=1).tolist()
    [[6, 2], [2, 6], [4, 4]]
    """
    clients, classes = len(sizes), len(totals)
    skewed = -(-classes // each)
    if clients < skewed:
        raise ConfigError(
            f"{clients} clients cannot hold {classes} classes as majorities of {each}: give at least {skewed}"
        )
    own = np.zeros((clients, classes), dtype=bool)
    own[np.arange(classes) // each, np.arange(classes)] = True
    fixed = np.zeros((clients, classes), dtype=np.int64)
    for client in range(skewed):
        mine = np.flatnonzero(own[client])
        # Rounded up, so that the share is reached; the small term forgives 0.3 * 10 = 3.0000000000000004.
        wanted = int(np.ceil(share * sizes[client] - 1e-9))
        fixed[client, mine] = np.minimum(even(wanted, len(mine)), totals[mine])
        for group in mine:  # what one of its classes lacks, the other gives
            lacking = wanted - fixed[client].sum()
            fixed[client, group] += min(lacking, totals[group] - fixed[client, group])
    rows, columns = sizes - fixed.sum(axis=1), totals - fixed.sum(axis=0)
    fitted = _fitted(sizes, totals, own, rows, columns, skewed)
    return fixed + _rounded(fitted, own, rows, columns)


def even(total: int, parts: int) -> Counts:
    """Cut a number into parts that differ by at most one."""
    return np.full(parts, total // parts, dtype=np.int64) + (np.arange(parts) < total % parts)


def _fitted(
    sizes: Counts, totals: Counts, own: NDArray[np.bool_], rows: Counts, columns: Counts, skewed: int
) -> Shares:
    """Fit the free cells: even over the other classes for skewed clients, proportional for the rest."""
    guess = np.where(own, 0.0, rows[:, None].astype(float))
    balanced = np.outer(sizes[skewed:], totals / totals.sum())
    left = columns - balanced.sum(axis=0)
    if (left >= 0).all():
        # Clients without a majority hold exactly the federation's proportions, if the others can then
        # share out what is left.
        inner = _proportional(guess[:skewed], rows[:skewed].astype(float), left)
        if np.abs(inner.sum(axis=1) - rows[:skewed]).max() < 0.5:
            return np.concatenate([inner, balanced])
    cells = np.concatenate([guess[:skewed], balanced])
    return _proportional(cells, rows.astype(float), columns.astype(float))


def _proportional(cells: Shares, rows: Shares, columns: Shares, rounds: int = 200) -> Shares:
    for _ in range(rounds):
        cells = cells * _ratio(rows, cells.sum(axis=1))[:, None]
        found = cells.sum(axis=0)
        cells = cells * _ratio(columns, found)
        if np.abs(found - columns).max() < 1e-6:
            break
    return np.asarray(cells * np.minimum(_ratio(rows, cells.sum(axis=1)), 1.0)[:, None])


def _ratio(wanted: Shares, found: Shares) -> Shares:
    return np.divide(wanted, found, out=np.zeros_like(found), where=found > 0)


def _rounded(fitted: Shares, own: NDArray[np.bool_], rows: Counts, columns: Counts) -> Counts:
    """Round to whole numbers with exactly these margins; own cells stay 0 but for what else has no place."""
    cells = np.floor(fitted + 1e-9).astype(np.int64)
    rows, columns = rows - cells.sum(axis=1), columns - cells.sum(axis=0)
    _spread(cells, np.where(own, -1.0, fitted - cells), rows, columns)
    for client in np.flatnonzero(rows):  # what is left goes to majority classes beyond their share
        for group in np.flatnonzero(columns):
            moved = min(rows[client], columns[group])
            cells[client, group] += moved
            rows[client] -= moved
            columns[group] -= moved
    return cells


def _spread(cells: Counts, fractions: Shares, rows: Counts, columns: Counts) -> None:
    """Hand out the rows that rounding down left over, largest fractions first; negative ones get none."""
    while True:
        before = columns.sum()
        for group in np.argsort(columns):
            open_clients = np.flatnonzero((rows > 0) & (fractions[:, group] >= 0))
            if not len(open_clients) or not columns[group]:
                continue
            # More than one each if there are fewer open clients than rows to hand out.
            amount = np.maximum(columns[group] // len(open_clients), 1)
            best = open_clients[np.argsort(-fractions[open_clients, group], kind="stable")][: columns[group]]
            given = np.minimum(rows[best], amount)
            cells[best, group] += given
            rows[best] -= given
            columns[group] -= given.sum()
        if columns.sum() == before:
            return
