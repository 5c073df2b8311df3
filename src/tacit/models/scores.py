"""Scores as scikit-learn defines them, and curves, from a central hold-out or protected sums over clients.

All scores of a classifier are those of its probabilities, the class being the most probable one. A client's
share of an evaluation is a confusion matrix, sums of losses and a histogram of probabilities per class; added
over the clients, they give every score here. Two probabilities share one of the 200 bins only if they
differ by less than 0.01, and their log-odds by less than 0.37. How far that may have moved an area stands
beside it (``auc_error``, ``pr_auc_error``). On a central hold-out nothing is put into bins.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.core.method import BINS, SITE_BINS
from tacit.core.shared import Total

LABEL_SCORES = ("accuracy", "balanced_accuracy", "precision", "recall", "f1")
CLASS_SCORES = (*LABEL_SCORES, "auc", "pr_auc", "loss", "brier")
TARGET_SCORES = ("mse", "rmse", "mae", "r2")
TINY = float(np.finfo(np.float64).eps)  # scikit-learn's least probability in a log loss
LEAST = 1e-8  # probability whose log-odds are the first bin's
MOST_ROWS = 2.0**53  # beyond, numbers of rows are not exact
ONE_SIDED = 0.9  # share of one class from which on accuracy says little

POINTS = 60  # of a curve
CLASSES = 6  # with curves of their own: those with the most rows
CALIBRATION = 10  # equal parts of the probabilities from 0 to 1

Matrix = NDArray[np.float64]
# How many rows of other classes, and of the class, have each score, rising.
Levels = tuple[Matrix, Matrix]


def classification_counts(truth: NDArray[np.int64], probabilities: Matrix) -> dict[str, Any]:
    """Return the confusion matrix (rows are the truth), sums of losses and histograms of probabilities."""
    rows, classes = probabilities.shape
    confusion = np.zeros((classes, classes))
    np.add.at(confusion, (truth, probabilities.argmax(axis=1)), 1.0)
    chosen = probabilities[np.arange(rows), truth]
    positive = (truth[:, None] == np.arange(classes)).astype(np.int64)
    histogram = np.zeros((2, classes, BINS))
    np.add.at(histogram, (positive, np.arange(classes)[None, :], bins_of(probabilities)), 1.0)
    return {
        "confusion": confusion,
        "loss": -np.log(np.clip(chosen, TINY, 1 - TINY)).sum(),
        "brier": ((probabilities - positive) ** 2).sum() * (0.5 if classes == 2 else 1.0),
        "histogram": histogram,
    }


def bins_of(probabilities: Matrix) -> NDArray[np.int64]:
    """Return the bin of each probability."""
    clipped = np.clip(probabilities, LEAST, 1 - LEAST)
    odds = np.log(clipped / (1 - clipped)) / np.log(1 / LEAST - 1)  # from -1 to 1
    found = np.minimum((probabilities + (odds + 1) / 2) * (BINS / 2), BINS - 1)
    return np.asarray(found, dtype=np.int64)


def regression_counts(truth: Matrix, predicted: Matrix, centre: Matrix | None = None) -> dict[str, Any]:
    """Return count, squared and absolute errors, Σ(y - c) and Σ(y - c)² of every target.

    Components of a sum need one centre c that all of them know. It makes no difference to the scores but for
    rounding: the nearer it is to the mean, the fewer digits are lost. By default it is the mean itself, and
    Σ|y - c| is counted, too.
    """
    error = predicted - truth
    around = truth - (mean_of(truth) if centre is None else centre)
    sums = {"squared": error**2, "absolute": np.abs(error), "sum": around, "square": around**2}
    sums |= {"deviation": np.abs(around)} if centre is None else {}
    return {"count": float(len(truth)), **{name: values.sum(axis=0) for name, values in sums.items()}}


def mean_of(truth: Matrix) -> Matrix:
    """Return the mean of every target, measured from the first row: exact where all values are equal."""
    first = truth[:1].sum(axis=0)
    found: Matrix = first + (truth - first).sum(axis=0) / max(len(truth), 1)
    return found


def score_classes(truth: NDArray[np.int64], probabilities: Matrix, labels: Sequence[Any]) -> dict[str, Any]:
    """Return all scores of probabilities on rows that are at hand: areas are exact."""
    counts = classification_counts(truth, probabilities)
    return classification_scores(counts, labels, _exact_levels(truth, probabilities))


def classification_scores(
    counts: Mapping[str, Any], labels: Sequence[Any], levels: Iterable[Levels] | None = None
) -> dict[str, Any]:
    """Return all scores, the confusion matrix, scores per class and the ``baseline``; macro means."""
    confusion = np.asarray(counts["confusion"])
    hits, support, called = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    if not (total := confusion.sum()):
        return dict.fromkeys(CLASS_SCORES)
    precision, recall, f1 = (
        np.divide(share * hits, of, out=np.zeros_like(hits), where=of > 0)
        for share, of in ((1, called), (1, support), (2, called + support))
    )
    seen = (support > 0) | (called > 0)
    binned = zip(*np.asarray(counts["histogram"], dtype=np.float64), strict=True)
    auc, pr_auc, *errors = areas(binned if levels is None else levels, levels is None)
    macro = (recall[support > 0], precision[seen], recall[seen], f1[seen])
    means = (float(hits.sum() / total), *(float(each.mean()) for each in macro))
    return {
        **dict(zip(LABEL_SCORES, means, strict=True)),
        "auc": auc,
        "pr_auc": pr_auc,
        "loss": float(counts["loss"] / total),
        "brier": float(counts["brier"] / total),
        **({} if levels is not None else dict(zip(("auc_error", "pr_auc_error"), errors, strict=True))),
        "baseline": _majority(support / total, labels),
        "per_class": [
            {"label": label, "precision": float(p), "recall": float(r), "f1": float(f), "support": int(n)}
            for label, p, r, f, n in zip(labels, precision, recall, f1, support, strict=True)
        ],
        "confusion": confusion.astype(int).tolist(),
    }


def check_counts(counts: Total, noisy: bool) -> None:
    """Refuse totals that no rows can have: whoever contributes to them, or hands them over, may lie."""
    least = -MOST_ROWS if noisy else -0.5
    for name in ("confusion", "histogram", "count", "sites"):
        found = np.asarray(counts.get(name, 0.0))
        most = counts.contributors + 0.5 if name == "sites" and not noisy else MOST_ROWS
        if not (least <= found.min() and found.max() <= most and found.sum() <= most):
            raise DataError(
                f"'{name}' of rows kept aside has totals of {found.min():g} to {found.max():g}, which no "
                f"rows of {counts.contributors} clients have: one of them does not count as agreed"
            )


def _majority(shares: Matrix, labels: Sequence[Any]) -> dict[str, Any]:
    top, there = float(shares.max()), shares[shares > 0]
    rank, binary = 1.0 / len(there), len(shares) == 2
    area = (0.5, float(shares[1] if binary else there.mean())) if len(there) > 1 else (None, None)
    losses = float(-(there * np.log(there)).sum()), float(1 - (shares**2).sum()) * (0.5 if binary else 1.0)
    values = (top, rank, top * rank, rank, 2 * top / (1 + top) * rank, *area, *losses)
    return {"label": labels[int(shares.argmax())], **dict(zip(CLASS_SCORES, values, strict=True))}


def warn_of_balance(scores: Mapping[str, Any]) -> str | None:
    """Return what to know of an accuracy that a constant answer reaches as well, or None."""
    baseline: Mapping[str, Any] = scores.get("baseline") or {}
    share = baseline.get("accuracy") or 0.0
    if share < ONE_SIDED:
        return None
    return (
        f"{share:.1%} of the rows that were scored are '{baseline['label']}', so that accuracy says little: "
        "whoever always says so has as much. Look at balanced accuracy and PR-AUC; class_weight = 'balanced' "
        "lets all classes weigh the same"
    )


def regression_scores(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return all scores, averaged over the targets, and the ``baseline``: those of the targets' mean."""
    rows = float(counts["count"])
    if not rows:
        return dict.fromkeys(TARGET_SCORES)
    variation = np.maximum(np.asarray(counts["square"]) - np.asarray(counts["sum"]) ** 2 / rows, 0.0)
    residual = np.asarray(counts["squared"])
    r2 = np.where(variation > 0, 1.0 - residual / np.where(variation > 0, variation, 1.0), residual == 0)

    def scores(squares: Matrix, absolute: Any, r2: Matrix) -> dict[str, Any]:
        mae = None if absolute is None else float(np.mean(absolute) / rows)
        root = float(np.sqrt(np.maximum(squares, 0.0) / rows).mean())  # noise may leave a sum below 0
        return {"mse": float(squares.mean() / rows), "rmse": root, "mae": mae, "r2": float(r2.mean())}

    mean = scores(variation, counts.get("deviation"), (variation == 0).astype(np.float64))
    return scores(residual, counts["absolute"], r2) | {"baseline": mean}


