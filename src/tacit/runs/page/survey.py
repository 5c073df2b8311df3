"""The page of a survey: the recommendation, the table, scores against costs, rounds, and who saw what."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tacit.runs.page.drawing import FEDERATED, INK, LINE, LOCAL, POOLED, SOFT, THIRD, WHOLE, sheet
from tacit.runs.page.figures import lines
from tacit.runs.page.units import count, decimal, energy_text, short, size_text, time_text

Row = Mapping[str, Any]

COSTS: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "bytes_up": ("bytes up, a client", size_text),
    "bytes_down": ("bytes down, a client", size_text),
    "messages": ("messages", count),
    "waves": ("waves", count),
    "cpu_client_s": ("CPU of the slowest client", time_text),
    "cpu_coordinator_s": ("CPU of the coordinator", time_text),
    "cpu_s": ("CPU of all", time_text),
    "wh": ("energy", energy_text),
    "epsilon": ("epsilon", decimal),
    "memory_mb": ("peak memory, MB", count),
}
DRAWN = {"bytes_up": "bytes from a client", "cpu_s": "CPU of all", "wh": "energy"}
COLOURS = (FEDERATED, POOLED, LOCAL, INK, SOFT)


def scatter(rows: Sequence[Row], front: Sequence[Row], cost: str, measure: str) -> str:
    """Draw scores against a cost on a logarithmic axis; those on the front are joined and named."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    with sheet(THIRD, 2.2, f"{measure} against {DRAWN[cost]}") as drawing:
        axes = drawing.axes(DRAWN[cost], measure)
        axes.set_xscale("log")
        axes.margins(y=0.15)  # room for names below the lowest points
        axes.scatter([row[cost] for row in rows], [row["score"] for row in rows], s=14, color=LINE)
        points = [(row[cost], row["score"]) for row in front]
        axes.plot(*zip(*points, strict=True), color=FEDERATED, linewidth=1.2, marker="o", markersize=3.5)
        for row, point in zip(front, points, strict=True):
            text = drawing.text(row["method"], 18)
            axes.annotate(text, point, xytext=(2, -7), textcoords="offset points", fontsize=6, color=INK)
        axes.xaxis.set_major_locator(LogLocator(numticks=4))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(COSTS[cost][1](value))))
    return drawing.svg


def read_survey(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page of a survey shows."""
    rows, measure = found["rows"], found["measure"]
    done = [row for row in rows if row["state"] == "done"]
    scored = [row for row in done if row["score"] is not None]
    heads = ["method", "protection", measure, *(words for words, _ in COSTS.values())]
    cells = [
        [
            row["method"],
            row["protect"],
            decimal(row["score"]),
            *(write(row[name]) for name, (_, write) in COSTS.items()),
        ]
        for row in sorted(done, key=lambda row: -(row["score"] or 0.0))
    ]
    drawings = [
        (scatter(scored, found["fronts"][cost], cost, measure), f"{measure} against {text}")
        for cost, text in DRAWN.items()
        if scored
    ]
    curves = [
        (f"{row['method']}, {row['protect']}", row["curve"], COLOURS[place % len(COLOURS)], (2, place // 5))
        for place, row in enumerate(row for row in done if len(row["curve"]) > 1)
    ]
    return {
        "recommendation": found["recommendation"],
        "heads": heads,
        "cells": cells,
        "drawings": drawings,
        "rounds": lines(curves, f"{measure} by round", "round", measure, width=WHOLE) if curves else "",
        "done": done,
        "others": [
            (f"{row['method']}, {row['protect']}", row["note"]) for row in rows if row["state"] != "done"
        ],
    }
