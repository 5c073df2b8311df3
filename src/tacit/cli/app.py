"""The ``tacit`` command: every capability, for people and (with ``--json``) for programs."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

import tacit
from tacit.checkout import list_files, load_file
from tacit.cli.datasets import data_app
from tacit.cli.federations import audit_app, backup, federation_app, new, restore, site_app
from tacit.cli.flags import EXTRA, ReadingCommand, SettingsCommand
from tacit.cli.lists import methods, protections
from tacit.cli.models import export, predict, sample
from tacit.cli.operating import coordinator_app, doctor, submit
from tacit.cli.output import Commands, Json, Quiet, listing, plain_text, say, stderr
from tacit.cli.past import compare, exposure, runs, show
from tacit.cli.running import plan, resume, run, survey, tune
from tacit.cli.standing import fedheonn_app
from tacit.core.errors import ConfigError

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Privacy-preserving horizontal federated learning. Learn together, tell nothing.",
)
app.add_typer(data_app, name="data")
app.add_typer(fedheonn_app, name="fedheonn")
app.add_typer(federation_app, name="federation")
app.add_typer(site_app, name="site")
app.add_typer(coordinator_app, name="coordinator")
app.add_typer(audit_app, name="audit-log")


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)
    ] = False,
) -> None:
    """Print the version if asked to."""
    if show:
        typer.echo(f"tacit {tacit.__version__}")
        raise typer.Exit


for training in (run, plan, survey, tune):
    app.command(cls=SettingsCommand, context_settings=EXTRA)(training)
for reading in (predict, export):
    app.command(cls=ReadingCommand)(reading)
for command in (new, methods, protections, resume, runs, show, compare, exposure, sample):
    app.command()(command)
for operating in (submit, doctor, backup, restore):
    app.command()(operating)


def names(kind: str) -> list[str]:
    """Return the names of what a checkout has of a kind, where there is one."""
    try:
        return [*list_files(kind), "all"]
    except ConfigError:
        return []


@app.command()
def reproduce(
    name: Annotated[
        str, typer.Argument(help="Which one; or 'all'.", autocompletion=lambda: names("reproductions"))
    ] = "all",
    seeds: Annotated[int | None, typer.Option(help="Seeds per cell; fewer is quicker.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed, and no rows that take long.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure also rows that are kept.")] = False,
    out: Annotated[str, typer.Option(help="Folder for the tables.")] = "runs/reproduce",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repeat a paper's experiments: its table beside ours; goes on where it was stopped."""
    from tacit.cli.progress import OneBar

    harness, asked = load_file("reproductions", "_harness"), {"seeds": seeds, "quick": quick, "fresh": fresh}
    with OneBar(quiet) as bar:
        tables = harness.reproduce_papers(name, out=Path(out), progress=bar, **asked)
    shown = [
        part
        for table in tables
        for part in (
            Text(f"\n{table['title']}", "bold"),
            Text(f"{table['quantity']}; {plain_text(table['settings'])}", "dim"),
            listing(table["rows"], harness.columns_of(table["rows"])),
            table["html"],
        )
    ]
    say(as_json, {"reproduce": name, "tables": tables}, *shown)


@app.command()
def bench(
    name: Annotated[
        str, typer.Argument(help="Which one; or 'all'.", autocompletion=lambda: names("benchmarks"))
    ] = "all",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure ours against what users have today, CPU time, in one run."""
    results, harness = [], load_file("benchmarks", "_harness")
    for each in list_files("benchmarks", name):
        if not quiet:
            stderr.print(f"bench {each} …")
        results.append(harness.run_bench(each))
    value = results[0] if name != "all" else {"bench": "all", "benches": results}
    shown: list[Any] = []
    for each in results:
        shown += [Text(f"\n{each['bench']}", "bold"), listing(each["results"], harness.COLUMNS)]
    say(as_json, value, *shown)
