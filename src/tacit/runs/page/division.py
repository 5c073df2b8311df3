"""The picture of how rows and classes are divided over the clients, whatever their number."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.runs.page.drawing import FEDERATED, INK, PIXEL, sheet
from tacit.runs.page.figures import WHOLE, margin_of
from tacit.runs.page.units import count

COLUMNS = 200


def columns_of(counts: NDArray[np.float64], columns: int = COLUMNS) -> tuple[NDArray[np.float64], int]:
    """Merge neighbouring clients, ordered by their largest class, until they fit into the picture.

    Returns mean rows per class of each group of clients, and how many clients a group has at most: 1 if all
    are shown in their own order.

    >>> columns_of(np.array([[0.0, 4.0], [2.0, 0.0], [0.0, 2.0], [4.0, 0.0]]), columns=2)
    (array([[3., 0.], [0., 3.]]), 2)
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
    """Draw rows per client above a map of class shares per client.

    >>> "image" in division(np.array([[5.0, 0.0], [1.0, 4.0]]), ["no", "yes"])
    True
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    clients, classes = counts.shape
    merged, _ = columns_of(counts)
    rows = merged.sum(axis=1)
    shares = merged / np.maximum(rows[:, None], 1)
    left = margin_of(labels, least=0.6)
    tall = float(np.clip(0.2 * classes, 0.6, 2.6))
    label = f"Rows of {count(clients)} clients and their shares of {classes} classes"
    with sheet(WHOLE, tall + 1.15, label) as drawing:
        upper = drawing.axes(left, tall + 0.5, 0.1, 0.1, up="rows")
        upper.stairs(rows, np.arange(len(rows) + 1), fill=True, color=FEDERATED, alpha=0.75)
        upper.set_xlim(0, len(rows))
        upper.set_ylim(bottom=0)
        upper.set_xticks([])
        upper.spines["bottom"].set_visible(False)
        upper.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        upper.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))
        lower = drawing.axes(left, 0.35, 0.1, 0.75, "client")
        pixels = np.empty((classes, len(rows), 4))
        pixels[..., :3] = PIXEL
        # A share of nothing is transparent, so that light and dark pages both show through. The square
        # root lifts small shares, which would otherwise look like none.
        pixels[..., 3] = 0.95 * np.sqrt(shares.T)
        lower.imshow(pixels, aspect="auto", interpolation="none", extent=(0, len(rows), classes, 0))
        shown = range(classes) if classes <= 26 else range(0)
        lower.set_yticks([i + 0.5 for i in shown], [drawing.text(labels[i]) for i in shown])
        lower.tick_params(axis="y", length=0, labelcolor=INK, labelsize=7.5 if classes <= 14 else 6)
        wanted = {1, clients, *(round(clients * part) for part in (0.25, 0.5, 0.75))} - {0}
        places = sorted(wanted) if clients > 12 else range(1, clients + 1)
        lower.set_xticks([(place - 0.5) * len(rows) / clients for place in places], [*map(count, places)])
    return drawing.svg
