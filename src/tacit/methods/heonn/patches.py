"""Random patches: which features an estimator sees, which rows a client gives it, and fields of T estimators.

G. Louppe, P. Geurts, "Ensembles on Random Patches", 2012. Features are drawn once, publicly, for all
clients, since their sums must fit together; rows are drawn by each client from its own randomness.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.layout import Field, Layout
from tacit.methods.heonn.exchange import HEADROOM, stack
from tacit.models.leastsquares import Matrix

Indices = NDArray[np.int64]
MAX_REPEATS = int(HEADROOM)  # of a row in a sample with replacement: units have headroom for that much


def count_features(features: int, share: float) -> int:
    """Return the number of features in a patch: ⌊share · features⌋, one at the least."""
    return max(1, int(share * features + 1e-9))


def draw_features(
    rng: np.random.Generator, features: int, share: float, replace: bool
) -> tuple[Indices, Matrix]:
    """Return a share of the columns, drawn at random, each with a factor.

    A column that is drawn k times acts, in ridge regression, as one that is √k as long. So it is taken once,
    with the factor √k, and 0 at its other places: no system is singular but for the penalty.
    """
    size = count_features(features, share)
    if not replace:
        return np.sort(rng.permutation(features)[:size]), np.ones(size)
    columns = np.sort(rng.integers(features, size=size))
    first = np.diff(columns, prepend=-1) > 0
    return columns, np.sqrt(np.where(first, np.bincount(columns)[columns], 0))


def draw_rows(rng: np.random.Generator, rows: int, share: float, replace: bool) -> Indices:
    """Return a share of the rows, drawn at random; their number is rounded up or down at random.

    So a client with four rows takes part in four of ten estimators if a tenth is drawn, and over all
    clients the share is right. With replacement, a row counts at most sixteen times.
    """
    size = int(share * rows + rng.random())
    if not replace:
        return np.sort(rng.permutation(rows)[:size])
    counts = np.bincount(rng.integers(rows, size=size), minlength=rows) if rows else np.zeros(0, np.int64)
    return np.repeat(np.arange(rows), np.minimum(counts, MAX_REPEATS))


def split_batches(members: Indices, size: int | None) -> Iterator[Indices]:
    """Yield the members in batches of at most ``size``; one batch, maybe empty, if there is no limit."""
    step = size or max(1, len(members))
    return (members[start : start + step] for start in range(0, max(1, len(members)), step))


def repeat_layout(layout: Layout, times: int) -> Layout:
    """Return the same fields for so many estimators, as one vector; columns stand side by side."""

    def repeat(field: Field) -> Field:
        if field.shape is None:
            return field
        rows, *columns = field.shape
        shape = (rows, times * columns[0]) if field.columns else (times, *field.shape)
        return dataclasses.replace(field, shape=shape, columns=times * field.columns)

    return Layout(*map(repeat, (*layout.fields, *layout.clear)))


def join(pieces: Sequence[Mapping[str, Any]], layout: Layout | None = None) -> dict[str, Matrix]:
    """Stack the named arrays of all estimators; those that one has in columns stand side by side."""
    beside = {field.name for field in layout.fields if field.columns} if layout else ()
    parts = {name: [piece[name] for piece in pieces] for name in pieces[0]}
    return {name: np.concatenate(v, axis=1) if name in beside else stack(v) for name, v in parts.items()}


def split(fields: Mapping[str, Any], times: int, layout: Layout | None = None) -> list[dict[str, Any]]:
    """Return the named arrays of each estimator from what :func:`join` makes of them."""
    beside = {field.name for field in layout.fields if field.columns} if layout else ()
    parts = {name: np.split(v, times, axis=1) if name in beside else v for name, v in fields.items()}
    return [{name: part[index] for name, part in parts.items()} for index in range(times)]


def place_weights(weights: Matrix, columns: Indices, factors: Matrix, features: int) -> Matrix:
    """Return weights of every estimator at the places of its features, zero elsewhere; the bias is first."""
    full = np.zeros((len(weights), features + 1, weights.shape[-1]))
    full[:, 0] = weights[:, 0]
    for one, found, places, scales in zip(full, weights, columns, factors, strict=True):
        np.add.at(one, places + 1, found[1:] * scales[:, None])
    return full
