"""What is said of a data set, and what is found wrong with it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.core.errors import ConfigError, UnavailableError
from tacit.data.catalog import catalog
from tacit.data.files import load
from tacit.data.inspection import check, describe


def at_hand(name: str) -> str:
    if not Path(os.environ.get("TACIT_DATA", "nowhere"), f"{name}.parquet").is_file():
        pytest.skip(f"TACIT_DATA has no {name}.parquet")
    return name


def test_a_file_is_described_by_its_rows_and_the_catalogue() -> None:
    facts = describe(at_hand("adult"))
    assert (facts["rows"], facts["features"], len(facts["categorical"]), facts["missing"]) == (
        48842,
        14,
        8,
        0,
    )
    assert (facts["classes"][">50K"], facts["groups"]) == (11687, {"split": 2})
    assert facts["licence"] == "CC BY 4.0" and "'?'" in facts["caution"] and not facts["synthetic"]


def test_missing_values_are_counted() -> None:
    assert describe(at_hand("breast_cancer_original"))["missing"] == 16


def test_what_is_not_here_is_described_by_the_catalogue() -> None:
    facts = describe("higgs")
    assert (facts["kind"], facts["rows"], facts["missing"]) == ("downloadable", 11_000_000, None)
    with pytest.raises(ConfigError, match="did you mean 'higgs'"):
        describe("higs")


def test_synthetic_sets_say_so() -> None:
    facts = describe("synthetic-higgs-x4")
    assert facts["synthetic"] and facts["rows"] == 44_000_000
    assert (facts["categorical"], facts["missing"], facts["groups"]) == ([], 0, {})
    assert "SYNTHETIC" in facts["caution"] and "SYNTHETIC" in facts["title"]


def test_ones_own_file_is_described(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("a,y\n1,2.5\n,1\n3,2\n")
    facts = describe(path, target="y")
    assert (facts["task"], facts["missing"], facts["name"], facts["classes"]) == ("regression", 1, "own", {})


@pytest.mark.parametrize("name", sorted(name for name, facts in catalog().items() if facts.sha256))
def test_the_files_at_hand_have_their_digest(name: str) -> None:
    found = check(at_hand(name))
    assert found["digest"] == "same"
    assert found["ok"] == (name not in {"breast_cancer_original", "audit_risk", "audit_trial"}), found[
        "problems"
    ]


def test_problems_come_with_their_fix(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("a,b,c,d,target\n1,5,inf,u,x\n,5,2,,x\n3,5,3,v,y\n4,5,4,v,x\n")
    found = check(path)
    assert (found["ok"], found["rows"], found["digest"]) == (False, 4, None)
    assert [column["missing"] for column in found["columns"]] == [1, 0, 0, 1]
    assert "column 'b' never changes" in " ".join(found["notes"])
    said = " ".join(found["problems"])
    assert "column 'a' has 1 missing of 4 values: have them imputed" in said
    assert "column 'c' has 1 infinite values: replace them" in said
    assert "3 rows are left to learn from: 10 rows, and 5 of each class (min_count), are the least" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,a,target\n1,2,3\n", "'a' is there more than once"),
        ("a,target\n1,x\n2,x\n", "column 'target' has the one class 'x': a classifier needs two"),
        ("a,target\n1,x,9\n", "cannot be read as CSV"),
    ],
)
def test_files_that_cannot_be_learnt_from(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.csv"
    path.write_text(text)
    found = check(path)
    assert not found["ok"] and message in " ".join(found["problems"])


def test_a_changed_file_under_a_known_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    pq.write_table(pa.table({"x": [1, 2, 3, 4], "target": [0, 1, 0, 1]}), tmp_path / "pima_diabetes.parquet")
    found = check("pima_diabetes")
    assert found["digest"] == "other" and "expected 25b4f9ef" in found["problems"][0]


def test_a_file_without_catalogue_digest_is_compared_with_its_pin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    pq.write_table(pa.table({"x": [1, 2, 3, 4] * 8, "target": [0, 1, 0, 1] * 8}), tmp_path / "higgs.parquet")
    assert (check("higgs")["ok"], check("higgs")["digest"]) == (True, None)
    (tmp_path / "higgs.parquet.sha256").write_text("0" * 64 + "  higgs.parquet\n")
    assert check("higgs")["digest"] == "other"


def test_built_in_and_synthetic_sets_are_sound() -> None:
    assert check("digits")["ok"] and "constant" in {found["kind"] for found in check("digits")["findings"]}
    assert check("synthetic-miniboone")["ok"]
    assert load("digits").rows == check("digits")["rows"]


def test_what_is_not_here_cannot_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    monkeypatch.setattr("tacit.data.files.cache_folder", lambda: tmp_path)
    with pytest.raises(UnavailableError, match="tacit data fetch higgs"):
        check("higgs")


def test_the_rows_of_a_database_are_checked_like_those_of_a_file(tmp_path: Path) -> None:
    pytest.importorskip("adbc_driver_sqlite")
    with closing(sqlite3.connect(tmp_path / "ward.db")) as ward, ward:
        ward.execute("CREATE TABLE visits (age REAL, ill TEXT)")
        rows = [(20.5 + row, "yes" if row % 2 else "no") for row in range(60)]
        ward.executemany("INSERT INTO visits VALUES (?, ?)", rows)
    found = check(f"sqlite:///{tmp_path}/ward.db", query="SELECT * FROM visits", target="ill")
    assert (found["ok"], found["rows"], found["leaves"]["classes"]) == (True, 60, ["no", "yes"])
