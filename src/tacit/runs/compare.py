"""Runs side by side: their scores, what they cost and who saw what, as plain values and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tacit.core.errors import ConfigError
from tacit.ledger.sentences import sentences
from tacit.runs.folder import RunFolder
from tacit.runs.page.context import flat_settings
from tacit.runs.page.markup import mapping, section, sentence, sequence, table
from tacit.runs.page.scores import OTHERS, SHARES, scores_of, write
from tacit.runs.page.units import count, energy_text, escape, number, size_text, time_text
from tacit.runs.report import fill

COSTS = {
    "bytes_up": ("bytes from clients", size_text),
    "bytes_down": ("bytes to clients", size_text),
    "messages": ("messages", count),
    "training_s": ("training time", time_text),
    "sum_cpu_s": ("all CPU time", time_text),
    "wh": ("energy", energy_text),
}
HIGHER = {*SHARES, "precision", "recall"}  # scores of which more is better; of others, and of costs, less is
# Settings by which the test rows may be others.
ROWS = {"run.seed", *(f"data.{name}" for name in ("name", "target", "test", "rows", "repeat"))}


def compare(folders: Sequence[RunFolder]) -> dict[str, Any]:
    """Return settings that differ, scores, costs and exposure of finished runs, and which is best in each."""
    results = [folder.result() for folder in folders]
    for result in results:
        if "error" in result:
            raise ConfigError(f"run {result['run']} has no scores, it stopped: compare runs that are done")
    settings = [dict(flat_settings(mapping(result.get("settings")))) for result in results]
    keys = [key for key in dict.fromkeys(key for one in settings for key in one) if key != "run.out"]
    differ = [key for key in keys if len({one.get(key) for one in settings}) > 1]
    scores = [scores_of(result, "federated") for result in results]
    costs = [{name: number(mapping(result["ledger"]).get(name)) for name in COSTS} for result in results]
    others = [key for key in differ if key in ROWS]
    return {
        "runs": [result["run"] for result in results],
        "settings": {key: [one.get(key) for one in settings] for key in differ},
        "scores": {
            name: _row([one.get(name) for one in scores], name in HIGHER)
            for name in SHARES | OTHERS
            if any(name in one for one in scores)
        },
        "intervals": [mapping(result.get("intervals")) for result in results],
        "costs": {name: _row([one[name] for one in costs], False) for name in COSTS},
        "exposure": [sentences(sequence(result.get("exposure"))) for result in results],
        "warning": f"the test rows may differ, for {', '.join(others)} differ" if others else None,
    }


def _row(values: list[float | None], higher: bool) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    best = (max if higher else min)(known) if len(set(known)) > 1 else None
    return {"values": values, "best": [value is not None and value == best for value in values]}


def rows_of(found: Mapping[str, Any], part: str) -> Iterator[list[str]]:
    """Yield the lines of a part of a comparison as people read them; the best value is marked."""
    for name, row in found[part].items():
        if part == "settings":
            yield [name, *(str(value if value is not None else "–") for value in row)]
            continue
        heading, text = COSTS.get(name) or (
            (SHARES | OTHERS)[name],
            lambda value, name=name: write(name, value),
        )
        cells = zip(row["values"], row["best"], strict=True)
        yield [heading, *(f"{text(value)}{' ★' if best else ''}" for value, best in cells)]


def compare_page(found: Mapping[str, Any]) -> str:
    """Write a comparison as a page."""
    heads = ["", *found["runs"]]
    seen = "".join(
        f"<h3>{escape(run)}</h3>" + "".join(map(sentence, told))
        for run, told in zip(found["runs"], found["exposure"], strict=True)
    )
    parts = {"settings": "What differs", "scores": "How well they do", "costs": "What they cost"}
    made = {part: table(heads, rows_of(found, part)) for part in parts if found[part]}
    warning = found["warning"]
    alert = (
        f'<ul class="alerts"><li role="note"><b>warning</b> {escape(warning)}</li></ul>' if warning else ""
    )
    title = f"{len(found['runs'])} runs compared"
    header = f'<p class="over"><b>Tacit comparison</b></p><h1>{title}</h1>{alert}'
    sections = [section(parts[part], content) for part, content in made.items()]
    return fill(title, header, [*sections, section("Who saw what", seen)])
