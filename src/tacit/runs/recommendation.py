"""Which way of learning to take, from measured rows: the Pareto front, and rules that can be read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

Row = dict[str, Any]

CLOSE = 0.01  # of the best score: what differs by less counts as as good


class Needs(NamedTuple):
    """What a federation needs beside a good score."""

    link: float | None = None  # bytes that a client can send and receive in all
    no_server: bool = False  # whether nobody trusts the coordinator with totals


NOTHING = Needs()


def rules_for(need: Needs) -> dict[str, Callable[[Row], bool]]:
    """Return the rules that a federation asks for, in words, each with which rows fit; in this order."""
    rules: dict[str, Callable[[Row], bool]] = {
        "contributions are hidden from the coordinator": lambda row: row["hides"]
    }
    if need.no_server:
        rules["totals open at the clients, since no server is trusted"] = lambda row: (
            row["opens"] == "clients"
        )
    if (link := need.link) is not None:
        rules["what a client sends and receives fits its link"] = lambda row: (
            row["bytes_up"] + row["bytes_down"] <= link
        )
    return rules


def front(rows: Sequence[Row], cost: str) -> list[Row]:
    """Return the rows of which no other has a better score for less: the Pareto front, cheapest first.

    >>> rows = [{"score": 0.9, "wh": 2.0}, {"score": 0.8, "wh": 1.0}, {"score": 0.7, "wh": 3.0}]
    >>> [row["score"] for row in front(rows, "wh")]
    [0.8, 0.9]
    """
    best, found = -np.inf, []
    for row in sorted(_scored(rows), key=lambda each: (each[cost], -each["score"])):
        if row["score"] > best:
            best = row["score"]
            found.append(row)
    return found


def _scored(rows: Iterable[Row]) -> Iterator[Row]:
    return (row for row in rows if row.get("score") is not None)


def recommend(rows: Sequence[Row], need: Needs = NOTHING) -> str:
    """Return which row to take, in words, with the rules that it follows from."""
    left, held = list(_scored(rows)), []
    if not left:
        return "No cell has a score: keep rows for a test, with --test 0.3."
    best = max(left, key=lambda row: row["score"])
    for text, fits in rules_for(need).items():  # one that would leave nothing is passed over
        fitting = [row for row in left if fits(row)]
        held.append(text if fitting else f"no row fulfils that {text}: passed over")
        left = fitting or left
    top = max(row["score"] for row in left)
    chosen = min((row for row in left if row["score"] >= top - CLOSE), key=lambda row: row["cpu_s"])
    text = f"{chosen['method']} under {chosen['protect']}: score {chosen['score']:.3f}"
    if best["score"] > chosen["score"] + CLOSE:
        text += f" (best of all is {best['method']} under {best['protect']}, {best['score']:.3f})"
    return (
        f"{text}. Of what scores within {CLOSE} of the best it takes the least CPU time; {'; '.join(held)}."
    )
