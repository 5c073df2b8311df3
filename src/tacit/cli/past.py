"""Commands about runs that are over: show one, who saw what in it, export its model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from tacit.cli.common import Json, Out, RunName, brief
from tacit.cli.output import exit_with_error_code, say, say_json, stderr, stdout
from tacit.core.errors import ConfigError, nearest

if TYPE_CHECKING:
    from tacit.runs.folder import RunFolder


@exit_with_error_code
def show(name: RunName = "latest", out: Out = "runs", as_json: Json = False) -> None:
    """Show a run."""
    from tacit.cli.tables import run_table

    folder = _find_run(name, out)
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

    folder = _find_run(name, out)
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


@exit_with_error_code
def export(
    name: RunName = "latest",
    to: Annotated[Path | None, typer.Option("--to", help="File to write.")] = None,
    kind: Annotated[str, typer.Option("--format", help="safetensors, onnx or json.")] = "safetensors",
    out: Out = "runs",
    as_json: Json = False,
) -> None:
    """Export a run's model in a standard format."""
    from tacit.models.files import load_model
    from tacit.models.onnx_export import to_onnx
    from tacit.runs.folder import RunFolder

    formats = ("safetensors", "onnx", "json")
    if kind not in formats:
        raise ConfigError(f"unknown format '{kind}': {nearest(kind, formats)}")
    folder = _find_run(name, out)
    source = folder.path / "model.safetensors"
    if not source.is_file():
        raise ConfigError(f"{folder.path} holds no model: the run did not finish")
    model = load_model(source)
    path = to or Path(f"{folder.path.name}.{kind}")
    if path.exists():
        raise ConfigError(f"{path} is there already: choose another file with --to")
    if kind == "onnx":
        content = to_onnx(model)
    else:
        content = source.read_bytes() if kind == "safetensors" else msgspec.json.encode(model.as_dict())
    RunFolder(path.parent).write(path.name, content)
    facts = {"run": folder.path.name, "format": kind, "path": str(path), "bytes": len(content)}
    say(as_json, facts, f"{path}: {len(content):,} bytes")


def _find_run(name: str, out: str) -> RunFolder:
    """Find a run; where it is "latest" and a later one has no result, say so."""
    from tacit.runs.folder import RunFolder

    folder = RunFolder.find(name, out)
    if name == "latest" and (later := folder.skipped()):
        text = f"warning: this is {folder.path.name}; {later.unfinished()}"
        stderr.print(Text(text), soft_wrap=True)
    return folder
