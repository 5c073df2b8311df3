"""Commands about runs that are over: show one, and who saw what in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from tacit.cli.common import Json, Out, RunName, brief
from tacit.cli.output import exit_with_error_code, say_json, stderr, stdout
from tacit.core.errors import ConfigError

if TYPE_CHECKING:
    from tacit.runs.folder import RunFolder


@exit_with_error_code
def show(name: RunName = "latest", out: Out = "runs", as_json: Json = False) -> None:
    """Show a run."""
    from tacit.cli.tables import run_table

    folder = find_run(name, out)
    result = folder.result()
    if as_json:
        say_json(brief(result))
    elif "error" in result:
        error = result["error"]
        stdout.print(Text(f"{result['run']} stopped: {error['type']}: {error['text']}"), soft_wrap=True)
    else:
        stdout.print(run_table(result))
        stdout.print(f"\nreport: {folder.path / 'report.html'}")


@exit_with_error_code
def exposure(name: RunName = "latest", out: Out = "runs", as_json: Json = False) -> None:
    """Show who saw what in a run: about whom, in which form, over how many clients. Worst first."""
    from tacit.cli.tables import exposure_table
    from tacit.ledger.sentences import sentences

    folder = find_run(name, out)
    result = folder.result()
    rows = result.get("exposure")
    if rows is None:
        raise ConfigError(f"{folder.path} does not say who saw what: it is of an older version; run it again")
    if as_json:
        say_json({"run": result["run"], "protect": result["protect"], "exposure": rows})
        return
    title = f"{result['run']}: {result['method']} on {result['data']}, {result['protect']}"
    if "error" in result:
        title += "; stopped, so this is what was seen until then"
    stdout.print(Text(title, style="bold"), soft_wrap=True)
    for sentence in sentences(rows):
        stdout.print(Text(sentence), soft_wrap=True)
    stdout.print()
    stdout.print(exposure_table(rows))


def find_run(name: str, out: str) -> RunFolder:
    """Find a run; where it is "latest" and a later one has no result, say so."""
    from tacit.runs.folder import RunFolder

    folder = RunFolder.find(name, out)
    if name == "latest" and (later := folder.skipped()):
        text = f"warning: this is {folder.path.name}; {later.unfinished()}"
        stderr.print(Text(text), soft_wrap=True)
    return folder
