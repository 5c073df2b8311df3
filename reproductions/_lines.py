"""Lines over numbers for the pages of repeated papers, told apart by dashes and marks, as inline SVG."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tacit.runs.page.drawing import INK, sheet

Points = Sequence[tuple[float, float]]
Rows = Sequence[Mapping[str, Any]]
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (3, 1)), (0, (1, 2.5)))
MARKS = "oDs^vx"


def plot(
    caption: str, beside: str, over: str, *names: str, log: str = "", each: str = ""
) -> Callable[[Rows], dict[str, str]]:
    """Return what draws rows over one setting, a line for each combination of ``names``.

    ``beside`` names what is measured; there is a drawing for each value of the setting ``each``.
    """

    def draw(rows: Rows) -> dict[str, str]:
        drawn = {}
        for value in dict.fromkeys(row.get(each) for row in rows):
            named = series([row for row in rows if row.get(each) == value], over, *names)
            if named:
                title = f"{value}: {caption}" if each else caption
                drawn[title] = lines(named, over, beside, log=log)
        return drawn

    return draw


def series(rows: Rows, over: str, *names: str) -> dict[str, list[tuple[float, float]]]:
    """Return measured points over one setting, if it is a number; a line for each combination of the others.

    >>> series([{"data": "a", "clients": 2, "ours": 1.0}, {"data": "a", "clients": 4, "ours": None}],
    ...        "clients", "data")
    {'a': [(2, 1.0)]}
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["ours"] is not None and not isinstance(row[over], str):
            label = ", ".join(str(row[name]) for name in names)
            found.setdefault(label, []).append((row[over], row["ours"]))
    return found


def lines(named: Mapping[str, Points], below: str, beside: str, *, log: str = "") -> str:
    """Draw lines; ``log`` names the axes that are logarithmic.

    >>> "skin" in lines({"skin": [(1, 0.5), (10, 0.6)]}, "clients", "accuracy", log="x")
    True
    """
    with sheet(7.5, 3.4, f"{beside} by {below}: {', '.join(named)}") as drawing:
        axes = drawing.axes(below, beside)
        for place, (name, points) in enumerate(named.items()):
            x, y = zip(*sorted(points), strict=True)
            turn, dash = divmod(place, len(DASHES))
            style: dict[str, Any] = {"linestyle": DASHES[dash], "marker": MARKS[turn % len(MARKS)]}
            style |= {"markersize": 3.5, "markerfacecolor": "none"}
            axes.plot(x, y, color=INK, linewidth=1.0, alpha=0.8, label=drawing.text(name, 44), **style)
        axes.set(xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear")
        for axis in (getattr(axes, f"{letter}axis") for letter in log):
            axis.set_major_formatter("{x:g}")  # the usual one writes powers as mathematics
            axis.set_minor_formatter("")
        drawing.figure.legend(loc="outside right center", fontsize=6.5)
    return drawing.svg
