"""Sections by which a model is judged: curves, rounds, sites, what it looks at, errors of a regression."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.core.events import EPSILONS
from tacit.runs.page.drawing import FEDERATED, HALF, LINE, LOCAL, POOLED, pixels, sheet
from tacit.runs.page.figures import histogram, lines, tree
from tacit.runs.page.units import count, decimal, number, part, significant

STYLES = [(colour, dashes) for dashes in ((), (4, 2)) for colour in (FEDERATED, POOLED, LOCAL)]
CURVES = {
    "roc": ("ROC: rows of the class that are found, for rows of others", "false positives", "recall"),
    "pr": ("Precision and recall", "recall", "precision"),
    "calibration": ("Calibration: on the diagonal, probabilities are what they say", "probability", "share"),
}
SHOWN = 12  # features
Drawings = list[tuple[str, str]]  # each with its caption
HOLDOUTS = "clients' own hold-outs"
SHARES = {"accuracy": ("accuracy", FEDERATED, ()), "f1": ("macro F1", POOLED, (4, 2))}
SHARES["r2"] = ("R²", FEDERATED, ())
LOSSES = {"loss": ("log loss", LOCAL, ()), "rmse": ("RMSE", LOCAL, ())}


def draw_curves(result: Mapping[str, Any]) -> dict[str, Any]:
    """Draw ROC, precision-recall and calibration curves, one line for each class."""
    classes = list(part(result, "curves"))[: len(STYLES)]
    drawn = []
    for key, (caption, *axes) in CURVES.items():
        series = [
            (str(each["label"]), [point[:2] for point in part(each, key)], *style)
            for each, style in zip(classes, STYLES, strict=False)
        ]
        series = [one for one in series if len(one[1]) > 1]
        if series:
            drawn.append((lines(series, caption, *axes, unit=True, diagonal=key != "pr"), f"{caption}."))
    few = f"Curves of the {len(classes)} classes with the most rows." if len(classes) == len(STYLES) else ""
    return {"drawings": drawn, "few": few if drawn else ""}


def draw_rounds(result: Mapping[str, Any]) -> Drawings:
    """Draw scores and loss after each round; nothing if the method had no rounds."""
    entries, pooled = part(result, "rounds"), part(result, "scores", "centralised")
    dotted = "; dotted: training on pooled data" if pooled else ""
    curves = [
        (names, "round", "round", f"{words} on the central test after each round{dotted}")
        for names, words in ((SHARES, "Scores"), (LOSSES, "Loss"))
    ]
    for whom, key in EPSILONS.items():
        told = f"Scores on the central test against what hiding any one {whom} has cost by then"
        curves.append((SHARES, key, f"epsilon for one {whom}", told))
    return [
        (svg, caption)
        for names, key, label, caption in curves
        if (svg := curve(entries, key, label, names, pooled))
    ]


def curve(
    entries: Sequence[Mapping[str, Any]],
    key: str,
    label: str,
    names: Mapping[str, tuple[str, str, Sequence[float]]],
    pooled: Mapping[str, Any],
) -> str:
    """Draw scores against one of the numbers of each round, with those of training on pooled data."""
    series, levels = [], {}
    for name, (words, colour, dashes) in names.items():
        points = [(entry[key], number(entry.get(name))) for entry in entries if entry.get(key)]
        kept = [(x, y) for x, y in points if y is not None]
        if len(kept) > 1:
            series.append((words, kept, colour, dashes))
            if (level := number(pooled.get(name))) is not None:
                levels[words] = level
    return lines(series, f"Scores by {label}", label, width=HALF, levels=levels) if series else ""


def draw_sites(result: Mapping[str, Any]) -> Drawings:
    """Draw how the scores of single sites spread; whose they are is not known."""
    found = part(result, "scores", HOLDOUTS, "sites")
    if not found:
        return []
    counts = np.array(found["counts"], dtype=int)
    name = "R²" if result.get("accuracy") is None else "accuracy"
    lows = np.repeat(np.arange(len(counts)) / len(counts), counts)
    ends = ((key, part(found, key)) for key in ("worst", "median", "best"))
    told = ", ".join(f"{key} {' to '.join(decimal(end, 2) for end in pair)}" for key, pair in ends)
    left = (result.get("clients") or 0) - len(lows)
    words = f" {count(left)} with fewer than 10 rows kept aside are not counted." if left > 0 else ""
    svg = histogram(lows, f"{name} on a site's own rows", lambda value: f"{value:.2f}", width=HALF)
    caption = f"Sites by {name} on rows that each keeps aside: {told}.{words}"
    return [(svg, caption)]


def list_features(result: Mapping[str, Any]) -> list[tuple[list[str], list[list[str]]]]:
    """Return tables of what the model looks at: what shuffling a column costs, and linear weights."""
    falls = list(part(result, "importance").items())[:SHOWN]
    name = "R²" if result.get("accuracy") is None else "accuracy"
    rows = [[column, significant(number(fall))] for column, fall in falls]
    tables = [(["column", f"{name} lost if it is shuffled"], rows)]
    outputs, features = part(result, "weights", "outputs"), part(result, "weights", "features")
    if len(outputs) <= SHOWN:
        values = [[key, *map(significant, row)] for key, row in list(features.items())[:SHOWN]]
        tables.append((["weight of the scaled feature", *outputs], values))
    sums = list(part(result, "trees", "columns").items())[:SHOWN]
    splits = [[key, *map(significant, both)] for key, both in sums]
    return [*tables, (["column", "gain of its splits", "cover"], splits)]


def draw_trees(result: Mapping[str, Any]) -> Drawings:
    """Draw the first of boosted trees."""
    trees = part(result, "trees", "first")
    how = "rows for which a condition holds go left, and ° stands on the way of missing values"
    of = f"of {count(part(result, 'trees', 'count'))}" if trees else ""
    return [(tree(one), f"Tree {place} {of}: {how}.") for place, one in enumerate(trees, 1)]


def draw_residuals(result: Mapping[str, Any]) -> tuple[str, ...]:
    """Draw predicted against true targets, and how errors are spread."""
    found = part(result, "residuals")
    if not found:
        return ()
    edges, counts = found["edges"], np.array(found["counts"])
    with sheet(HALF, 2.6, "Predicted against true targets") as drawing:
        axes, ends = drawing.axes("true", "predicted"), (edges[0], edges[-1])
        picture = pixels(0.95 * np.sqrt(counts.T / max(counts.max(), 1)))
        axes.imshow(picture, aspect="auto", interpolation="none", origin="lower", extent=(*ends, *ends))
        axes.plot(ends, ends, color=LINE, linewidth=0.8)
    with sheet(HALF, 2.6, "Errors") as spread:
        axes = spread.axes("predicted less true", "rows")
        axes.stairs(found["error_counts"], found["error_edges"], fill=True, color=FEDERATED, alpha=0.75)
    return drawing.svg, spread.svg
