"""Repeating a paper's experiments: settings, the paper's table, ours beside it; as JSON and HTML.

A paper is a file ``NAME.py`` of this folder, with a function ``experiments()`` that gives
:class:`Experiment` objects. Files here import each other from the package ``reproductions``.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

import tacit
from tacit.checkout import folders_of, list_files, load_file
from tacit.core.errors import ConfigError, UnavailableError
from tacit.runs.folder import RunFolder
from tacit.runs.report import fill, pieces

Progress = Callable[[int, int, str], None]  # cells done, cells in all, what is next


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
    name: str,
    *,
    seeds: int | None = None,
    quick: bool = False,
    fresh: bool = False,
    out: Path,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Measure all tables of a paper (or of all), and write each as JSON and HTML, and the book after each.

    ``seeds`` are repetitions, if other than an experiment's own; ``quick`` is one seed, and of the rows that
    take long those that were measured. Seeds of a row that were measured are kept, and not measured again
    unless ``fresh``. ``progress`` is told how many of the cells that have to be measured are done, of how
    many, and which is next.
    """
    names = list_files("reproductions", name)
    if seeds is not None and seeds < 1:
        raise ConfigError(f"seeds is {seeds}: at least one repetition is needed")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot make {out}: {error.strerror}: choose another with --out") from None
    found = [experiment for each in names for experiment in load_file("reproductions", each).experiments()]
    if quick:
        seeds, asked = seeds or 1, found
        found = []
        for one in asked:
            kept = [not fresh and len(_kept_values(_file_of(one, cell, out))) >= seeds for cell in one.cells]
            cells = [cell for cell, there in zip(one.cells, kept, strict=True) if there or not cell.slow]
            found += [replace(one, cells=cells)] if cells else []
    lengths = [
        (len(_kept_values(_file_of(one, cell, out))), seeds or one.seeds)
        for one in found
        for cell in one.cells
    ]
    total, done = sum(fresh or kept < asked for kept, asked in lengths), 0  # kept rows take no time

    def tell(text: str) -> None:
        nonlocal done
        if progress:
            progress(done, total, text)
        done += 1

    tables = []
    with _data_findings_are_left_out():
        for experiment in found:
            tables.append(measured(experiment, seeds, out, tell, fresh=fresh))
            if (
                folders_of("reproductions")[0] / "contents.toml"
            ).is_file():  # which an own folder need not have
                load_file("reproductions", "_book").write_book(out)
    return tables


@contextmanager
def _data_findings_are_left_out() -> Iterator[None]:
    """Keep from the log what looks wrong with the papers' data: each training would say it again."""
    log = logging.getLogger("tacit")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def measured(
    experiment: Experiment, seeds: int | None, out: Path, tell: Callable[[str], None], *, fresh: bool = False
) -> dict[str, Any]:
    """Measure one table, and write it."""
    repeats = seeds or experiment.seeds
    rows = [_row(experiment, cell, repeats, tell, out, fresh) for cell in experiment.cells]
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
    table["html"] = str(folder.write(f"{experiment.name}.html", render(table, drawings).encode()))
    folder.write_json(f"{experiment.name}.json", table)
    return table


def _file_of(experiment: Experiment, cell: Cell, out: Path) -> Path:
    """Return where the values of a row are kept that this version measured with these settings."""
    asked = [tacit.__version__, experiment.name, experiment.settings, cell.settings]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:16]
    return out / "rows" / f"{experiment.name}-{digest}.json"


def _kept_values(path: Path) -> list[float]:
    """Return what was measured so far, of the first seeds; a damaged file has nothing."""
    with suppress(ValueError, OSError):
        kept = json.loads(path.read_bytes())
        if isinstance(kept, list) and all(type(value) is float and isfinite(value) for value in kept):
            return kept
    return []


def _row(
    experiment: Experiment, cell: Cell, repeats: int, tell: Callable[[str], None], out: Path, fresh: bool
) -> dict[str, Any]:
    """Return a row; seeds that the same version measured with the same settings are not measured again."""
    path = _file_of(experiment, cell, out)
    values = [] if fresh else _kept_values(path)
    expected = {"expected": None if cell.expected is None else list(cell.expected)}
    if len(values) < repeats:
        described = ", ".join(f"{key} {value}" for key, value in cell.settings.items())
        tell(f"{experiment.name}: {described}")
    for seed in range(len(values), repeats):
        try:
            values.append(float(cell.measure(seed)))
        except UnavailableError as error:
            return {**cell.settings, "paper": cell.paper, **expected, "ours": None, "note": str(error)}
        path.parent.mkdir(exist_ok=True)
        RunFolder(path.parent).write(path.name, json.dumps(values).encode())
    ours, spread = float(np.mean(values[:repeats])), float(np.std(values[:repeats]))
    within = None if cell.expected is None else cell.expected[0] <= ours <= cell.expected[1]
    measured = {"ours": round(ours, 4), "sd": round(spread, 4), "within": within}
    return {**cell.settings, "paper": cell.paper, **expected, **measured}


def render(table: Mapping[str, Any], figures: Mapping[str, str] | None = None) -> str:
    """Write a table of the harness as self-contained HTML, with drawings (SVG by caption) above it.

    >>> page = render({"title": "T", "paper": "P", "quantity": "q", "seeds": 1, "remarks": "",
    ...                "rows": [{"data": "<b>", "paper": None, "ours": 0.5, "within": True}]})
    >>> "&lt;b&gt;" in page, "<b>" in page
    (True, False)
    """
    columns = columns_of(table["rows"])
    settings = ", ".join(f"{key} {value}" for key, value in table.get("settings", {}).items())
    page = pieces()
    measured = page.table(columns, [[_text(row.get(name)) for name in columns] for row in table["rows"]])
    drawn = Markup().join(page.figure(Markup(svg), caption) for caption, svg in (figures or {}).items())
    seeds = f"mean and standard deviation of {table['seeds']} seeds" if table["seeds"] > 1 else "one seed"
    how = f"{table['quantity']}; {seeds}."
    told = page.sentence(how) + page.sentence(f"Settings: {settings}.")
    sections = {"Measured": told + drawn + measured, "Remarks": page.sentence(table["remarks"])}
    return fill("page.html", table["title"], sections=sections, lead=f"{table['paper']}.")


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys of all rows, in order: a row that could not be measured has others.

    >>> columns_of([{"data": "a", "note": "absent"}, {"data": "b", "ours": 1.0}])
    ['data', 'note', 'ours']
    """
    return list(dict.fromkeys(key for row in rows for key in row))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, list):
        return " – ".join(f"{limit:g}" for limit in value)
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
