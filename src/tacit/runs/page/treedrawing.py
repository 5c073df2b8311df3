"""The drawing of a tree: splits above, leaves below."""

from collections.abc import Mapping
from itertools import count
from typing import Any

from tacit.runs.page.drawing import FEDERATED, INK, LINE, sheet
from tacit.runs.page.figures import WHOLE
from tacit.runs.page.units import significant

LEVEL = 0.5  # inches between levels
WIDE = 110  # characters beside each other


def tree(root: Mapping[str, Any]) -> str:
    """Draw a tree, as :meth:`tacit.models.trees.BoostedTrees.nested` gives it.

    >>> leaf = {"value": 0.5, "more": False}
    >>> "x &lt; 3" in tree({"split": "x < 3", "missing": "left", "left": leaf, "right": leaf})
    True
    """
    leaves, depth = _size(root)
    with sheet(WHOLE, LEVEL * depth + 0.3, "A tree of splits") as drawing:
        axes = drawing.axes(0.1, 0.1, 0.1, 0.1)
        axes.set_axis_off()
        axes.set_xlim(-0.5, leaves - 0.5)
        axes.set_ylim(-depth - 0.2, 0.2)
        places = count()

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
            axes.text(x, -level, drawing.text(node["split"], WIDE // 2**level), color=INK, **style)
            return x

        place(root, 0)
    return drawing.svg


def _size(node: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many ends a tree has, and how many levels."""
    if "split" not in node:
        return 1, 0
    (left, depth), (right, deeper) = _size(node["left"]), _size(node["right"])
    return left + right, 1 + max(depth, deeper)
