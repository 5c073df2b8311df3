"""The drawings of the report. Each takes plain numbers and gives an inline SVG."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.runs.page.drawing import FEDERATED, INK, LINE, LOCAL, PAPER, PIXEL, PIXEL_MISS, POOLED, SOFT, sheet
from tacit.runs.page.units import count, short, significant, size_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WHOLE, HALF, THIRD = 7.5, 3.65, 2.4
FEW = 12
COUNTED, NAMED_BELOW, NAMED = 12, 20, 40  # the most classes with counts, and with names below and beside

# Shape and colour both tell the series apart, so that neither is needed alone.
_SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "federated": ("federated", {"marker": "o", "facecolor": FEDERATED, "edgecolor": FEDERATED, "s": 26}),
    "centralised": ("pooled data", {"marker": "D", "facecolor": PAPER, "edgecolor": POOLED, "s": 95}),
    "local": ("clients alone, mean", {"marker": "^", "facecolor": PAPER, "edgecolor": LOCAL, "s": 60}),
    "baseline": ("always the same answer", {"marker": "s", "facecolor": LINE, "edgecolor": LINE, "s": 14}),
}


def comparison(rows: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Draw one line per score with a mark for each way of training.

    >>> "federated" in comparison([("accuracy", {"federated": 0.9, "local": 0.7})])
    True
    """
    values = [value for _, marks in rows for value in marks.values()]
    lowest, highest = min(values), max(*values, 1.0)
    room = max(0.02, 0.06 * (highest - lowest))
    height = 0.36 * len(rows) + 0.75
    with sheet(WHOLE, height, "Scores of the federated model beside pooled and local training") as drawing:
        axes = drawing.axes(0.78, 0.3, 0.1, 0.4)
        for place, (_, marks) in enumerate(rows):
            axes.plot(
                [lowest - room, highest + room / 2], [place, place], color=LINE, linewidth=0.6, zorder=1
            )
            # Drawn in reverse: where marks coincide the federated one shows inside the others.
            for series in reversed([name for name in _SERIES if name in marks]):
                axes.scatter([marks[series]], [place], linewidth=1.5, zorder=2, **_SERIES[series][1])
        for series, (label, style) in _SERIES.items():
            if any(series in marks for _, marks in rows):
                axes.scatter([], [], linewidth=1.5, label=label, **style)
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.tick_params(axis="y", length=0, pad=8, labelcolor=INK)
        axes.spines["left"].set_visible(False)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(lowest - room, highest + room / 2)
        axes.set_xticks([tick for tick in axes.get_xticks() if lowest - room <= tick <= highest + 1e-9])
        legend_above(axes, ncols=4, handletextpad=0.2)
    return drawing.svg


def class_scores(
    labels: Sequence[object], federated: Sequence[float], pooled: Sequence[float | None], height: float
) -> str:
    """Draw one bar per class for its F1, with a mark where training on pooled data arrives.

    >>> "text-anchor: end" in class_scores(["a", "b"], [0.9, 0.5], [0.95, None], 1.0)
    True
    """
    margin = margin_of(labels)
    with sheet(HALF, height, "F1 of each class") as drawing:
        axes = drawing.axes(margin, 0.3, 0.35, 0.05)
        places = np.arange(len(labels))
        thickness = min(0.56, 0.15 * len(labels) / height)
        axes.barh(places, federated, height=thickness, color=FEDERATED, alpha=0.75)
        marked = [(value, place) for place, value in enumerate(pooled) if value is not None]
        if marked:
            style = {**_SERIES["centralised"][1], "s": 22}  # small: a bar is thin
            axes.scatter(*zip(*marked, strict=True), linewidth=1.2, zorder=3, clip_on=False, **style)
        size = 7 if len(labels) <= 16 else 5.5
        for place, value in enumerate(federated):
            axes.text(1.03, place, f"{value:.2f}", va="center", fontsize=size, color=SOFT)
        axes.set_yticks(places, [drawing.text(label) for label in labels])
        axes.tick_params(axis="y", length=0, labelcolor=INK, labelsize=7.5 if len(labels) <= 16 else 5.5)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "0.25", "0.5", "0.75", "1"])
    return drawing.svg


