"""Section about how the model got better: scores and loss by round, and against what privacy has cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.runs.page.drawing import FEDERATED, LOCAL, POOLED
from tacit.runs.page.figures import HALF, lines
from tacit.runs.page.markup import figure, grid, mapping, section, sequence
from tacit.runs.page.units import number

SHARES = {"accuracy": ("accuracy", FEDERATED, ()), "f1": ("macro F1", POOLED, (4, 2))}
SHARES["r2"] = ("R²", FEDERATED, ())
LOSSES = {"loss": ("log loss", LOCAL, ()), "rmse": ("RMSE", LOCAL, ())}


def rounds_section(result: Mapping[str, Any]) -> str:
    """Set scores and loss after each round; nothing if the method had no rounds.

    >>> rounds_section({"rounds": [{"round": 1, "accuracy": 0.5}]})
    ''
    >>> rounds_section({"rounds": [{"round": 1}, {"round": 2, "accuracy": 0.5}]})
    ''
    >>> "macro F1" in rounds_section({"rounds": [{"round": i, "f1": i / 9, "accuracy": 0.5} for i in (1, 2)]})
    True
    """
    entries = [mapping(entry) for entry in sequence(result.get("rounds"))]
    pooled = mapping(mapping(result.get("scores")).get("centralised"))
    dotted = "; dotted: training on pooled data" if pooled else ""
    drawn = [
        figure(svg, f"{words} on the central test{after}")
        for names, key, label, words, after in (
            (SHARES, "round", "round", "Scores", f" after each round{dotted}"),
            (LOSSES, "round", "round", "Loss", f" after each round{dotted}"),
            (SHARES, "epsilon", "epsilon spent", "Scores", " against what privacy has cost by then"),
        )
        if (svg := curve(entries, key, label, names, pooled))
    ]
    return section("Round by round", grid("two", *drawn))


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
        points = [(number(entry.get(key)), number(entry.get(name))) for entry in entries]
        kept = [(x, y) for x, y in points if x is not None and y is not None]
        if len(kept) > 1:
            series.append((words, kept, colour, dashes))
            if (level := number(pooled.get(name))) is not None:
                levels[words] = level
    return lines(series, f"Scores by {label}", label, width=HALF, levels=levels) if series else ""
