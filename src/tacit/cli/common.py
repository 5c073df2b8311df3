"""Arguments that several commands have, and what they do with results."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tacit.cli import names

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no warnings.")]
RunName = Annotated[
    str, typer.Argument(help="Id or folder of a run; 'latest' is the newest.", autocompletion=names.runs)
]
Out = Annotated[str, typer.Option(help="Folder of run folders.")]


def brief(result: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a result what only plots need."""
    short = {key: value for key, value in result.items() if key not in ("skew", "rounds")}
    if "ledger" in short:
        short["ledger"] = {key: value for key, value in short["ledger"].items() if key != "per_client"}
    return short
