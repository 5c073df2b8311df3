"""Models and scores: the same numbers as scikit-learn, and a way out that comes back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import safetensors.numpy
from sklearn import metrics

from tacit import FedAvg, Federation, FedHEONN, Table
from tacit.core.errors import DataError
from tacit.models.activations import ACTIVATIONS, logistic, softplus
from tacit.models.files import load_model
from tacit.models.onelayer import OneLayer
from tacit.models.scores import (
    classification_counts,
    classification_scores,
    regression_counts,
    regression_scores,
)

RNG = np.random.default_rng(0)
PROBABILITIES = RNG.dirichlet(np.ones(4), size=500)
TRUTH = np.array([RNG.choice(4, p=p / p.sum()) for p in PROBABILITIES**0.5])


def test_scores_equal_scikit_learns():
    scores = classification_scores(classification_counts(TRUTH, PROBABILITIES), range(4))
    predicted = PROBABILITIES.argmax(axis=1)
    assert scores["accuracy"] == pytest.approx(metrics.accuracy_score(TRUTH, predicted))
    for ours, theirs in (
        ("precision", metrics.precision_score),
        ("recall", metrics.recall_score),
        ("f1", metrics.f1_score),
    ):
        assert scores[ours] == pytest.approx(theirs(TRUTH, predicted, average="macro"))
    assert scores["loss"] == pytest.approx(metrics.log_loss(TRUTH, PROBABILITIES))
    assert scores["confusion"] == metrics.confusion_matrix(TRUTH, predicted).tolist()
    exact = metrics.roc_auc_score(TRUTH, PROBABILITIES, multi_class="ovr")
    assert scores["auc"] == pytest.approx(exact, abs=1e-3)
    exact = metrics.average_precision_score(TRUTH, PROBABILITIES)
    assert scores["pr_auc"] == pytest.approx(exact, abs=1e-3)


def test_counts_of_parts_add_up_to_those_of_the_whole():
    whole = classification_counts(TRUTH, PROBABILITIES)
    parts = [classification_counts(TRUTH[i::3], PROBABILITIES[i::3]) for i in range(3)]
    for name, total in whole.items():
        np.testing.assert_allclose(sum(part[name] for part in parts), total)


def test_regression_scores_equal_scikit_learns():
    truth = RNG.normal(size=(50, 2))
    predicted = truth + RNG.normal(size=(50, 2)) * 0.3
    scores = regression_scores(regression_counts(truth, predicted))
    assert scores["mse"] == pytest.approx(metrics.mean_squared_error(truth, predicted))
    assert scores["mae"] == pytest.approx(metrics.mean_absolute_error(truth, predicted))
    assert scores["r2"] == pytest.approx(metrics.r2_score(truth, predicted))


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_r2_of_targets_far_from_zero_is_scikit_learns(offset):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 2))
    y = offset + X[:, 0] + rng.normal(size=300)
    table = Table.of(X, y[:, None], task="regression")
    federation = Federation.embedded(table, clients=5, test=0.3, holdout=0.2)
    training = federation.train(FedHEONN(lam=1e-9, activation="linear"), protect="plain")
    model, test, kept = training.model, federation.test, federation.holdings
    exact = metrics.r2_score(test.target, model.predict(test))
    assert model.scores(test)["r2"] == pytest.approx(exact, rel=1e-9)
    assert model.score(test.values, test.target) == pytest.approx(exact, rel=1e-9)
    aside = np.concatenate([kept.holdout_rows(i).values for i in range(5)])
    truth = np.concatenate([kept.holdout_rows(i).target for i in range(5)])
    exact = metrics.r2_score(truth, model.predict(aside))
    assert training.holdout["r2"] == pytest.approx(exact, rel=1e-6)


def test_counts_of_a_regression_add_up_around_any_centre_they_share():
    truth = 1e6 + RNG.normal(size=(60, 2))
    predicted = truth + RNG.normal(size=(60, 2))
    parts = [regression_counts(truth[i::3], predicted[i::3], np.array([1e6 + 2, 1e6])) for i in range(3)]
    total = {name: sum(part[name] for part in parts) for name in parts[0]}
    assert regression_scores(total)["r2"] == pytest.approx(metrics.r2_score(truth, predicted), rel=1e-9)


def test_r2_of_a_constant_target_is_zero():
    truth = np.full((3, 1), 0.1)
    assert regression_scores(regression_counts(truth, truth + 0.01))["r2"] == 0.0


def test_nothing_to_score_is_none_and_not_nan():
    empty = classification_counts(np.empty(0, dtype=np.int64), np.empty((0, 3)))
    assert set(classification_scores(empty, range(3)).values()) == {None}
    assert regression_scores(regression_counts(np.empty((0, 1)), np.empty((0, 1))))["r2"] is None


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_inverse_and_slope_belong_to_the_function(name):
    f = ACTIVATIONS[name]
    d = np.linspace(0.05, 0.95, 19)
    x = f.inverse(d)
    np.testing.assert_allclose(f.function(x), d, rtol=1e-12)
    numeric = (f.function(x + 1e-6) - f.function(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(f.slope_at_target(d), numeric, rtol=1e-7)


def test_activations_do_not_overflow():
    x = np.array([-1e4, -800.0, 0.0, 800.0, 1e4])
    np.testing.assert_allclose(logistic(x), [0, 0, 0.5, 1, 1], atol=1e-300)
    np.testing.assert_allclose(softplus(x), [0, 0, np.log(2), 800, 1e4], atol=1e-300)


def trained(table: Table) -> OneLayer:
    return FedHEONN(activation="linear").fit(Federation.of({"one": table}), protect="plain")


def test_a_saved_model_predicts_the_same(tmp_path):
    federation = Federation.embedded("iris", clients=3)
    model = FedHEONN().fit(federation, protect="plain")
    back = load_model(model.save(tmp_path / "model.safetensors"))
    np.testing.assert_array_equal(back.weights, model.weights)
    np.testing.assert_array_equal(back.predict(federation.test), model.predict(federation.test))
    assert back.classes_.tolist() == model.classes_.tolist()


def test_the_exported_numbers_are_enough_to_predict_by_hand():
    federation = Federation.embedded("wine", clients=3)
    model = FedHEONN().fit(federation, protect="plain")
    plain = safetensors.numpy.load(model.to_bytes("safetensors"))
    X = (federation.test.values - plain["centre"]) / plain["spread"]
    outputs = X @ plain["weights"][1:] + plain["weights"][0]
    assert model.classes_[outputs.argmax(axis=1)].tolist() == model.predict(federation.test).tolist()


@pytest.mark.parametrize("content", [b"", b"junk" * 100, b"\xff" * 64])
def test_a_broken_model_file_is_refused(tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"model\.safetensors"):
        load_model(path)


def test_regression_models_predict_score_and_have_no_probabilities():
    X = RNG.normal(size=(30, 2))
    model = trained(Table.of(X, X @ [2.0, -1.0], task="regression"))
    assert model.score(X, X @ [2.0, -1.0]) > 0.999
    assert model.predict(X).shape == (30,)
    with pytest.raises(DataError, match="no probabilities"):
        model.predict_proba(X)


def test_rows_of_another_width_are_refused():
    model = FedHEONN().fit(Federation.embedded("iris", clients=3))
    with pytest.raises(DataError, match=r"rows have shape \(2, 3\)"):
        model.predict(np.zeros((2, 3)))


def test_values_that_are_missing_are_refused_by_the_name_of_their_column():
    rows = np.zeros((3, 4))
    rows[1:, 2] = np.nan
    told = r"column 'petal length \(cm\)' holds missing values: .* missing = 'mean'.*\(2 of 3 rows.* row 2\)"
    for method in (FedHEONN(), FedAvg(rounds=1)):
        model = method.fit(Federation.embedded("iris", clients=3), protect="plain")
        with pytest.raises(DataError, match=told):
            model.predict(rows)
        with pytest.raises(DataError, match=told):
            model.predictions(pa.table(list(rows.T), [column.name for column in model.schema.columns]))
