"""The model of every method in the formats of others: what reads them predicts the same.

A method is tested here the day it is registered. Only boosted trees have XGBoost's format, since only they
are trees of the kind that it holds; all others refuse it and say so.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load
from sklearn.base import is_classifier
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.utils.validation import check_is_fitted

from tacit.core.errors import ConfigError
from tacit.data.inputs import Inputs
from tacit.data.schema import Schema
from tacit.data.table import Column
from tacit.methods import METHODS
from tacit.models.estimator import KINDS, Estimator, fit_estimator, name_estimator
from tacit.models.files import load_model
from tacit.models.trees import BoostedTrees
from tests.contract.test_methods import spread, train
from tests.helpers.onnx_rows import onnx_feed

CASES = [(name, task) for name in METHODS for task in METHODS.get(name).tasks]
ROWS = 60


def answers(model, rows):
    """Return probabilities or targets, one row each."""
    found = model.predict_proba(rows) if model.schema.task == "classification" else model.predict(rows)
    return found.reshape(len(rows), -1)


def same_in_onnx(model, rows, tolerance):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.to_bytes("onnx"))
    if model.schema.task == "regression":
        (found,) = session.run(["targets"], onnx_feed(model, rows))
    else:
        label, found = session.run(["label", "probabilities"], onnx_feed(model, rows))
        np.testing.assert_array_equal(label, model.predict(rows))
    np.testing.assert_allclose(found, answers(model, rows), rtol=tolerance, atol=tolerance)


def same_in_safetensors(model, rows, folder):
    path = model.export(folder / "model.safetensors")
    assert sum(array.size for array in load(path.read_bytes()).values()) > rows.shape[1]
    np.testing.assert_array_equal(answers(load_model(path), rows), answers(model, rows))


def same_in_scikit_learn(model, rows):
    estimator = model.to_sklearn()
    check_is_fitted(estimator)
    frame = pd.DataFrame(rows, columns=estimator.feature_names_in_)
    given = estimator.predict_proba if model.schema.task == "classification" else estimator.predict
    np.testing.assert_array_equal(given(frame).reshape(len(rows), -1), answers(model, rows))
    # Its own tools take it, and no fold is learnt.
    predicted = cross_val_predict(estimator, frame, model.predict(rows), cv=KFold(2))
    np.testing.assert_array_equal(predicted, model.predict(rows))


def same_in_xgboost(model, rows, folder):
    if not isinstance(model, BoostedTrees):
        with pytest.raises(ConfigError, match="has no trees: export it as safetensors or onnx"):
            model.to_bytes("xgboost")
        return
    xgboost = pytest.importorskip("xgboost")
    booster = xgboost.Booster(model_file=model.export(folder / "model.json", "xgboost"))
    found = booster.inplace_predict(model.columns(rows), validate_features=False)
    expected = answers(model, rows)[:, 1:] if model.loss == "logistic" else answers(model, rows)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "task"), CASES)
def test_others_predict_the_same(name, task, table_of, tmp_path):
    table = table_of(task)
    model, rows = train(METHODS.get(name).tiny(), spread(table)).model, table.values[:ROWS]
    same_in_safetensors(model, rows, tmp_path)
    same_in_scikit_learn(model, rows)
    same_in_xgboost(model, rows, tmp_path)
    # Foreign trees and estimators compute in 32 bits.
    same_in_onnx(model, rows, 1e-5 if name in ("federboost", "fusion") else 1e-12)


FIXED = {"LabelBinarizer", "StandardScaler", "TransformedTargetRegressor", "DummyClassifier"}
ESTIMATORS = sorted({*" ".join(KINDS.values()).split()} - FIXED)


def normal():
    """Return numbers of the size that scaled rows have, without digits that 32 bits would lose."""
    return np.random.default_rng(1).normal(size=(ROWS, 4)).astype(np.float32).astype(np.float64)


def made_of(kind, X, y):
    """Return the model of an estimator, fitted to classes or targets."""
    task, classes = ("classification", ("low", "middle", "high")) if y.ndim == 1 else ("regression", ())
    schema = Schema(tuple(Column(f"x{place}") for place in range(4)), task, classes, ("y",))
    return Estimator(fit_estimator(kind, X, y, np.random.default_rng(0)), Inputs(schema, {}))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_onnx_of_every_estimator_that_fusion_may_send(kind):
    X = normal()
    # The class "low" was not seen, and is given the probability of none.
    classes, targets = np.where(X[:, 0] > 0, 2, 1), X @ np.array([[1.0], [2.0], [3.0], [4.0]]) + 50
    classifies = is_classifier(name_estimator(kind, "classification"))
    model = made_of(kind, X, classes if classifies else targets)
    same_in_onnx(model, X, 1e-5)


def test_an_estimator_of_one_class_says_that_it_has_no_onnx_form():
    model = made_of("MLP", normal(), np.zeros(ROWS, int))
    with pytest.raises(ConfigError, match="a DummyClassifier has no ONNX form: export it as safetensors"):
        model.to_bytes("onnx")
