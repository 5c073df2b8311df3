"""The ``tacit`` command: every capability, for people and (with ``--json``) for programs."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

import tacit
from tacit.cli import names
from tacit.cli.common import Json, Quiet, brief
from tacit.cli.datasets import data_app
from tacit.cli.federations import federation_app, new, site_app
from tacit.cli.lists import methods, protections
from tacit.cli.output import Commands, guarded, say_json, stderr, stdout
from tacit.cli.past import export, exposure, show
from tacit.cli.resuming import resume
from tacit.cli.standing import fedheonn_app
from tacit.cli.tune import tune
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

HIDDEN = ("context", "file", "as_json")  # parameters of `run` that are not flags of that name


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)
    ] = False,
) -> None:
    """Privacy-preserving horizontal federated learning. Learn together, tell nothing."""
    if show:
        typer.echo(f"tacit {tacit.__version__}")
        raise typer.Exit


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
@guarded
def run(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="TOML file of settings; flags override it.")] = None,
    method: Annotated[
        str | None, typer.Option(help="Method; see `tacit methods`.", autocompletion=names.methods)
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Data set, or path of a CSV or parquet file.", autocompletion=names.data),
    ] = None,
    target: Annotated[str | None, typer.Option(help="Target column of an own file.")] = None,
    task: Annotated[str | None, typer.Option(help="classification or regression.")] = None,
    repeat: Annotated[int | None, typer.Option(help="Repeat all rows.")] = None,
    rows: Annotated[int | None, typer.Option(help="Take (or make) that many rows.")] = None,
    test: Annotated[str | None, typer.Option(help="Share for the central test, or 'split'.")] = None,
    holdout: Annotated[float | None, typer.Option(help="Share each client keeps aside.")] = None,
    classes: Annotated[str | None, typer.Option(help="Declared classes, separated by commas.")] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients.")] = None,
    partition: Annotated[
        str | None, typer.Option(help="How rows are divided among clients.", autocompletion=names.partitions)
    ] = None,
    protect: Annotated[
        str | None,
        typer.Option(help="Protection; see `tacit protections`.", autocompletion=names.protections),
    ] = None,
    scale: Annotated[str | None, typer.Option(help="standard, minmax or none.")] = None,
    missing: Annotated[str | None, typer.Option(help="Missing numbers: refuse or mean.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all public randomness.")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes; 0 is this one.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds a client may take for a step.")] = None,
    quorum: Annotated[float | None, typer.Option(help="Share of clients that must contribute.")] = None,
    min_clients: Annotated[int | None, typer.Option(help="Fewest contributions a total may have.")] = None,
    watts: Annotated[float | None, typer.Option(help="Power of a device's CPU, for the energy.")] = None,
    baselines: Annotated[bool | None, typer.Option(help="Also train centrally and locally.")] = None,
    transcript: Annotated[bool | None, typer.Option(help="Keep every byte that each party received.")] = None,
    out: Annotated[str | None, typer.Option(help="Folder for run folders.")] = None,
    engine: Annotated[str | None, typer.Option(help="Where clients are: embedded or flower.")] = None,
    superlink: Annotated[str | None, typer.Option(help="Flower: name of the SuperLink.")] = None,
    coordinator: Annotated[str | None, typer.Option(help="Flower: folder of the coordinator.")] = None,
    wait: Annotated[float | None, typer.Option(help="Flower: seconds to wait for sites.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a method on a federation, and write a run folder.

    Options of the chosen method, protection and partition are flags as well: --lam 0.01, --alpha 0.3.
    Without any flag this is the main job: FedHEONN on digits, 100 clients that mostly hold one digit.
    """
    from tacit.cli.options import extra_flags, file_among, literal, part_options, switches, unexpected
    from tacit.cli.progress import ProgressBars
    from tacit.cli.tables import run_table
    from tacit.runs.settings import Settings, merged, read_toml, usual_protection

    # A flag that only a part knows is left over here, and may have been taken for the file.
    words = [*([str(file)] if file else []), *context.args]
    found = file_among(words)
    listed = None if classes is None else [literal(word.strip()) for word in classes.split(",")]
    share = None if test is None else literal(test)
    flags: dict[str, dict[str, Any]] = {
        "data": {
            "name": data,
            "target": target,
            "task": task,
            "repeat": repeat,
            "rows": rows,
            "test": share,
            "holdout": holdout,
            "classes": listed,
        },
        "partition": {"name": partition, "clients": clients},
        "method": {"name": method},
        "protect": {"name": protect},
        "prepare": {"scale": scale, "missing": missing},
        "run": {
            "seed": seed,
            "workers": workers,
            "timeout": timeout,
            "quorum": quorum,
            "min_clients": min_clients,
            "watts": watts,
            "baselines": baselines,
            "transcript": transcript,
            "out": out,
            "engine": engine,
        },
        "flower": {"superlink": superlink, "coordinator": coordinator, "wait": wait},
    }
    given = {
        section: {key: value for key, value in table.items() if value is not None}
        for section, table in flags.items()
    }
    tables = merged(
        read_toml(Path(found)) if found else {}, {name: table for name, table in given.items() if table}
    )
    defaults = vars(Settings()) | {"protect": usual_protection(_table(tables, "method"))}
    chosen = {
        name: str({**defaults[name], **_table(tables, name)}["name"])
        for name in ("method", "protect", "partition")
    }
    pairs, left = extra_flags(words, switches(chosen))  # --clip is a switch of some, a number of others
    if odd := [word for word in left if word != found] or left[1:]:
        raise unexpected(odd[0])
    own = ["json", *(name for name in inspect.signature(run).parameters if name not in HIDDEN)]
    settings = Settings.from_tables(merged(tables, part_options(pairs, chosen, own)))
    with ProgressBars(quiet or (as_json and not stderr.is_terminal)) as bars:
        if settings.run.engine == "flower":
            from tacit.deploy.launch import launch

            finished = launch(settings, bars)
        else:
            from tacit.runs.job import execute

            finished = execute(settings, bars)
    if as_json:
        say_json(brief(finished.result))
    else:
        stdout.print(run_table(finished.result))
    if not (quiet and as_json):  # the JSON names it; else nothing but this line does
        more = ", transcript" if settings.run.transcript else ""
        files = f"report.html, result.json, events.jsonl, model{more}"
        stderr.print(f"\nrun folder: {finished.folder.path}/  ({files})", soft_wrap=True)


