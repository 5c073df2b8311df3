"""Rows of a client with few of them, from the factor that FedHEONN's paper sends in the clear.

A factor U S of (F X)ᵀ tells F²XᵀX, that is, all inner products of the columns of X, of which the first is all
ones. So it tells X up to a rotation that leaves the vector of ones where it is::

    1 row     no freedom is left: the row itself
    2 rows    a reflection, which swaps the two: both rows
    3 to 5    a rotation in 1 to 6 dimensions; features that are whole numbers leave finitely many
              columns for each feature, and their inner products single out one matrix

Everything here is a function of what the coordinator receives and of what the federation has agreed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, DataError
from tacit.core.message import Message

Matrix = NDArray[np.float64]
Received = tuple[str, str, str, bytes]  # receiver, sender, step, what was received: see Coordinator
MOST_ROWS = 5  # whole-number columns of more rows are too many to list
MOST_COLUMNS = 1 << 22
CLOSE = 1e-6  # to a whole number, in units of the largest inner product


def seen_fields(heard: Iterable[Received], receiver: str, name: str) -> dict[str, Matrix]:
    """What a party received under a name, by sender: for instance ``clear/factor`` at the coordinator."""
    found = {}
    for who, sender, _, raw in heard:
        if who == receiver and name in (message := Message.decode(raw)):
            found[sender] = np.asarray(message[name])
    return found


def gram_of_factor(factor: Matrix, slope: float) -> Matrix:
    """XᵀX from a factor U S of (F X)ᵀ, where F is one number times I."""
    return np.asarray(factor @ factor.T) / slope**2


def unscaled(gram: Matrix, centre: Matrix, spread: Matrix, constant: NDArray[np.bool_]) -> Matrix:
    """XᵀX of the rows as they were before they were standardised by a known centre and spread."""
    back = np.eye(len(gram))
    back[0, 1:] = centre
    back[1:, 1:] = np.diag(np.where(constant, 0.0, spread))
    return np.asarray(back.T @ gram @ back)


def count_rows(gram: Matrix) -> int:
    """Rows behind XᵀX: the square of the column of ones."""
    return int(np.rint(gram[0, 0]))


def one_or_two_rows(gram: Matrix) -> Matrix:
    """The rows of a client that has one or two, in no order.

    >>> X = np.array([[1.0, 0.3, -2.0], [1.0, 4.0, 0.5]])
    >>> one_or_two_rows(X.T @ X).round(9).tolist()
    [[4.0, 0.5], [0.3, -2.0]]
    """
    rows, totals = count_rows(gram), gram[0, 1:]
    if rows == 1:
        return np.asarray(totals[None])
    if rows != 2:
        raise ConfigError(f"{rows} rows are not determined by their inner products: take integer_rows")
    # With rows a and b, XᵀX - ssᵀ/2 = ddᵀ/2 for s = a + b and d = a - b.
    values, vectors = np.linalg.eigh(gram[1:, 1:] - np.outer(totals, totals) / 2)
    difference = vectors[:, -1] * np.sqrt(2 * max(values[-1], 0.0))
    if difference[np.argmax(np.abs(difference))] < 0:
        difference = -difference
    return np.stack([totals + difference, totals - difference]) / 2


def integer_rows(gram: Matrix, low: int, high: int) -> Matrix:
    """The rows of a client that has up to five, of whole numbers from ``low`` to ``high``, in no order.

    Parameters
    ----------
    gram : ndarray
        XᵀX with a leading column of ones.
    low, high : int
        Between which all values lie.

    Raises
    ------
    ConfigError
        If there are too many rows or values for a search.
    DataError
        If no such rows have these inner products.

    Examples
    --------
    >>> X = np.array([[1, 0, 3, 7], [1, 2, 2, 0], [1, 5, 0, 1], [1, 5, 4, 4]])
    >>> sorted(integer_rows(X.T @ X, 0, 7).astype(int).tolist())
    [[0, 3, 7], [2, 2, 0], [5, 0, 1], [5, 4, 4]]
    """
    rows, whole = count_rows(gram), np.rint(gram)
    if not 1 <= rows <= MOST_ROWS or (high - low + 1) ** rows > MOST_COLUMNS:
        raise ConfigError(f"{rows} rows of values from {low} to {high}: too many columns to search")
    if np.abs(gram - whole).max() > CLOSE * max(1.0, np.abs(gram).max()):
        raise DataError("the inner products are not whole numbers: neither are the features")
    columns = np.array(list(product(range(low, high + 1), repeat=rows)), dtype=np.float64)
    chosen = _basis(whole, columns)
    for fixed in _consistent(whole, columns, chosen):
        # All columns lie in the span of these, and their inner products with them are known.
        span = whole[np.ix_([0, *chosen], [0, *chosen])]
        X = fixed @ np.linalg.solve(span, whole[[0, *chosen]])
        exact = np.rint(X)
        fits = np.abs(X - exact).max() < CLOSE and low <= exact[:, 1:].min(initial=low)
        if fits and exact[:, 1:].max(initial=high) <= high and np.array_equal(exact.T @ exact, whole):
            return np.asarray(exact[:, 1:])
    raise DataError(f"no whole numbers from {low} to {high} have these inner products")


def _basis(gram: Matrix, columns: Matrix) -> list[int]:
    """Features whose columns, with the ones, span all others; such with few possible columns first."""
    sums, squares = columns.sum(axis=1), (columns**2).sum(axis=1)
    possible = [
        int(np.count_nonzero((sums == gram[0, j]) & (squares == gram[j, j]))) for j in range(1, len(gram))
    ]
    chosen: list[int] = []
    left = gram.astype(np.float64) - np.outer(gram[0], gram[0]) / gram[0, 0]
    for j in 1 + np.argsort(possible, kind="stable"):
        if left[j, j] > CLOSE * max(1.0, gram[j, j]):
            chosen.append(int(j))
            left = left - np.outer(left[j], left[j]) / left[j, j]
    return chosen


def _consistent(gram: Matrix, columns: Matrix, chosen: list[int]) -> Iterator[Matrix]:
    """All ways to fill in the chosen columns that have the right inner products, up to the order of rows."""

    def extend(fixed: Matrix, depth: int) -> Iterator[Matrix]:
        if depth == len(chosen):
            yield fixed
            return
        j = chosen[depth]
        right = np.all(columns @ fixed == gram[j, [0, *chosen[:depth]]], axis=1)
        right &= (columns**2).sum(axis=1) == gram[j, j]
        if depth == 0:  # rows have no order: take the one that sorts the first column
            right &= np.all(np.diff(columns, axis=1) >= 0, axis=1)
        for column in columns[right]:
            yield from extend(np.column_stack([fixed, column]), depth + 1)

    yield from extend(np.ones((columns.shape[1], 1)), 0)
