"""Commands about runs that are over: list, show, compare, and who saw what."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tacit.cli.output import Json, Out, RunName, brief, check_absent, listing, say, stderr, stdout
from tacit.core.errors import ConfigError

if TYPE_CHECKING:
    from tacit.runs.folder import RunFolder


def show(
    name: RunName = "latest",
    by: Annotated[str | None, typer.Option(help="Show costs by party, step, round, or several.")] = None,
    out: Out = "runs",
    as_json: Json = False,
) -> None:
    """Show a run or, with --by, each row of what it cost; CSV where no terminal reads it."""
    from tacit.cli.tables import run_table

    folder = find_run(name, out)
    if by is not None:
        _show_costs(folder, by.split(","), as_json)
        return
    result = folder.result()
    if error := result.get("error"):
        say(as_json, brief(result), f"{result['run']} stopped: {error['type']}: {error['text']}")
    else:
        say(as_json, brief(result), run_table(result), f"\nreport: {folder.path / 'report.html'}")


def _show_costs(folder: "RunFolder", by: list[str], as_json: bool) -> None:
    from pyarrow import Table

    from tacit.cli.models import deliver
    from tacit.ledger.breakdown import break_down, read_events

    rows = break_down(read_events(folder.path / "events.jsonl"), by)
    if as_json or not stdout.is_terminal:
        deliver(Table.from_pylist(rows), None, "costs", as_json)
    else:
        say(False, rows, listing(rows, list(rows[0]) if rows else by))


def exposure(name: RunName = "latest", out: Out = "runs", as_json: Json = False) -> None:
    """Show who saw what in a run: about whom, in which form, over how many clients. Worst first."""
    from tacit.cli.tables import exposure_table
    from tacit.ledger.sentences import sentences
    from tacit.runs.page.context import seen_by

    folder = find_run(name, out)
    result = folder.result()
    rows = result.get("exposure")
    if rows is None:
        raise ConfigError(f"{folder.path} does not say who saw what: it is of an older version; run it again")
    title = f"{result['run']}: {result['method']} on {result['data']}, {result['protect']}"
    if "error" in result:
        title += "; stopped, so this is what was seen until then"
    found = {"run": result["run"], "protect": result["protect"], "exposure": rows}
    found["reveals"] = result.get("reveals", {})
    shown = [f"By {result['method']} itself, the {who}: {what}." for who, what in seen_by(found["reveals"])]
    say(as_json, found, Text(title, style="bold"), *sentences(rows), *shown, "", exposure_table(rows))


def runs(
    names: Annotated[
        list[str] | None, typer.Argument(help="Ids, or how they begin; all if left out.")
    ] = None,
    out: Out = "runs",
    method: Annotated[str | None, typer.Option(help="Only runs of this method.")] = None,
    data: Annotated[str | None, typer.Option(help="Only runs on this data set.")] = None,
    protect: Annotated[str | None, typer.Option(help="Only runs under this protection.")] = None,
    state: Annotated[
        str | None, typer.Option(help="Only runs that are done, failed, stopped or unfinished.")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the runs that are listed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    as_json: Json = False,
) -> None:
    """List runs, the newest first; choose some, and delete them if asked to."""
    from tacit.runs.folder import delete_runs, list_runs

    wanted = {"method": method, "data": data, "protect": protect}
    if delete and not (names or state or any(wanted.values())):
        raise ConfigError("--delete would delete every run: name runs, or choose some by --state or --method")
    found = list_runs(out, names or (), state=state, **wanted)
    columns = ("run", "state", "method", "data", "clients", "protect", "measure", "score")
    if not (as_json and delete):
        say(as_json, {"runs": found}, listing(found, columns))
    if delete and found:
        if not yes and not typer.confirm(f"Delete these {len(found)} run folders?", err=True):
            raise typer.Exit(1)
        delete_runs(found)
    if delete:
        say(as_json, {"deleted": [row["run"] for row in found]}, f"{len(found)} runs deleted")


def compare(
    names: Annotated[list[str], typer.Argument(help="Ids or folders of two runs or more.")],
    to: Annotated[Path | None, typer.Option("--to", help="HTML file to write.")] = None,
    out: Out = "runs",
    as_json: Json = False,
) -> None:
    """Compare runs: what differs, scores, costs and who saw what, side by side."""
    from tacit.runs.compare import PARTS, compare_page, compare_runs, rows_of
    from tacit.runs.folder import RunFolder

    if len(names) < 2:
        raise ConfigError("one run is nothing to compare: name two or more, as `tacit runs` lists them")
    check_absent(to)
    found = compare_runs([RunFolder.find(name, out) for name in names])
    if to is not None:
        RunFolder(to.parent).write(to.name, compare_page(found).encode())
    heads = ("", *found["runs"])
    tables = [
        listing([dict(zip(heads, row, strict=True)) for row in rows_of(found, part)], heads) for part in PARTS
    ]
    seen = [
        Text.assemble((run, "cyan"), " ", " ".join(told))
        for run, told in zip(found["runs"], found["exposure"], strict=True)
    ]
    shown = [part for table in tables for part in (table, "")]
    say(as_json, {**found, "path": str(to) if to else None}, *shown, *seen)
    if found["warning"] and not as_json:
        stderr.print(Text(f"warning: {found['warning']}"), soft_wrap=True)


def find_run(name: str, out: str) -> "RunFolder":
    """Find a run; where it is "latest" and a later one has no result, say so."""
    from tacit.runs.folder import RunFolder

    folder = RunFolder.find(name, out)
    if name == "latest" and (later := folder.skipped()):
        text = f"warning: this is {folder.path.name}; {later.unfinished()}"
        stderr.print(Text(text), soft_wrap=True)
    return folder
