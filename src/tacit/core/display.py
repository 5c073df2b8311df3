"""How objects show themselves: a line in a terminal, a small table in a notebook; never rows of data."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from tacit.core.text import visible


class Shown:
    """What shows itself by a few facts."""

    def facts(self) -> Mapping[str, Any]:
        """Return what a person wants to know first; None is left out."""
        raise TypeError(f"{type(self).__name__} must say which facts it shows")

    def _told(self) -> dict[str, str]:
        return {name: in_words(value) for name, value in self.facts().items() if value is not None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(' '.join(pair) for pair in self._told().items())})"

    def _repr_html_(self) -> str:
        return html_table(self._told().items(), title=type(self).__name__)


def in_words(value: Any) -> str:
    """Return a value as people read it: few digits, and of many names the first."""
    if isinstance(value, list | tuple):
        more = f" and {len(value) - 4} more" if len(value) > 6 else ""
        return ", ".join(visible(str(word)) for word in (value[:4] if more else value)) + more
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else visible(str(value))


def html_table(rows: Iterable[Sequence[Any]], heads: Sequence[str] = (), title: str = "") -> str:
    """Return a table for notebooks; whatever comes from others is escaped."""

    def line(cells: Sequence[Any], tag: str) -> str:
        words = (escape(visible(str(cell))) for cell in cells)
        return "<tr>" + "".join(f"<{tag}>{word}</{tag}>" for word in words) + "</tr>"

    caption = f"<caption>{escape(title)}</caption>" if title else ""
    head = line(heads, "th") if heads else ""
    return f"<table>{caption}{head}{''.join(line(row, 'td') for row in rows)}</table>"
