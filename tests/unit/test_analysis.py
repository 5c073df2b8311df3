"""What a report shows beside the scores: curves, intervals, sites, importance, weights and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import auc, average_precision_score, roc_auc_score

from tacit import Federation
from tacit.core.errors import ConfigError
from tacit.core.events import Events
from tacit.core.method import SITE_BINS, SITE_ROWS
from tacit.data.table import Table
from tacit.engines.holdings import Holdings
from tacit.ledger.exposure import ExposureLedger
from tacit.methods.fedheonn import FedHEONN
from tacit.models.scores import CLASS_SCORES, classification_counts, curves_of, score_classes, spread_of
from tacit.runs.analysis import importance, linear_weights, resample_confusion, resample_rows, residuals
from tacit.runs.job import execute
from tacit.runs.report import render
from tacit.runs.settings import Settings


@pytest.fixture(scope="module")
def guesses() -> tuple[Any, Any]:
    """Rows of two classes whose probabilities say what they mean."""
    rng = np.random.default_rng(0)
    chance = np.concatenate([rng.beta(0.5, 0.5, 4000), [1e-9, 1 - 1e-9]])  # the narrowest bins as well
    return (rng.random(len(chance)) < chance).astype(int), np.stack([1 - chance, chance], axis=1)


def test_curves_are_those_of_scikit_learn(guesses: tuple[Any, Any]) -> None:
    truth, chance = guesses
    (found,) = curves_of(classification_counts(truth, chance)["histogram"], ["no", "yes"])
    assert found["label"] == "yes"
    roc, pr = np.array(found["roc"]), np.array(found["pr"])
    assert roc[0].tolist() == [0, 0]
    assert roc[-1].tolist() == [1, 1]
    assert auc(*roc.T) == pytest.approx(roc_auc_score(truth, chance[:, 1]), abs=2e-3)
    assert auc(*pr.T) == pytest.approx(average_precision_score(truth, chance[:, 1]), abs=1e-2)
    said, share, rows = np.array(found["calibration"]).T
    assert rows.sum() == len(truth)
    assert np.abs(said - share).max() < 0.08  # 400 rows each: four standard deviations
    assert np.abs(said - (np.arange(10) + 0.5) / 10).max() < 0.05


def test_many_classes_show_those_with_most_rows_and_none_without(guesses: tuple[Any, Any]) -> None:
    rng = np.random.default_rng(1)
    truth, chance = rng.integers(8, size=500), rng.dirichlet(np.ones(9), 500)
    found = curves_of(classification_counts(truth, chance)["histogram"], list("abcdefghi"))
    most = sorted(np.argsort(-np.bincount(truth), kind="stable")[:6])
    assert [each["label"] for each in found] == ["abcdefghi"[code] for code in most]


def test_a_bootstrap_interval_holds_the_score_and_narrows_with_rows() -> None:
    few = resample_confusion([[40, 10], [5, 45]], np.random.default_rng(0))
    many = resample_confusion([[4000, 1000], [500, 4500]], np.random.default_rng(0))
    assert few["how"] == "bootstrap of 100 rows"
    low, high = few["accuracy"]
    assert low < 0.85 < high
    assert high - low == pytest.approx(2 * 1.96 * (0.85 * 0.15 / 100) ** 0.5, rel=0.25)
    assert many["f1"][1] - many["f1"][0] < (few["f1"][1] - few["f1"][0]) / 5
    assert resample_confusion(None, np.random.default_rng(0)) == {}


def test_rows_at_hand_give_intervals_of_areas_and_losses(guesses: tuple[Any, Any]) -> None:
    truth, chance = guesses
    found = resample_rows(truth, chance, np.random.default_rng(0))
    scores = score_classes(truth, chance, ["no", "yes"])
    for name in CLASS_SCORES:
        low, high = found[name]
        assert low < scores[name] < high
    error = np.std((chance[:, 1] - truth) ** 2) / len(truth) ** 0.5
    low, high = found["brier"]
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.2)
    assert resample_rows(truth[:0], chance[:0], np.random.default_rng(0)) == {}


def test_a_draw_without_a_class_leaves_areas_out() -> None:
    found = resample_rows(np.zeros(9, dtype=int), np.full((9, 2), 0.5), np.random.default_rng(0))
    assert "auc" not in found
    assert found["accuracy"] == [1.0, 1.0]


def test_the_page_says_why_areas_of_holdouts_have_no_interval() -> None:
    held = {
        "accuracy": 0.85,
        "auc": 0.9,
        "intervals": resample_confusion([[4, 1], [1, 4]], np.random.default_rng(0)),
    }
    assert "Areas and losses have no intervals" in render(held)
    tested = {**held, "intervals": {**held["intervals"], "auc": [0.8, 0.95]}}
    assert "Areas and losses have no intervals" not in render(tested)
    assert "0.800 to 0.950 (95\u00a0% interval" in render(tested)


def test_residuals_keep_counts_and_no_row() -> None:
    truth = np.arange(10.0)
    found = residuals(truth, truth + 0.5)
    assert np.sum(found["counts"]) == np.sum(found["error_counts"]) == 10
    assert np.sum(residuals(np.ones(3), np.ones(3))["counts"]) == 3  # all alike


@pytest.fixture(scope="module")
def informed() -> Any:
    """A table of which only the first column tells the class, and a model of it."""
    rng = np.random.default_rng(2)
    values = rng.normal(size=(300, 3))
    table = Table.of(values, np.where(values[:, 0] > 0, "yes", "no"), names=["tells", "noise", "more"])
    federation = Federation.embedded(table, clients=6, test=0.3, holdout=0.4)
    return federation, federation.train(FedHEONN(), protect="plain")


def test_importance_and_weights_name_the_column_that_tells(informed: Any) -> None:
    federation, training = informed
    falls = importance(training.model, federation.test, np.random.default_rng(0))
    assert next(iter(falls)) == "tells"
    assert falls["tells"] > 0.3
    assert abs(falls["noise"]) < 0.1
    weights = linear_weights(training.model)
    assert next(iter(weights["features"])) == "tells"
    assert weights["outputs"] == ["no", "yes"]
    hidden = federation.train(FedHEONN.from_config({"hidden": 8}), protect="plain").model
    assert linear_weights(hidden) is None


# -- how sites differ --------------------------------------------------------------------------------------


def spread(order: list[int], kept: tuple[int, ...] = (30, 30, 30, 30)) -> Any:
    """Train on four clients of 60 rows, of which one has noise for labels; ``order`` says who has which."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=(4, 60, 2))
    wrong = (rng.random((4, 60)) < 0.5) & (np.arange(4) == 0)[:, None]
    labels = np.where((values[..., 0] > 0) ^ wrong, "yes", "no")
    table = Table.of(values[order].reshape(-1, 2), labels[order].reshape(-1), names=["a", "b"])
    names = ["north", "south", "east", "west"]
    held = Holdings(table, np.arange(5) * 60, names, np.array(kept)[order])
    exposure = ExposureLedger()
    training = Federation(held).train(FedHEONN(), protect="masked", events=Events(exposure))
    return training.holdout["sites"], exposure.summary()


