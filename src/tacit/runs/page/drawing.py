"""Drawings by matplotlib that become inline SVG and obey the page's style sheet.

Colours are stand-ins, replaced by the page's own CSS variables, so that one drawing reads in light and
dark.
"""

import hashlib
import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from tacit.core.text import visible
from tacit.runs.page.units import escape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

WHOLE, HALF, THIRD = 7.5, 3.65, 2.4  # inches: the page shows 7.5 as its full text width
_NAMES = ("ink", "soft", "line", "paper", "federated", "pooled", "local")
_VARIABLES = {f"#01010{place}": f"var(--{name})" for place, name in enumerate(_NAMES, 1)}
INK, SOFT, LINE, PAPER, FEDERATED, POOLED, LOCAL = _VARIABLES
# For pictures made of pixels, which cannot follow a variable: mid-tones with varying opacity.
PIXEL, PIXEL_MISS = (0.16, 0.50, 0.70), (0.84, 0.45, 0.10)

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tacit",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "text.color": INK,
    "legend.frameon": False,
    "patch.linewidth": 0,
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), LINE),
    **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), SOFT),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
}


class Sheet:
    """One drawing, with the SVG once it is finished; ``label`` is for those who cannot see it."""

    svg = Markup()

    def __init__(self, width: float, height: float, label: str) -> None:
        from matplotlib.figure import Figure

        self.label, self.figure = label, Figure((width, height), layout="constrained")

    def axes(self, across: str = "", up: str = "") -> "Axes":
        """Return the axes of a drawing that has one pair, with what they show."""
        return self.figure.add_subplot(xlabel=across, ylabel=up)

    def text(self, value: object, longest: int = 28) -> str:
        """Return a text from the data as it may be drawn; a long one is cut."""
        text = visible(str(value))
        text = f" {text}" if text.startswith("_") else text  # which legends would leave out
        return text if len(text) <= longest else text[: longest - 1] + "…"

    def legend(self, columns: int) -> None:
        """Put the legend above all, from the left."""
        self.figure.legend(loc="outside upper left", ncols=columns)

    def finish(self) -> None:
        """Turn the drawing into SVG."""
        raw = io.StringIO()
        self.figure.savefig(raw, format="svg", transparent=True, metadata={"Date": None})
        self.svg = Markup(_inline(raw.getvalue(), self.label))


@contextmanager
def sheet(width: float, height: float, label: str) -> Iterator[Sheet]:
    """Draw on a sheet in the page's style; its ``svg`` is ready after the block."""
    from matplotlib import rc_context

    with rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of letters that no font here has: the browser's may
        drawing = Sheet(width, height, label)
        yield drawing
        drawing.finish()


def tick(axis: "Axis", most: int, write: Callable[[float], str] | None = None, **settings: Any) -> None:
    """Mark so many places of an axis at the most, written as told."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(most, **settings))
    if write is not None:
        axis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))


def pixels(depths: NDArray[np.float64], hits: Any = True) -> NDArray[np.float64]:
    """Return an image of varying opacity: light and dark pages show through it. What misses is orange."""
    colours = np.where(np.broadcast_to(hits, depths.shape)[..., None], PIXEL, PIXEL_MISS)
    return np.dstack([colours, depths])


def _inline(raw: str, label: str) -> str:
    body = raw[raw.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    viewbox = re.search(r'viewBox="[^"]*"', body)
    head = f'<svg role="img" aria-label="{escape(label)}" {viewbox.group() if viewbox else ""}>'
    body = head + body[body.index(">") + 1 :]
    # Ids are unique within a drawing only; several drawings share the page.
    prefix = "d" + hashlib.sha256(body.encode()).hexdigest()[:8]
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", body)
    for stand_in, variable in _VARIABLES.items():
        body = body.replace(stand_in, variable)
    return re.sub(r"\n\s*", "\n", body).strip()
