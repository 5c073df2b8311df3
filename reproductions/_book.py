"""The book of all papers: what stands for each of their tables and figures, and theirs beside ours."""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tacit.checkout import folders_of
from tacit.runs.folder import RunFolder
from tacit.runs.report import fill, pieces

BOOK = "reproduction.json"
STATES = ("done", "differs", "not possible here", "not measured", "not repeated")
OURS = ("paper", "expected", "ours", "sd", "within", "note")  # columns of every table, beside what varies


def write_book(out: Path) -> dict[str, Any]:
    """Write what stands for every table and figure of the papers, from the tables that are in a folder.

    ``reproduction.json`` has the entries: "done", "differs" (a row is outside of what was expected, or the
    contents say what comes out otherwise), "not possible here" (data or memory are missing for all rows that
    were asked for), "not measured" yet, or "not repeated", with the reason; ``absent`` rows need what is not
    here, and ``why`` has the command that gets it. ``index.html`` is the same for people.
    """
    files = [path for path in sorted(out.glob("*.json")) if path.name != BOOK]
    tables = {path.stem: json.loads(path.read_bytes()) for path in files}
    contents = tomllib.loads((folders_of("reproductions")[0] / "contents.toml").read_text(encoding="utf-8"))
    entries = []
    for paper in contents.get("paper", []):
        for item in paper["items"]:
            wanted = item.get("tables", [])
            found = [name for name in tables if any(name.startswith(prefix) for prefix in wanted)]
            rows = {name: _rows_of(item, tables[name]["rows"]) for name in found}
            missed = [name for name in found for row in rows[name] if row.get("within") is False]
            ours = [row for name in found for row in rows[name] if row["ours"] is not None]
            notes = [row["note"] for name in found for row in rows[name] if row.get("note")]
            known = item.get("differs", "") if ours else ""
            if ours:
                state = "differs" if missed or known else "done"
            else:
                state = "not possible here" if notes else "not measured" if wanted else "not repeated"
            remarks = [tables[name]["remarks"] for name in dict.fromkeys(missed)]
            why = " ".join(
                dict.fromkeys(text for text in (item.get("why", ""), known, *remarks, *notes) if text)
            )
            entry = {"paper": paper["title"], "item": item["item"], "about": item["about"], "state": state}
            entries.append(
                {**entry, "tables": found, "outside": len(missed), "absent": len(notes), "why": why}
            )
    counts = {state: sum(entry["state"] == state for entry in entries) for state in STATES}
    book = {"counts": counts, "entries": entries, "tables": [*tables]}
    folder = RunFolder(out)
    folder.write_json(BOOK, book)
    folder.write("index.html", _book_page(contents["paper"], book, tables).encode())
    return book


def _rows_of(item: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of a table of ours that are of this table or figure of the paper."""
    wanted = item.get("where", {}).items()
    return [row for row in rows if all(row.get(key, values[0]) in values for key, values in wanted)]


def _book_page(
    papers: Sequence[Mapping[str, Any]], book: Mapping[str, Any], tables: Mapping[str, Any]
) -> str:
    """Write the book: paper by paper what stands for each table and figure, then theirs beside ours."""
    page, wide = pieces(), Markup("<style>.scroll td:last-child { min-width: 14em }</style>")
    heads = ("table or figure", "about", "state", "our tables", "why")
    sections = {}
    for paper in papers:
        own = [entry for entry in book["entries"] if entry["paper"] == paper["title"]]
        listed = [
            [*(one[name] for name in ("item", "about", "state")), _links(one["tables"]), one["why"]]
            for one in own
        ]
        told = page.sentence(f"{paper['title']}.")
        sections[paper["name"]] = wide + told + page.table(heads, listed, words=5)
    compared = [
        [
            _links([name]),
            ", ".join(f"{key} {row[key]}" for key in row if key not in OURS),
            *_difference(row, table),
        ]
        for name, table in tables.items()
        for row in table["rows"]
        if row.get("paper") is not None and row.get("ours") is not None
    ]
    columns = ("table", "row", "theirs", "ours", "difference", "expected of ours", "if outside, why")
    sections["Theirs beside ours"] = page.table(columns, compared, words=2)
    sections["All tables"] = Markup("<p>{}</p>").format(_links(tables))
    counted = ", ".join(f"{number} {state}" for state, number in book["counts"].items() if number)
    return fill(
        "page.html", "The papers, repeated", sections=sections, lead=f"Tables and figures: {counted}."
    )


def _links(tables: Iterable[str]) -> Markup:
    """Return links to the pages of tables."""
    return Markup(", ").join(Markup('<a href="{0}.html">{0}</a>').format(name) for name in tables)


def _difference(row: Mapping[str, Any], table: Mapping[str, Any]) -> tuple[str, ...]:
    theirs, ours = float(row["paper"]), float(row["ours"])
    expected = " – ".join(f"{limit:g}" for limit in row.get("expected") or ())
    why = table.get("remarks", "") if row.get("within") is False else ""
    return f"{theirs:g}", f"{ours:g}", f"{ours - theirs:+.4g}", expected, why
