"""The drawings of the report. Each takes plain numbers and gives an inline SVG."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.runs.page.drawing import (
    FEDERATED,
    HALF,
    INK,
    LINE,
    LOCAL,
    PAPER,
    POOLED,
    SOFT,
    THIRD,
    WHOLE,
    pixels,
    sheet,
    tick,
)
from tacit.runs.page.units import count, short, significant, size_text

COUNTED, NAMED_BELOW, NAMED = 12, 20, 40  # the most classes with counts, and with names below and beside
COLUMNS = 200  # of clients in the picture of how rows are divided

# Shape and colour both tell the series apart, so that neither is needed alone.
SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "federated": ("federated", {"marker": "o", "facecolor": FEDERATED, "edgecolor": FEDERATED, "s": 26}),
    "centralised": ("pooled data", {"marker": "D", "facecolor": PAPER, "edgecolor": POOLED, "s": 95}),
    "local": ("clients alone, mean", {"marker": "^", "facecolor": PAPER, "edgecolor": LOCAL, "s": 60}),
    "baseline": ("always the same answer", {"marker": "s", "facecolor": LINE, "edgecolor": LINE, "s": 14}),
}


def comparison(rows: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Draw one line per score with a mark for each way of training."""
    label = "Scores of the federated model beside pooled and local training"
    with sheet(WHOLE, 0.36 * len(rows) + 0.75, label) as drawing:
        axes = drawing.axes()
        # Drawn in reverse: where marks coincide the federated one shows inside the others.
        for series, (words, style) in reversed(SERIES.items()):
            points = [(marks[series], place) for place, (_, marks) in enumerate(rows) if series in marks]
            if points:
                axes.scatter(*zip(*points, strict=True), linewidth=1.5, zorder=2, label=words, **style)
        for place in range(len(rows)):
            axes.axhline(place, color=LINE, linewidth=0.6, zorder=1)
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.tick_params(axis="y", length=0, pad=8, labelcolor=INK)
        axes.spines["left"].set_visible(False)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        drawing.legend(4)
    return drawing.svg


def class_scores(labels: Sequence[object], federated: Sequence[float], pooled: Sequence[float | None]) -> str:
    """Draw one bar per class for its F1, with a mark where training on pooled data arrives."""
    size = 7.5 if len(labels) <= 16 else 5.5
    with sheet(HALF, HALF, "F1 of each class") as drawing:
        axes = drawing.axes()
        places = range(len(labels))
        axes.barh(places, federated, height=0.56, color=FEDERATED, alpha=0.75)
        marked = [(value, place) for place, value in enumerate(pooled) if value is not None]
        if marked:
            style = {**SERIES["centralised"][1], "s": 22}  # small: a bar is thin
            axes.scatter(*zip(*marked, strict=True), linewidth=1.2, zorder=3, clip_on=False, **style)
        for place, value in enumerate(federated):
            axes.text(1.03, place, f"{value:.2f}", va="center", fontsize=size, color=SOFT)
        axes.set_yticks(places, [drawing.text(label) for label in labels])
        axes.tick_params(axis="y", length=0, labelcolor=INK, labelsize=size)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_xlim(0, 1)
    return drawing.svg


def histogram(
    values: NDArray[np.float64],
    label: str,
    write: Callable[[float], str],
    *,
    width: float = THIRD,
) -> str:
    """Draw how a number is distributed over the clients."""
    with sheet(width, 1.25, f"Distribution over {count(len(values))} clients: {label}") as drawing:
        axes = drawing.axes(up="clients")
        bins = int(np.clip(np.sqrt(len(values)) * 1.5, 6, 40))
        axes.hist(values, bins, rwidth=0.92, color=FEDERATED, alpha=0.75)
        tick(axes.yaxis, 2, count, integer=True)
        tick(axes.xaxis, 3 if width < HALF else 5, lambda value: short(write(value)))
    return drawing.svg


def wave_traffic(up: Sequence[float], down: Sequence[float]) -> str:
    """Draw bytes to and from the clients, added up over the waves."""
    with sheet(WHOLE, 1.9, "Bytes from and to the clients, wave by wave") as drawing:
        axes, waves = drawing.axes("wave"), range(1, len(up) + 1)
        axes.plot(waves, np.cumsum(up), color=FEDERATED, linewidth=1.4, label="up, to the coordinator")
        style: dict[str, Any] = {"color": POOLED, "linewidth": 1.4, "dashes": (4, 2)}
        axes.plot(waves, np.cumsum(down), label="down, to the clients", **style)
        axes.set_ylim(bottom=0)
        tick(axes.xaxis, 10, integer=True)
        tick(axes.yaxis, 4, lambda value: short(size_text(value)))
        drawing.legend(2)
    return drawing.svg


def confusion(matrix: NDArray[Any], labels: Sequence[object]) -> str:
    """Draw a confusion matrix, rows by truth: hits in one colour, errors in the other."""
    classes, hits = len(matrix), np.eye(len(matrix), dtype=bool)
    # A cell's opacity is its share of the row; errors are lifted, for they are few and matter.
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    depths = np.where(hits, 0.1 + 0.8 * shares, 0.15 + 0.8 * np.sqrt(shares)) * (matrix > 0)
    with sheet(HALF, HALF, f"Confusion matrix of {classes} classes, rows by truth") as drawing:
        axes = drawing.axes()
        axes.imshow(pixels(depths, hits), aspect="auto", interpolation="none")
        for row, column in np.argwhere(matrix > 0) if classes <= COUNTED else ():
            ink = PAPER if depths[row, column] > 0.55 else INK
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5 if classes <= 8 else 6}
            axes.text(column, row, f"{matrix[row, column]}", color=ink, **style)
        beside, under = (range(classes) if classes <= most else range(0) for most in (NAMED, NAMED_BELOW))
        axes.set_yticks(beside, [drawing.text(labels[i]) for i in beside])
        names = [drawing.text(labels[i], 10) for i in under]
        axes.set_xticks(under, names, rotation=40, ha="right", rotation_mode="anchor")
        axes.tick_params(length=0, pad=3, labelsize=7.5 if classes <= COUNTED else 5)
        for side in axes.spines.values():
            side.set_visible(True)
    return drawing.svg


