"""The command that goes on with a run that was stopped."""

from __future__ import annotations

from tacit.cli.common import Json, Out, Quiet, RunName, brief
from tacit.cli.output import guarded, say_json, stderr, stdout


@guarded
def resume(name: RunName = "latest", out: Out = "runs", as_json: Json = False, quiet: Quiet = False) -> None:
    """Go on with a run that was stopped, from its last checkpoint to the same model.

    For methods with rounds, on the engine where the run was.
    """
    from tacit.cli.progress import ProgressBars
    from tacit.cli.tables import run_table
    from tacit.runs.checkpoint import read_checkpoint

    checkpoint = read_checkpoint(name, out)
    with ProgressBars(quiet or (as_json and not stderr.is_terminal)) as bars:
        if checkpoint.settings.run.engine == "flower":
            from tacit.deploy.launch import launch

            finished = launch(checkpoint.settings, bars, resume=checkpoint)
        else:
            from tacit.runs.job import execute

            finished = execute(checkpoint.settings, bars, resume=checkpoint)
    if as_json:
        say_json(brief(finished.result))
    else:
        stdout.print(run_table(finished.result))
    if not (quiet and as_json):
        stderr.print(f"\nrun folder: {finished.folder.path}/", soft_wrap=True)
