"""Scores of every method are scikit-learn's on the same predictions, on a test and on hold-outs."""

import numpy as np
import pytest
from sklearn import metrics
from sklearn.dummy import DummyClassifier, DummyRegressor

from tacit.data.table import joined
from tacit.engines.holdings import holdings_of
from tacit.federation import Federation
from tacit.methods import METHODS
from tacit.methods.base import Method
from tacit.models.scores import CLASS_SCORES, TARGET_SCORES

CASES = [(name, task) for name in METHODS for task in METHODS.get(name).tasks]
# How far areas may be off by their histograms: more where rows of a leaf tie, or few rows make sure models.
TIED = {"federboost": 0.05, "graffl": 0.05, "fusion": 0.12}
KINDS = {"classification": CLASS_SCORES, "regression": TARGET_SCORES}


def of_classes(truth, predicted, probabilities):
    """Scikit-learn's scores of codes and probabilities."""
    binary = probabilities.shape[1] == 2
    macro = {"average": "macro", "zero_division": 0}
    scores = probabilities[:, 1] if binary else probabilities
    return {
        "accuracy": metrics.accuracy_score(truth, predicted),
        "balanced_accuracy": metrics.balanced_accuracy_score(truth, predicted),
        "precision": metrics.precision_score(truth, predicted, **macro),
        "recall": metrics.recall_score(truth, predicted, **macro),
        "f1": metrics.f1_score(truth, predicted, **macro),
        "auc": metrics.roc_auc_score(truth, scores, multi_class="ovr"),
        "pr_auc": metrics.average_precision_score(truth, scores),
        "loss": metrics.log_loss(truth, probabilities),
        "brier": metrics.brier_score_loss(truth, probabilities),
    }


def of_targets(truth, predicted):
    """Scikit-learn's scores of numbers."""
    return {
        "mse": metrics.mean_squared_error(truth, predicted),
        "rmse": metrics.root_mean_squared_error(truth, predicted),
        "mae": metrics.mean_absolute_error(truth, predicted),
        "r2": metrics.r2_score(truth, predicted),
    }


def theirs(model, table):
    """Scikit-learn's scores of what a model predicts for a table, and of a constant answer."""
    constant = np.zeros((table.rows, 1))
    if table.task == "regression":
        dummy = DummyRegressor().fit(constant, table.target)
        return of_targets(table.target, model.predict(table)), of_targets(
            table.target, dummy.predict(constant)
        )
    codes = model.schema.labels(table)
    dummy = DummyClassifier(strategy="prior").fit(constant, codes)
    predicted = np.searchsorted(model.classes_, model.predict(table))
    return of_classes(codes, predicted, model.predict_proba(table)), of_classes(
        codes, dummy.predict(constant), dummy.predict_proba(constant)
    )


@pytest.fixture(scope="module")
def tables(table_of):
    """Rows for both tasks; of the classes, one case has two only."""
    found = {task: table_of(task) for task in KINDS}
    rows = found["classification"]
    rng = np.random.default_rng(1)
    return {task: table.take(rng.permutation(table.rows)) for task, table in found.items()} | {
        "binary": rows.take(rng.permutation(np.flatnonzero(rows.target > 0)))
    }


@pytest.mark.parametrize(("name", "task"), [*CASES, ("fedheonn", "binary"), ("fedavg", "binary")])
def test_scores_are_scikit_learns_on_the_same_predictions(name, task, tables):
    table = tables[task]
    names = KINDS.get(task, CLASS_SCORES)
    half = table.rows // 2
    held = holdings_of(table.take(slice(0, half)), np.arange(half) % 6, 0.5, seed=0)
    training = Federation(held, seed=3).train(METHODS.get(name).tiny(), protect="plain")
    test = table.take(slice(half, None))
    found, (expected, constant) = training.model.scores(test), theirs(training.model, test)
    assert {score: found[score] for score in names} == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert {s: found["baseline"][s] for s in names} == pytest.approx(constant, rel=1e-9, abs=1e-9)
    if METHODS.get(name).model_at is not Method.model_at:
        return  # hold-outs are scored with what each client keeps for itself: tested with that method
    aside = joined([held.holdout_rows(client) for client in range(6)])
    federated, (expected, _) = training.holdout, theirs(training.model, aside)
    for score in names:
        allowed = federated.get(f"{score}_error", 0.0) + 1e-9
        assert federated[score] == pytest.approx(expected[score], rel=1e-9, abs=allowed), score
    # What 200 bins resolve of models that hardly learnt; all rows of a leaf have one probability.
    assert federated.get("auc_error", 0.0) < TIED.get(name, 0.025)
