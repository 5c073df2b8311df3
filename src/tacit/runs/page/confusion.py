"""The picture of a confusion matrix: cells with their counts, or pixels where there are too many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.runs.page.drawing import FEDERATED, INK, PAPER, PIXEL, PIXEL_WRONG, POOLED, sheet
from tacit.runs.page.figures import HALF, margin_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COUNTED, DRAWN, LABELLED = 12, 20, 40


def confusion(matrix: NDArray[Any], labels: Sequence[object]) -> str:
    """Draw a confusion matrix, rows by truth: hits in one colour, errors in the other.

    >>> confusion(np.array([[9, 1], [0, 10]]), ["no", "yes"]).count("var(--pooled)")
    1
    """
    classes = len(matrix)
    left, below = _margins(labels)
    label = f"Confusion matrix of {classes} classes, rows by truth"
    with sheet(HALF, confusion_height(labels), label) as drawing:
        axes = drawing.axes(left, below, 0.05, 0.05)
        if classes <= DRAWN:
            _cells(axes, matrix)
        else:
            pixels = np.empty((*matrix.shape, 4))
            pixels[..., :3] = np.where(np.eye(classes, dtype=bool)[..., None], PIXEL, PIXEL_WRONG)
            pixels[..., 3] = _depths(matrix)
            axes.imshow(pixels, aspect="auto", interpolation="none")
        axes.set_xlim(-0.5, classes - 0.5)
        axes.set_ylim(classes - 0.5, -0.5)
        shown = range(classes) if classes <= LABELLED else range(0)
        axes.set_yticks(shown, [drawing.text(labels[i]) for i in shown])
        named = shown if classes <= DRAWN else range(0)  # beyond, the rows' names have to do
        below_names = [drawing.text(labels[i], 10) for i in named]
        axes.set_xticks(named, below_names, rotation=40, ha="right", rotation_mode="anchor")
        axes.tick_params(length=0, pad=3, labelsize=7.5 if classes <= COUNTED else 5)
        for side in axes.spines.values():
            side.set_visible(True)
    return drawing.svg


def confusion_height(labels: Sequence[object]) -> float:
    """Return the height in inches that keeps the cells of a confusion matrix square."""
    left, below = _margins(labels)
    return HALF - left + below


def _margins(labels: Sequence[object]) -> tuple[float, float]:
    if len(labels) > DRAWN:
        return margin_of(labels) if len(labels) <= LABELLED else 0.3, 0.3
    # Labels below stand at an angle of 40 degrees and are cut at ten letters.
    return margin_of(labels), 0.2 + 0.045 * min(10, max(len(str(label)) for label in labels))


def _depths(matrix: NDArray[Any]) -> NDArray[np.float64]:
    """Return each cell's opacity: its share of the row; errors are lifted, for they are few and matter."""
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    hits = np.eye(len(matrix), dtype=bool)
    depths: NDArray[np.float64] = np.where(hits, 0.1 + 0.8 * shares, 0.15 + 0.8 * np.sqrt(shares))
    return np.where(matrix > 0, depths, 0.0)


def _cells(axes: Axes, matrix: NDArray[Any]) -> None:
    from matplotlib.patches import Rectangle

    depths = _depths(matrix)
    size = 7.5 if len(matrix) <= 8 else 6
    for row, column in np.argwhere(matrix > 0):
        colour, depth = FEDERATED if row == column else POOLED, float(depths[row, column])
        axes.add_patch(Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, color=colour, alpha=depth))
        if len(matrix) <= COUNTED:
            ink = PAPER if depth > 0.55 else INK
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": size, "color": ink}
            axes.text(column, row, f"{matrix[row, column]}", **style)
