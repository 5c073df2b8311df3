"""A measured table as a page that can be read offline."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.runs.page import markup

STYLE = """
:root { color-scheme: light dark } body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 3rem
auto; padding: 0 1.5rem } h1 { font-size: 1.5rem; line-height: 1.25 } .soft, figcaption { color: #777 } table
{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin: 1.5rem 0 } th, td {
text-align: left; padding: .35rem .75rem; border-bottom: 1px solid #8884 } .n { text-align: right } thead th
{ border-bottom-width: 2px } figure { margin: 1.5rem 0 } svg { width: 100%; height: auto; --ink: currentColor;
--soft: #777; --line: #888a }
"""


def render(table: Mapping[str, Any], figures: Mapping[str, str] | None = None) -> str:
    """Write a table of the harness as self-contained HTML, with drawings (SVG by caption) above it.

    >>> page = render({"title": "T", "paper": "P", "quantity": "q", "seeds": 1, "remarks": "",
    ...                "rows": [{"data": "<b>", "paper": None, "ours": 0.5, "within": True}]})
    >>> "&lt;b&gt;" in page, "<b>" in page
    (True, False)
    """
    columns = columns_of(table["rows"])
    settings = ", ".join(f"{key} {value}" for key, value in table.get("settings", {}).items())
    measured = markup.table(columns, [[_text(row.get(name)) for name in columns] for row in table["rows"]])
    drawn = "".join(markup.figure(svg, caption) for caption, svg in (figures or {}).items())
    title, paper, quantity, remarks = (
        html.escape(str(table[key])) for key in ("title", "paper", "quantity", "remarks")
    )
    return f"""<!doctype html>
<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>{title}</title><style>{STYLE}</style>
<h1>{title}</h1>
<p class=soft>{paper}.</p>
<p>Measured: {quantity}; mean and standard deviation of {table["seeds"]} seeds.</p>
<p class=soft>Settings: {html.escape(settings)}.</p>
{drawn}
{measured}
<p class=soft>{remarks}</p>
</html>
"""


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys of all rows, in order: a row that could not be measured has others.

    >>> columns_of([{"data": "a", "note": "absent"}, {"data": "b", "ours": 1.0}])
    ['data', 'note', 'ours']
    """
    return list(dict.fromkeys(key for row in rows for key in row))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, list):
        return " – ".join(f"{limit:g}" for limit in value)
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
