"""A survey: every chosen method under every chosen protection, on the same rows, measured side by side.

A cell is one training, in a process of its own, so that its CPU time and memory are its own.
"""

import hashlib
import io
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

import tacit
from tacit.core.errors import ConfigError, TacitError, UnavailableError, nearest
from tacit.core.events import Events
from tacit.data.files import list_parts
from tacit.ledger.cost import peak_megabytes
from tacit.ledger.sentences import sentences
from tacit.methods import METHODS
from tacit.protections import PROTECTIONS
from tacit.runs.experiment import build_federation
from tacit.runs.folder import RunFolder
from tacit.runs.page.survey import COSTS, DRAWN, read_survey
from tacit.runs.report import fill
from tacit.runs.settings import Settings, merged
from tacit.training import Record

Row = dict[str, Any]
Rule = Callable[[Row], bool]  # whether a row fits
Progress = Callable[[int, int, str], None]  # cells done, cells in all, what is next

USUAL = "default"  # as a protection: the one that a method has by itself
MEASURES = ("accuracy", "r2")  # by which cells are ranked: of classification, and of regression
CLOSE = 0.01  # of the best score: what differs by less counts as as good


class Needs(NamedTuple):
    """What a federation needs beside a good score."""

    link: float | None = None  # bytes that a client can send and receive in all
    no_server: bool = False  # whether nobody trusts the coordinator with totals


NOTHING = Needs()


