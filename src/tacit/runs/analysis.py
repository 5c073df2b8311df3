"""What a report shows beside the scores: confidence intervals, curves, what a model looks at, its errors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.random import generator
from tacit.data.table import Table
from tacit.methods.base import Model
from tacit.models import scores as scoring
from tacit.models.onelayer import OneLayer
from tacit.models.trees import BoostedTrees
from tacit.runs.experiment import build_federation
from tacit.runs.settings import Settings
from tacit.training import Training

RESAMPLES = 200
LEVEL = 0.95
MOST_ROWS, MOST_COLUMNS = 500, 200  # of a permutation importance
DRAWN = 2  # trees
CELLS = 24  # along each side of the picture of predicted against true targets

Matrix = NDArray[np.float64]
Intervals = dict[str, Any]
Scores = Mapping[str, Any]


def analyse(settings: Settings, training: Training, test: Table | None, scores: Scores) -> dict[str, Any]:
    """Return what is known of a model beside its ``scores``, as plain values; most from a central test."""
    rng = generator(b"public", settings.run.seed, "analysis")
    found: dict[str, Any] = {"weights": linear_weights(training.trained), "trees": trees_of(training.trained)}
    if test is not None:
        found |= _tested(training, test, rng)
    elif training.holdout:
        held = training.holdout
        found |= {"curves": held.get("curves"), "intervals": resample_confusion(held.get("confusion"), rng)}
    if settings.run.repeats > 1:
        found["intervals"] = repeat_over_seeds(settings, scores)
    return found


def _tested(training: Training, test: Table, rng: np.random.Generator) -> dict[str, Any]:
    model = training.model
    found: dict[str, Any] = {"importance": importance(model, test, rng)}
    if test.task == "classification":
        truth, chances = training.schema.labels(test), model.predict_proba(test)
        counts = scoring.classification_counts(truth, chances)
        curves = scoring.curves_of(counts["histogram"], model.classes_.tolist())
        return found | {"curves": curves, "intervals": resample_rows(truth, chances, rng)}
    predicted = np.asarray(model.predict(test)).reshape(test.target.shape)
    found["residuals"] = residuals(test.target[:, 0], predicted[:, 0])
    return found | {"intervals": resample_rows(test.target, predicted, rng)}


def resample_rows(truth: NDArray[Any], predicted: Matrix, rng: np.random.Generator) -> Intervals:
    """Return intervals of scores by bootstrap of rows at hand, with their probabilities or their targets."""
    rows, labels = len(truth), range(predicted.shape[1])
    chosen = (rng.integers(rows, size=rows) for _ in range(RESAMPLES if rows else 0))
    if truth.ndim == 2:
        found = [scoring.regression_scores(scoring.regression_counts(truth[i], predicted[i])) for i in chosen]
        return _quantiles(found, scoring.TARGET_SCORES, f"bootstrap of {rows:,} rows")
    counted = (scoring.classification_counts(truth[i], predicted[i]) for i in chosen)
    scores = [scoring.classification_scores(counts, labels) for counts in counted]
    return _quantiles(scores, scoring.CLASS_SCORES, f"bootstrap of {rows:,} rows")


def resample_confusion(confusion: Any, rng: np.random.Generator) -> Intervals:
    """Return intervals by bootstrap: to draw rows anew is to draw cells of their confusion matrix.

    Clients tell of the rows that they keep aside no more than sums of counts: areas and losses have none.
    """
    matrix = np.clip(np.asarray(0.0 if confusion is None else confusion, dtype=np.float64), 0, None)
    rows = int(matrix.sum())
    if not rows:
        return {}
    drawn = rng.multinomial(rows, matrix.reshape(-1) / rows, size=RESAMPLES).reshape(-1, *matrix.shape) * 1.0
    none = {"loss": 0.0, "brier": 0.0, "histogram": np.zeros((2, len(matrix), 1))}
    scores = [scoring.classification_scores({"confusion": one, **none}, range(len(matrix))) for one in drawn]
    return _quantiles(scores, scoring.LABEL_SCORES, f"bootstrap of {rows:,} rows")


def _quantiles(scores: Sequence[Mapping[str, Any]], names: Sequence[str], how: str) -> Intervals:
    """Return between which values a score lies; one that a draw without some class lacks is left out."""
    ends = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    values = {name: [one[name] for one in scores if one[name] is not None] for name in names}
    limits = {name: np.quantile(several, ends).tolist() for name, several in values.items() if several}
    return {"how": how, "level": LEVEL, **limits} if limits else {}


def repeat_over_seeds(settings: Settings, first: Scores) -> Intervals:
    """Return intervals of the mean score over seeds, each with its own test rows, division and start."""
    from scipy.special import stdtrit

    seeds = range(settings.run.seed, settings.run.seed + settings.run.repeats)
    every = [first]
    for seed in seeds[1:]:
        other = replace(settings, run=replace(settings.run, seed=seed))
        federation = build_federation(other)
        training = federation.train(**other.training())
        held = training.holdout or {}
        every.append(held if federation.test is None else training.model.scores(federation.test))
    wide = float(stdtrit(len(seeds) - 1, (1 + LEVEL) / 2)) / len(seeds) ** 0.5
    found: Intervals = {"how": f"{len(seeds)} seeds", "level": LEVEL, "seeds": [*seeds], "means": {}}
    for name in (name for name, value in first.items() if isinstance(value, float)):
        values = [one[name] for one in every if one[name] is not None]
        mean, margin = float(np.mean(values)), wide * float(np.std(values, ddof=1))
        found |= {name: [mean - margin, mean + margin], "means": {**found["means"], name: mean}}
    return found


def importance(model: Model, test: Table, rng: np.random.Generator) -> dict[str, float] | None:
    """Return by how much accuracy or R² falls if a column is shuffled, for every column, largest first."""
    if len(test.columns) > MOST_COLUMNS or not test.rows:
        return None
    rows = test.take(np.sort(rng.permutation(test.rows)[:MOST_ROWS]))
    truth = np.array(rows.classes)[rows.target] if rows.classes else rows.target
    before, falls = model.score(rows, truth), {}
    for place, column in enumerate(rows.columns):
        values = rows.values.copy()
        values[:, place] = values[rng.permutation(rows.rows), place]
        falls[column.name] = before - model.score(replace(rows, values=values), truth)
    return dict(sorted(falls.items(), key=lambda item: -item[1]))


def linear_weights(model: Model | None) -> dict[str, Any] | None:
    """Return the weights of a model without hidden layers, by feature, those that weigh most first."""
    if not isinstance(model, OneLayer) or model.layer is not None:
        return None
    weights = model.weights[1:]
    order = np.argsort(-np.abs(weights).max(axis=1), kind="stable")
    outputs = [str(name) for name in model.schema.classes or model.schema.target_names]
    features = {model.schema.feature_names[i]: weights[i].tolist() for i in order}
    return {"outputs": outputs, "features": features}


def trees_of(model: Model | None) -> dict[str, Any] | None:
    """Return gain and cover by column of boosted trees, and the first of them to look at."""
    if not isinstance(model, BoostedTrees):
        return None
    cover = model.importances("cover")
    columns = {name: [gain, cover[name]] for name, gain in model.importances("gain").items()}
    first = [model.nested(tree) for tree in range(min(DRAWN, model.trees))]
    return {"count": model.trees, "columns": columns, "first": first}


def residuals(truth: Matrix, predicted: Matrix) -> dict[str, Any]:
    """Return counts of predicted against true targets, and of errors: no single row is kept."""
    low, high = float(min(truth.min(), predicted.min())), float(max(truth.max(), predicted.max()))
    limits = (low, high) if high > low else (low - 0.5, low + 0.5)
    counts, edges, _ = np.histogram2d(truth, predicted, bins=CELLS, range=(limits, limits))
    errors, places = np.histogram(predicted - truth, bins=CELLS)
    found = {"edges": edges, "counts": counts.astype(int), "error_edges": places, "error_counts": errors}
    return {name: value.tolist() for name, value in found.items()}
