"""Commands that list what there is: methods and protections."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from tacit.cli.common import Json
from tacit.cli.output import exit_with_error_code, say_json, stdout

Name = Annotated[str | None, typer.Argument(help="Which one, with all its options.")]


@exit_with_error_code
def methods(name: Name = None, as_json: Json = False) -> None:
    """List the methods, or describe one with its options."""
    from tacit.cli.tables import listing, pairs_table
    from tacit.methods import METHODS

    found = [
        {
            "name": each,
            "summary": kind.summary(),
            "tasks": kind.tasks,
            "paper": kind.paper,
            "protect": kind.default_protection,
            "options": kind.options(),
        }
        for each, kind in ((each, METHODS.get(each)) for each in ([name] if name else METHODS))
    ]
    if as_json:
        say_json({"methods": found})
    elif name is None:
        stdout.print(listing(found, (("name", "method"), ("summary", "what it is"))))
        stdout.print("\noptions: tacit methods NAME")
    else:
        _print_title(found[0])
        words = {"tasks": "learns", "paper": "paper", "protect": "protected by default by"}
        stdout.print(pairs_table((f"  {words[key]}", found[0][key]) for key in words))
        _print_options(found)


@exit_with_error_code
def protections(name: Name = None, as_json: Json = False) -> None:
    """List the protections, or describe one with its promises and options."""
    from tacit.cli.promises import changed, described, lines
    from tacit.cli.tables import listing, pairs_table
    from tacit.protections import PROTECTIONS

    found = described([PROTECTIONS.get(name).registered_name()] if name else PROTECTIONS)
    if as_json:
        say_json({"protections": found})
        return
    if name is None:
        columns = (("name", "protection"), ("opens", "totals open at"), ("summary", "what it is"))
        stdout.print(listing(found, columns))
        stdout.print("\npromises and options: tacit protections NAME")
        return
    for part in found:
        _print_title(part)
        stdout.print(pairs_table((f"  {key}", text) for key, text in lines(part)))
        for other in part["variants"]:
            flags = " ".join(f"--{key} {value}" for key, value in other["settings"].items())
            stdout.print(Text.assemble("  with ", (flags, "bold"), ":"))
            stdout.print(pairs_table((f"  {key}", text) for key, text in changed(other, part)))
    stdout.print()
    _print_options(found)


def _print_title(part: dict[str, Any]) -> None:
    stdout.print(Text.assemble((part["name"], "bold cyan"), f": {part['summary']}"))


def _print_options(parts: list[dict[str, Any]]) -> None:
    from tacit.cli.tables import listing
    from tacit.runs.keys import describe

    rows = [
        {
            "option": f"--{o.name.replace('_', '-')}",
            "default": str(o.default).lower() if isinstance(o.default, bool) else str(o.default),
            "doc": describe(o).replace("``", ""),
        }
        for part in parts
        for o in part["options"]
    ]
    if rows:
        columns = (("option", "option"), ("default", "default"), ("doc", ""))
        stdout.print(listing(rows, columns))