def test_one_total_tells_the_worst_site_and_not_which_it_is() -> None:
    """Whoever has the bad rows, the coordinator gets the same total, over all, and never a client's part."""
    found, seen = spread([0, 1, 2, 3])
    assert found["sites"] == 4
    assert found["worst"][1] < 0.7 < found["median"][0]
    assert spread([2, 3, 0, 1])[0] == found
    rows = [row for row in seen if row["what"].startswith("evaluation") and row["who"] == "coordinator"]
    readable = [row for row in rows if row["openable"] and row["class"] != "public"]
    assert {(row["class"], row["over"]) for row in readable} == {("aggregate", 4)}


def test_a_site_with_few_rows_kept_aside_is_not_counted() -> None:
    assert spread([0, 1, 2, 3], (SITE_ROWS - 1, 30, 30, 30))[0]["sites"] == 3
    assert spread_of({"sites": np.zeros(SITE_BINS)}) is None


# -- repeats -----------------------------------------------------------------------------------------------


def small(tmp_path: Path, **run: Any) -> Settings:
    run = {"out": str(tmp_path), "baselines": False, **run}
    tables = {
        "data": {"name": "iris"},
        "partition": {"name": "iid", "clients": 3},
        "protect": {"name": "plain"},
    }
    return Settings.from_tables({**tables, "run": run})


def test_repeats_give_the_mean_over_seeds_and_its_interval(tmp_path: Path) -> None:
    whole = execute(small(tmp_path, repeats=3)).result
    alone = [execute(small(tmp_path, seed=seed)).result["accuracy"] for seed in range(3)]
    assert whole["accuracy"] == alone[0]
    found = whole["intervals"]
    assert (found["how"], found["seeds"]) == ("3 seeds", [0, 1, 2])
    assert found["means"]["accuracy"] == pytest.approx(np.mean(alone))
    margin = 4.302653 * np.std(alone, ddof=1) / 3**0.5  # the t distribution's 97.5 % with 2 degrees
    assert found["accuracy"] == pytest.approx([np.mean(alone) - margin, np.mean(alone) + margin])


def test_repeats_that_cannot_be_scored_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[run\] repeats is 0: give a whole number of at least 1"):
        small(tmp_path, repeats=0)
    with pytest.raises(ConfigError, match="repeats is 2, for runs on this machine that score rows"):
        small(tmp_path, repeats=2, engine="flower")
