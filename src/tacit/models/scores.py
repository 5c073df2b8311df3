"""Scores from counts: the same formulas for a central hold-out and for protected sums over clients.

A client's share of an evaluation is a confusion matrix, a sum of losses and a histogram of scores per
class; added over the clients, they give every score here. ROC-AUC from histograms of 1,000 bins is
within 1e-3 of the exact one; on a central hold-out it is computed exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.method import BINS

TINY = 1e-15

Matrix = NDArray[np.float64]


def classification_counts(truth: NDArray[np.int64], probabilities: Matrix) -> dict[str, Any]:
    """Return the confusion matrix (rows are the truth), sum of log losses and score histograms."""
    rows, classes = probabilities.shape
    confusion = np.zeros((classes, classes))
    np.add.at(confusion, (truth, probabilities.argmax(axis=1)), 1.0)
    chosen = probabilities[np.arange(rows), truth]
    histogram = np.zeros((2, classes, BINS))
    bins = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
    positive = (truth[:, None] == np.arange(classes)).astype(np.int64)
    np.add.at(histogram, (positive, np.arange(classes)[None, :], bins), 1.0)
    return {
        "confusion": confusion,
        "loss": -np.log(np.clip(chosen, TINY, None)).sum(),
        "histogram": histogram,
    }


def regression_counts(truth: Matrix, predicted: Matrix, centre: Matrix | None = None) -> dict[str, Any]:
    """Return count, squared and absolute errors, Σ(y - c) and Σ(y - c)² of every target.

    Components of a sum need one centre c that all of them know. It makes no difference to the scores but for
    rounding: the nearer it is to the mean, the fewer digits are lost. By default it is the mean itself.
    """
    error = predicted - truth
    around = truth - (mean_of(truth) if centre is None else centre)
    return {
        "count": float(len(truth)),
        "squared": (error**2).sum(axis=0),
        "absolute": np.abs(error).sum(axis=0),
        "sum": around.sum(axis=0),
        "square": (around**2).sum(axis=0),
    }


def mean_of(truth: Matrix) -> Matrix:
    """Return the mean of every target, measured from the first row: exact where all values are equal.

    >>> mean_of(np.full((3, 1), 0.1)).tolist(), mean_of(np.empty((0, 1))).tolist()
    ([0.1], [0.0])
    """
    first = truth[:1].sum(axis=0)
    found: Matrix = first + (truth - first).sum(axis=0) / max(len(truth), 1)
    return found


def classification_scores(
    counts: Mapping[str, Any], labels: Sequence[Any], auc: float | None = None
) -> dict[str, Any]:
    """Return accuracy, macro precision, recall and F1, log loss, ROC-AUC, confusion and scores per class.

    Examples
    --------
    >>> p = np.array([[.9, .1], [.2, .8], [.6, .4]])
    >>> s = classification_scores(classification_counts(np.array([0, 1, 1]), p), ["no", "yes"])
    >>> round(s["accuracy"], 3), s["auc"], s["confusion"]
    (0.667, 1.0, [[1, 0], [1, 1]])
    """
    confusion = np.asarray(counts["confusion"])
    hits, support, called = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    total = confusion.sum()
    if not total:
        return {"accuracy": None, "precision": None, "recall": None, "f1": None, "auc": None, "loss": None}
    precision = np.divide(hits, called, out=np.zeros_like(hits), where=called > 0)
    recall = np.divide(hits, support, out=np.zeros_like(hits), where=support > 0)
    both = precision + recall
    f1 = np.divide(2 * precision * recall, both, out=np.zeros_like(hits), where=both > 0)
    seen = (support > 0) | (called > 0)
    return {
        "accuracy": float(hits.sum() / total),
        "precision": float(precision[seen].mean()),
        "recall": float(recall[seen].mean()),
        "f1": float(f1[seen].mean()),
        "auc": macro_auc(counts["histogram"]) if auc is None else auc,
        "loss": float(counts["loss"] / total),
        "per_class": [
            {"label": label, "precision": float(p), "recall": float(r), "f1": float(f), "support": int(n)}
            for label, p, r, f, n in zip(labels, precision, recall, f1, support, strict=True)
        ],
        "confusion": confusion.astype(int).tolist(),
    }


def regression_scores(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return mean squared error, its root, mean absolute error and R², averaged over the targets."""
    rows = float(counts["count"])
    if not rows:
        return {"mse": None, "rmse": None, "mae": None, "r2": None}
    variation = np.asarray(counts["square"]) - np.asarray(counts["sum"]) ** 2 / rows
    residual = np.asarray(counts["squared"])
    r2 = np.where(variation > 0, 1.0 - residual / np.where(variation > 0, variation, 1.0), 0.0)
    mse = float(residual.mean() / rows)
    return {
        "mse": mse,
        "rmse": mse**0.5,
        "mae": float(np.asarray(counts["absolute"]).mean() / rows),
        "r2": float(r2.mean()),
    }


def macro_auc(histogram: Matrix) -> float | None:
    """Return the one-versus-rest ROC-AUC from score histograms, over the classes that can be told apart."""
    negative, positive = np.asarray(histogram, dtype=np.float64)
    below = np.cumsum(negative, axis=1) - negative
    wins = (positive * (below + 0.5 * negative)).sum(axis=1)
    pairs = positive.sum(axis=1) * negative.sum(axis=1)
    return float((wins[pairs > 0] / pairs[pairs > 0]).mean()) if (pairs > 0).any() else None


def exact_macro_auc(truth: NDArray[np.int64], scores: Matrix) -> float | None:
    """Return the one-versus-rest ROC-AUC by ranks (ties count half), over classes that can be told apart."""
    values = []
    for code in range(scores.shape[1]):
        positive = truth == code
        hits = int(positive.sum())
        misses = len(truth) - hits
        if hits and misses:
            _, inverse, counts = np.unique(scores[:, code], return_inverse=True, return_counts=True)
            ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
            values.append((ranks[positive].sum() - hits * (hits + 1) / 2) / (hits * misses))
    return float(np.mean(values)) if values else None