def histogram(
    values: NDArray[np.float64],
    label: str,
    write: Callable[[float], str],
    *,
    width: float = THIRD,
    mark: tuple[float, str] | None = None,
) -> str:
    """Draw how a number is distributed over the clients.

    >>> "clients" in histogram(np.arange(50.0), "rows", str)
    True
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    with sheet(width, 1.25, f"Distribution over {count(len(values))} clients: {label}") as drawing:
        axes = drawing.axes(0.42 + 0.05 * len(str(len(values))), 0.3, 0.12, 0.2, up="clients")
        bins = int(np.clip(np.sqrt(len(values)) * 1.5, 6, 40))
        heights, edges = np.histogram(values, bins=bins)
        axes.bar(edges[:-1], heights, width=np.diff(edges) * 0.92, align="edge", color=FEDERATED, alpha=0.75)
        if mark is not None:
            axes.axvline(mark[0], color=POOLED, linewidth=1.2)
            above = axes.get_xaxis_transform()
            axes.text(mark[0], 1.03, mark[1], transform=above, ha="right", fontsize=7.5, color=POOLED)
        axes.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
        axes.xaxis.set_major_locator(MaxNLocator(3 if width < HALF else 5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(write(value))))
    return drawing.svg


def wave_traffic(names: Sequence[str], up: Sequence[float], down: Sequence[float]) -> str:
    """Draw bytes to and from the clients: each wave of a few, the running total of many.

    >>> "moments" in wave_traffic(["moments", "gram"], [1e3, 1e6], [1e3, 2e3])
    True
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    few, upwards, downwards = len(names) <= FEW, "up, to the coordinator", "down, to the clients"
    height = 0.38 * len(names) + 0.8 if few else 1.9
    with sheet(WHOLE, height, "Bytes from and to the clients in each wave") as drawing:
        left = margin_of(names, 0.6) if few else 0.75
        axes = drawing.axes(left, 0.38, 0.2, 0.32, "" if few else "wave")
        places = np.arange(len(names))
        if few:
            axes.barh(places - 0.17, up, height=0.3, color=FEDERATED, alpha=0.85, label=upwards)
            axes.barh(places + 0.17, down, height=0.3, color=POOLED, alpha=0.7, label=downwards)
            axes.set_yticks(places, [drawing.text(name) for name in names])
            axes.tick_params(axis="y", length=0, labelcolor=INK)
            axes.set_ylim(len(names) - 0.5, -0.5)
        else:
            axes.plot(places, np.cumsum(up), color=FEDERATED, linewidth=1.4, label=upwards)
            axes.plot(places, np.cumsum(down), color=POOLED, linewidth=1.4, dashes=(4, 2), label=downwards)
            axes.set_xlim(0, len(names) - 1)
            axes.set_ylim(bottom=0)
        scale = axes.xaxis if few else axes.yaxis
        scale.set_major_locator(MaxNLocator(5 if few else 4))
        scale.set_major_formatter(FuncFormatter(lambda value, _: short(size_text(value))))
        legend_above(axes, ncols=2, fontsize=7.5)
    return drawing.svg


def confusion(matrix: NDArray[Any], labels: Sequence[object]) -> str:
    """Draw a confusion matrix, rows by truth: hits in one colour, errors in the other.

    >>> confusion(np.array([[9, 1], [0, 10]]), ["no", "yes"]).count("<image")
    1
    """
    classes, hits = len(matrix), np.eye(len(matrix), dtype=bool)
    left, below = _margins(labels)
    # A cell's opacity is its share of the row; errors are lifted, for they are few and matter.
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    depths = np.where(hits, 0.1 + 0.8 * shares, 0.15 + 0.8 * np.sqrt(shares)) * (matrix > 0)
    with sheet(
        HALF, confusion_height(labels), f"Confusion matrix of {classes} classes, rows by truth"
    ) as drawing:
        axes = drawing.axes(left, below, 0.05, 0.05)
        pixels = np.dstack([np.where(hits[..., None], PIXEL, PIXEL_MISS), depths])
        axes.imshow(pixels, aspect="auto", interpolation="none")
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


