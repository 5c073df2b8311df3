"""Commands that train: run a job, and go on with one that was stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tacit.cli.common import Json, Out, Quiet, RunName, brief
from tacit.cli.flags import File, read_settings
from tacit.cli.output import exit_with_error_code, say_json, stderr, stdout

if TYPE_CHECKING:
    from tacit.runs.checkpoint import Checkpoint
    from tacit.runs.settings import Settings


@exit_with_error_code
def run(context: typer.Context, file: File = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Train a method on a federation, and write a run folder.

    Options of the chosen method, protection and partition are flags as well: --lam 0.01, --alpha 0.3.
    Without any flag this is the main job: FedHEONN on digits, 100 clients that mostly hold one digit.
    """
    _perform(read_settings(context, file), None, as_json, quiet)


@exit_with_error_code
def resume(name: RunName = "latest", out: Out = "runs", as_json: Json = False, quiet: Quiet = False) -> None:
    """Go on with a run that was stopped, from its last checkpoint to the same model.

    For methods with rounds, on the engine where the run was.
    """
    from tacit.runs.checkpoint import read_checkpoint

    checkpoint = read_checkpoint(name, out)
    _perform(checkpoint.settings, checkpoint, as_json, quiet)


def _perform(settings: Settings, checkpoint: Checkpoint | None, as_json: bool, quiet: bool) -> None:
    """Run a job on the engine of its settings, and say what came of it."""
    from tacit.cli.progress import ProgressBars
    from tacit.cli.tables import run_table

    with ProgressBars(quiet or (as_json and not stderr.is_terminal)) as bars:
        if settings.run.engine == "flower":
            from tacit.deploy.launch import launch

            finished = launch(settings, bars, resume=checkpoint)
        else:
            from tacit.runs.job import execute

            finished = execute(settings, bars, resume=checkpoint)
    if as_json:
        say_json(brief(finished.result))
    else:
        stdout.print(run_table(finished.result))
    if not (quiet and as_json):  # the JSON names it; else nothing but this line does
        files = ("report.html", "result.json", "events.jsonl", "model.safetensors", "transcript")
        there = ", ".join(name for name in files if (finished.folder.path / name).exists())
        stderr.print(f"\nrun folder: {finished.folder.path}/  ({there})", soft_wrap=True)
        if finished.model is None and not (finished.folder.path / "model.safetensors").exists():
            stderr.print("the model is at the sites: `tacit site export` takes it out there")
