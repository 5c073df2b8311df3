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
    "thousands and fractions": (
        {"pay": [f'"{1000 + 11.7 * value:,.2f}"' for value in AGE]},
        "error",
        "decimal comma",
        "pay",
    ),
    "zeros before a postcode": (
        {"zip": [f"0{1000 + i % 30}" if i % 2 else 50000 + i % 30 for i in range(ROWS)]},
        "error",
        "text",
        "zip",
    ),
    "a few doses with their unit": (
        {"dose": [f"{5 * (1 + i % 6)} mg" for i in range(ROWS)]},
        "warning",
        "text",
        "dose",
    ),
    "percent signs": ({"share": [f"{90 + i % 9}%" for i in range(ROWS)]}, "warning", "text", "share"),
    "days as eight digits": (
        {"seen": [20240101 + 100 * (i % 12) + i % 28 for i in range(ROWS)]},
        "warning",
        "date",
        "seen",
    ),
    "a dozen addresses": (
        {"contact": [f"ann{i % 12}@ward.example" for i in range(ROWS)]},
        "error",
        "identifier",
        "contact",
    ),
    "yes in four ways": (
        {"smokes": [("ja", "nein", "1", "0", "TRUE", "no")[i % 6] for i in range(ROWS)]},
        "warning",
        "spelling",
        "smokes",
    ),
    "labels in two languages": (
        {"target": [(("no", "yes"), ("nein", "ja"))[i % 2][y] for i, y in enumerate(ILL)]},
        "error",
        "labels",
        "target",
    ),
    "888 for missing": ({"pressure": replaced(PRESSURE, 12, 888)}, "warning", "sentinel", "pressure"),
    "blank cells": ({"age": replaced(AGE, 7, "  ")}, "error", "missing", "age"),
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


@pytest.mark.parametrize(
    ("changed", "kind", "column"),
    [
        ({"target": ILL + 1}, "labels", "target"),
        ({"target": np.where(ILL, "ill", "well")}, "labels", "target"),
        ({"pressure": PRESSURE * 1000}, "range", "pressure"),
        ({"sex": np.where(AGE % 2, "w", "m")}, "labels", "sex"),
        ({"sex": np.where(AGE % 2, "female", "male")}, "labels", "sex"),
    ],
)
def test_a_site_that_writes_in_its_own_way_is_told_of(
    tacit: Tacit, tmp_path: Path, changed: dict[str, Column], kind: str, column: str
) -> None:
    words = isinstance(changed.get("target", [0])[0], str)
    labels = {"target": np.where(ILL, "krank", "gesund")} if words else {}
    files = [write(tmp_path / f"{name}.csv", labels) for name in ("north", "south")]
    files.append(write(tmp_path / "west.csv", changed))
    said = tacit("data", "check", *files, "--json")
    found = [f for f in said.json["findings"] if f["kind"] != "duplicate"]
    assert [(f["severity"], f["kind"], f["column"]) for f in found] == [("warning", kind, column)]
    assert " in west " in said.json["notes"][0] and said.json["ok"]
    assert tacit("run", "--data", *files, *RUN[:4], "--no-baselines", "--json", "--quiet").code == 0
    result = json.loads(next(tmp_path.glob("runs/*/result.json")).read_text())
    assert [note["text"] for note in result["notes"] if " in west " in note["text"]]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"sex": np.where(AGE % 2, "female", "male")}, "column 'sex' has categories in west that no other"),
        ({"target": ILL + 1}, "column 'target' has labels in west that no other"),
        ({"pressure": PRESSURE * 1000}, "column 'pressure' is 100 times as large or as small in west"),
    ],
)
def test_sites_that_bring_their_own_tables_are_compared(changed: dict[str, Column], told: str) -> None:
    tables = {name: pa.table(tidy()) for name in ("north", "south")}
    tables["west"] = pa.table(tidy() | changed)
    training = Federation.of(tables).train("fedheonn", protect="plain")
    (note,) = [note for note in training.record.notes if " in west" in note["text"]]
    assert (note["about"], note["level"]) == ("data", "warning") and told in note["text"]


def test_a_category_that_one_site_alone_has_now_and_then_is_no_other_writing() -> None:
    words = np.where(AGE % 2, "f", "m").astype(object)
    words[:5], words[words == "m"] = "x", "f"
    tables = {name: pa.table(tidy()) for name in ("north", "south")} | {
        "west": pa.table(tidy() | {"sex": words.astype(str)})
    }
    training = Federation.of(tables).train("fedheonn", protect="plain")
    assert not [note for note in training.record.notes if " in west" in note["text"]]


@pytest.mark.parametrize("protect", ["ckks", "masked"])
def test_a_rare_class_ends_an_experiment_before_anything_is_summed(
    tacit: Tacit, tmp_path: Path, protect: str
) -> None:
    path = write(tmp_path / "ward.csv", UNTIDY["a class of two rows"][0])
    ran = tacit("run", "--data", path, "--method", "fedheonn", "--protect", protect, "--clients", 4, "--json")
    assert ran.code == 3
    assert ran.json["error"]["text"].startswith("the class '2' occurs in fewer than min_count = 5 rows")
    events = next(tmp_path.glob("runs/*/events.jsonl")).read_text()
    assert "cell_counts" not in events and "moments" not in events


