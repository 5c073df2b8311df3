"""Sections about how well the model does: score cards, comparison, confusion, classes."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.runs.page import figures
from tacit.runs.page.units import MINUS, count, decimal, number, part, percent, significant

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
WAYS = {way: words for way, (words, _) in figures.SERIES.items()}
BEST = {"accuracy": "accuracy", "r2": "R²", "f1": "macro F1", "auc": "ROC-AUC"}  # the first that there is
BEST["rmse"] = "root mean squared error"
CLASSES_SHOWN = 30
SAME, AGAINST = "same as pooled data", " against pooled data"


def scores_of(result: Mapping[str, Any], way: str) -> dict[str, float]:
    """Return the finite scores of one way of training; the run's own stand in for missing federated ones."""
    found = part(result, "scores", *(("federated", "baseline") if way == "baseline" else (way,)))
    if way == "federated":
        found = {**result, **found}
    return {name: value for name in SHARES | OTHERS if (value := number(found.get(name))) is not None}


def write(name: str, value: float | None) -> str:
    """Write a score as is usual for it: accuracy in percent, the others as decimals."""
    if name == "accuracy":
        return percent(value, 2)
    if name == "r2":
        return decimal(value, 4)
    return significant(value) if name in ("mse", "rmse", "mae") else decimal(value)


def difference(name: str, ours: float, pooled: float | None) -> str:
    """Say how far a score is from that of training on pooled data; equal means equal as written."""
    if pooled is None:
        return ""
    if write(name, ours) == write(name, pooled):
        return SAME
    gap = ours - pooled
    sign = "+" if gap > 0 else MINUS
    size = f"{100 * abs(gap):.2f} points" if name == "accuracy" else significant(abs(gap))
    return f"{sign}{size}{AGAINST}"


def read_scores(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the score cards, the comparison drawing and the table of exact values."""
    ways = {way: found for way in WAYS if (found := scores_of(result, way))}
    ours, pooled = ways.get("federated", {}), ways.get("centralised", {})
    heads = SHARES | OTHERS
    shown = [name for name in (*SHARES, "rmse", "mae", "mse", "loss") if name in ours]
    cards = [
        (heads[name], write(name, ours[name]), _remark(result, name, ours[name], pooled.get(name)))
        for name in shown[:4]
    ]
    names = [name for name in heads if any(name in scores for scores in ways.values())]
    rows = [(heads[n], {way: own[n] for way, own in ways.items() if n in own}) for n in names if n in SHARES]
    values = [[heads[name], *(write(name, one.get(name)) for one in ways.values())] for name in names]
    compared, intervals = len(ways) > 1, part(result, "intervals")
    return {
        "cards": cards,
        "lacking": intervals and "auc" in ours and "auc" not in intervals,
        "comparison": figures.comparison(rows) if compared and rows else "",
        "heads": ["", *(WAYS[way] for way in ways)],
        "rows": values if compared else [],
    }


def _remark(result: Mapping[str, Any], name: str, ours: float, pooled: float | None) -> str:
    found, how = part(result, "intervals"), ""
    if name in found:
        mean = part(found, "means").get(name)
        about = f"mean {write(name, mean)}, " if mean is not None else ""
        between = " to ".join(write(name, end) for end in found[name])
        how = f"{about}{between} ({percent(found['level'], 0)} interval, {found['how']})"
    return "; ".join(part for part in (difference(name, ours, pooled), how) if part)


def draw_classes(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Draw the confusion matrix, and the F1 of each class, with captions."""
    found = part(result, "scores", "federated")
    labels = [str(line["label"]) for line in part(found, "per_class")]
    if not labels:
        return []
    matrix = np.array(found["confusion"]).astype(np.int64)
    about = (
        f"Rows are the truth, columns the prediction; {count(np.trace(matrix))} of {count(matrix.sum())} "
        "rows are right. Depth of colour is the share of the row."
    )
    ours, pooled = (
        {str(line["label"]): line["f1"] for line in part(each, "per_class")}
        for each in (found, part(result, "scores", "centralised"))
    )
    shown = list(ours)
    caption = "F1 of each class" + ("; the open mark is training on pooled data." if pooled else ".")
    if len(shown) > CLASSES_SHOWN:
        shown = sorted(ours, key=lambda label: ours[label])[:CLASSES_SHOWN]
        caption = f"F1 of the {CLASSES_SHOWN} weakest of {count(len(ours))} classes."
    svg = figures.class_scores(shown, [ours[each] for each in shown], [pooled.get(each) for each in shown])
    return [(figures.confusion(matrix, labels), about), (svg, caption)]
