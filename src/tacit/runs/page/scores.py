"""Sections about how well the model does: score cards, comparison, confusion, classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.runs.page import figures
from tacit.runs.page.confusion import confusion, confusion_height
from tacit.runs.page.markup import Card, cards, figure, grid, mapping, section, sentence, sequence, table
from tacit.runs.page.units import MINUS, count, decimal, number, percent, significant

SHARES = {"accuracy": "Accuracy", "f1": "Macro F1", "auc": "ROC-AUC", "r2": "R²", "pr_auc": "PR-AUC"}
OTHERS = {
    "balanced_accuracy": "Balanced accuracy",
    "precision": "Precision",
    "recall": "Recall",
    "loss": "Loss",
    "brier": "Brier score",
    "mse": "Mean squared error",
    "rmse": "Root mean squared error",
    "mae": "Mean absolute error",
}
WAYS = {"federated": "federated", "centralised": "pooled data", "local": "clients alone, mean"}
WAYS["baseline"] = "always the same answer"
BEST = {"accuracy": "accuracy", "r2": "R²", "f1": "macro F1", "auc": "ROC-AUC"}  # the first that there is
BEST["rmse"] = "root mean squared error"
CLASSES_SHOWN = 30
SAME, AGAINST = "same as pooled data", " against pooled data"


def scores_of(result: Mapping[str, Any], way: str) -> dict[str, float]:
    """Return the finite scores of one way of training; the run's own stand in for missing federated ones."""
    found = dict(mapping(mapping(result.get("scores")).get(way)))
    if way == "baseline":
        found = dict(mapping(mapping(mapping(result.get("scores")).get("federated")).get("baseline")))
    if way == "federated":
        found = {name: result.get(name) for name in SHARES | OTHERS} | found
    values = {name: number(found.get(name)) for name in SHARES | OTHERS}
    return {name: value for name, value in values.items() if value is not None}


def write(name: str, value: float | None) -> str:
    """Write a score as is usual for it: accuracy in percent, the others as decimals.

    >>> write("accuracy", 0.9043), write("f1", 0.9043), write("mse", None)
    ('90.43\\xa0%', '0.904', '–')
    """
    if name == "accuracy":
        return percent(value, 2)
    if name == "r2":
        return decimal(value, 4)
    return significant(value) if name in ("mse", "rmse", "mae") else decimal(value)


def difference(name: str, ours: float, pooled: float | None) -> str:
    """Say how far a score is from that of training on pooled data; equal means equal as written.

    >>> difference("accuracy", 0.904, 0.904001), difference("f1", 0.8, 0.85), difference("f1", 0.8, None)
    ('same as pooled data', '−0.0500 against pooled data', '')
    """
    if pooled is None:
        return ""
    if write(name, ours) == write(name, pooled):
        return SAME
    gap = ours - pooled
    sign = "+" if gap > 0 else MINUS
    size = f"{100 * abs(gap):.2f} points" if name == "accuracy" else significant(abs(gap))
    return f"{sign}{size}{AGAINST}"


def score_section(result: Mapping[str, Any]) -> str:
    """Set the score cards, the comparison drawing and the table of exact values."""
    ways = {way: found for way in WAYS if (found := scores_of(result, way))}
    ours, pooled = ways.get("federated", {}), ways.get("centralised", {})
    heads = SHARES | OTHERS
    shown = [name for name in (*SHARES, "rmse", "mae", "mse", "loss") if name in ours]
    top = cards(
        Card(heads[name], write(name, ours[name]), _remark(result, name, ours[name], pooled.get(name)))
        for name in shown[:4]
    )
    rows = [
        (heads[name], {way: scores[name] for way, scores in ways.items() if name in scores})
        for name in SHARES
        if any(name in scores for scores in ways.values())
    ]
    plot = exact = ""
    if len(ways) > 1 and rows:
        plot = figure(
            figures.comparison(rows),
            'Scores on the hold-out; further right is better. "Clients alone" is the mean over the models '
            "that each client trained on its own rows only.",
        )
    names = [name for name in heads if any(name in scores for scores in ways.values())]
    if len(ways) > 1:
        values = [[heads[name], *(write(name, one.get(name)) for one in ways.values())] for name in names]
        exact = table(["", *(WAYS[way] for way in ways)], values)
    return section("How well it does", top, plot, exact)


