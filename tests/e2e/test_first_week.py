"""A data scientist's first week: twenty-odd untidy tables, each with the finding it must cause.

A table is either refused, by `tacit data check` and by the run, or the run says what is wrong with it.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.core.errors import QuorumError, SchemaError, TacitError
from tacit.core.layout import Field, Layout
from tacit.core.marks import contribution
from tacit.data.files import load
from tacit.federation import Federation
from tacit.methods.fedheonn import FedHEONN
from tacit.runs.transcript import TranscriptFolder
from tests.e2e.conftest import Tacit

ROWS = 420
RNG = np.random.default_rng(17)
AGE = RNG.integers(18, 90, ROWS)
PRESSURE = np.round(RNG.normal(130, 15, ROWS), 1)
ILL = (AGE + PRESSURE + RNG.normal(0, 20, ROWS) > 185).astype(int)
NOTES = ("came in walking after a fall", "no complaint at all today", "was sent home with advice")
Column = Sequence[object]


def tidy() -> dict[str, Column]:
    """A table without fault."""
    return {"age": AGE, "pressure": PRESSURE, "sex": np.where(AGE % 2, "f", "m"), "target": ILL}


def replaced(values: Column, every: int, word: object) -> list[object]:
    return [word if index % every == 0 else value for index, value in enumerate(values)]


# name: (what is changed, severity, kind, column)
UNTIDY: dict[str, tuple[dict[str, Column], str, str, str]] = {
    "decimal commas, all read": (
        {"pressure": [f'"{value:.1f}"'.replace(".", ",") for value in PRESSURE]},
        "info",
        "reading",
        "",
    ),
    "decimal commas here and there": (
        {"pressure": [f'"{v:.1f}"'.replace(".", ",.,."[i % 4]) for i, v in enumerate(PRESSURE)]},
        "error",
        "decimal comma",
        "pressure",
    ),
    "one cell says so": (
        {"pressure": replaced(PRESSURE, ROWS, "not done")},
        "error",
        "stray word",
        "pressure",
    ),
    "> 40 among numbers": ({"age": replaced(AGE, 50, "> 40")}, "error", "stray word", "age"),
    "units in cells": (
        {"pressure": [f"{value} mmHg" for value in PRESSURE]},
        "error",
        "stray word",
        "pressure",
    ),
    "-999 for missing": ({"pressure": replaced(PRESSURE, 12, -999)}, "warning", "sentinel", "pressure"),
    "9999 for missing": ({"age": replaced(AGE, 30, 9999)}, "warning", "sentinel", "age"),
    "-1 for missing": ({"age": replaced(AGE, 9, -1)}, "warning", "sentinel", "age"),
    "a slip of the decimal point": (
        {"pressure": replaced(PRESSURE, ROWS, 1.3e9)},
        "warning",
        "range",
        "pressure",
    ),
    "empty cells": ({"age": replaced(AGE, 7, "")}, "error", "missing", "age"),
    "an empty column": ({"age": [""] * ROWS}, "error", "missing", "age"),
    "words for missing": ({"sex": replaced(tidy()["sex"], 5, "unknown")}, "warning", "missing", "sex"),
    "infinite": ({"pressure": replaced(PRESSURE, 100, "inf")}, "error", "infinite", "pressure"),
    "dates as text": (
        {"seen": [f"{1 + i % 28}.{1 + i % 12}.{1990 + i % 30}" for i in range(ROWS)]},
        "error",
        "date",
        "seen",
    ),
    "patient identifiers": ({"patient": [f"P{i:05}" for i in range(ROWS)]}, "error", "identifier", "patient"),
    "identifiers that recur": (
        {"pid": [f"P{i % 140:05}" for i in range(ROWS)]},
        "error",
        "identifier",
        "pid",
    ),
    "names": (
        {"who": [f"{a}{b}" for a in "ABCDEFGHIJKLMNOPQRSTU" for b in "abcdefghijklmnopqrst"]},
        "error",
        "identifier",
        "who",
    ),
    "free notes": (
        {"note": [f"{NOTES[i % 3]}: {chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(ROWS)]},
        "error",
        "free text",
        "note",
    ),
    "numbered rows": ({"record": range(7, 7 + ROWS)}, "warning", "identifier", "record"),
    "a constant": ({"site": ["north"] * ROWS}, "info", "constant", "site"),
    "the same column twice": ({"alter": AGE}, "warning", "duplicate", "alter"),
    "spellings": ({"sex": replaced(tidy()["sex"], 4, "F ")}, "warning", "spelling", "sex"),
    "99 to 1": ({"target": [int(i % 42 == 0) for i in range(ROWS)]}, "warning", "balance", "target"),
    "one class": ({"target": [1] * ROWS}, "error", "balance", "target"),
    "a class of two rows": (
        {"target": [2 if i in (3, 77) else y for i, y in enumerate(ILL)]},
        "error",
        "rows",
        "target",
    ),
    "a quantity with a stray word": (
        {"target": replaced(PRESSURE, ROWS, "tbd")},
        "error",
        "stray word",
        "target",
    ),
    "labels in two ways": (
        {"target": [("no", "yes")[y] if i % 2 else str(y) for i, y in enumerate(ILL)]},
        "error",
        "labels",
        "target",
    ),
    "a score taken for classes": ({"target": AGE // 3}, "warning", "task", "target"),
}


def write(path: Path, changed: dict[str, Column] | None = None) -> Path:
    columns = tidy() | (changed or {})
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join([",".join(columns), *lines]) + "\n", encoding="utf-8")
    return path


RUN = ("--method", "fedheonn", "--protect", "plain", "--clients", 4, "--partition", "iid", "--no-baselines")


@pytest.mark.parametrize("case", UNTIDY.values(), ids=UNTIDY)
def test_an_untidy_table_is_told_of(tacit: Tacit, tmp_path: Path, case: tuple[Any, ...]) -> None:
    changed, severity, kind, column = case
    path = write(tmp_path / "ward.csv", changed)
    checked = tacit("data", "check", path, "--json")
    found = [(f["severity"], f["kind"], f["column"]) for f in checked.json["findings"]]
    assert (severity, kind, column) in found
    assert (checked.code, checked.json["ok"]) == ((3, False) if severity == "error" else (0, True))
    # No text holds a cell of the rows.
    assert not any(word in checked.json["problems"] for word in ("P00017", "came in walking"))
    ran = tacit("run", "--data", path, *RUN, "--json", "--quiet")
    if severity == "error" and kind != "rows":  # under plain sums no row has to hide among others
        assert ran.code == 3, ran.out
    elif severity == "warning":
        assert ran.code == 0, ran.err
        result = json.loads(next(tmp_path.glob("runs/*/result.json")).read_text())
        told = [note["text"] for note in result["notes"] if note["about"] == "data"]
        assert any(f"column '{column}'" in text for text in told), told


def test_a_tidy_table_causes_none(tacit: Tacit, tmp_path: Path) -> None:
    checked = tacit("data", "check", write(tmp_path / "ward.csv"), "--json")
    assert checked.code == 0
    assert {finding["severity"] for finding in checked.json["findings"]} == {"info"}
    assert checked.json["leaves"] == {
        "columns": ["age", "pressure", "sex", "target"],
        "classes": [0, 1],
        "categories": {"sex": ["f", "m"]},
    }
    ages = next(column for column in checked.json["columns"] if column["name"] == "age")
    assert ages == {"name": "age", "kind": "number", "least": 18.0, "most": 89.0, "missing": 0}


def test_all_findings_come_at_once(tacit: Tacit, tmp_path: Path) -> None:
    changed = {name: column for case in list(UNTIDY.values())[:6] for name, column in case[0].items()}
    changed |= UNTIDY["patient identifiers"][0] | UNTIDY["dates as text"][0] | UNTIDY["a constant"][0]
    said = tacit("data", "check", write(tmp_path / "ward.csv", changed))
    assert said.code == 3
    for words in ("column 'seen' holds dates", "column 'patient' holds 420 different", "column 'site' never"):
        assert words in said.out
    assert "(--json lists them)" in said.out


def sites(tmp_path: Path, *labels: Callable[[int], object]) -> list[Path]:
    return [
        write(tmp_path / f"{name}.csv", {"target": [label(int(y)) for y in ILL]})
        for name, label in zip(("north", "south", "west"), labels, strict=True)
    ]


def test_sites_that_code_their_labels_otherwise(tacit: Tacit, tmp_path: Path) -> None:
    files = sites(tmp_path, int, int, ("no", "yes").__getitem__)
    said = tacit("data", "check", *files, "--json")
    assert (said.code, said.json["ok"]) == (3, False)
    assert all(result["ok"] for result in said.json["sites"].values())
    assert "written in more than one way, 0/1 and no/yes" in said.json["problems"][0]
    tables = {path.stem: load(path) for path in files}
    for protect in ("plain", "masked"):
        with pytest.raises(SchemaError, match="written in more than one way, 0/1 and no/yes"):
            Federation.of(tables).train("fedheonn", protect=protect)
    assert tacit("data", "check", *sites(tmp_path, int, int, int)).code == 0


PATIENT = "Alice Archer"


class Frame:
    """Stands for any object whose text is rows."""

    def __repr__(self) -> str:
        return f"   name  age\n0  {PATIENT}  41"


def test_no_error_and_no_repr_holds_rows(tmp_path: Path) -> None:
    with pytest.raises(TacitError, match="data is a Frame: give") as told:
        load(Frame())  # type: ignore[arg-type]
    assert PATIENT not in str(told.value)
    path = write(tmp_path / "ward.csv", {"sex": [PATIENT, "Bob Baker"] * (ROWS // 2)})
    table = load(path)
    federation = Federation.of(dict.fromkeys(("north", "south", "west"), table))
    training = federation.train("fedheonn", protect="plain")
    for shown in (
        table,
        table.columns,
        federation,
        federation.holdings,
        training,
        training.schema,
        training.model,
    ):
        assert PATIENT not in repr(shown) and str(PRESSURE[0]) not in repr(shown)


def test_a_failing_clients_text_stays_whole(tmp_path: Path) -> None:
    """A client's name may be part of any word."""
    good = load(write(tmp_path / "ward.csv"))
    bad = load(write(tmp_path / "bad.csv", {"pressure": replaced(PRESSURE, 9, "")}))
    tables = {"in": bad, "a": bad, "ins": bad, "c": good}
    with pytest.raises(
        QuorumError, match="holds missing values: fill them in, drop those rows, or set missing"
    ) as told:
        Federation.of(tables).train("fedheonn", protect="plain")
    assert "in, a, ins: DataError: it: column 'pressure' holds missing values: fill them in," in str(
        told.value
    )


