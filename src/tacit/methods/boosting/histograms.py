"""Histograms of derivatives: rows move down the trees, and are added up by node and bucket.

By numba, if it is installed (``pip install tacit[trees]``) and there is enough to add to be worth compiling;
else by NumPy. All sums are of whole numbers, so that both give the same.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

ROWS = 1 << 14  # that NumPy adds at once, so that copies stay small
WORTHWHILE = 20_000_000  # values that a client adds, over all its trees, from which on loops are compiled


def choose_loop(values: int) -> Callable[..., None]:
    """Return the loop for a client that has so many values to add, counted once for each tree."""
    return _compile() if values >= WORTHWHILE and find_spec("numba") else add_rows


def add_rows(
    bins: Any, drawn: Any, starts: Any, at: Any, packed: Any, nodes: Any, slots: Any, sums: Any
) -> None:
    """Move rows one node down, where theirs has children, and add their numbers to histograms, in place.

    ``drawn`` are those columns of ``bins`` that histograms have, from ``starts`` on; ``at`` has the node of
    each row; ``nodes`` are their columns (-1: none), their left children, and whether each bucket goes right;
    ``slots`` has the histogram of each node (-1: none).
    """
    feature, left, right = nodes
    rows = np.flatnonzero(feature[at] >= 0)
    node = at[rows]
    at[rows] = left[node] + right[node, bins[rows, feature[node]]]
    slot = slots[at]
    chosen = np.flatnonzero(slot >= 0)
    own = packed[chosen]
    for start in range(0, len(chosen), ROWS):
        some, numbers = chosen[start : start + ROWS], own[start : start + ROWS]
        first = slot[some].astype(np.int64) * sums.shape[1]
        places = (first[:, None] + starts + drawn[some]).ravel()
        parts = (np.repeat(part, len(starts)) for part in (numbers >> 32, numbers & 0xFFFFFFFF))
        g, h = (np.bincount(places, part, sums.size).astype(np.int64) for part in parts)
        sums += ((g << 32) + h).reshape(sums.shape)


@cache
def _compile() -> Callable[..., Any]:
    from numba import njit

    compiled: Callable[..., Any] = njit(cache=True, nogil=True)(_loop)
    return compiled


def _loop(
    bins: Any, drawn: Any, starts: Any, at: Any, packed: Any, nodes: Any, slots: Any, sums: Any
) -> None:  # pragma: no cover
    feature, left, right = nodes
    for row in range(bins.shape[0]):
        node = at[row]
        if feature[node] >= 0:
            node = left[node] + right[node, bins[row, feature[node]]]
            at[row] = node
        slot = slots[node]
        if slot >= 0:
            for column in range(drawn.shape[1]):
                sums[slot, starts[column] + drawn[row, column]] += packed[row]