def _remark(result: Mapping[str, Any], name: str, ours: float, pooled: float | None) -> str:
    """Say in which interval a score lies, and how it compares with pooled data."""
    found, how = mapping(result.get("intervals")), ""
    if len(ends := [number(end) for end in sequence(found.get(name))]) == 2:
        mean = number(mapping(found.get("means")).get(name))
        about = f"mean {write(name, mean)}, " if mean is not None else ""
        between = " to ".join(write(name, end) for end in ends)
        how = f"{about}{between} ({percent(number(found.get('level')), 0)} interval, {found.get('how')})"
    return "; ".join(part for part in (difference(name, ours, pooled), how) if part)


def class_section(result: Mapping[str, Any]) -> str:
    """Set the confusion matrix beside the F1 of each class."""
    scores = mapping(mapping(result.get("scores")).get("federated"))
    matrix = confusion_of(scores.get("confusion"))
    classes = per_class(scores)
    labels = [str(label) for label in sequence(result.get("classes"))] or list(classes)
    left = right = ""
    height = 0.0
    if matrix is not None:
        named = [*labels, *(str(i) for i in range(len(labels), len(matrix)))]
        hits = int(np.trace(matrix))
        height = confusion_height(named[: len(matrix)])
        left = figure(
            confusion(matrix, named[: len(matrix)]),
            f"Rows are the truth, columns the prediction; {count(hits)} of {count(int(matrix.sum()))} rows "
            "are right. Depth of colour is the share of the row.",
        )
    if classes:
        pooled = per_class(mapping(mapping(result.get("scores")).get("centralised")))
        right = _class_figure(classes, pooled, height)
    return section("Class by class", grid("two", left, right), _worst(matrix, labels))


def _class_figure(ours: Mapping[str, float], pooled: Mapping[str, float], height: float) -> str:
    shown = list(ours)
    caption = "F1 of each class" + ("; the open mark is training on pooled data." if pooled else ".")
    if len(shown) > CLASSES_SHOWN:
        shown = sorted(ours, key=lambda label: ours[label])[:CLASSES_SHOWN]
        caption = f"F1 of the {CLASSES_SHOWN} weakest of {count(len(ours))} classes."
    svg = figures.class_scores(
        shown, [ours[label] for label in shown], [pooled.get(label) for label in shown], height
    )
    return figure(svg, caption)


def per_class(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return the F1 of each class by label, of those that have one."""
    lines = [mapping(line) for line in sequence(scores.get("per_class"))]
    return {str(line.get("label")): f1 for line in lines if (f1 := number(line.get("f1"))) is not None}


def confusion_of(rows: object) -> NDArray[np.int64] | None:
    """Return a square matrix of counts, or None if that is not what is there.

    >>> confusion_of([[1, 2], [3, 4]]).tolist(), confusion_of([[1, 2]]), confusion_of(None)
    ([[1, 2], [3, 4]], None, None)
    """
    lines = [sequence(row) for row in sequence(rows)]
    if not lines or any(len(line) != len(lines) for line in lines):
        return None
    if any(number(value) is None for line in lines for value in line):
        return None
    return np.array(lines).astype(np.int64)


def _worst(matrix: NDArray[np.int64] | None, labels: Sequence[str]) -> str:
    """Name the most frequent mistake, which the eye looks for in the matrix anyway."""
    if matrix is None or len(matrix) > len(labels) or len(matrix) < 3:
        return ""
    wrong = matrix - np.diag(np.diag(matrix))
    truth, guess = divmod(int(wrong.argmax()), len(wrong))
    if wrong[truth, guess] <= 0:
        return ""
    share = wrong[truth, guess] / max(1, matrix[truth].sum())
    return sentence(
        f"The most frequent mistake is {labels[truth]} taken for {labels[guess]}: "
        f"{count(int(wrong[truth, guess]))} rows, {percent(float(share))} of {labels[truth]}."
    )
