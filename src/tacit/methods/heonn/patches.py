"""Random patches: which features an estimator sees, which rows a client gives it, and T of everything.

G. Louppe, P. Geurts, "Ensembles on Random Patches", 2012. Features are drawn once, publicly, for all
clients, since their sums must fit together; rows are drawn by each client from its own randomness.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.layout import Field, Layout
from tacit.methods.heonn.paper import LARGEST
from tacit.methods.heonn.units import ROOM, Rows, with_bias

Matrix = NDArray[np.float64]
Indices = NDArray[np.int64]
MOST_REPEATS = int(ROOM)  # of a row in a sample with replacement: units leave room for that much


def drawn_size(features: int, share: float) -> int:
    """Number of features in a patch: ⌊share · features⌋, one at the least."""
    return max(1, int(share * features + 1e-9))


def draw_features(
    rng: np.random.Generator, features: int, share: float, replace: bool
) -> tuple[Indices, Matrix]:
    """Draw a share of the columns, each with a factor.

    A column that is drawn k times in a sample with replacement acts, in ridge regression, as one that is
    √k as long. So it is taken once, with the factor √k, and its other places get the factor 0: the same
    model, without a system of equations that is singular but for the penalty.

    >>> columns, factors = draw_features(np.random.default_rng(0), 6, 1.0, True)
    >>> columns.tolist(), (factors**2).round(9).tolist()
    ([0, 1, 1, 3, 3, 5], [1.0, 2.0, 0.0, 2.0, 0.0, 1.0])
    """
    size = drawn_size(features, share)
    if not replace:
        return np.sort(rng.permutation(features)[:size]), np.ones(size)
    columns = np.sort(rng.integers(features, size=size))
    first = np.diff(columns, prepend=-1) > 0
    return columns, np.sqrt(np.where(first, np.bincount(columns)[columns], 0))


def draw_rows(rng: np.random.Generator, rows: int, share: float, replace: bool) -> Indices:
    """Draw a share of the rows; what is left of a fraction is decided by a throw of the dice.

    So a client with four rows takes part in four of ten estimators if a tenth is drawn, and over all
    clients the share is right. With replacement, a row counts at most sixteen times.
    """
    size = int(share * rows + rng.random())
    if not replace:
        return np.sort(rng.permutation(rows)[:size])
    counts = np.bincount(rng.integers(rows, size=size), minlength=rows) if rows else np.zeros(0, np.int64)
    return np.repeat(np.arange(rows), np.minimum(counts, MOST_REPEATS))


def patch(rows: Rows, members: Any, columns: Indices, factors: Matrix) -> Rows:
    """Some rows and columns, with a leading one."""
    X = rows.designs[0][members][:, columns]
    X *= factors
    return Rows([with_bias(X)], rows.d_bar[members], rows.slope[members], [slice(None)])


def batches(members: Indices, size: int | None) -> Iterator[Indices]:
    """Members in stretches of at most so many; one stretch, maybe empty, if there is no limit."""
    step = size or max(1, len(members))
    return (members[start : start + step] for start in range(0, max(1, len(members)), step))


def repeated(layout: Layout, times: int) -> Layout:
    """The same fields for so many estimators, as one vector; columns stand side by side."""
    return Layout(*(_repeated(field, times) for field in (*layout.fields, *layout.clear)))


def _repeated(field: Field, times: int) -> Field:
    if field.shape is None:
        return field
    if field.columns:
        shape = (field.shape[0], times * field.shape[1])
        return dataclasses.replace(field, shape=shape, columns=times * field.columns)
    return dataclasses.replace(field, shape=(times, *field.shape))


def side_by_side(columns: Matrix) -> Matrix:
    """Columns of all estimators as one matrix.

    >>> both = side_by_side(np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]))
    >>> both.tolist(), apart(both, 2)[1].tolist()
    ([[1, 2, 5, 6], [3, 4, 7, 8]], [[5, 6], [7, 8]])
    """
    return np.concatenate(list(columns), axis=1)


def apart(columns: Matrix, times: int) -> Matrix:
    """Inverse of :func:`side_by_side`."""
    return np.stack(np.split(columns, times, axis=1))


def stacked(pieces: Sequence[Mapping[str, Any]]) -> dict[str, Matrix]:
    """Named arrays of all estimators, stacked; factors of lower rank are padded with zero columns."""
    return {name: stack([piece[name] for piece in pieces]) for name in pieces[0]}


def stack(arrays: Sequence[Matrix]) -> Matrix:
    """Stack arrays that may differ in their last dimension."""
    width = max(array.shape[-1] for array in arrays)
    return np.stack([np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, width - a.shape[-1])]) for a in arrays])


def spread(weights: Matrix, columns: Indices, factors: Matrix, features: int) -> Matrix:
    """Weights of every estimator at the places of its features, zero elsewhere; the bias stays first."""
    full = np.zeros((len(weights), features + 1, weights.shape[-1]))
    full[:, 0] = weights[:, 0]
    for one, found, places, scales in zip(full, weights, columns, factors, strict=True):
        np.add.at(one, places + 1, found[1:] * scales[:, None])
    return full


def flaw_of(name: str, piece: Any, agreed: tuple[int, int], size: int) -> str | None:
    """Say what is wrong with factors or triangles of so many estimators and outputs, if anything is."""
    if name not in ("factor", "triangle"):
        return None
    if piece.ndim != 4 or piece.shape[:2] != agreed:
        return f"has shape {piece.shape}, agreed was {agreed} and a matrix each"
    if name == "factor" and piece.shape[2] != size:
        return f"has {piece.shape[2]} features, agreed were {size}"
    return f"holds absurd values (beyond {LARGEST:g})" if np.abs(piece).max(initial=0.0) > LARGEST else None
