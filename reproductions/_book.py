"""The book of all papers: what stands for each of their tables and figures, and theirs beside ours."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tacit.checkout import folders_of
from tacit.runs.folder import RunFolder
from tacit.runs.page.units import escape
from tacit.runs.report import fill, pieces

BOOK = "reproduction.json"
STATES = ("done", "differs", "not measured", "not repeated")
OURS = ("paper", "expected", "ours", "sd", "within", "note")  # columns of every table, beside what varies


def write_book(out: Path) -> dict[str, Any]:
    """Write what stands for every table and figure of the papers, from the tables that are in a folder.

    ``reproduction.json`` has the entries: "done", "differs" (some row is outside of what was expected),
    "not measured" yet, or "not repeated", with the reason; ``absent`` rows need data that are not here, and
    ``why`` has the command that gets them. ``index.html`` is the same for people.
    """
    files = [path for path in sorted(out.glob("*.json")) if path.name != BOOK]
    tables = {path.stem: json.loads(path.read_bytes()) for path in files}
    contents = tomllib.loads((folders_of("reproductions")[0] / "contents.toml").read_text(encoding="utf-8"))
    entries = []
    for paper in contents.get("paper", []):
        for item in paper["items"]:
            wanted = item.get("tables", [])
            found = [name for name in tables if any(name.startswith(prefix) for prefix in wanted)]
            rows = {name: tables[name]["rows"] for name in found}
            missed = [name for name in found for row in rows[name] if row.get("within") is False]
            ours = [row for name in found for row in rows[name] if row["ours"] is not None]
            notes = [row["note"] for name in found for row in rows[name] if row.get("note")]
            state = "differs" if missed else "done" if ours else "not measured" if wanted else "not repeated"
            remarks = [tables[name]["remarks"] for name in dict.fromkeys(missed)]
            why = " ".join(dict.fromkeys(text for text in (item.get("why", ""), *remarks, *notes) if text))
            entry = {"paper": paper["title"], "item": item["item"], "about": item["about"], "state": state}
            entries.append(
                {**entry, "tables": found, "outside": len(missed), "absent": len(notes), "why": why}
            )
    counts = {state: sum(entry["state"] == state for entry in entries) for state in STATES}
    book = {"counts": counts, "entries": entries, "tables": [*tables]}
    folder = RunFolder(out)
    folder.write_json(BOOK, book)
    folder.write("index.html", _book_page(book, tables).encode())
    return book


def _book_page(book: Mapping[str, Any], tables: Mapping[str, Any]) -> str:
    """Write the book: what stands for each table and figure, then theirs beside ours."""
    counted = ", ".join(f"{number} {state}" for state, number in book["counts"].items() if number)
    heads = ("paper", "table or figure", "about", "state", "our tables", "why")
    listed = [
        [one["paper"], one["item"], one["about"], one["state"], ", ".join(one["tables"]), one["why"]]
        for one in book["entries"]
    ]
    compared = [
        [name, ", ".join(f"{key} {row[key]}" for key in row if key not in OURS), *_difference(row)]
        for name, table in tables.items()
        for row in table["rows"]
        if row.get("paper") is not None and row.get("ours") is not None
    ]
    links = "".join(f'<li><a href="{escape(name)}.html">{escape(name)}</a></li>' for name in tables)
    beside = pieces().table(("table", "row", "theirs", "ours", "difference"), compared, words=2)
    sections = {
        "Tables and figures": pieces().table(heads, listed, words=6),
        "Theirs beside ours": beside,
        "All tables": Markup(f'<ul class="plain">{links}</ul>'),
    }
    lead = f"Tables and figures: {counted}."
    return fill("page.html", "The papers, repeated", sections=sections, lead=lead)


def _difference(row: Mapping[str, Any]) -> tuple[str, str, str]:
    theirs, ours = float(row["paper"]), float(row["ours"])
    return f"{theirs:g}", f"{ours:g}", f"{ours - theirs:+.4g}"