def test_a_column_too_large_for_its_sums_is_told_of(tacit: Tacit, tmp_path: Path) -> None:
    for factor, severity, code in ((10**4, None, 0), (2 * 10**6, "warning", 0), (10**9, "error", 3)):
        path = write(tmp_path / "ward.csv", {"pay": AGE * factor})
        checked = tacit("data", "check", path, "--json")
        found = [f for f in checked.json["findings"] if f["kind"] == "range"]
        assert checked.code == code and [f["severity"] for f in found] == ([severity] if severity else [])
    assert found[0]["column"] == "pay"
    assert found[0]["text"].endswith("Use a larger unit, such as millions")
    ran = tacit(
        "run", "--data", path, "--method", "fedheonn", "--protect", "masked", "--clients", 4, "--json"
    )
    assert "column 'pay' is too large for its sums" in ran.json["error"]["text"]
    assert "quorum is" in ran.json["error"]["text"] and "lower the quorum" not in ran.json["error"]["text"]


def in_german(path: Path, pay: Sequence[str]) -> Path:
    rows = [f"{age};{each};31.12.2025;{y}" for age, each, y in zip(AGE, pay, ILL, strict=True)]
    path.write_text("\n".join(["age;pay;seen;target", *rows]) + "\n", encoding="utf-8")
    return path


def test_points_that_may_part_thousands_are_told_of(tacit: Tacit, tmp_path: Path) -> None:
    parted = in_german(tmp_path / "parted.csv", [f"{age}.{age * 7:03}" for age in AGE])
    checked = tacit("data", "check", parted, "--json")
    (found,) = [f for f in checked.json["findings"] if (f["severity"], f["kind"]) == ("warning", "reading")]
    assert found["text"].endswith(
        "'pay' has three digits after each point: if points part thousands, use --decimal , --numeric pay"
    )
    assert load(parted, decimal=",", numeric=["pay"], drop=["seen"]).values[:, 1].min() > 18_000
    for pay in ([f"0.{age}1" for age in AGE], [f"{age}.5" for age in AGE]):
        checked = tacit("data", "check", in_german(tmp_path / "fractions.csv", pay), "--json")
        assert {f["severity"] for f in checked.json["findings"] if f["kind"] == "reading"} == {"info"}


def test_rows_without_a_target_hide_no_other_finding(tacit: Tacit, tmp_path: Path) -> None:
    changed = {"target": replaced(ILL, 100, ""), "age": replaced(AGE, 30, 9999), "site": ["north"] * ROWS}
    said = tacit("data", "check", write(tmp_path / "ward.csv", changed), "--json")
    kinds = [(found["severity"], found["kind"]) for found in said.json["findings"]]
    assert said.code == 3 and said.json["rows"] == ROWS
    assert {("error", "reading"), ("warning", "sentinel"), ("info", "constant")} <= {*kinds}
    said = tacit("data", "check", write(tmp_path / "none.csv", {"target": [""] * ROWS}), "--json")
    assert (said.code, said.json["rows"], len(said.json["findings"])) == (3, ROWS, 1)


def test_a_column_constant_at_one_site_is_dropped_by_all_or_none(tacit: Tacit, tmp_path: Path) -> None:
    files = [write(tmp_path / "north.csv", {"sex": ["f"] * ROWS}), write(tmp_path / "south.csv")]
    said = tacit("data", "check", *files)
    assert "column 'sex' never changes and teaches nothing: drop it, at all sites or at none" in said.out


def test_mistakes_of_usage_name_what_is_taken(tacit: Tacit, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x08\x0a" + bytes(range(200)))
    told = tacit("predict", tmp_path / "m.onnx", write(tmp_path / "ward.csv"))
    assert told.code == 3 and "Give a run, or the .safetensors file of one" in told.err
    assert tacit("compare", "--nope").err.endswith("See `tacit compare --help`\n")
    gone = tacit("data", "check", f"sqlite:///{tmp_path}/gone.db", "--query", "SELECT 1")
    assert gone.code == 6 and f"for there is no file {tmp_path}/gone.db: give another" in gone.err


def test_rows_that_are_there_twice_are_told_of(tacit: Tacit, tmp_path: Path) -> None:
    """A test would hold rows that were learnt; a table of few words repeats itself by nature."""
    files = [write(tmp_path / f"{name}.csv") for name in ("north", "south")]
    (note,) = [
        f for f in tacit("data", "check", *files, "--json").json["findings"] if f["kind"] == "duplicate"
    ]
    assert (note["severity"], note["text"][:24]) == ("warning", "420 rows repeat another ")
    few = write(tmp_path / "few.csv", {"age": AGE // 30, "pressure": AGE % 3})
    kinds = {finding["kind"] for finding in tacit("data", "check", few, "--json").json["findings"]}
    assert "duplicate" not in kinds


PATIENT = "Alice Archer"


class Frame:
    """Stands for any object whose text is rows."""

    def __repr__(self) -> str:
        return f"   name  age\n0  {PATIENT}  41"


def test_no_error_and_no_repr_holds_rows(tmp_path: Path) -> None:
    with pytest.raises(TacitError, match="table is a Frame: give") as told:
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
