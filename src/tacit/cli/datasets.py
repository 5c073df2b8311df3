"""Commands about data sets: list, describe, check, fetch."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.text import Text

from tacit.cli.common import Json, Quiet, complete_data
from tacit.cli.flags import GIVEN, ReadingCommand
from tacit.cli.output import exit_with_error_code, say, say_json, stdout
from tacit.core.errors import ConfigError

data_app = typer.Typer(help="Data sets: list them, describe one, check a file, fetch an original.")


@data_app.callback(invoke_without_command=True)
@exit_with_error_code
def data_list(context: typer.Context, as_json: Json = False) -> None:
    """List the data sets that can be named."""
    if context.invoked_subcommand:
        if as_json:
            raise ConfigError(f"write --json at the end: tacit data {context.invoked_subcommand} … --json")
        return
    from tacit.cli.tables import listing
    from tacit.data.files import available

    found = [msgspec.to_builtins(known) for known in available()]
    columns = (("name", "name"), ("kind", "kind"), ("title", "what it is"))
    say(as_json, {"data": found}, listing(found, columns))


@data_app.command("describe", cls=ReadingCommand)
@exit_with_error_code
def data_describe(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Data set, or path of a file.", autocompletion=complete_data)],
    as_json: Json = False,
) -> None:
    """Describe a data set: rows, features, classes, provenance."""
    from tacit.cli.tables import pairs_table
    from tacit.data.inspection import describe

    facts = describe(name, **context.meta[GIVEN].get("data", {}))
    known = [(key, value) for key, value in facts.items() if value not in (None, {}, [], "")]
    say(as_json, facts, pairs_table(known))


@data_app.command("check")
@exit_with_error_code
def data_check(
    name: Annotated[
        str | None,
        typer.Argument(help="Data set or path; all that are here if left out.", autocompletion=complete_data),
    ] = None,
    target: Annotated[str | None, typer.Option(help="Target column of an own file.")] = None,
    as_json: Json = False,
) -> None:
    """Check a data set: checksum, missing and infinite values, constant columns, tiny classes.

    Ends with code 3 if the one that is named has a problem, or if any is not what the catalogue says.
    """
    from tacit.core.errors import DataError
    from tacit.data.files import available
    from tacit.data.inspection import check

    here = [name] if name else [known.name for known in available() if known.kind in ("built-in", "file")]
    results = {each: check(each, target=target) for each in here}
    if as_json:
        say_json(results[name] if name else {"checks": results})
    else:
        for each, result in results.items():
            mark = Text("  ok", "green") if result["ok"] else Text("look", "yellow")
            stdout.print(Text.assemble(mark, f"  {each}: {result['rows']:,} rows"), soft_wrap=True)
            for line in (*result["problems"], *(result["notes"] if name else ())):
                stdout.print(Text(f"      {line}"), soft_wrap=True)
    if any(result["digest"] == "other" or (name and not result["ok"]) for result in results.values()):
        raise typer.Exit(DataError.exit_code)


@data_app.command("fetch")
@exit_with_error_code
def data_fetch(
    name: Annotated[str, typer.Argument(help="Data set of the catalogue.", autocompletion=complete_data)],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Download a public original, check it and keep it in the user's cache."""
    from tacit.cli.progress import OneBar
    from tacit.data.originals import fetch_original

    with OneBar(quiet) as bar:
        path = fetch_original(name, lambda done, total: bar(done, total, name))
    say(as_json, {"name": name, "path": str(path)}, f"{name}: {path}")