def test_the_cause_in_a_users_own_module_is_chained(tmp_path: Path) -> None:
    class Broken(FedHEONN):
        def contribution_of_mine(self) -> None:
            raise ZeroDivisionError("in my own module")

        @contribution(lambda self, schema: Layout(Field("x", (), bound=1.0)))
        def terms(self, party: Any, shared: Any) -> dict[str, Any]:
            self.contribution_of_mine()
            return {"x": 1.0}

        def train(self, coordinator: Any) -> None:
            coordinator.round(self.terms, self.terms)

    table = load(write(tmp_path / "ward.csv"))
    with pytest.raises(QuorumError, match="ZeroDivisionError in the client's step") as told:
        Federation.of(dict.fromkeys(("north", "south", "west"), table)).train(Broken(), protect="plain")
    cause = told.value.__cause__
    assert isinstance(cause, ZeroDivisionError) and str(cause) == "in my own module"
    names = [frame.name for frame in traceback.extract_tb(cause.__traceback__)]
    assert names[-1] == "contribution_of_mine"
    assert "in my own module" not in str(told.value)


def test_transcripts_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        transcript = TranscriptFolder(tmp_path / "transcript")
        transcript("north", "coordinator", "client.enrol", b"hello")
    finally:
        os.umask(before)
    assert transcript.path.stat().st_mode & 0o777 == 0o700
    assert transcript.file("north").stat().st_mode & 0o777 == 0o600


def test_columns_that_cannot_be_read_do_not_hide_other_findings(tacit: Tacit, tmp_path: Path) -> None:
    columns = {
        **tidy(),
        "pressure": replaced(PRESSURE, 12, -999),
        "seen": [1.0] * ROWS,
        "image": [[1, 2]] * ROWS,
    }
    pq.write_table(pa.table(columns), tmp_path / "ward.parquet")
    said = tacit("data", "check", tmp_path / "ward.parquet", "--json")
    kinds = [(found["severity"], found["kind"]) for found in said.json["findings"]]
    assert said.code == 3 and {("error", "reading"), ("warning", "sentinel"), ("info", "constant")} <= {
        *kinds
    }
    assert "column 'image' holds list<" in said.json["problems"][0]
