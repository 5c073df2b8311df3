"""DataFrames in, predictions out: by column name, whatever the library, and the same from every export."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import tacit
from tacit import Federation, Preparation, TacitError
from tacit.core.errors import ConfigError, DataError
from tacit.data.arrow import to_arrow
from tests.helpers.onnx_rows import onnx_feed

pandas = pytest.importorskip("pandas")
SITES = ("north", "south", "west")


def ward(seed: int, rows: int = 60) -> pandas.DataFrame:
    """Patients with a number, a number with gaps, and a category with gaps."""
    rng = np.random.default_rng(seed)
    age, sex = rng.normal(60, 10, rows), rng.choice(["f", "m"], rows).astype(object)
    outcome = np.where(age + 8 * (sex == "m") + rng.normal(0, 4, rows) > 63, "ill", "well")
    marker = rng.normal(size=rows) + (outcome == "ill")
    marker[::9], sex[::11] = np.nan, None
    index = [f"patient {place}" for place in range(rows)]
    return pandas.DataFrame({"age": age, "marker": marker, "sex": sex, "outcome": outcome}, index)


FRAMES = {name: ward(seed) for seed, name in enumerate(SITES)}
NEW = ward(9, 25).drop(columns="outcome")
FILLED = Preparation(missing="mean")


def trained(method="fedheonn", frames=FRAMES, **settings):
    federation = Federation.of(frames, target="outcome", **settings)
    return federation.train(method, preparation=FILLED, protect="plain").model


@pytest.fixture(scope="module")
def model():
    return trained()


def polars(frame):
    return pytest.importorskip("polars").from_pandas(frame)


def arrow(frame):
    return pa.Table.from_pandas(frame, preserve_index=False)


class TestReading:
    @pytest.mark.parametrize("library", [polars, arrow])
    def test_all_libraries_give_the_same_model_and_predictions(self, model, library):
        other = trained(frames={name: library(frame) for name, frame in FRAMES.items()})
        np.testing.assert_array_equal(other.weights, model.weights)
        np.testing.assert_array_equal(other.predict_proba(library(NEW)), model.predict_proba(NEW))

    def test_the_index_of_a_pandas_frame_is_no_column(self, model):
        assert [column.name for column in model.schema.columns] == ["age", "marker", "sex"]

    def test_dtypes_of_pandas_and_polars_are_read(self):
        frame = pandas.DataFrame(
            {
                "kind": pandas.Categorical(["u", "v", None]),
                "count": pandas.Series([1, None, 3], dtype="Int64"),
                "flag": [True, False, True],
                "target": ["a", "b", "a"],
            }
        )
        for one in (frame, polars(frame)):
            table = tacit.load(one)
            assert [column.kind for column in table.columns] == ["category", "number", "category"]
            np.testing.assert_array_equal(table.values[:, 1], [1, np.nan, 3])

    def test_dates_become_days_here_and_where_the_model_predicts(self):
        days = pandas.date_range("2020-01-01", periods=60)
        frames = {name: frame.assign(visit=days) for name, frame in FRAMES.items()}
        said = {"date": ["visit"], "cyclic": ["year"], "drop": ["marker", "sex"]}
        federation = Federation.of(frames, target="outcome", **said)
        model = federation.train("fedheonn", protect="plain").model
        assert [column.name for column in model.schema.columns][1] == "visit"
        new = frames["west"][["visit", "age"]]
        expected = model.predict_proba(federation.holdings.rows(2))
        np.testing.assert_allclose(model.predict_proba(new), expected, atol=1e-12)
        np.testing.assert_allclose(model.predict_proba(polars(new)), expected, atol=1e-12)

    def test_load_chooses_target_task_and_rows(self):
        table = tacit.load(FRAMES["north"], target="age", rows=20)
        assert (table.rows, table.task, table.target_names) == (20, "regression", ("age",))

    def test_rows_in_central_test(self):
        federation = Federation.of(FRAMES, target="outcome", test=ward(7))
        model = federation.train("fedheonn", preparation=FILLED, protect="plain").model
        assert model.scores(federation.test)["accuracy"] > 0.7

    @pytest.mark.parametrize("frame", [{"m": [1, "secret"]}, [["secret"]], np.array([["secret"]])])
    def test_what_is_no_frame_is_refused_without_its_rows(self, frame):
        with pytest.raises(ConfigError, match="give a name, a path or a DataFrame") as found:
            tacit.load(frame)
        assert "secret" not in str(found.value)

    def test_what_is_no_table_is_named_as_the_caller_calls_it(self):
        with pytest.raises(ConfigError, match="south is a dict: give"):
            Federation.of({**FRAMES, "south": {"age": [1]}}, target="outcome")
        with pytest.raises(ConfigError, match="test is a float: give"):
            Federation.of(FRAMES, target="outcome", test=0.3)

    def test_a_column_of_several_types_is_named_without_its_values(self):
        frame = pandas.DataFrame({"m": [1, "secret"], "target": [0, 1]})
        with pytest.raises(DataError, match="column 'm' of north cannot be read") as found:
            Federation.of({"north": frame})
        assert "secret" not in str(found.value) and found.value.__cause__ is None

    def test_a_column_name_that_is_there_twice_is_refused(self):
        with pytest.raises(DataError, match="more than once"):
            to_arrow(pa.table([[1], [2]], names=["a", "a"]), "rows")


class TestPredicting:
    def test_columns_are_taken_by_name_in_any_order(self, model):
        expected = model.predict_proba(NEW)
        np.testing.assert_array_equal(model.predict_proba(NEW[["sex", "marker", "age"]]), expected)
        np.testing.assert_array_equal(model.predict_proba(NEW.to_numpy()), expected)
        table = tacit.load(NEW[["sex", "marker", "age"]].assign(target="x"))
        np.testing.assert_array_equal(model.predict_proba(table), expected)

    def test_the_target_may_stand_beside(self, model):
        assert model.score(ward(9), ward(9)["outcome"]) > 0.7

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            (lambda f: f.drop(columns="age"), "no column 'age', which the model was trained with"),
            (lambda f: f.rename(columns={"age": "Age"}), "did you mean 'Age'"),
            (lambda f: f.assign(id=1), "the model was trained without column 'id'"),
            (
                lambda f: f.assign(age="old"),
                r"'age' is read as category: the model was trained with it as number; .* with na_values",
            ),
            (
                lambda f: f.assign(sex="q"),
                "column 'sex' holds a value that nobody agreed on: replace it, or leave it empty",
            ),
            (lambda f: f.assign(age=np.inf), "column 'age' holds infinite values: correct or drop"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, model, change, text):
        with pytest.raises(DataError, match=text):
            model.predict(change(NEW))

    def test_a_table_whose_column_is_of_another_kind_is_refused(self, model):
        table = tacit.load(NEW.assign(sex=1.0, target="x"))
        with pytest.raises(DataError, match=r"'sex' is read as number: .* choose it with categorical"):
            model.predict(table)
        model.predict(tacit.load(NEW.assign(sex=1.0, target="x"), categorical=["sex"]))

    def test_predictions_keep_columns_that_the_model_does_not_know(self, model):
        found = model.predictions(NEW.assign(id=range(25), outcome="?"))
        assert found.column_names == [
            "id",
            "outcome",
            "prediction",
            "probability of ill",
            "probability of well",
        ]
        assert found["prediction"].to_pylist() == model.predict(NEW).tolist()
        with pytest.raises(DataError, match="rows have a column 'prediction'"):
            model.predictions(NEW.assign(prediction=1))


METHODS = {
    "one layer": tacit.FedHEONN(),
    "softplus": tacit.FedHEONN(activation="softplus"),
    "hidden": tacit.FedHEONN(hidden=8),
    "network": tacit.FedAvg(rounds=1),
    "majority": tacit.FedHEONNEnsemble(estimators=5, vote="majority"),
    "mean": tacit.FedHEONNEnsemble(estimators=5, vote="mean"),
}


class TestExports:
    @pytest.mark.parametrize("name", METHODS)
    def test_file_onnx_and_scikit_learn_predict_the_same(self, name, tmp_path):
        runtime = pytest.importorskip("onnxruntime")
        model = trained(METHODS[name])
        again = tacit.load_model(model.export(tmp_path / "model.safetensors"))
        np.testing.assert_array_equal(again.predict_proba(NEW), model.predict_proba(NEW))
        estimator = again.to_sklearn()
        np.testing.assert_array_equal(estimator.predict_proba(NEW), model.predict_proba(NEW))
        assert estimator.predict(NEW).tolist() == model.predict(NEW).tolist()
        session = runtime.InferenceSession(model.export(str(tmp_path / "model.onnx")))
        assert [each.name for each in session.get_inputs()] == ["age", "marker", "sex"]
        label, probabilities, classes = session.run(None, onnx_feed(model, NEW.to_numpy()))
        np.testing.assert_allclose(probabilities, model.predict_proba(NEW), atol=1e-12)
        assert label.tolist() == model.predict(NEW).tolist()
        assert classes.tolist() == ["ill", "well"]

    @pytest.mark.parametrize(
        "method",
        [
            tacit.FedHEONN(activation="linear"),
            tacit.FedHEONNEnsemble(activation="linear"),
            tacit.FedAvg(rounds=1),
        ],
        ids=["one layer", "ensemble", "network"],
    )
    def test_regression(self, method):
        runtime = pytest.importorskip("onnxruntime")
        frames = {name: frame.assign(targets=frame["age"] * 2) for name, frame in FRAMES.items()}
        federation = Federation.of(frames, target="age")
        model = federation.train(method, preparation=FILLED, protect="plain").model
        new = frames["north"].drop(columns="age")
        session = runtime.InferenceSession(model.to_bytes("onnx"))
        rows = new[[column.name for column in model.schema.columns]].to_numpy()
        (found,) = session.run(["targets_"], onnx_feed(model, rows))  # "targets" is a column here
        np.testing.assert_allclose(found[:, 0], model.predict(new), atol=1e-9)
        np.testing.assert_array_equal(model.to_sklearn().predict(new), model.predict(new))
        assert model.predictions(new).column_names == ["prediction"]

    def test_words_that_few_rows_have_are_other_in_all_of_them(self):
        runtime = pytest.importorskip("onnxruntime")
        rare = {
            name: frame.assign(sex=frame["sex"].where(frame.index != "patient 1", name))
            for name, frame in FRAMES.items()
        }
        federation = Federation.of(rare, target="outcome")
        model = federation.train("fedheonn", preparation=FILLED, protect="masked").model
        words = {word for column in model.schema.columns for word in column.categories}
        assert not words & set(SITES)
        new = NEW.assign(sex=["unheard of", *NEW["sex"][1:]])
        session = runtime.InferenceSession(model.to_bytes("onnx"))
        (found,) = session.run(["probabilities"], onnx_feed(model, new.to_numpy()))
        np.testing.assert_allclose(found, model.predict_proba(new), atol=1e-12)

    @pytest.mark.parametrize("labels", [[0, 1], [True, False], [1.5, 2.5]])
    def test_labels_come_back_as_they_were(self, labels):
        runtime = pytest.importorskip("onnxruntime")
        names = dict(zip(["ill", "well"], labels, strict=True))
        frames = {name: f.assign(outcome=f["outcome"].map(names)) for name, f in FRAMES.items()}
        federation = Federation.of(frames, target="outcome", task="classification")
        model = federation.train("fedheonn", preparation=FILLED, protect="plain").model
        session = runtime.InferenceSession(model.to_bytes("onnx"))
        label, classes = session.run(["label", "classes"], onnx_feed(model, NEW.to_numpy()))
        assert label.tolist() == model.predict(NEW).tolist()
        assert sorted(classes.tolist()) == sorted(labels)

    @pytest.mark.parametrize(
        ("name", "kind", "text"),
        [
            ("model", None, "models are written as .safetensors, .onnx, .json"),
            ("model.onnx", "safetensors", "model.onnx would hold safetensors"),
            ("model.onnx", "pickle", "unknown format 'pickle'"),
        ],
    )
    def test_a_file_holds_what_its_name_says(self, model, tmp_path, name, kind, text):
        with pytest.raises(ConfigError, match=text):
            model.export(tmp_path / name, kind)
        assert not list(tmp_path.iterdir())

    def test_an_estimator_works_where_scikit_learn_takes_one(self, model):
        from sklearn.base import clone
        from sklearn.inspection import permutation_importance
        from sklearn.utils.validation import check_is_fitted

        frame = ward(3)
        estimator = clone(model.to_sklearn()).fit(frame, frame["outcome"])
        check_is_fitted(estimator)
        assert estimator.n_features_in_ == 3 and estimator.classes_.tolist() == ["ill", "well"]
        rows = frame.drop(columns="outcome")
        found = permutation_importance(estimator, rows, frame["outcome"], n_repeats=3, random_state=0)
        assert found.importances_mean.argmax() == 0  # age


def test_what_users_need_is_in_the_package_itself():
    names = (
        "Standing",
        "CostLedger",
        "ExposureLedger",
        "load_model",
        "Training",
        "Masked",
        "Plain",
        "Noised",
    )
    assert all(hasattr(tacit, name) and name in dir(tacit) for name in names)


def test_importing_costs_no_library():
    code = (
        "import sys, tacit; tacit.Federation; "
        "assert not {'pandas', 'polars', 'onnx', 'torch', 'IPython', 'matplotlib'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_errors_are_of_one_family(model):
    with pytest.raises(TacitError):
        model.predict([[1.0]])


@pytest.mark.parametrize("tables", [[], {}, [pa.table({"a": [1]})], pa.table({"a": [1]})])
def test_parties_are_given_by_name(tables):
    with pytest.raises(ConfigError, match=r"^tables is no dict of parties' names and tables: give"):
        Federation.of(tables)


@pytest.mark.parametrize(("kind", "way_out"), [("time32[s]", "turn it into a number"), ("date32", "name it")])
def test_a_time_without_a_day_is_no_date(kind, way_out):
    table = pa.table({"at": pa.array([0, 1]).cast("int32").cast(kind), "target": [0, 1]})
    with pytest.raises(DataError, match=f"column 'at' holds .* neither number nor text: {way_out}"):
        tacit.load(table)


def test_a_column_that_is_empty_at_one_party_is_given_its_kind():
    full = pa.table({"sex": ["f", "m"] * 9, "age": range(18), "target": [0, 0, 1] * 6})
    empty = full.set_column(0, "sex", pa.nulls(18))
    said = "'sex' is a number, the others have a category: convert it, or choose its kind with categorical"
    parties = {"north": full, "south": empty, "west": full}
    with pytest.raises(TacitError, match=said):
        Federation.of(parties).train("fedheonn", protect="plain", preparation=Preparation(missing="mean"))
    model = Federation.of(parties, categorical=["sex"]).train("fedheonn", protect="plain").model
    assert model.predict(empty).shape == (18,)
