"""Arguments that several commands have, names that a shell may complete, and what is left out of results."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer


def complete_data(incomplete: str) -> list[str]:
    """Complete the name of a data set."""
    from tacit.data.files import available

    return starting(incomplete, (known.name for known in available()))


def complete_run(incomplete: str) -> list[str]:
    """Complete the name of a run in the usual folder."""
    return starting(
        incomplete, ["latest", *(path.parent.name for path in Path("runs").glob("*/result.json"))]
    )


def complete_paper(incomplete: str) -> list[str]:
    """Complete the name of a paper whose tables can be repeated."""
    from tacit.reproduce.harness import PAPERS

    return starting(incomplete, [*PAPERS, "all"])


def complete_bench(incomplete: str) -> list[str]:
    """Complete the name of a bench."""
    from tacit import bench
    from tacit.core.errors import ConfigError

    try:
        return starting(incomplete, [*bench.benches(), "all"])
    except ConfigError:
        return []


def starting(incomplete: str, names: Iterable[str]) -> list[str]:
    """Return the names that start as typed.

    >>> starting("ma", ["iid", "majority", "majority-even"])
    ['majority', 'majority-even']
    """
    return sorted(name for name in names if name.startswith(incomplete))


Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no warnings.")]
RunName = Annotated[
    str, typer.Argument(help="Id or folder of a run; 'latest' is the newest.", autocompletion=complete_run)
]
Out = Annotated[str, typer.Option(help="Folder of run folders.")]


PLOTS = ("skew", "rounds", "curves", "residuals")


def brief(result: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a result what only plots need."""
    short = {key: value for key, value in result.items() if key not in PLOTS}
    if "ledger" in short:
        short["ledger"] = {key: value for key, value in short["ledger"].items() if key != "per_client"}
    return short
