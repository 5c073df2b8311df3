"""Commands that list what there is: methods and protections."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from tacit.cli.common import Json
from tacit.cli.output import exit_with_error_code, say_json, stdout


@exit_with_error_code
def methods(as_json: Json = False) -> None:
    """List the methods with their options."""
    from tacit.cli.tables import listing
    from tacit.methods import METHODS

    found = [
        {
            "name": name,
            "summary": kind.summary(),
            "tasks": kind.tasks,
            "paper": kind.paper,
            "protect": kind.default_protection,
            "options": kind.options(),
        }
        for name, kind in ((name, METHODS.get(name)) for name in METHODS)
    ]
    if as_json:
        say_json({"methods": found})
        return
    stdout.print(listing(found, (("name", "method"), ("summary", "what it is"))))
    _print_options(found)


@exit_with_error_code
def protections(as_json: Json = False) -> None:
    """List the protections with their promises and options."""
    from tacit.cli.promises import changed, described, lines
    from tacit.cli.tables import pairs_table

    found = described()
    if as_json:
        say_json({"protections": found})
        return
    for part in found:
        stdout.print(Text.assemble((part["name"], "bold cyan"), f": {part['summary']}"))
        stdout.print(pairs_table((f"  {key}", text) for key, text in lines(part)))
        for other in part["variants"]:
            flags = " ".join(f"--{key} {value}" for key, value in other["settings"].items())
            stdout.print(Text.assemble("  with ", (flags, "bold"), ":"))
            stdout.print(pairs_table((f"  {key}", text) for key, text in changed(other, part)))
        stdout.print()
    _print_options(found)


def _print_options(parts: list[dict[str, Any]]) -> None:
    from tacit.cli.tables import listing
    from tacit.runs.keys import describe

    rows = [
        {
            "part": part["name"],
            "option": f"--{o.name.replace('_', '-')}",
            "default": str(o.default).lower() if isinstance(o.default, bool) else str(o.default),
            "doc": describe(o).replace("``", ""),
        }
        for part in parts
        for o in part["options"]
    ]
    if rows:
        columns = (("part", "of"), ("option", "option"), ("default", "default"), ("doc", ""))
        stdout.print(listing(rows, columns))
