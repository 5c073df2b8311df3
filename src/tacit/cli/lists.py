"""Commands that list what there is: methods and protections."""

from typing import Annotated, Any

import typer
from rich.text import Text

from tacit.cli.output import Json, listing, pairs_table, say

Name = Annotated[str | None, typer.Argument(help="Which one, with all its options.")]


def methods(name: Name = None, as_json: Json = False) -> None:
    """List the methods, or describe one with its options."""
    from tacit.methods import METHODS
    from tacit.runs.page.context import seen_by

    found: list[dict[str, Any]] = [
        {
            "name": each,
            "summary": kind.summary(),
            "tasks": kind.tasks,
            "paper": kind.paper,
            "protect": kind.default_protection,
            "reveals": dict(kind.reveals),
            "options": kind.options(),
        }
        for each, kind in ((each, METHODS.get(each)) for each in ([name] if name else METHODS))
    ]
    brief = [{**each, "summary": str(each["summary"]).partition(" (")[0]} for each in found]
    shown: list[Any] = [listing(brief, {"name": "method", "summary": "what it is"})]
    shown.append("\noptions: tacit methods NAME")
    if name:
        words = {"tasks": "learns", "paper": "paper", "protect": "protected by default by"}
        pairs = [(text, found[0][key]) for key, text in words.items()]
        facts = pairs_table((f"  {text}", fact) for text, fact in [*pairs, *seen_by(found[0]["reveals"])])
        shown = [_title(found[0]), facts, _options(found[0])]
    say(as_json, {"methods": found}, *shown)


def protections(name: Name = None, as_json: Json = False) -> None:
    """List the protections, or describe one with its promises and options."""
    from tacit.cli.promises import changed, described
    from tacit.protections import PROTECTIONS
    from tacit.runs.page.context import promise_lines

    found = described([PROTECTIONS.get(name).registered_name()] if name else PROTECTIONS)
    heads = {"name": "protection", "opens": "totals open at", "summary": "what it is"}
    shown: list[Any] = [listing(found, heads), "\npromises and options: tacit protections NAME"]
    if name:
        (part,) = found
        shown = [_title(part), pairs_table((f"  {key}", text) for key, text in promise_lines(part))]
        for other in part["variants"]:
            flags = " ".join(f"--{key} {value}" for key, value in other["settings"].items())
            differing = pairs_table((f"  {key}", text) for key, text in changed(other, part))
            shown += [Text.assemble("  with ", (flags, "bold"), ":"), differing]
        shown += ["", _options(part)]
    say(as_json, {"protections": found}, *shown)


def _title(part: dict[str, Any]) -> Text:
    return Text.assemble((part["name"], "bold cyan"), f": {part['summary']}")


def _options(part: dict[str, Any]) -> Any:
    from tacit.runs.keys import describe, flag_text

    rows = [
        {
            "option": f"--{option.name.replace('_', '-')}",
            "default": flag_text(option.default),
            "doc": describe(option).replace("``", ""),
        }
        for option in part["options"]
    ]
    return listing(rows, {"option": "option", "default": "default", "doc": ""}) if rows else ""
