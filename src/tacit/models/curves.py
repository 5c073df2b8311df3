"""Curves from the counts of an evaluation, central or federated, and how the sites of a federation differ."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.method import SITE_BINS
from tacit.models.scores import bins_of

POINTS = 60  # of a curve
CLASSES = 6  # with curves of their own: those with the most rows
CALIBRATION = 10  # equal parts of the probabilities from 0 to 1

Matrix = NDArray[np.float64]


def curves_of(histogram: Any, labels: Sequence[Any]) -> list[dict[str, Any]]:
    """Return ROC, precision-recall and calibration of classes as points; of two classes, of the second.

    A point of the calibration has the mean probability, the share of rows that are of the class, and their
    number. Probabilities are known as well as the bins of the histogram are narrow.
    """
    every = np.clip(np.asarray(histogram, dtype=np.float64), 0, None)
    chosen = [1] if len(labels) == 2 else np.argsort(-every[1].sum(axis=1), kind="stable")[:CLASSES].tolist()
    fine = np.linspace(0, 1, 20_001)
    middles = np.interp(np.arange(every.shape[2]), bins_of(fine), fine)
    found = []
    for code in sorted(chosen):
        negative, positive = every[:, code]
        if not (negative.any() and positive.any()):
            continue
        right, wrong = (np.concatenate([[0.0], np.cumsum(part[::-1])]) for part in (positive, negative))
        steps = np.flatnonzero(np.diff(right + wrong, prepend=-1.0))
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, POINTS).astype(int))]
        right, wrong = right[steps], wrong[steps]
        recall, called = right / right[-1], right + wrong
        both, part = positive + negative, np.minimum(middles * CALIBRATION, CALIBRATION - 1).astype(int)
        rows, hits, mean = (np.bincount(part, x, CALIBRATION) for x in (both, positive, both * middles))
        full, rows = np.flatnonzero(rows), rows.astype(np.float64)
        axes = {
            "roc": (wrong / wrong[-1], recall),
            "pr": (recall[1:], right[1:] / called[1:]),
            "calibration": (mean[full] / rows[full], hits[full] / rows[full], rows[full]),
        }
        found.append({"label": labels[code], **{name: _points(*each) for name, each in axes.items()}})
    return found


def _points(*axes: Matrix) -> list[list[float]]:
    return [[round(float(value), 5) for value in point] for point in zip(*axes, strict=True)]


def spread_of(counts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how the scores of single sites spread, and the worst: between which two scores each lies."""
    sites = np.rint(np.asarray(counts["sites"])).astype(int)
    if not sites.sum():
        return None
    lows = np.repeat(np.arange(SITE_BINS), np.maximum(sites, 0)) / SITE_BINS
    places = {"worst": 0, "median": len(lows) // 2, "best": -1}
    return {
        "sites": len(lows),
        **{name: [float(lows[place]), float(lows[place] + 1 / SITE_BINS)] for name, place in places.items()},
        "counts": sites.tolist(),
    }
