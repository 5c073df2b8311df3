"""A measured table as a page that can be read offline."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

STYLE = """
:root { color-scheme: light dark; --rule: #8884; --soft: #777; --good: #2a7f4f; --bad: #b4452c } body {
font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 3rem auto; padding: 0 1.5rem } h1 {
font-size: 1.5rem; line-height: 1.25 } .soft { color: var(--soft) } table { border-collapse: collapse;
width: 100%; font-variant-numeric: tabular-nums; margin: 1.5rem 0 } th, td { text-align: right; padding:
.35rem .75rem; border-bottom: 1px solid var(--rule) } th:first-child, td:first-child { text-align: left } th
{ font-weight: 600; border-bottom-width: 2px } figure { margin: 1.5rem 0 } svg { width: 100%; height: auto;
--ink: currentColor; --soft: #777; --line: #888a } .yes { color: var(--good) } .no { color: var(--bad);
font-weight: 600 }
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
    head = "".join(f"<th scope=col>{html.escape(column)}</th>" for column in columns)
    body = "\n".join(
        "<tr>" + "".join(_cell(column, row.get(column)) for column in columns) + "</tr>"
        for row in table["rows"]
    )
    title, paper, quantity, remarks = (
        html.escape(str(table[key])) for key in ("title", "paper", "quantity", "remarks")
    )
    drawn = "\n".join(
        f"<figure>{svg}<figcaption class=soft>{html.escape(caption)}</figcaption></figure>"
        for caption, svg in (figures or {}).items()
    )
    return f"""<!doctype html>
<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>{title}</title><style>{STYLE}</style>
<h1>{title}</h1>
<p class=soft>{paper}.</p>
<p>Measured: {quantity}; mean and standard deviation of {table["seeds"]} seeds.</p>
<p class=soft>Settings: {html.escape(settings)}.</p>
{drawn}
<table><thead><tr>{head}</tr></thead><tbody>
{body}
</tbody></table>
<p class=soft>{remarks}</p>
</html>
"""


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys of all rows, in order: a row that could not be measured has others.

    >>> columns_of([{"data": "a", "note": "absent"}, {"data": "b", "ours": 1.0}])
    ['data', 'note', 'ours']
    """
    return list(dict.fromkeys(key for row in rows for key in row))


def _cell(column: str, value: Any) -> str:
    if column == "within" and value is not None:
        return f"<td class={'yes' if value else 'no'}>{'yes' if value else 'no'}</td>"
    if isinstance(value, list):
        value = " – ".join(f"{limit:g}" for limit in value)
    text = "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    return f"<td>{html.escape(text)}</td>"
