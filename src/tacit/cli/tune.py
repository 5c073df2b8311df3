"""``tacit tune``: search a method's settings by federated evaluation."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tacit.cli.common import Json, Quiet
from tacit.cli.flags import File, read_settings
from tacit.cli.output import say, stderr
from tacit.core.errors import ConfigError


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
    The central test set is never looked at.
    """
    from tacit.cli.progress import OneBar
    from tacit.cli.tables import listing
    from tacit.runs.tune import tune as tuned

    settings = read_settings(context, file)
    space = dict(_axis(text) for text in tries or [])
    with OneBar(quiet or (as_json and not stderr.is_terminal)) as bar:
        result = tuned(settings, space, search=search, trials=trials, progress=bar)
    ranked = sorted(result["trials"], key=lambda t: (t["score"] is None, -(t["score"] or 0.0)))
    names, measure = ranked[0]["settings"], result["objective"]
    columns = {name: name for name in names} | {"score": measure, "cpu_s": "cpu_s"}
    columns |= {"error": "note"} if any(trial["error"] for trial in ranked) else {}
    rows = [{**trial["settings"], **trial} for trial in ranked]
    say(as_json, result, listing(rows, columns), f"\nrun the best with: tacit run {result['file']}")


def _axis(text: str) -> tuple[str, Any]:
    """Read OPTION=VALUES; lists are separated by semicolons.

    >>> _axis("lam=0.1,1"), _axis("scales=1;1,2"), _axis("lam=0.001..1")
    (('lam', [0.1, 1]), ('scales', [[1], [1, 2]]), ('lam', Range(low=0.001, high=1)))
    """
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
