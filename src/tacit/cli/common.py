"""Arguments that several commands have, what a shell may complete, and what is left out of results."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.core.errors import ConfigError


def complete_data() -> list[str]:
    """Return the names of data sets; of these, the shell offers those that begin as was typed."""
    from tacit.data.files import available

    return [known.name for known in available()]


def complete_run() -> list[str]:
    """Return the names of the runs in the usual folder."""
    return ["latest", *sorted(path.parent.name for path in Path("runs").glob("*/result.json"))]


def complete_paper() -> list[str]:
    """Return the names of papers whose tables can be repeated, where there are any."""
    from tacit.reproduce import papers

    return _list_names(papers)


def complete_bench() -> list[str]:
    """Return the names of the benches, where there are any."""
    from tacit.bench import chosen

    return _list_names(chosen)


def _list_names(choose: Callable[[str], list[str]]) -> list[str]:
    try:
        return [*choose("all"), "all"]
    except ConfigError:  # not in a checkout
        return []


Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no warnings.")]
RunName = Annotated[
    str, typer.Argument(help="Id or folder of a run; 'latest' is the newest.", autocompletion=complete_run)
]
Out = Annotated[str, typer.Option(help="Folder of run folders.")]
PLOTS = ("skew", "rounds", "curves", "residuals")


def check_absent(file: Path | None) -> None:
    """Refuse to write over a file that is there."""
    if file is not None and file.exists():
        raise ConfigError(f"{file} is there already: choose another file with --to")


def brief(result: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a result what only plots need."""
    short = {key: value for key, value in result.items() if key not in PLOTS}
    if "ledger" in short:
        short["ledger"] = {key: value for key, value in short["ledger"].items() if key != "per_client"}
    return short
