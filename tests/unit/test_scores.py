"""Scores of awkward cases, beside scikit-learn's: ties, certain predictions, classes that are absent."""

from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from tacit.core.method import BINS
from tacit.models.scores import (
    classification_counts,
    classification_scores,
    exact_macro_auc,
    macro_auc,
    mean_of,
    regression_counts,
    regression_scores,
)

LABELS = ["a", "b", "c"]


def one_hot(codes: list[int]) -> Any:
    return np.eye(len(LABELS))[codes]


@pytest.mark.parametrize(
    ("truth", "called"),
    [([0, 0, 1, 1], [0, 2, 1, 1]), ([0, 0, 1, 2], [0, 0, 1, 1]), ([0, 0, 1, 1], [0, 1, 1, 1])],
    ids=["predicted, never true", "true, never predicted", "neither"],
)
def test_macro_means_are_over_the_classes_that_are_true_or_predicted(
    truth: list[int], called: list[int]
) -> None:
    counts = classification_counts(np.array(truth), one_hot(called))
    scores = classification_scores(counts, LABELS)
    theirs = metrics.precision_recall_fscore_support(truth, called, average="macro", zero_division=0)
    assert [scores[name] for name in ("precision", "recall", "f1")] == pytest.approx(theirs[:3])
    assert [each["label"] for each in scores["per_class"]] == LABELS
    assert [each["support"] for each in scores["per_class"]] == np.bincount(truth, minlength=3).tolist()


def test_a_certain_prediction_lies_in_the_last_bin() -> None:
    histogram = classification_counts(np.array([0, 1]), np.eye(3)[:2])["histogram"]
    assert histogram.shape == (2, 3, BINS)
    assert histogram[1, 0, -1] == histogram[1, 1, -1] == 1
    assert histogram.sum() == 6
    assert histogram[0, :, 0].tolist() == [1, 1, 2]


def tied_scores(seed: int = 3) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    raw = rng.integers(1, 4, (60, 3)).astype(float)
    return rng.integers(0, 3, 60), raw / raw.sum(axis=1, keepdims=True)


def test_ties_count_half() -> None:
    truth, probabilities = tied_scores()
    theirs = metrics.roc_auc_score(truth, probabilities, multi_class="ovr")
    assert exact_macro_auc(truth, probabilities) == pytest.approx(theirs, abs=1e-12)
    histogram = classification_counts(truth, probabilities)["histogram"]
    assert macro_auc(histogram) == pytest.approx(theirs, abs=2e-3)


def test_the_area_is_over_the_classes_that_can_be_told_apart() -> None:
    truth, probabilities = tied_scores()
    truth = truth % 2  # nobody has the third class
    theirs = np.mean([metrics.roc_auc_score(truth == code, probabilities[:, code]) for code in (0, 1)])
    assert exact_macro_auc(truth, probabilities) == pytest.approx(theirs, abs=1e-12)
    histogram = classification_counts(truth, probabilities)["histogram"]
    assert macro_auc(histogram) == pytest.approx(theirs, abs=2e-3)
    alone = np.zeros(60, dtype=np.int64)  # and if all have one class, none can
    assert exact_macro_auc(alone, probabilities) is None
    assert macro_auc(classification_counts(alone, probabilities)["histogram"]) is None


def test_one_pair_of_rows_is_enough_for_an_area() -> None:
    truth, probabilities = np.array([0, 1]), np.array([[0.8, 0.2], [0.3, 0.7]])
    assert exact_macro_auc(truth, probabilities) == 1.0
    assert macro_auc(classification_counts(truth, probabilities)["histogram"]) == 1.0


def test_the_mean_is_that_of_all_rows() -> None:
    truth = np.array([[1.0, -2.0], [4.0, 0.0], [10.0, 5.0]])
    assert mean_of(truth) == pytest.approx(truth.mean(axis=0))
    assert np.allclose(regression_counts(truth, truth)["sum"], 0)


def test_r2_of_a_nearly_constant_target_is_scikit_learns() -> None:
    truth, predicted = np.array([[0.1], [0.2], [0.3]]), np.array([[0.1], [0.25], [0.2]])
    scores = regression_scores(regression_counts(truth, predicted))
    assert scores["r2"] == pytest.approx(metrics.r2_score(truth, predicted))
    assert scores["mae"] == pytest.approx(metrics.mean_absolute_error(truth, predicted))
    assert scores["rmse"] == pytest.approx(metrics.root_mean_squared_error(truth, predicted))


def test_a_total_of_one_row_is_scored() -> None:
    scores = regression_scores(regression_counts(np.array([[2.0]]), np.array([[5.0]])))
    assert scores == {"mse": 9.0, "rmse": 3.0, "mae": 3.0, "r2": 0.0}
