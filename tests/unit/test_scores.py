"""Scores of awkward cases, beside scikit-learn's: ties, certain predictions, classes that are absent."""

from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from tacit.core.method import BINS, Method
from tacit.crypto.fixedpoint import FixedPoint
from tacit.data.schema import Schema
from tacit.data.table import Column
from tacit.models.scores import (
    areas,
    classification_counts,
    classification_scores,
    mean_of,
    regression_counts,
    regression_scores,
    score_classes,
    warn_of_balance,
)
from tacit.protections.bfv import BFV

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


@pytest.fixture
def layout() -> Any:
    """What a client sends for an evaluation of ten classes."""
    schema = Schema((Column("x"),), "classification", tuple(range(10)), ("y",))
    return Method.evaluation.tacit.layout(Method(), schema)  # type: ignore[attr-defined]


def test_an_evaluation_of_ten_classes_takes_less_than_40_kb_of_a_hundred_clients(layout: Any) -> None:
    slots = BFV().slots(layout, 100)
    cipher = BFV.cipher(BFV().generate()[0])
    assert len(slots.encrypt(cipher, slots.encode(np.zeros(layout.size)))) < 40_000


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_counts_are_whole_however_few_bits_a_protection_has(layout: Any, bits: int) -> None:
    code = FixedPoint.of(layout, bits, 20)
    counts = np.random.default_rng(0).integers(0, 3000, layout.size).astype(float)
    counts[-50:] = 1.0  # whether it is a site of that score
    opened = code.decode(sum(code.encode(counts) for _ in range(20)))
    assert opened == pytest.approx(20 * counts, abs=1e-4)


def tied_scores(seed: int = 3) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    raw = rng.integers(1, 4, (60, 3)).astype(float)
    return rng.integers(0, 3, 60), raw / raw.sum(axis=1, keepdims=True)


def areas_of(truth: Any, probabilities: Any) -> tuple[Any, Any]:
    """Exact areas, and those of the bins, each checked against the doubt that is told of it."""
    labels = range(probabilities.shape[1])
    exact = score_classes(truth, probabilities, labels)
    binned = classification_scores(classification_counts(truth, probabilities), labels)
    for name in ("auc", "pr_auc"):
        assert f"{name}_error" not in exact
        if exact[name] is not None:
            assert abs(exact[name] - binned[name]) <= binned[f"{name}_error"] + 1e-12
    return exact, binned


def test_ties_count_half() -> None:
    truth, probabilities = tied_scores()
    theirs = metrics.roc_auc_score(truth, probabilities, multi_class="ovr")
    exact, binned = areas_of(truth, probabilities)
    assert exact["auc"] == pytest.approx(theirs, abs=1e-12)
    assert binned["auc"] == pytest.approx(theirs, abs=2e-3)
    theirs = metrics.average_precision_score(truth, probabilities)
    assert exact["pr_auc"] == pytest.approx(theirs, abs=1e-12)


def test_bins_tell_certain_predictions_apart() -> None:
    """Networks that are sure have most of their probabilities next to 0 and 1."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 4000)
    odds = 6 * (2 * truth - 1) + rng.normal(0, 4, 4000)
    one = 1 / (1 + np.exp(-odds))
    exact, binned = areas_of(truth, np.stack([1 - one, one], axis=1))
    assert np.mean((one < 1e-3) | (one > 0.999)) > 0.3
    assert exact["auc"] == pytest.approx(metrics.roc_auc_score(truth, one), abs=1e-12)
    assert binned["auc"] == pytest.approx(exact["auc"], abs=1e-4)
    assert binned["pr_auc"] == pytest.approx(exact["pr_auc"], abs=1e-4)
    assert binned["auc_error"] < 2e-3


def test_the_area_is_over_the_classes_that_can_be_told_apart() -> None:
    truth, probabilities = tied_scores()
    truth = truth % 2  # nobody has the third class
    theirs = np.mean([metrics.roc_auc_score(truth == code, probabilities[:, code]) for code in (0, 1)])
    exact, binned = areas_of(truth, probabilities)
    assert exact["auc"] == pytest.approx(theirs, abs=1e-12)
    assert binned["auc"] == pytest.approx(theirs, abs=2e-3)
    alone, binned = areas_of(np.zeros(60, dtype=np.int64), probabilities)  # if all have one class, none can
    assert (alone["auc"], alone["pr_auc"], binned["auc"], binned["pr_auc_error"]) == (None, None, None, None)
    assert (alone["baseline"]["auc"], alone["baseline"]["accuracy"]) == (None, 1.0)


def test_one_pair_of_rows_is_enough_for_an_area() -> None:
    exact, binned = areas_of(np.array([0, 1]), np.array([[0.8, 0.2], [0.3, 0.7]]))
    assert exact["auc"] == binned["auc"] == exact["pr_auc"] == binned["pr_auc"] == 1.0


def test_of_two_classes_the_second_is_scored() -> None:
    """Probabilities next to 1 are rounded to it, so that those of the first class have ties of their own."""
    truth, small = np.array([0, 0, 1, 1]), np.array([1e-20, 2e-20, 3e-20, 4e-20])
    exact, _ = areas_of(truth, np.stack([1 - small, small], axis=1))
    assert exact["auc"] == metrics.roc_auc_score(truth, small) == 1.0


@pytest.mark.parametrize(("rare", "warned"), [(1, True), (10, True), (11, False), (50, False)])
def test_accuracy_that_a_constant_answer_reaches_is_told(rare: int, warned: bool) -> None:
    truth = (np.arange(100) < rare).astype(np.int64)
    scores = score_classes(truth, np.tile([0.6, 0.4], (100, 1)), ["no", "yes"])
    told = warn_of_balance(scores)
    assert bool(told) is warned
    assert not warned or f"{100 - rare:.1f}% of the rows that were scored are 'no'" in str(told)


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
    assert scores.pop("baseline") == {"mse": 0.0, "rmse": 0.0, "mae": 0.0, "r2": 1.0}
    assert scores == {"mse": 9.0, "rmse": 3.0, "mae": 3.0, "r2": 0.0}


def test_the_error_of_several_targets_is_the_mean_of_their_own_and_a_met_constant_is_met() -> None:
    truth, predicted = np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([[2.0, 5.0], [7.0, 5.0]])
    scores = regression_scores(regression_counts(truth, predicted))
    assert scores["rmse"] == pytest.approx(metrics.root_mean_squared_error(truth, predicted))
    assert scores["r2"] == pytest.approx(metrics.r2_score(truth, predicted))


def test_what_a_bin_leaves_in_doubt() -> None:
    """Two hits and one miss share the upper bin: the miss may stand before both, between or behind them."""
    bins = np.array([1.0, 1.0]), np.array([0.0, 2.0])
    assert areas([bins, bins], binned=True) == [0.75, 0.75, 0.25, 0.25]
    assert areas([bins, bins], binned=False)[:2] == [0.75, pytest.approx(2 / 3)]
