"""Runs side by side: their scores, what they cost and who saw what, as plain values and as a page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tacit.core.errors import ConfigError
from tacit.ledger.sentences import sentences
from tacit.runs.folder import RunFolder
from tacit.runs.page.context import flat_settings
from tacit.runs.page.scores import OTHERS, SHARES, scores_of, write
from tacit.runs.page.units import count, energy_text, part, size_text, time_text
from tacit.runs.report import fill

COSTS: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "bytes_up": ("bytes from clients", size_text),
    "bytes_down": ("bytes to clients", size_text),
    "messages": ("messages", count),
    "training_s": ("training time", time_text),
    "sum_cpu_s": ("all CPU time", time_text),
    "wh": ("energy", energy_text),
}
PARTS = {"settings": "What differs", "scores": "How well they do", "costs": "What they cost"}
HIGHER = {*SHARES, "balanced_accuracy", "precision", "recall"}  # of these more is better, of others less
# Settings by which the test rows may be others.
ROWS = {"run.seed", *(f"data.{name}" for name in ("name", "target", "test", "rows", "repeat"))}


def compare_runs(folders: Sequence[RunFolder]) -> dict[str, Any]:
    """Return settings that differ, scores, costs and exposure of finished runs, and which is best in each."""
    results = [folder.result() for folder in folders]
    for result in results:
        if "error" in result:
            raise ConfigError(f"run {result['run']} has no scores, it stopped: compare runs that are done")
    settings = [dict(flat_settings(part(result, "settings"))) for result in results]
    keys = dict.fromkeys(key for one in settings for key in one if key != "run.out")
    differ = {key: [one.get(key) for one in settings] for key in keys}
    differ = {key: values for key, values in differ.items() if len(set(values)) > 1}
    scores = [scores_of(result, "federated") for result in results]
    costs = [part(result, "ledger") for result in results]
    others = ", ".join(key for key in differ if key in ROWS)
    return {
        "runs": [result["run"] for result in results],
        "settings": differ,
        "scores": {
            name: _row([one.get(name) for one in scores], max if name in HIGHER else min)
            for name in SHARES | OTHERS
            if any(name in one for one in scores)
        },
        "intervals": [part(result, "intervals") for result in results],
        "costs": {name: _row([one.get(name) for one in costs], min) for name in COSTS},
        "exposure": [sentences(part(result, "exposure")) for result in results],
        "warning": f"the test rows may not be the same: {others} differ" if others else None,
    }


def _row(values: list[float | None], better: Callable[[list[float]], float]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    best = better(known) if len(set(known)) > 1 else None
    return {"values": values, "best": [value is not None and value == best for value in values]}


def rows_of(found: Mapping[str, Any], part: str) -> Iterator[list[str]]:
    """Yield the lines of a part of a comparison as people read them; the best value is marked."""
    for name, row in found[part].items():
        if part == "settings":
            yield [name, *(str(value or "–") for value in row)]
            continue
        heading, text = COSTS.get(name) or ((SHARES | OTHERS)[name], partial(write, name))
        cells = zip(row["values"], row["best"], strict=True)
        yield [heading, *(f"{text(value)}{' ★' if best else ''}" for value, best in cells)]


def compare_page(found: Mapping[str, Any]) -> str:
    """Write a comparison as a page."""
    return fill(
        "compare.html",
        f"{len(found['runs'])} runs compared",
        over="Tacit comparison",
        lead=f"Warning: {found['warning']}" if found["warning"] else "",
        heads=["", *found["runs"]],
        tables={title: list(rows_of(found, part)) for part, title in PARTS.items()},
        seen=zip(found["runs"], found["exposure"], strict=True),
    )