def _table(tables: dict[str, Any], name: str) -> dict[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"[{name}] is {table!r}: write it as a table with keys")
    return table


app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(tune)
for command in (new, methods, protections, resume, show, exposure, export):
    app.command()(command)


@app.command()
@guarded
def reproduce(
    name: Annotated[
        str, typer.Argument(help="Which paper; 'all' for every one.", autocompletion=names.papers)
    ] = "all",
    seeds: Annotated[int | None, typer.Option(help="Seeds per cell; fewer is quicker.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed, and no rows that take long.")] = False,
    out: Annotated[str, typer.Option(help="Folder for the tables.")] = "runs/reproduce",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repeat a paper's experiments: its table beside ours."""
    from tacit.cli.progress import OneBar
    from tacit.cli.tables import listing, plain_text
    from tacit.reproduce.harness import columns, reproduce_papers

    with OneBar(quiet) as bar:
        tables = reproduce_papers(name, seeds=seeds, quick=quick, out=Path(out), progress=bar)
    if as_json:
        say_json({"reproduce": name, "tables": tables})
        return
    for table in tables:
        stdout.print(Text(f"\n{table['title']}", "bold"))
        stdout.print(Text(f"{table['quantity']}; {plain_text(table['settings'])}", "dim"))
        stdout.print(listing(table["rows"], tuple((key, key) for key in columns(table["rows"]))))
        stdout.print(Text(table["html"]), soft_wrap=True)


@app.command()
@guarded
def bench(
    name: Annotated[
        str, typer.Argument(help="Which bench; 'all' for every one.", autocompletion=names.benches)
    ] = "all",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure ours against what users have today, CPU time, in one run."""
    from tacit.bench import chosen, run_bench
    from tacit.cli.tables import listing

    results = []
    for each in chosen(name):
        if not quiet:
            stderr.print(f"bench {each} …")
        results.append(run_bench(each))
    if as_json:
        say_json(results[0] if name != "all" else {"bench": "all", "benches": results})
        return
    columns = tuple(
        (key, key) for key in ("name", "ours", "baseline", "unit", "ratio", "target", "met", "note")
    )
    for result in results:
        stdout.print(Text(f"\n{result['bench']}", "bold"))
        stdout.print(listing(result["results"], columns))
