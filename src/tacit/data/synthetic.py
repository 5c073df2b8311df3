"""Synthetic stand-ins with the size of the large physics data sets, for timing and scaling.

They are **not** those data: two Gaussian classes with one covariance, whose means are so far apart that the
best possible rule, which is then linear, is right as often as the paper's linear model is on the real data.
With prior π of class 1 and Mahalanobis distance δ between the means, the Bayes rule is right with probability
π Φ(δ/2 + ln(π/(1−π))/δ) + (1−π) Φ(δ/2 − ln(π/(1−π))/δ).
"""

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.data.table import Column, Table

_BLOCK = 65_536  # rows of one random stream: rows do not depend on how many are asked for at once
_FACTORS = 3


@dataclass(frozen=True)
class Shape:
    """Size and difficulty of one synthetic data set."""

    like: str
    rows: int
    features: int
    prior: float
    accuracy: float
    distance: float  # δ, at which the best rule has this accuracy
    repeat: int = 1


SHAPES = {
    "synthetic-miniboone": Shape("miniboone", 130_064, 50, 0.2806, 0.900, 2.3859841441793357),
    "synthetic-susy": Shape("susy", 5_000_000, 18, 0.4576, 0.758, 1.3893913645791054),
    "synthetic-hepmass": Shape("hepmass", 10_500_000, 28, 0.5, 0.835, 1.948227754118618),
    "synthetic-higgs": Shape("higgs", 11_000_000, 28, 0.5299, 0.641, 0.7122298584346893),
    "synthetic-higgs-x4": Shape("higgs", 44_000_000, 28, 0.5299, 0.641, 0.7122298584346893, repeat=4),
}


def generate(name: str, *, rows: int | None = None, seed: int = 0) -> Table:
    """Generate one of ``SHAPES`` as float32; the first ``rows`` are always the same for a seed."""
    shape = SHAPES[name]
    total = shape.rows if rows is None else rows
    distinct, (mixing, shift) = -(-total // shape.repeat), _population(shape)
    values, labels = np.empty((total, shape.features), dtype=np.float32), np.empty(total, dtype=np.int64)
    for number, start in enumerate(range(0, distinct, _BLOCK)):
        # A whole block is always drawn: the last, shorter one must not differ from the same rows of a
        # longer table.
        rng = np.random.default_rng([seed, number])
        classes = (rng.random(_BLOCK) < shape.prior).astype(np.int64)
        block = rng.standard_normal((_BLOCK, shape.features), dtype=np.float32) @ mixing.T
        block += np.where(classes[:, None] == 1, shift, -shift)
        stop = min(start + _BLOCK, distinct)
        values[start:stop], labels[start:stop] = block[: stop - start], classes[: stop - start]
    for start in range(distinct, total, distinct):
        stop = min(start + distinct, total)
        values[start:stop], labels[start:stop] = values[: stop - start], labels[: stop - start]
    columns = tuple(Column(f"f{index}") for index in range(shape.features))
    return Table(name, columns, values, labels, "classification", (0, 1))


def _population(shape: Shape) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(zlib.crc32(shape.like.encode()))
    loadings = rng.standard_normal((shape.features, _FACTORS))
    covariance = loadings @ loadings.T + np.eye(shape.features)
    scale = np.sqrt(np.diag(covariance))
    mixing = np.linalg.cholesky(covariance / np.outer(scale, scale))
    direction = rng.standard_normal(shape.features)
    direction /= np.linalg.norm(direction)
    # L u has Mahalanobis length 1 for a unit vector u.
    shift = mixing @ direction * shape.distance / 2
    return mixing.astype(np.float32), shift.astype(np.float32)