def areas(levels: Iterable[Levels], binned: bool) -> list[float | None]:
    """Return ROC-AUC and average precision, and by how much binned scores may have moved each.

    Means over the classes that can be told apart; of two classes, those of the second. Rows of one score
    count as called together, as in scikit-learn. Rows of one bin may have stood in any order: half of their
    pairs are in doubt, and the precision at each hit lies between that with all other classes' rows of the
    bin before it and that with none. It is taken halfway through the bin.
    """
    found, classes = [], list(levels)
    part = 0.5 if binned else 0.0
    for negative, positive in classes[1:] if len(classes) == 2 else classes:
        misses, hits = negative.sum(), positive.sum()
        if hits <= 0 or misses <= 0:
            continue
        below = np.cumsum(negative) - negative / 2  # ties count half
        right, wrong = (np.cumsum(rows[::-1])[::-1] for rows in (positive, negative))
        least, precision, most = (
            np.divide(a, a + b, out=np.zeros_like(a), where=(positive > 0) & (a + b > 0))
            for a, b in (
                (right - positive + 1, wrong),
                (right - part * (positive - 1), wrong - part * negative),
                (right, wrong - negative),
            )
        )
        doubt = np.maximum(most - precision, precision - least)
        ranked = np.array([positive @ below, positive @ negative / 2]) / misses
        found.append(np.array([ranked[0], positive @ precision, ranked[1], positive @ doubt]) / hits)
    return list(np.mean(found, axis=0).tolist()) if found else [None] * 4


def _exact_levels(truth: NDArray[np.int64], probabilities: Matrix) -> Iterator[Levels]:
    for code, scores in enumerate(probabilities.T):
        _, places = np.unique(scores, return_inverse=True)
        positive = np.bincount(places, truth == code).astype(np.float64)
        yield np.bincount(places) - positive, positive


def curves_of(histogram: Any, labels: Sequence[Any]) -> list[dict[str, Any]]:
    """Return ROC, precision-recall and calibration of classes as points; of two classes, of the second.

    A point of the calibration has the mean probability, the share of rows that are of the class, and their
    number.
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
    between = {name: [float(lows[at]), float(lows[at] + 1 / SITE_BINS)] for name, at in places.items()}
    return {"sites": len(lows), **between, "counts": sites.tolist()}
