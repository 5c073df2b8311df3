"""Repeating a paper's experiments: settings, the paper's table, ours beside it; as JSON and HTML."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core.errors import ConfigError, UnavailableError, nearest
from tacit.reproduce.page import render
from tacit.runs.folder import RunFolder

Progress = Callable[[int, int, str], None]  # cells done, cells in all, what is next

PAPERS = {
    "aggregation": "tacit.reproduce.aggregation",
    "drift": "tacit.reproduce.drift",
    "fedavg": "tacit.reproduce.fedavg",
    "fedheonn": "tacit.reproduce.fedheonn",
    "fedheonn-ensemble": "tacit.reproduce.ensemble",
    "fedheonn-hidden": "tacit.reproduce.hidden",
    "fedheonn-higgs": "tacit.reproduce.higgs",
    "fedheonn-noise": "tacit.reproduce.noise",
    "pfmlp": "tacit.reproduce.pfmlp",
    "ring-mlp": "tacit.reproduce.ring_mlp",
    "two-phase": "tacit.reproduce.two_phase",
}


@dataclass(frozen=True)
class Cell:
    """One row of a table: what is varied, what the paper reports (if it does), and how to measure ours.

    ``expected`` is the range in which ours should be; ``measure`` gives our figure for a seed; ``slow`` rows
    take more than a few seconds and are left out where a quick look is wanted.
    """

    settings: Mapping[str, Any]
    measure: Callable[[int], float]
    paper: float | None = None
    expected: tuple[float, float] | None = None
    slow: bool = False


def grid(measure: Callable[..., float], axes: Mapping[str, Iterable[Any]], **fields: Any) -> list[Cell]:
    """Return a cell for every combination of settings, with which ``measure`` is called before the seed.

    Other fields of a cell are the same for all, or functions of the settings.

    >>> [cell.measure(1) for cell in grid(lambda a, b, seed: a + b + seed, {"a": (1, 2), "b": (10,)})]
    [12, 13]
    """
    return [
        Cell(
            dict(zip(axes, values, strict=True)),
            partial(measure, *values),
            **{name: given(*values) if callable(given) else given for name, given in fields.items()},
        )
        for values in product(*axes.values())
    ]


@dataclass(frozen=True)
class Experiment:
    """A table of a paper: every cell is measured for that many seeds.

    ``quantity`` says what is measured, ``settings`` what is the same in every row, ``remarks`` where ours
    differs from the paper and why; ``drawings`` gives drawings (SVG by caption) of the measured rows.
    """

    name: str
    title: str
    paper: str
    quantity: str
    settings: Mapping[str, Any]
    seeds: int
    cells: Sequence[Cell]
    remarks: str = ""
    drawings: Callable[[Sequence[Mapping[str, Any]]], Mapping[str, str]] | None = None


def reproduce_papers(
    name: str, *, seeds: int | None = None, quick: bool = False, out: Path, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Measure all tables of a paper (or of all), and write each as JSON and HTML.

    ``seeds`` are repetitions, if other than an experiment's own; ``quick`` is one seed, and no rows that
    take long. ``progress`` is told how many cells are done, of how many, and which is next.
    """
    names = papers(name)
    if seeds is not None and seeds < 1:
        raise ConfigError(f"seeds is {seeds}: at least one repetition is needed")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot make {out}: {error.strerror}: choose another with --out") from None
    found = [experiment for each in names for experiment in experiments_of(each)]
    if quick:
        seeds = seeds or 1
        found = [replace(one, cells=[cell for cell in one.cells if not cell.slow]) for one in found]
        found = [one for one in found if one.cells]
    total, done = sum(len(experiment.cells) for experiment in found), 0

    def tell(text: str) -> None:
        nonlocal done
        if progress:
            progress(done, total, text)
        done += 1

    return [measured(experiment, seeds, out, tell) for experiment in found]


def papers(name: str) -> list[str]:
    """Return the paper of that name, or every one for "all".

    >>> papers("fedheonn")
    ['fedheonn']
    """
    if name != "all" and name not in PAPERS:
        raise ConfigError(f"nothing to reproduce is called '{name}': {nearest(name, [*PAPERS, 'all'])}")
    return list(PAPERS) if name == "all" else [name]


def experiments_of(name: str) -> list[Experiment]:
    """Return the tables of a paper."""
    return list(import_module(PAPERS[name]).experiments())


def measured(
    experiment: Experiment, seeds: int | None, out: Path, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Measure one table, and write it."""
    repeats = seeds or experiment.seeds
    rows = [_row(experiment, cell, repeats, tell) for cell in experiment.cells]
    table = {
        "name": experiment.name,
        "title": experiment.title,
        "paper": experiment.paper,
        "quantity": experiment.quantity,
        "settings": {**experiment.settings, "seeds": repeats},
        "seeds": repeats,
        "remarks": experiment.remarks,
        "rows": rows,
    }
    folder = RunFolder(out)
    found = [row for row in rows if row["ours"] is not None]
    drawings = experiment.drawings(rows) if experiment.drawings and found else {}
    html = folder.write(f"{experiment.name}.html", render(table, drawings).encode())
    table["html"] = str(html)
    folder.write_json(f"{experiment.name}.json", table)
    return table


def _row(experiment: Experiment, cell: Cell, repeats: int, tell: Callable[[str], None]) -> dict[str, Any]:
    described = ", ".join(f"{key} {value}" for key, value in cell.settings.items())
    tell(f"{experiment.name}: {described}")
    expected = {"expected": None if cell.expected is None else list(cell.expected)}
    try:
        values = [cell.measure(seed) for seed in range(repeats)]
    except UnavailableError as error:
        return {**cell.settings, "paper": cell.paper, **expected, "ours": None, "note": str(error)}
    ours, spread = float(np.mean(values)), float(np.std(values))
    within = None if cell.expected is None else cell.expected[0] <= ours <= cell.expected[1]
    measured = {"ours": round(ours, 4), "sd": round(spread, 4), "within": within}
    return {**cell.settings, "paper": cell.paper, **expected, **measured}