def confusion_height(labels: Sequence[object]) -> float:
    """Return the height in inches that keeps the cells of a confusion matrix square."""
    left, below = _margins(labels)
    return HALF - left + below


def _margins(labels: Sequence[object]) -> tuple[float, float]:
    if len(labels) > NAMED_BELOW:
        return margin_of(labels) if len(labels) <= NAMED else 0.3, 0.3
    # Labels below stand at an angle of 40 degrees and are cut at ten letters.
    return margin_of(labels), 0.2 + 0.045 * min(10, max(len(str(label)) for label in labels))


Series = tuple[str, Sequence[Sequence[float]], str, Sequence[float]]


def lines(
    series: Sequence[Series],
    label: str,
    across: str,
    up: str = "",
    *,
    width: float = THIRD,
    unit: bool = False,
    diagonal: Sequence[tuple[float, float]] | None = None,
    levels: Mapping[str, float] | None = None,
) -> str:
    """Draw lines through points, each with name, colour and dashes; ``levels`` are thin, from side to side.

    >>> "recall" in lines([("yes", [(0, 0), (1, 1)], FEDERATED, ())], "ROC", "false positives", "recall")
    True
    """
    from matplotlib.ticker import MaxNLocator

    columns = 2 if width < HALF else 4
    above = 0.08 + 0.16 * -(-len(series) // columns)
    with sheet(width, 1.65 + above, label) as drawing:
        axes = drawing.axes(0.5, 0.38, 0.12, above, across, up)
        for name, points, colour, dashes in series:
            style: dict[str, Any] = {"dashes": dashes} if dashes else {}
            text = drawing.text(name, 14 if width < HALF else 28)
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.4, label=text, **style)
            if levels and name in levels:
                axes.axhline(levels[name], color=colour, linewidth=1.0, dashes=(1, 2))
        if diagonal:
            axes.plot(*zip(*diagonal, strict=True), color=LINE, linewidth=0.6)
        if unit:
            axes.set_xlim(-0.01, 1.01)
            axes.set_ylim(-0.01, 1.01)
        axes.xaxis.set_major_locator(MaxNLocator(6 if width > HALF else 4, integer=across == "round"))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        legend_above(axes, ncols=columns, fontsize=7)
    return drawing.svg


def legend_above(axes: "Axes", **settings: Any) -> None:
    """Put the legend above the axes, from the left."""
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), borderaxespad=0, **settings)


def margin_of(labels: Sequence[object], least: float = 0.35) -> float:
    """Return the width in inches that the longest label needs, up to what a drawing can spare."""
    return float(np.clip(0.066 * max((len(str(label)) for label in labels), default=0) + 0.15, least, 1.45))


def tree(root: Mapping[str, Any]) -> str:
    """Draw a tree, as :meth:`tacit.models.trees.BoostedTrees.nested` gives it.

    >>> leaf = {"value": 0.5, "more": False}
    >>> "x &lt; 3" in tree({"split": "x < 3", "missing": "left", "left": leaf, "right": leaf})
    True
    """
    leaves, depth = _size(root)
    with sheet(WHOLE, 0.5 * depth + 0.3, "A tree of splits") as drawing:
        axes = drawing.axes(0.1, 0.1, 0.1, 0.1)
        axes.set_axis_off()
        axes.set_xlim(-0.5, leaves - 0.5)
        axes.set_ylim(-depth - 0.2, 0.2)
        places = itertools.count()

        def place(node: Mapping[str, Any], level: int) -> float:
            """Draw a node above those below it, and return where it stands."""
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
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
    return drawing.svg


def _size(node: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many ends a tree has, and how many levels."""
    if "split" not in node:
        return 1, 0
    (left, depth), (right, deeper) = _size(node["left"]), _size(node["right"])
    return left + right, 1 + max(depth, deeper)
