"""A sheet to draw on with matplotlib, which becomes an inline SVG that obeys the page's style sheet.

Colours are stand-ins that are replaced by the page's own CSS variables, so that one drawing reads in light
and dark. Texts from the data are stand-ins too: matplotlib would read ``$`` as mathematics and warn of
letters its font lacks, so they are written, escaped, into the finished SVG.
"""

import hashlib
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tacit.runs.page.units import escape

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMES = ("ink", "soft", "line", "paper", "federated", "pooled", "local")
_VARIABLES = {f"#01010{place}": f"var(--{name})" for place, name in enumerate(_NAMES, 1)}
INK, SOFT, LINE, PAPER, FEDERATED, POOLED, LOCAL = _VARIABLES
# For pictures made of pixels, which cannot follow a variable: mid-tones with varying opacity.
PIXEL = (0.16, 0.50, 0.70)
PIXEL_MISS = (0.84, 0.45, 0.10)

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tacit",
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "text.color": INK,
    "legend.frameon": False,
    "patch.linewidth": 0,
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), LINE),
    **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), SOFT),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 3),
}


class Sheet:
    """One drawing: axes placed in inches, texts by stand-in, and the SVG once it is finished.

    The page shows 7.5 inches as its full text width; ``label`` is for those who cannot see the drawing.
    """

    def __init__(self, width: float, height: float, label: str) -> None:
        from matplotlib.figure import Figure

        self.width, self.height, self.label = width, height, label
        self.svg = ""  # until it is finished
        self._figure = Figure(figsize=(width, height))
        self._figure.patch.set_visible(False)
        self._texts: list[str] = []

    def axes(
        self, left: float, bottom: float, right: float, top: float, across: str = "", up: str = ""
    ) -> "Axes":
        """Place axes by their margins in inches, with what they show."""
        size = (self.width - left - right) / self.width, (self.height - bottom - top) / self.height
        axes = self._figure.add_axes((left / self.width, bottom / self.height, *size))
        axes.patch.set_visible(False)
        axes.set_xlabel(across, fontsize=7.5, labelpad=1)
        axes.set_ylabel(up, fontsize=7.5)
        return axes

    def text(self, value: object, longest: int = 28) -> str:
        """Return a stand-in for a text from the data; a long one is cut."""
        text = str(value)
        self._texts.append(text if len(text) <= longest else text[: longest - 1] + "…")
        return f"text-{len(self._texts) - 1:05d}-"

    def finish(self) -> None:
        """Turn the drawing into SVG."""
        raw = io.StringIO()
        self._figure.savefig(raw, format="svg", transparent=True, metadata={"Date": None})
        self.svg = _inline(raw.getvalue(), self.label, self._texts)


@contextmanager
def sheet(width: float, height: float, label: str) -> Iterator[Sheet]:
    """Draw on a sheet in the page's style; its ``svg`` is ready after the block.

    >>> with sheet(2, 1, "a line") as drawing:
    ...     lines = drawing.axes(0.2, 0.2, 0.1, 0.1).plot([0, 1], [0, 1], color=FEDERATED)
    >>> drawing.svg[:52], "var(--federated)" in drawing.svg
    ('<svg role="img" aria-label="a line" viewBox="0 0 144', True)
    """
    from matplotlib import rc_context

    with rc_context(_STYLE):
        drawing = Sheet(width, height, label)
        yield drawing
        drawing.finish()


def _inline(raw: str, label: str, texts: list[str]) -> str:
    """Make matplotlib's SVG document fit to stand inside a page, next to others of its kind."""
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
    body = re.sub(r"text-(\d{5})-", lambda match: escape(texts[int(match.group(1))]), body)
    return re.sub(r"\n\s*", "\n", body).strip()
