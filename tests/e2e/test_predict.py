"""``tacit predict``: from a run or a model's file and new rows to labels and probabilities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import tacit as package
from tests.e2e.conftest import Tacit


@pytest.fixture
def patients(tmp_path: Path) -> pa.Table:
    """Rows in a file to learn from, and new ones with an identifier, in another order of columns."""
    rng = np.random.default_rng(3)
    age, sex = rng.normal(60, 10, 200), rng.choice(["f", "m"], 200)
    ill = np.where(age + 6 * (sex == "m") > 62, "ill", "well")
    days = np.datetime64("2024-01-01") + rng.integers(0, 700, 200)
    whole = pa.table({"age": age, "sex": sex, "visit": days, "outcome": ill})
    pa.csv.write_csv(whole, tmp_path / "old.csv")
    new = pa.table({"id": np.arange(9), "visit": days[:9], "sex": sex[:9], "age": age[:9]})
    pa.csv.write_csv(new, tmp_path / "new.csv")
    return new


@pytest.fixture
def run(tacit: Tacit, patients: pa.Table) -> Tacit:
    options = ("--target", "outcome", "--date", "visit", "--clients", 4, "--no-baselines")
    assert tacit("run", "--data", "old.csv", *options, "--protect", "plain", "--json").code == 0
    return tacit


def test_labels_and_probabilities_stand_beside_what_the_model_does_not_know(
    run: Tacit, patients: pa.Table, tmp_path: Path
) -> None:
    said = run("predict", "latest", "new.csv", "--date", "visit", "--to", "out.csv", "--json").json
    found = pa.csv.read_csv(tmp_path / "out.csv")
    names = ["id", "prediction", "probability of ill", "probability of well"]
    assert (said["rows"], said["columns"], found.column_names) == (9, names, names)
    run("export", "--to", "model.safetensors")
    model = package.load_model("model.safetensors")
    assert found["id"].to_pylist() == list(range(9))
    assert found["prediction"].to_pylist() == model.predict(patients.drop_columns("id")).tolist()
    shares = np.column_stack([found[name].to_numpy() for name in names[2:]])
    np.testing.assert_allclose(shares, model.predict_proba(patients.drop_columns("id")), atol=1e-12)
    again = run("predict", "model.safetensors", "new.csv", "--date", "visit", "--to", "out.parquet")
    assert again.code == 0 and pa.parquet.read_table(tmp_path / "out.parquet").equals(found)
    assert run("predict", "latest", "new.csv", "--date", "visit").out == (tmp_path / "out.csv").read_text()
    listed = run("predict", "latest", "new.csv", "--date", "visit", "--json").json["predictions"]
    assert listed == found.to_pylist()


def test_what_cannot_be_predicted_is_refused(run: Tacit, tmp_path: Path) -> None:
    (tmp_path / "short.csv").write_text("id,age\n1,60\n")
    for words, code, text in (
        (("latest", "short.csv"), 3, "no column 'sex', 'visit'"),
        (("latest", "new.csv", "--to", "old.csv"), 2, "old.csv is there already"),
        (("latest", "new.csv", "--to", "out.txt"), 2, "written as .csv or .parquet"),
        (("nothing", "new.csv"), 2, "no run 'nothing'"),
        (("new.csv", "new.csv"), 3, "not a model that can be read"),
    ):
        said = run("predict", *words, "--json")
        assert said.code == code and text in said.json["error"]["text"], words


def test_a_site_writes_what_the_name_of_its_file_says(
    tacit: Tacit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = package.FedHEONN().fit(package.Federation.embedded("iris", clients=3), protect="plain")
    monkeypatch.setattr("tacit.deploy.site.learnt", lambda folder, run: ("run-1", model))
    monkeypatch.setattr("tacit.engines.sitefolder.SiteFolder", lambda path: path)
    onnx = pytest.importorskip("onnx")
    assert tacit("site", "export", ".", "--to", "x.onnx", "--json").json["format"] == "onnx"
    assert len(onnx.load(tmp_path / "x.onnx").graph.input) == 4
    said = tacit("site", "export", ".", "--to", "y.onnx", "--format", "safetensors", "--json")
    assert said.code == 2 and "y.onnx would hold safetensors" in said.json["error"]["text"]
    assert tacit("site", "export", ".", "--to", "y", "--json").code == 2
    assert (
        package.load_model(tmp_path / tacit("site", "export", ".", "--json").json["path"]).classes_.size == 3
    )


def test_a_new_client_gets_a_head_of_its_own(tacit: Tacit, patients: pa.Table, tmp_path: Path) -> None:
    few = ("--rounds", 2, "--no-baselines", "--json")
    options = ("--target", "outcome", "--date", "visit", "--clients", 4, "--protect", "plain", *few)
    assert tacit("run", "--method", "flop", "--data", "old.csv", *options).code == 0
    whole = pa.csv.read_csv(tmp_path / "old.csv")
    other = ["well" if word == "ill" else "ill" for word in whole["outcome"].to_pylist()]
    own = whole.set_column(3, "outcome", [other]).append_column("id", [[*range(200)]])
    pa.csv.write_csv(own, tmp_path / "own.csv")
    words = ("--head", "own.csv", "--date", "visit", "--to", "own.safetensors", "--json")
    assert tacit("export", "latest", *words).json["path"] == "own.safetensors"
    assert tacit("export", "latest", "--to", "all.safetensors", "--json").code == 0
    model, rows = package.load_model(tmp_path / "own.safetensors"), own.select(["age", "sex", "visit"])
    assert (
        model.score(rows, other) > 0.75 > package.load_model(tmp_path / "all.safetensors").score(rows, other)
    )


def test_a_model_without_a_last_layer_gets_no_head(run: Tacit) -> None:
    refused = run("export", "latest", "--head", "old.csv", "--to", "own.safetensors")
    assert refused.code == 2 and "no network, and has no last layer to fit" in refused.err


def test_a_generator_makes_rows_of_the_columns_that_it_learnt_from(
    tacit: Tacit, patients: pa.Table, tmp_path: Path
) -> None:
    few = ("--rounds", 2, "--trials", 1, "--draws", 5, "--no-baselines", "--json")
    options = ("--target", "outcome", "--date", "visit", "--clients", 4, "--protect", "plain", *few)
    assert tacit("run", "--method", "graffl", "--data", "old.csv", *options).code == 0
    said = tacit("sample", "latest", "--rows", 30, "--to", "synthetic.csv", "--json").json
    names = ["age", "sex", "visit", "outcome"]
    assert (said["rows"], said["path"], sorted(said["columns"])) == (30, "synthetic.csv", sorted(names))
    made = pa.csv.read_csv(tmp_path / "synthetic.csv")
    assert made.num_rows == 30 and set(made["sex"].to_pylist()) <= {"f", "m"}
    listed = tacit("sample", "latest", "--rows", 5, "--label", "ill", "--json").json["sample"]
    assert [row["outcome"] for row in listed] == ["ill"] * 5
    assert tacit("sample", "latest", "--rows", 5).out.count("\n") == 6
    for words, text in (
        (("--label", "il"), "no rows were of a class 'il': did you mean 'ill'"),
        (("--rows", 0), "rows is 0: give a whole number of at least 1"),
        (("--to", "synthetic.csv"), "synthetic.csv is there already"),
        (("--to", "rows.txt"), "rows are written as .csv or .parquet"),
    ):
        refused = tacit("sample", "latest", *words)
        assert refused.code == 2 and text in refused.err


def test_a_model_that_only_predicts_generates_nothing(run: Tacit) -> None:
    refused = run("sample", "latest")
    assert refused.code == 2 and "predicts, and generates no rows: train one with graffl" in refused.err
