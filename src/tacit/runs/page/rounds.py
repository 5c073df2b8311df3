"""Section about how the model got better: scores by round, and against what privacy has cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.runs.page.drawing import FEDERATED, POOLED, sheet
from tacit.runs.page.figures import HALF, WHOLE, legend_above
from tacit.runs.page.markup import figure, grid, mapping, section, sequence
from tacit.runs.page.units import number

LINES = (("accuracy", "accuracy", FEDERATED, (None, None)), ("f1", "macro F1", POOLED, (4, 2)))


def rounds_section(result: Mapping[str, Any]) -> str:
    """Set the scores after each round; nothing if the method had no rounds.

    >>> rounds_section({"rounds": [{"round": 1, "accuracy": 0.5}]})
    ''
    >>> rounds_section({"rounds": [{"round": 1}, {"round": 2, "accuracy": 0.5}]})
    ''
    >>> "macro F1" in rounds_section({"rounds": [{"round": i, "f1": i / 9, "accuracy": 0.5} for i in (1, 2)]})
    True
    """
    entries = [mapping(entry) for entry in sequence(result.get("rounds"))]
    if len(entries) < 2:
        return ""
    private = any(number(entry.get("epsilon")) is not None for entry in entries)
    by_round = curve(entries, "round", "round", HALF if private else WHOLE)
    drawn = [figure(by_round, "Scores on the central test after each round")] if by_round else []
    if private and (by_cost := curve(entries, "epsilon", "epsilon spent", HALF)):
        drawn.append(figure(by_cost, "The same scores against what privacy has cost by then"))
    if not drawn:
        return ""
    return section("Round by round", grid("two", *drawn) if private else "".join(drawn))


def curve(entries: Sequence[Mapping[str, Any]], key: str, label: str, width: float) -> str:
    """Draw scores against one of the numbers of each round."""
    series = []
    for name, words, colour, dashes in LINES:
        points = [(number(entry.get(key)), number(entry.get(name))) for entry in entries]
        kept = [(x, y) for x, y in points if x is not None and y is not None]
        if len(kept) > 1:
            series.append((words, kept, colour, dashes))
    if not series:
        return ""
    from matplotlib.ticker import MaxNLocator

    with sheet(width, 1.9, f"Scores by {label}") as drawing:
        axes = drawing.axes(0.5, 0.38, 0.12, 0.32)
        for words, kept, colour, dashes in series:
            style: dict[str, Any] = {} if dashes[0] is None else {"dashes": dashes}
            axes.plot(*zip(*kept, strict=True), color=colour, linewidth=1.4, label=words, **style)
        axes.set_xlabel(label, fontsize=7.5, labelpad=1)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=key == "round"))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        legend_above(axes, ncols=2, fontsize=7.5)
    return drawing.svg
