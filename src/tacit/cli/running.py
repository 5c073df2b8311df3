"""Commands that train: run a job, go on with one that was stopped, and search a method's settings."""

import os
from importlib import import_module
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tacit.cli.flags import File, read_auto, read_settings, read_survey
from tacit.cli.output import Json, Out, Quiet, RunName, brief, listing, say, stderr
from tacit.core.errors import ConfigError

if TYPE_CHECKING:
    from tacit.runs.checkpoint import Checkpoint
    from tacit.runs.settings import Settings


def run(context: typer.Context, file: File = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Train a method on a federation, and write a run folder.

    Options of the chosen method, protection and partition are flags as well: --lam 0.01, --alpha 0.3.
    Without any flag this is the main job: FedHEONN on digits, 100 clients that mostly hold one digit.
    With --method auto several methods are tried first, on rows that clients keep aside.
    """
    if (tables := read_auto(context, file)) is None:
        perform(read_settings(context, file), None, as_json, quiet)
        return
    from tacit.cli.progress import OneBar
    from tacit.runs.auto import choose, explain

    with OneBar(quiet or (as_json and not stderr.is_terminal)) as bar:
        settings, trials = choose(tables, bar)
    if not (quiet or as_json):
        stderr.print(Text(explain(trials)), soft_wrap=True)
    perform(settings, None, as_json, quiet, explain(trials))


def resume(name: RunName = "latest", out: Out = "runs", as_json: Json = False, quiet: Quiet = False) -> None:
    """Go on with a run that was stopped, from its last checkpoint to the same model.

    For methods with rounds, on the engine where the run was.
    """
    from tacit.runs.checkpoint import read_checkpoint

    checkpoint = read_checkpoint(name, out)
    perform(checkpoint.settings, checkpoint, as_json, quiet)


def perform(
    settings: "Settings", checkpoint: "Checkpoint | None", as_json: bool, quiet: bool, chosen: str = ""
) -> None:
    """Run a job on the engine of its settings, and say what came of it."""
    from tacit.cli.progress import ProgressBars
    from tacit.cli.tables import run_table

    with ProgressBars(quiet or (as_json and not stderr.is_terminal)) as bars:
        if settings.run.engine == "flower":
            from tacit.deploy.launch import launch

            finished = launch(settings, bars, resume=checkpoint)
        else:
            from tacit.runs.job import execute

            finished = execute(settings, bars, resume=checkpoint, chosen=chosen)
    say(as_json, brief(finished.result), run_table(finished.result))
    if not (quiet and as_json):  # the JSON names it; else nothing but this line does
        files = ("report.html", "result.json", "events.jsonl", "model.safetensors", "transcript")
        there = ", ".join(name for name in files if (finished.folder.path / name).exists())
        stderr.print(f"\nrun folder: {finished.folder.path}/  ({there})", soft_wrap=True)
        if finished.model is None and not (finished.folder.path / "model.safetensors").exists():
            stderr.print("the model is at the sites: `tacit site export` takes it out there")


def tune(
    context: typer.Context,
    file: File = None,
    tries: Annotated[
        list[str] | None,
        typer.Option("--try", help="OPTION=VALUE,VALUE,… of the method; with optuna also OPTION=LOW..HIGH."),
    ] = None,
    search: Annotated[str, typer.Option(help="grid (every combination) or optuna.")] = "grid",
    trials: Annotated[int | None, typer.Option(help="How many trials at the most.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search settings of a method on rows that clients keep aside, and write the best for `tacit run`.

    All flags of `tacit run`, and its TOML file, say what is tuned: --method, --data, --protect and so on.
    The central test set is never looked at. With --engine flower the sites' own rows are learnt from.
    """
    from tacit.cli.progress import OneBar

    settings = read_settings(context, file)
    engine = "tacit.deploy.launch" if settings.run.engine == "flower" else "tacit.runs.tune"
    tuned = import_module(engine).tune
    space = dict(_axis(text) for text in tries or [])
    with OneBar(quiet or (as_json and not stderr.is_terminal)) as bar:
        result = tuned(settings, space, search=search, trials=trials, progress=bar)
    ranked = sorted(result["trials"], key=lambda t: (t["score"] is None, -(t["score"] or 0.0)))
    names, measure = ranked[0]["settings"], result["objective"]
    columns = {name: name for name in names} | {"score": measure, "cpu_s": "cpu_s"}
    columns |= {"error": "note"} if any(trial["error"] for trial in ranked) else {}
    rows = [{**trial["settings"], **trial} for trial in ranked]
    say(as_json, result, listing(rows, columns), f"\nrun the best with: tacit run {result['file']}")


def plan(context: typer.Context, file: File = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Say what a run will cost and show before it runs: bytes, time, energy, waves, who will see what.

    It is rehearsed here, with the same clients and protection, on a few rows of each.
    """
    from tacit.cli.tables import plan_table
    from tacit.runs.plan import plan as planned

    found = planned(read_settings(context, file))
    say(as_json, found, plan_table(found))
    for text in () if quiet or as_json else found["warnings"]:
        stderr.print(Text(f"warning: {text}"), soft_wrap=True)


def survey(
    context: typer.Context,
    file: File = None,
    methods: Annotated[str, typer.Option(help="Methods, separated by commas; 'all'.")] = "all",
    jobs: Annotated[int, typer.Option(min=0, help="Cells at a time; 0 for one on each processor.")] = 0,
    link: Annotated[
        float | None, typer.Option(min=0.001, help="Megabytes that a client can send and receive.")
    ] = None,
    no_server: Annotated[bool, typer.Option("--no-server", help="Nobody is trusted with totals.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure methods under protections on the same rows: scores, costs, who saw what, and what to take.

    --protect has several names, separated by commas, 'all', or 'default' for what each method has by itself.
    All other flags of `tacit run`, and its TOML file, say what the cells have in common, options of the first
    method and protection named among them; its table survey has methods and protect as well, and its table
    survey.options.NAME the options of a method.
    """
    from tacit.cli.progress import OneBar
    from tacit.runs.page.survey import COSTS
    from tacit.runs.survey import Needs
    from tacit.runs.survey import survey as surveyed

    if link is not None and not isfinite(link):
        raise ConfigError(f"--link is {link}: give megabytes, or leave it out")
    tables, wanted = read_survey(context, file, methods)
    with OneBar(quiet or (as_json and not stderr.is_terminal)) as bar:
        found = surveyed(
            tables,
            wanted.methods,
            wanted.protect,
            options=wanted.options,
            need=Needs(None if link is None else 1e6 * link, no_server),
            jobs=jobs or os.cpu_count() or 1,
            out=f"{tables.get('run', {}).get('out', 'runs')}/survey",
            progress=bar,
        )
    shown = {"bytes_up": "up, each", "bytes_down": "down, each", "waves": "waves", "cpu_s": "CPU"}
    shown["wh"] = "energy"
    columns = {"method": "method", "protect": "protect", "score": found["measure"], **shown}
    columns |= {"note": "note"} if any(row["note"] for row in found["rows"]) else {}
    ranked = sorted(found["rows"], key=lambda row: -(row.get("score") or -1.0))
    texts = [row | {name: COSTS[name][1](row.get(name)) for name in shown} for row in ranked]
    page = f"{found['folder']}/survey.html"
    say(as_json, found, listing(texts, columns), f"\n{found['recommendation']}\n\npage: {page}")


def _axis(text: str) -> tuple[str, Any]:
    from tacit.cli.options import literal
    from tacit.runs.tune import Range

    name, equals, values = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    if not equals or not name or not values.strip():
        raise ConfigError(f"--try {text}: write --try OPTION=VALUE,VALUE,…")
    if ".." in values:
        low, high = (literal(end.strip()) for end in values.split("..", 1))
        if isinstance(low, bool | str) or isinstance(high, bool | str) or not low < high:
            raise ConfigError(f"--try {text}: a range is LOW..HIGH, two numbers of which the first is less")
        return name, Range(low, high)
    if ";" in values:
        return name, [[literal(word.strip()) for word in part.split(",")] for part in values.split(";")]
    return name, [literal(word.strip()) for word in values.split(",")]
