"""The best split of each node, from its histogram.

T. Chen and C. Guestrin, "XGBoost: A Scalable Tree Boosting System", KDD 2016. With sums G and H of a node's
first and second derivatives, its weight is w = -G / (H + λ), and a split into L and R gains (eq. 7)

    G_L² / (H_L + λ) + G_R² / (H_R + λ) - G² / (H + λ)

twice what their equation says, as XGBoost's own code has it, and γ with it. Missing values go to either side,
whichever gains more. Categories are put in the order of G / H, and split as numbers are (W. Fisher, "On
Grouping for Maximum Homogeneity", 1958).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.methods.boosting.cuts import Buckets
from tacit.methods.boosting.losses import FLOOR, Matrix

ROUNDING = 1e-3  # of second derivatives, as whole numbers
BLOCK = 1 << 18  # places of histograms that are looked at together


@dataclass(frozen=True)
class Rules:
    """What a split must satisfy, and what a leaf weighs."""

    lam: float
    gamma: float
    least: float  # sum of second derivatives on each side
    fewer: float  # what all rows weigh that are too few for a side, if derivatives of a row are bounded
    highest: float  # second derivative of a row
    largest: float  # weight of a leaf
    signs: NDArray[np.int64]  # of each column: 1 where outputs must rise with it, -1 where they must fall

    def weigh(self, G: Matrix, H: Matrix, lower: Matrix, upper: Matrix) -> Matrix:
        """Return the weight of leaves with these sums."""
        w = np.divide(-G, H + self.lam, out=np.zeros(G.shape), where=H + self.lam > 0)
        return np.clip(w, np.maximum(lower, -self.largest), np.minimum(upper, self.largest))

    def suffice(self, G: Matrix, H: Matrix) -> NDArray[np.bool_]:
        """Return where sums are surely those of enough rows.

        A first derivative has a size a of at most 1, and the second one is 4 highest a (1 - a), or the floor
        if that is more. This is concave: too few rows, whose sizes have at least this mean, have no more.
        """
        mean = np.maximum(np.abs(G) / self.fewer, 0.5)
        most = self.fewer * (4 * self.highest * mean * (1 - mean) + FLOOR + ROUNDING)
        return np.asarray((mean > 1) | (H > most))

    def score(self, G: Matrix, H: Matrix, w: Matrix) -> Matrix:
        """Return how much leaves of these weights take off the loss, twice."""
        return np.asarray(-(2 * G + (H + self.lam) * w) * w)


class Splits(NamedTuple):
    """A split for each node: what it gains (-inf: there is none), and where rows go."""

    gain: Matrix
    feature: NDArray[np.int64]
    threshold: NDArray[np.float32]
    default_left: NDArray[np.bool_]
    right: NDArray[np.uint8]  # whether each bucket of the column goes right
    left_sums: Matrix


def find_splits(sums: Matrix, bounds: Matrix, buckets: Buckets, rules: Rules) -> Splits:
    """Return the best split of each node; ``sums`` are nodes × places × 2, ``bounds`` nodes × 2."""
    step = max(1, BLOCK // int(buckets.offsets[-1]))
    starts = range(0, max(1, len(sums)), step)
    parts = [_find(sums[i : i + step], bounds[i : i + step], buckets, rules) for i in starts]
    return Splits(*map(np.concatenate, zip(*parts, strict=True)))


def _find(sums: Matrix, bounds: Matrix, buckets: Buckets, rules: Rules) -> Splits:
    starts, widths, each = buckets.offsets[:-1], buckets.widths, np.arange(len(sums))
    columns = np.repeat(np.arange(len(widths)), widths)  # of each place
    both = np.ascontiguousarray(np.moveaxis(sums, 2, 0))  # (G, H) × node × place
    order = _order(both, buckets, rules.lam)
    missing = both[:, :, starts]
    along = np.cumsum(np.take_along_axis(both, order[None], axis=2), axis=2)
    left = along - np.repeat(along[:, :, starts] - missing, widths, axis=2)  # within a column
    whole = left[:, :, None, widths[:1] - 1]  # the same in all columns
    sides = [left, left - np.repeat(missing, widths, axis=2)] if missing.any() else [left]
    left = np.stack(sides, axis=2)  # with missing values, or without
    lower, upper = bounds.T[:, :, None, None]
    G, H = (np.stack([part, total - part]) for part, total in zip(left, whole, strict=True))
    w = rules.weigh(G, H, lower, upper)
    own = rules.weigh(whole[0], whole[1], lower, upper)
    gain = rules.score(G, H, w).sum(axis=0) - rules.score(whole[0], whole[1], own)
    fits = H.min(axis=0) >= max(rules.least, 1e-300)
    if rules.fewer:
        fits &= rules.suffice(G, H).all(axis=0)
    fits[:, :, starts] = False
    if rules.signs.any():
        fits &= rules.signs[columns] * (w[1] - w[0]) >= 0
    flat = np.where(fits, gain, -np.inf).reshape(len(sums), -1)
    side, place = np.divmod(best := flat.argmax(axis=1), len(columns))
    column = columns[place]
    begin, within = starts[column, None] + 1, np.arange(widths.max() - 1)
    ordered = np.take_along_axis(order, np.minimum(begin + within, len(columns) - 1), axis=1) - begin
    ranks = np.argsort(np.where(within < widths[column, None] - 1, ordered, within), axis=1)
    goes = np.concatenate([side[:, None] == 1, ranks > place[:, None] - begin], axis=1).astype(np.uint8)
    threshold, left_sums = buckets.thresholds[place], left[:, each, side, place].T
    return Splits(flat[each, best], column, threshold, side == 0, goes, left_sums)


def _order(both: Matrix, buckets: Buckets, lam: float) -> NDArray[np.int64]:
    """Return places in their own order, but categories in that of G / H; those without rows come last."""
    order = np.broadcast_to(np.arange(both.shape[2]), both.shape[1:]).copy()
    for column in set(range(len(buckets.widths))) - set(buckets.numbers):
        start, end = buckets.offsets[column] + 1, buckets.offsets[column + 1]
        G, H = both[:, :, start:end]
        ratio = np.divide(G, H + lam, out=np.full(G.shape, np.inf), where=H > 0)
        order[:, start:end] = start + np.argsort(ratio, axis=1, kind="stable")
    return order
