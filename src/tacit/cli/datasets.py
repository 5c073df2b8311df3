"""Commands about data sets: list, describe, check, fetch."""

from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from tacit.cli.flags import GIVEN, ReadingCommand
from tacit.cli.output import Json, Quiet, complete_data, listing, pairs_table, say, say_json, stdout
from tacit.core.errors import ConfigError

data_app = typer.Typer(help="Data sets: list them, describe one, check a file, fetch an original.")


@data_app.callback(invoke_without_command=True)
def data_list(context: typer.Context, as_json: Json = False) -> None:
    """List the data sets that can be named."""
    if context.invoked_subcommand:
        if as_json:
            raise ConfigError(f"write --json at the end: tacit data {context.invoked_subcommand} … --json")
        return
    from tacit.data.files import available

    found = [msgspec.to_builtins(known) for known in available()]
    say(as_json, {"data": found}, listing(found, {"name": "name", "kind": "kind", "title": "what it is"}))


@data_app.command("describe", cls=ReadingCommand)
def data_describe(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Data set, or path of a file.", autocompletion=complete_data)],
    as_json: Json = False,
) -> None:
    """Describe a data set: rows, features, classes, provenance."""
    from tacit.data.inspection import describe

    facts = describe(name, **context.meta[GIVEN].get("data", {}))
    known = [(key, value) for key, value in facts.items() if value not in (None, {}, [], "")]
    say(as_json, facts, pairs_table(known))


@data_app.command("check", cls=ReadingCommand)
def data_check(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Data set or path, several or a folder for one file of each site; if left out, all here.",
            autocompletion=complete_data,
        ),
    ] = None,
    missing: Annotated[
        str, typer.Option(help="How the run treats missing numbers: refuse or mean.")
    ] = "refuse",
    as_json: Json = False,
) -> None:
    """Check data before a run: all findings at once, how grave each is, and what would leave the site.

    Ends with code 3 if a run on what is named would not work, or if any set is not what the catalogue says.
    """
    from tacit.core.errors import DataError
    from tacit.data.files import available, list_parts
    from tacit.data.inspection import check, check_sites

    if missing not in ("refuse", "mean"):
        raise ConfigError(f"missing is '{missing}': give refuse or mean")
    if names and len(names) == 1 and (parts := list_parts(names[0])):
        names = [*map(str, parts.values())]
    here = names or [known.name for known in available() if known.kind in ("built-in", "file")]
    choices = context.meta[GIVEN].get("data", {})
    if names and len(names) > 1:
        found = check_sites(*names, missing=missing, **choices)
        results = found["sites"]
    else:
        results = {each: check(each, missing=missing, **choices) for each in here}
        found = results[names[0]] if names else {"checks": results}
    if as_json:
        say_json(found)
    else:
        for each, result in results.items():
            _show(each, result, details=bool(names))
        if "sites" in found:
            _show("all together", {**found, "rows": sum(result["rows"] for result in results.values())})
    if any(result["digest"] == "other" for result in results.values()) or (names and not found["ok"]):
        raise typer.Exit(DataError.exit_code)


def _show(name: str, result: dict[str, Any], *, details: bool = True) -> None:
    mark = Text("  ok", "green") if result["ok"] else Text("look", "yellow")
    stdout.print(Text.assemble(mark, f"  {name}: {result['rows']:,} rows"), soft_wrap=True)
    styles = {"error": "red", "warning": "yellow", "info": "dim"}
    for finding in result["findings"]:
        if details or finding["severity"] == "error":
            where = f"column '{finding['column']}' " if finding["column"] else ""
            mark = Text(f"{finding['severity']:>12}", styles[finding["severity"]])
            stdout.print(Text.assemble(mark, f"  {where}{finding['text']}"), soft_wrap=True)
    if details and (leaves := result.get("leaves")):
        named, labels = len(leaves["columns"]), len(leaves["classes"])
        words = sum(map(len, leaves["categories"].values()))
        text = f"{named} names of columns, {labels} labels, {words} categories (--json lists them)"
        stdout.print(Text(f"      leaves  what a run may tell others: {text}"), soft_wrap=True)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="Data set of the catalogue.", autocompletion=complete_data)],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Download a public original, check it and keep it in the user's cache; in a checkout of Tacit."""
    from tacit.checkout import load_file
    from tacit.cli.progress import OneBar

    originals = load_file("reproductions", "_originals")
    with OneBar(quiet) as bar:
        path = originals.fetch_original(name, lambda done, total: bar(done, total, name))
    say(as_json, {"name": name, "path": str(path)}, f"{name}: {path}")