Series = tuple[str, Sequence[Sequence[float]], str, Sequence[float]]


def lines(
    series: Sequence[Series],
    label: str,
    across: str,
    up: str = "",
    *,
    width: float = THIRD,
    unit: bool = False,
    diagonal: bool = False,
    levels: Mapping[str, float] | None = None,
) -> str:
    """Draw lines through points, each with name, colour and dashes; ``levels`` go from side to side."""
    columns = 2 if width < HALF else 4
    with sheet(width, 1.75 + 0.16 * -(-len(series) // columns), label) as drawing:
        axes = drawing.axes(across, up)
        for name, points, colour, dashes in series:
            style: dict[str, Any] = {"dashes": dashes} if dashes else {}
            text = drawing.text(name, 14 if width < HALF else 28)
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.4, label=text, **style)
            if levels and name in levels:
                axes.axhline(levels[name], color=colour, linewidth=1.0, dashes=(1, 2))
        if diagonal:
            axes.axline((0, 0), slope=1, color=LINE, linewidth=0.6)
        if unit:
            axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        tick(axes.xaxis, 6 if width > HALF else 4, integer=across == "round")
        tick(axes.yaxis, 5)
        drawing.legend(columns)
    return drawing.svg


def tree(root: Mapping[str, Any]) -> str:
    """Draw a tree, as :meth:`tacit.models.trees.BoostedTrees.nested` gives it."""
    with sheet(WHOLE, 1, "A tree of splits") as drawing:
        axes, places, depths = drawing.axes(), itertools.count(), {0}
        axes.set_axis_off()

        def place(node: Mapping[str, Any], level: int) -> float:
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
            depths.add(level)
            if "split" not in node:
                x = float(next(places))
                words = "…" if node["more"] else significant(node["value"])
                axes.text(x, -level, drawing.text(words), color=FEDERATED, **style)
                return x
            ends = {side: place(node[side], level + 1) for side in ("left", "right")}
            x = sum(ends.values()) / 2
            for side, end in ends.items():
                axes.plot([x, end], [-level - 0.2, -level - 0.8], color=LINE, linewidth=0.8)
                if node["missing"] == side:
                    axes.text((x + end) / 2, -level - 0.5, "°", color=INK, **style)
            axes.text(x, -level, drawing.text(node["split"], 110 // 2**level), color=INK, **style)
            return x

        place(root, 0)
        axes.set(xlim=(-0.5, next(places) - 0.5), ylim=(-max(depths) - 0.2, 0.2))
        drawing.figure.set_figheight(0.5 * max(depths) + 0.3)
    return drawing.svg


def columns_of(counts: NDArray[np.float64], columns: int = COLUMNS) -> tuple[NDArray[np.float64], int]:
    """Merge neighbouring clients, ordered by their largest class, until they fit into the picture.

    Returns mean rows per class of each group of clients, and how many clients a group has at most: 1 if all
    are shown in their own order.
    """
    if len(counts) <= columns:
        return counts, 1
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    # Clients without rows have no largest class; they come last.
    largest = np.where(shares.any(axis=1), shares.argmax(axis=1), shares.shape[1])
    order = np.lexsort((-shares.max(axis=1), largest))
    groups = np.array_split(counts[order], columns)
    return np.array([group.mean(axis=0) for group in groups]), max(len(group) for group in groups)


def division(counts: NDArray[np.float64], labels: Sequence[object]) -> str:
    """Draw rows per client above a map of class shares per client."""
    clients, classes = counts.shape
    merged, _ = columns_of(counts)
    rows, end = merged.sum(axis=1), clients + 0.5
    tall = float(np.clip(0.2 * classes, 0.6, 2.6))
    label = f"Rows of {count(clients)} clients and their shares of {classes} classes"
    with sheet(WHOLE, tall + 1.15, label) as drawing:
        upper, lower = drawing.figure.subplots(2, 1, sharex=True, height_ratios=(0.65, tall))
        upper.stairs(rows, np.linspace(0.5, end, len(rows) + 1), fill=True, color=FEDERATED, alpha=0.75)
        upper.set(ylabel="rows", xlim=(0.5, end))
        upper.tick_params(axis="x", length=0)
        tick(upper.yaxis, 2, count, integer=True)
        # The square root lifts small shares, which would otherwise look like none.
        picture = pixels(0.95 * np.sqrt(merged / np.maximum(rows[:, None], 1)).T)
        lower.imshow(picture, aspect="auto", interpolation="none", extent=(0.5, end, classes, 0))
        shown = range(classes) if classes <= 26 else range(0)
        lower.set_yticks([i + 0.5 for i in shown], [drawing.text(labels[i]) for i in shown])
        lower.tick_params(axis="y", length=0, labelcolor=INK, labelsize=7.5 if classes <= 14 else 6)
        lower.set_xlabel("client")
        tick(lower.xaxis, 10, count, integer=True)
    return drawing.svg
