"""Boosted trees in other formats: XGBoost's booster, ONNX and scikit-learn predict the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.inspection import permutation_importance
from typer.testing import CliRunner

from tacit import Federation, FedHEONN
from tacit.cli.app import app
from tacit.cli.models import write_model
from tacit.core.errors import ConfigError
from tacit.data.inputs import Inputs
from tacit.data.schema import Schema
from tacit.data.table import Column
from tacit.models.predictor import kind_of
from tacit.models.trees import NODES, BoostedTrees
from tacit.runs.folder import RESULT, RunFolder
from tests.helpers.grown import COLUMNS, SCHEMAS, random_trees
from tests.helpers.onnx_rows import onnx_feed


def answers(model: BoostedTrees, rows: object) -> np.ndarray:
    """Probabilities, of two classes those of the second, or targets; as XGBoost shapes them."""
    if model.schema.task == "regression":
        return model.predict(rows)
    found = model.predict_proba(rows)
    return found[:, 1] if model.loss == "logistic" else found


@pytest.mark.parametrize("case", SCHEMAS)
def test_a_booster_predicts_the_same(case, tmp_path):
    xgboost = pytest.importorskip("xgboost")
    model, rows = random_trees(case, trees=20, depth=5, rows=10_000)
    booster = xgboost.Booster(model_file=model.export(tmp_path / "model.json", "xgboost"))
    assert booster.feature_names == ["x", "colour", "y", "on"]
    X = model.columns(rows)
    assert 0.09 < np.isnan(X).mean() < 0.11
    named = {"feature_names": booster.feature_names, "feature_types": booster.feature_types}
    found = booster.predict(xgboost.DMatrix(X, **named))
    np.testing.assert_allclose(found, answers(model, rows), rtol=1e-6, atol=1e-6)
    gain = booster.get_score(importance_type="total_gain")
    assert gain == pytest.approx(model.importances(), rel=1e-5)
    assert booster.num_boosted_rounds() == 21  # the first is what margins are before any tree


def test_thresholds_are_exactly_those_of_the_trees():
    """Every row lies on a threshold, so that a rounded one would send it the other way."""
    pytest.importorskip("xgboost")
    rng = np.random.default_rng(1)
    thresholds = (rng.normal(size=200) * 10.0 ** rng.integers(-30, 30, size=200)).astype(np.float32)
    nodes = 3 * len(thresholds)
    parts = {"feature": [0, -1, -1], "left": [1, -1, -1], "right": [2, -1, -1], "value": [0.0, -1.0, 1.0]}
    arrays = {name: np.tile(part, len(thresholds)) for name, part in parts.items()}
    starts = np.arange(0, nodes + 1, 3)
    for child in ("left", "right"):
        arrays[child][::3] += starts[:-1]
    arrays |= {
        "threshold": np.zeros(nodes),
        "category_row": np.full(nodes, -1),
        "categories": np.zeros((0, 0)),
    }
    arrays["threshold"][::3] = thresholds
    arrays |= {name: np.zeros(nodes) for name in ("default_left", "gain", "cover")}
    arrays |= {"tree_start": starts, "tree_output": np.zeros(len(thresholds)), "base": [0.0]}
    schema = Schema((Column("x"),), "regression", (), ("t",))
    model = BoostedTrees(arrays, "squared", Inputs(schema, {}))
    below = np.nextafter(thresholds, np.float32(-np.inf))
    rows = np.concatenate([thresholds, below])[:, None]
    found = model.to_xgboost().inplace_predict(rows, validate_features=False)
    np.testing.assert_array_equal(found, model.predict(rows))
    np.testing.assert_array_equal(model.predict(thresholds[:, None]) - model.predict(below[:, None]), 2.0)


@pytest.mark.parametrize("case", SCHEMAS)
def test_onnx_predicts_the_same(case):
    runtime = pytest.importorskip("onnxruntime")
    model, rows = random_trees(case, trees=6, rows=2000)
    session = runtime.InferenceSession(model.to_bytes("onnx"))
    if model.schema.task == "regression":
        (found,) = session.run(["targets"], onnx_feed(model, rows))
        np.testing.assert_allclose(
            found.reshape(answers(model, rows).shape), model.predict(rows), rtol=1e-6, atol=1e-6
        )
        return
    label, probabilities, classes = session.run(None, onnx_feed(model, rows))
    np.testing.assert_allclose(probabilities, model.predict_proba(rows), atol=1e-6)
    assert classes.tolist() == list(model.schema.classes)
    np.testing.assert_array_equal(label, model.predict(rows))


def test_onnx_knows_which_categories_are_put_together():
    runtime = pytest.importorskip("onnxruntime")
    model, rows = random_trees("logistic", trees=6, rows=2000)
    # Amber and unseen colours count as blue, red is left out, a missing "on" counts as "y".
    cells = np.array([0, 2, 2, 3, -1, 5, 6, 7, 8, -1, 1, -1, -1, -1, -1, -1, 1])
    model = BoostedTrees(model.arrays, "logistic", Inputs(model.schema, {"cells": cells}))
    rows[:50, 1] = "mauve"
    (found,) = runtime.InferenceSession(model.to_bytes("onnx")).run(["probabilities"], onnx_feed(model, rows))
    np.testing.assert_allclose(found, model.predict_proba(rows), atol=1e-6)
    plain = BoostedTrees(model.arrays, "logistic", Inputs(model.schema, {}))
    assert np.abs(found[50:] - plain.predict_proba(rows[50:])).max() > 0.01


def test_scikit_learn_takes_the_model():
    model, rows = random_trees("logistic")
    estimator = model.to_sklearn()
    np.testing.assert_array_equal(estimator.predict_proba(rows), model.predict_proba(rows))
    falls = permutation_importance(estimator, rows, model.predict(rows), n_repeats=1, random_state=0)
    assert falls.importances_mean.shape == (4,)
    assert falls.importances_mean.max() > 0


def test_names_that_xgboost_forbids_are_left_out():
    model, _ = random_trees("logistic")
    columns = (Column("income [k€]"), *COLUMNS[1:])
    schema = Schema(columns, "classification", ("no", "yes"), ("t",))
    plain = json.loads(BoostedTrees(model.arrays, "logistic", Inputs(schema, {})).to_bytes("xgboost"))
    assert plain["learner"]["feature_names"] == []
    assert plain["learner"]["feature_types"] == ["q", "c", "q", "c"]


def test_what_has_no_trees_is_not_written_as_xgboosts(tmp_path):
    model = FedHEONN().fit(Federation.embedded("iris", clients=3), protect="plain")
    with pytest.raises(ConfigError, match="a OneLayer has no trees: export it as safetensors or onnx"):
        model.export(tmp_path / "model.json")


def test_a_file_of_xgboosts_ends_in_json(tmp_path):
    assert kind_of(tmp_path / "model.json", "xgboost") == "xgboost"
    assert kind_of(tmp_path / "model.json") == "xgboost"
    assert kind_of(tmp_path / "model.JSON") == "xgboost"
    with pytest.raises(ConfigError, match=r"model\.onnx would hold xgboost"):
        kind_of(tmp_path / "model.onnx", "xgboost")
    ways = r"models are written as \.safetensors, \.onnx, \.json: end its name so"
    with pytest.raises(ConfigError, match=ways):
        kind_of(tmp_path / "model.xgboost")


def test_the_command_writes_xgboosts_format(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    model, _ = random_trees("softmax", trees=2)
    facts = write_model(model, tmp_path / "model.json", "xgboost")
    assert (facts["format"], facts["bytes"]) == ("xgboost", (tmp_path / "model.json").stat().st_size)
    assert xgboost.Booster(model_file=facts["path"]).num_boosted_rounds() == 3


def test_a_format_by_its_name_is_written_beside_the_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = RunFolder.create("runs", "a")
    random_trees("softmax", trees=2)[0].save(folder.path / "model.safetensors")
    folder.write_json(RESULT, {"run": "a", "method": "federboost", "data": "iris", "protect": "plain"})
    done = CliRunner().invoke(app, ["export", "a", "--to", "xgboost", "--json"])
    assert done.exit_code == 0, done.output
    assert "learner" in json.loads(Path("a.json").read_text())


def test_what_has_no_tree_yet_is_its_base():
    runtime = pytest.importorskip("onnxruntime")
    model, rows = random_trees("softmax", trees=3, rows=10)
    none = {name: model.arrays[name][:0] for name in (*NODES, "tree_output")}
    model = BoostedTrees({**model.arrays, **none, "tree_start": [0]}, "softmax", model.inputs)
    (found,) = runtime.InferenceSession(model.to_bytes("onnx")).run(["probabilities"], onnx_feed(model, rows))
    np.testing.assert_allclose(found, model.predict_proba(rows), atol=1e-6)
