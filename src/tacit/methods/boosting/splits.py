"""The best split of each node, from its histogram.

T. Chen and C. Guestrin, "XGBoost: A Scalable Tree Boosting System", KDD 2016. With sums G and H of a node's
first and second derivatives, its weight is w = -G / (H + λ), and a split into L and R gains (eq. 7)

    G_L² / (H_L + λ) + G_R² / (H_R + λ) - G² / (H + λ)

twice what their equation says, as XGBoost's own code has it, and γ with it. Missing values go to either side,
whichever gains more. Categories are put in the order of G / H, and split as numbers are (W. Fisher, "On
Grouping for Maximum Homogeneity", 1958).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.methods.boosting.cuts import LARGEST, Buckets

Matrix = NDArray[np.float64]
BLOCK = 1 << 20  # places of histograms that are looked at together


@dataclass(frozen=True)
class Rules:
    """What a split must satisfy, and what a leaf weighs."""

    lam: float
    gamma: float
    least: float  # sum of second derivatives on each side
    largest: float  # weight of a leaf
    columns: NDArray[np.bool_]  # that take part
    signs: NDArray[np.int64]  # 1 where outputs must rise with a column, -1 where they must fall

    def weigh(self, G: Matrix, H: Matrix, lower: Matrix, upper: Matrix) -> Matrix:
        """Return the weight of leaves with these sums."""
        w = np.divide(-G, H + self.lam, out=np.zeros(G.shape), where=H + self.lam > 0)
        return np.clip(w, np.maximum(lower, -self.largest), np.minimum(upper, self.largest))

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


def find_splits(sums: Matrix, bounds: Matrix, buckets: Buckets, cuts: NDArray[Any], rules: Rules) -> Splits:
    """Return the best split of each node; ``sums`` are nodes × places × 2, ``bounds`` nodes × 2."""
    step = max(1, BLOCK // (len(buckets.widths) * int(buckets.widths.max())))
    starts = range(0, max(1, len(sums)), step)
    parts = [_find(sums[i : i + step], bounds[i : i + step], buckets, cuts, rules) for i in starts]
    return Splits(*map(np.concatenate, zip(*parts, strict=True)))


def _find(sums: Matrix, bounds: Matrix, buckets: Buckets, cuts: NDArray[Any], rules: Rules) -> Splits:
    widths, each = buckets.widths, np.arange(len(sums))
    inside = np.arange(widths.max()) < widths[:, None]
    places = np.where(inside, buckets.offsets[:-1, None] + np.arange(widths.max()), 0)
    table = np.where(inside[:, :, None], sums[:, places], 0.0)  # node × column × bucket × (G, H)
    missing, values = table[:, :, :1], table[:, :, 1:]
    order = _order(values, buckets, rules.lam)
    before = np.cumsum(np.take_along_axis(values, order[..., None], axis=2), axis=2)
    whole = (missing + before[:, :, -1:])[:, None, :1]  # the same in all columns
    left = np.stack([before + missing, before], axis=1)  # missing values left, or right
    lower, upper = (side[:, None, None, None] for side in bounds.T)
    G, H = (np.stack([left[..., i], whole[..., i] - left[..., i]]) for i in range(2))
    w = rules.weigh(G, H, lower, upper)
    gain = rules.score(G, H, w).sum(axis=0)
    gain -= rules.score(whole[..., 0], whole[..., 1], rules.weigh(whole[..., 0], whole[..., 1], lower, upper))
    fits = (H.min(axis=0) >= max(rules.least, 1e-300)) & inside[:, 1:] & rules.columns[:, None]
    fits &= rules.signs[:, None] * (w[1] - w[0]) >= 0
    flat = np.where(fits, gain, -np.inf).reshape(len(sums), gain[0].size)
    side, column, place = np.unravel_index(best := flat.argmax(axis=1), gain.shape[1:])
    threshold = np.zeros(len(sums), dtype=np.float32)
    for row, number in enumerate(buckets.numbers):
        chosen = column == number
        threshold[chosen] = np.append(cuts[row], LARGEST)[place[chosen]]
    ranks = np.argsort(order[each, column], axis=1)
    goes = np.concatenate([side[:, None] == 1, ranks > place[:, None]], axis=1).astype(np.uint8)
    return Splits(flat[each, best], column, threshold, side == 0, goes, left[each, side, column, place])


def _order(values: Matrix, buckets: Buckets, lam: float) -> NDArray[np.int64]:
    """Return numbers in their own order, categories in that of G / H; those without rows come last."""
    order = np.broadcast_to(np.arange(values.shape[2]), values.shape[:3]).copy()
    if by_category := [column for column in range(values.shape[1]) if column not in buckets.numbers]:
        G, H = np.moveaxis(values[:, by_category], 3, 0)
        ratio = np.divide(G, H + lam, out=np.full(G.shape, np.inf), where=H > 0)
        order[:, by_category] = np.argsort(ratio, axis=2, kind="stable")
    return order
