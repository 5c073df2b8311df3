"""Curves for the pages of repeated papers: one line per series over whole numbers, as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tacit.runs.page.drawing import INK, sheet

DASHES = ((None, None), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2), (3, 1), (1, 2.5))
MARKS = "oDs^vx"


def curves(lines: Mapping[str, Sequence[float]], below: str, beside: str) -> str:
    """Draw lines that are told apart by dashes and marks, not by colour.

    >>> "fedavg" in curves({"fedavg": [0.5, 0.9]}, "round", "F1")
    True
    """
    from matplotlib.ticker import MaxNLocator

    with sheet(7.5, 3.2, f"{beside} by {below}: {', '.join(lines)}") as drawing:
        axes = drawing.axes(0.5, 0.4, 1.6, 0.1)
        for place, (name, values) in enumerate(lines.items()):
            dashes = DASHES[place % len(DASHES)]
            (line,) = axes.plot(
                range(1, len(values) + 1), values, color=INK, linewidth=1.1, alpha=0.8,
                marker=MARKS[place % len(MARKS)], markersize=3.5, markerfacecolor="none",
                label=drawing.text(name),
            )  # fmt: skip
            if dashes[0] is not None:
                line.set_dashes(dashes)
        axes.set_xlabel(below, fontsize=7.5, labelpad=1)
        axes.set_ylabel(beside, fontsize=7.5)
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), borderaxespad=0, fontsize=7.5)
    return drawing.svg