def list_cells(
    tables: Mapping[str, Any],
    methods: str | Sequence[str],
    protections: str | Sequence[str],
    options: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the settings of every cell, as tables; ``options`` has those of methods by their name."""
    chosen = _names(methods, METHODS.names(), "--methods")
    for name in options:
        if name not in METHODS.names():
            raise ConfigError(f"[survey.options] has no method '{name}': {nearest(name, METHODS.names())}")
        METHODS.build(name, options[name])  # refuses what it does not know
    cells = []
    for method in chosen:
        for protection in _names(protections, (*PROTECTIONS.names(), USUAL), "--protect"):
            names = {"method": method} | ({} if protection == USUAL else {"protect": protection})
            over = {}
            for section, name in names.items():
                own = tables.get(section, {})  # options of no name, or of this one
                over[section] = {**(own if own.get("name", name) == name else {}), "name": name}
            over["method"] |= options.get(method, {})
            cells.append(merged(tables, over))
    return cells


def _names(given: str | Sequence[str], valid: Sequence[str], flag: str) -> list[str]:
    words = given if isinstance(given, str) else ",".join(given)
    if words == "all":
        return [name for name in valid if name != USUAL]
    chosen = [word.strip() for word in words.split(",") if word.strip()]
    for word in chosen or [""]:
        if word not in valid:
            raise ConfigError(f"{flag} {words or 'none'}: {nearest(word, [*valid, 'all'])}")
    return list(dict.fromkeys(chosen))


def measure(tables: Mapping[str, Any]) -> Row:
    """Train one cell and return what it gave; one that is refused, or fails, says why."""
    row: Row = {**_named(tables), "state": "refused"}
    began, record = time.monotonic(), Record()
    try:
        settings = Settings.from_tables(tables)
        row["protect"] = settings.protect["name"]
        federation = build_federation(settings)
        row["state"] = "failed"
        training = federation.train(**settings.training(), events=Events(record), record=record, track=True)
    except ConfigError as error:
        return {**row, "state": "refused", "note": str(error)}
    except TacitError as error:
        return {**row, "note": str(error)}
    protection, cost = settings.build_protection(), training.ledger.summary(settings.run.watts)
    scores = {name: value for name, value in (training.scores or {}).items() if isinstance(value, float)}
    return {
        **row,
        "state": "done",
        "note": "",
        "scores": scores,
        "score": next((scores[name] for name in MEASURES if name in scores), None),
        "curve": [
            (line["round"], line[name])
            for line in record.history.lines
            for name in MEASURES
            if "round" in line and name in line
        ],
        "bytes_up": cost["bytes_up_per_client"]["mean"],
        "bytes_down": cost["bytes_down_per_client"]["mean"],
        "messages": cost["messages"],
        "waves": len(cost["waves"]),
        "cpu_client_s": cost["cpu_s"]["slowest_client"],
        "cpu_coordinator_s": cost["cpu_s"]["coordinator"] + cost["cpu_s"]["services"],
        "cpu_s": cost["sum_cpu_s"],
        "wh": cost["wh"],
        "epsilon": (cost["privacy"] or {}).get("epsilon"),
        "memory_mb": peak_megabytes() + federation.workers_mb,
        "hides": not protection.shows_contributions,
        "opens": protection.opens,
        "undone_by": protection.promises.collusion,
        "exposure": sentences(record.exposure.summary()),
        "seconds": time.monotonic() - began,
    }


def measure_apart(tables: Mapping[str, Any]) -> Row:
    """Measure a cell in a process of its own: no other is cached there, or counts for its memory."""
    code = "from tacit.runs.survey import answer; answer()"
    ended = subprocess.run(
        [sys.executable, "-c", code], input=msgspec.json.encode(tables), capture_output=True, check=False
    )
    try:
        return msgspec.json.decode(ended.stdout, type=dict[str, Any])
    except msgspec.DecodeError:
        told = ended.stderr.decode(errors="replace").strip().splitlines()
        note = f"its process ended with {ended.returncode}: {told[-1] if told else 'it said nothing'}"
        return {**_named(tables), "state": "failed", "note": note}


def _named(tables: Mapping[str, Any]) -> Row:
    return {"method": tables["method"]["name"], "protect": tables.get("protect", {}).get("name", USUAL)}


def answer() -> None:
    """Measure the cell that stands in standard input, and write its row to standard output."""
    warnings.simplefilter("ignore")
    row = measure(msgspec.json.decode(sys.stdin.buffer.read(), type=dict[str, Any]))
    sys.stdout.buffer.write(msgspec.json.encode(row))


def run_cells(
    cells: Sequence[Mapping[str, Any]], folder: RunFolder, jobs: int, progress: Progress | None = None
) -> list[Row]:
    """Measure cells, so many at a time, but those that a stopped survey has measured; keep each at once."""
    tell = progress or (lambda done, total, text: None)
    names = [f"{_digest(cell)}.json" for cell in cells]
    kept = {name: _read(folder.path / name) for name in names}
    left = [place for place, name in enumerate(names) if kept[name] is None]
    tell(len(cells) - len(left), len(cells), "")
    pool = ThreadPoolExecutor(max(1, jobs))  # each waits for a process
    running = {pool.submit(measure_apart, cells[place]): place for place in left}
    try:
        for number, done in enumerate(as_completed(running), len(cells) - len(left) + 1):
            name, row = names[running[done]], done.result()
            if row["state"] == "done":  # what was refused, or failed, may have been mended since
                folder.write_json(name, row)
            kept[name] = row
            tell(number, len(cells), f"{row['method']}, {row['protect']}")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return [kept[name] or {} for name in names]


def _digest(cell: Mapping[str, Any]) -> str:
    given = cell.get("data", {}).get("name", "digits")
    files = [Path(path).expanduser() for path in (list_parts(given) or {"": given}).values()]
    about = [tacit.__version__, cell, [path.stat().st_mtime_ns for path in files if path.is_file()]]
    return hashlib.sha256(msgspec.json.encode(about, order="sorted")).hexdigest()[:16]


def _read(path: Path) -> Row | None:
    try:
        row: Row = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return None
    return row if row.keys() >= {*COSTS, "state", "scores", "score", "hides", "opens", "exposure"} else None


def rules_for(need: Needs) -> dict[str, Rule]:
    """Return the rules that a federation asks for, in words, each with which rows fit; in this order."""
    rules: dict[str, Rule] = {"contributions are hidden from the coordinator": lambda row: row["hides"]}
    if need.no_server:
        text = "totals open at the clients, since no server is trusted"
        rules[text] = lambda row: row["opens"] == "clients"
    if (link := need.link) is not None:
        text = "what a client sends and receives fits its link"
        rules[text] = lambda row: row["bytes_up"] + row["bytes_down"] <= link
    return rules


def front(rows: Sequence[Row], cost: str) -> list[Row]:
    """Return the rows of which no other has a better score for less: the Pareto front, cheapest first."""
    best, found = -np.inf, []
    for row in sorted(_scored(rows), key=lambda each: (each[cost], -each["score"])):
        if row["score"] > best:
            best = row["score"]
            found.append(row)
    return found


def _scored(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.get("score") is not None]


def recommend(rows: Sequence[Row], need: Needs = NOTHING) -> str:
    """Return which row to take, in words, with the rules that it follows from."""
    left, held = _scored(rows), []
    if not left:
        why = "keep rows for a test, with --test 0.3" if rows else "each row says why it was not measured"
        return f"No cell has a score: {why}."
    best = max(left, key=lambda row: row["score"])
    for text, fits in rules_for(need).items():  # one that would leave nothing is passed over
        fitting = [row for row in left if fits(row)]
        held.append(text if fitting else f"no row fulfils that {text}: passed over")
        left = fitting or left
    top = max(row["score"] for row in left)
    chosen = min((row for row in left if row["score"] >= top - CLOSE), key=lambda row: row["cpu_s"])
    text = f"{chosen['method']} under {chosen['protect']}: score {chosen['score']:.3f}"
    if best["score"] > chosen["score"] + CLOSE:
        text += f" (best of all is {best['method']} under {best['protect']}, {best['score']:.3f})"
    how = f"Of what scores within {CLOSE} of the best it takes the least CPU time"
    return f"{text}. {how}; {'; '.join(held)}."


def write_tables(folder: RunFolder, rows: Sequence[Row]) -> None:
    """Write the rows as CSV and Parquet."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    names = ("method", "protect", "state", "score", *COSTS, "hides", "opens", "note")
    scores = sorted({name for row in rows for name in row.get("scores", {})})
    columns = {name: [row.get(name) for row in rows] for name in names}
    columns |= {name: [row.get("scores", {}).get(name) for row in rows] for name in scores}
    table = pa.table(columns)
    for name, writer in (("survey.csv", pa.csv.write_csv), ("survey.parquet", pa.parquet.write_table)):
        buffer = io.BytesIO()
        writer(table, buffer)
        folder.write(name, buffer.getvalue())


def survey(
    tables: Mapping[str, Any],
    methods: str | Sequence[str] = "all",
    protections: str | Sequence[str] = USUAL,
    *,
    options: Mapping[str, Any] | None = None,
    need: Needs = NOTHING,
    jobs: int = 1,
    out: str = "runs/survey",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure methods under protections on the same rows, and write tables and a page.

    ``tables`` are those of a run. A protection that does not fit a method is a row that says why.
    """
    cells, folder = list_cells(tables, methods, protections, options or {}), RunFolder(Path(out))
    common = {name: table for name, table in tables.items() if name not in ("method", "protect")}
    build_federation(Settings.from_tables(common))  # rows that no method can learn from are refused at once
    try:
        (folder.path / "cells").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot make {out}: {error.strerror}: choose another with --out") from None
    rows = run_cells(cells, RunFolder(folder.path / "cells"), jobs, progress)
    done = [row for row in rows if row["state"] == "done"]
    scores: Mapping[str, float] = done[0]["scores"] if done else {}
    found = {
        "measure": next((name for name in MEASURES if name in scores), "score"),
        "costs": {name: words for name, (words, _) in COSTS.items()},
        "rows": rows,
        "fronts": {cost: front(done, cost) for cost in DRAWN},
        "recommendation": recommend(done, need),
        "rules": [*rules_for(need)],
        "folder": str(folder.path),
    }
    write_tables(folder, rows)
    folder.write_json("survey.json", found)
    title, parts = f"{len(rows)} ways to learn from the same rows", read_survey(found)
    folder.write("survey.html", fill("survey.html", title, over="Tacit survey", **parts).encode())
    return found
