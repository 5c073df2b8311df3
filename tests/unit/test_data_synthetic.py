"""Synthetic sets: as hard as promised, the same by seed, whatever the size asked for."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from tacit.core.errors import ConfigError
from tacit.data.files import load
from tacit.data.synthetic import SHAPES, Shape, generate


@pytest.mark.parametrize(
    ("name", "accuracy"),
    [("miniboone", 0.900), ("susy", 0.758), ("hepmass", 0.835), ("higgs", 0.641)],
)
def test_a_linear_model_reaches_the_accuracy_of_the_papers(name: str, accuracy: float) -> None:
    table = generate(f"synthetic-{name}", rows=60_000)
    half = table.rows // 2
    model = LinearDiscriminantAnalysis().fit(table.values[:half], table.target[:half])
    # Half of 60,000 rows: a standard error of about 0.003.
    assert model.score(table.values[half:], table.target[half:]) == pytest.approx(accuracy, abs=0.01)
    assert np.mean(table.target) == pytest.approx(SHAPES[f"synthetic-{name}"].prior, abs=0.01)


def test_features_are_correlated_and_of_unit_scale() -> None:
    values = generate("synthetic-hepmass", rows=20_000).values
    correlation = np.corrcoef(values.T) - np.eye(28)
    assert np.abs(correlation).max() > 0.5
    assert np.all((values.std(axis=0) > 0.8) & (values.std(axis=0) < 1.5))


def test_rows_do_not_depend_on_how_many_are_asked_for() -> None:
    large = generate("synthetic-higgs", rows=70_000, seed=5)
    small = generate("synthetic-higgs", rows=66_000, seed=5)
    np.testing.assert_array_equal(large.values[:66_000], small.values)
    np.testing.assert_array_equal(large.target[:66_000], small.target)
    assert not np.array_equal(generate("synthetic-higgs", rows=10, seed=6).values, small.values[:10])


def test_four_times_higgs_repeats_its_rows() -> None:
    table = generate("synthetic-higgs-x4", rows=1001)
    np.testing.assert_array_equal(table.values[:251], table.values[251:502])
    np.testing.assert_array_equal(table.target[:248], table.target[753:])
    assert SHAPES["synthetic-higgs-x4"].rows == 4 * SHAPES["synthetic-higgs"].rows


@pytest.mark.parametrize("shape", SHAPES.values())
def test_the_best_rule_is_as_often_right_as_said(shape: Shape) -> None:
    tilt, normal = math.log(shape.prior / (1 - shape.prior)) / shape.distance, NormalDist()
    right = shape.prior * normal.cdf(shape.distance / 2 + tilt)
    right += (1 - shape.prior) * normal.cdf(shape.distance / 2 - tilt)
    assert right == pytest.approx(shape.accuracy, abs=1e-12)


def test_bad_names_and_sizes() -> None:
    with pytest.raises(ConfigError, match="did you mean 'synthetic-higgs'"):
        load("synthetic-higs")
    with pytest.raises(ConfigError, match="rows is 0"):
        load("synthetic-higgs", rows=0)
