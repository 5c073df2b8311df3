"""The scikit-learn estimators keep scikit-learn's rules, and groups are owners."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from tacit import FederBoostClassifier, FederBoostRegressor, FedHEONNClassifier, FedHEONNRegressor

# scikit-learn's own check of class_weight gives weights by hand; parties agree on balanced ones only.
FAILING = {"check_class_weight_classifiers": "weights by hand are refused"}


@parametrize_with_checks(
    [FedHEONNClassifier(), FedHEONNRegressor()],
    expected_failed_checks=lambda estimator: FAILING if isinstance(estimator, FedHEONNClassifier) else {},
)
def test_passes_check_estimator(estimator, check):
    check(estimator)


def test_balanced_class_weights_are_worth_as_much_as_more_rows_of_the_rare_class():
    X, y = load_iris(return_X_y=True)
    few = np.r_[0:50, 50:75]
    chosen = {"lam": 0.0, "scale": "none", "mode": "robust"}
    balanced = FedHEONNClassifier(**chosen, class_weight="balanced").fit(X[few], y[few], groups=few % 3)
    doubled = FedHEONNClassifier(**chosen).fit(X[np.r_[few, 50:75]], y[np.r_[few, 50:75]])
    np.testing.assert_allclose(balanced.model_.weights, doubled.model_.weights, rtol=1e-6)
    unbalanced = FedHEONNClassifier(**chosen).fit(X[few], y[few])
    assert not np.allclose(balanced.model_.weights, unbalanced.model_.weights, rtol=1e-2)


def test_class_weights_by_hand_are_refused():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="class_weight"):
        FedHEONNClassifier(class_weight={0: 1.0}).fit(X, y)


def test_groups_do_not_change_the_model_but_the_parties():
    X, y = load_iris(return_X_y=True)
    alone = FedHEONNClassifier().fit(X, y)
    by_class = FedHEONNClassifier().fit(X, y, groups=[f"site {label}" for label in y])
    np.testing.assert_allclose(alone.model_.weights, by_class.model_.weights, rtol=1e-9, atol=1e-12)
    assert by_class.parties_.tolist() == ["site 0", "site 1", "site 2"]
    assert by_class.cost_["messages"] == 3 * alone.cost_["messages"]


def test_labels_of_any_kind_come_back():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = FedHEONNClassifier().fit(X, names)
    assert set(model.predict(X)) == set(names)
    assert model.predict_proba(X).shape == (150, 3)


def test_works_inside_cross_validation():
    X, y = load_digits(return_X_y=True)
    scores = cross_val_score(FedHEONNClassifier(), X, y, cv=3)
    assert scores.min() > 0.85


def test_cross_validation_by_owner_keeps_owners_apart():
    X, y = load_iris(return_X_y=True)
    owners = np.arange(len(y)) % 5
    scores = cross_val_score(FedHEONNClassifier(), X, y, groups=owners, cv=GroupKFold(5))
    assert len(scores) == 5 and scores.mean() > 0.75


def test_wrong_number_of_groups_is_refused():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="groups has 2 entries for 150 rows"):
        FedHEONNClassifier().fit(X, y, groups=[0, 1])


def test_regression_of_several_targets_matches_least_squares():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    Y = X @ rng.normal(size=(3, 2)) + [1.0, -2.0]
    model = FedHEONNRegressor(lam=0.0).fit(X, Y, groups=np.arange(60) % 4)
    np.testing.assert_allclose(model.predict(X), Y, atol=1e-10)


def test_a_refusal_of_the_federation_is_a_value_error_here():
    X = np.arange(12.0).reshape(6, 2)
    with pytest.raises(ValueError, match="range of logistic"):
        FedHEONNRegressor(activation="logistic").fit(X, np.arange(6.0))


@pytest.fixture(scope="module")
def rows():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"dose": rng.normal(size=120), "drug": rng.choice(["a", "b"], 120)})
    y = np.where((frame["dose"] > 0) ^ (frame["drug"] == "b"), "yes", "no")
    frame.loc[::10, "dose"] = np.nan
    frame.loc[::13, "drug"] = None
    return frame, y


class TestFrames:
    """DataFrames bring categories and gaps."""

    def test_categories_gaps_and_a_random_layer(self, rows):
        X, y = rows
        groups = np.arange(120) % 3
        plain = FedHEONNClassifier(missing="mean").fit(X, y, groups=groups)
        assert plain.score(X, y) < 0.7  # the two columns are of use together only
        model = FedHEONNClassifier(missing="mean", hidden=30).fit(X, y, groups=groups)
        assert model.score(X, y) > 0.8
        assert model.feature_names_in_.tolist() == ["dose", "drug"]
        assert cross_val_score(FedHEONNClassifier(missing="mean", hidden=30), X, y, cv=3).mean() > 0.8

    def test_what_does_not_fit_is_a_value_error(self, rows):
        X, y = rows
        with pytest.raises(ValueError, match="missing"):
            FedHEONNClassifier().fit(X, y)
        model = FedHEONNClassifier(missing="mean").fit(X, y)
        with pytest.raises(ValueError, match="feature names should match"):
            model.predict(X[["drug", "dose"]])
        with pytest.raises(ValueError, match="a value that nobody agreed on"):
            model.predict(X.assign(drug="c"))
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            FedHEONNClassifier(missing="mean").fit(X, y[:5])

    def test_gaps_in_arrays(self, rows):
        X = rows[0][["dose"]].to_numpy()
        model = FedHEONNRegressor(missing="mean").fit(X, np.nan_to_num(X)[:, 0])
        assert np.isfinite(model.predict(X)).all()
        with pytest.raises(ValueError, match="contains NaN"):
            FedHEONNRegressor().fit(X, X[:, 0])


SMALL = {"trees": 3, "depth": 2, "rate": 0.9, "min_child_weight": 0.1}


@pytest.mark.slow
@parametrize_with_checks(
    [FederBoostClassifier(**SMALL), FederBoostRegressor(**SMALL)],
    expected_failed_checks=lambda estimator: FAILING,
)
def test_boosted_trees_pass_check_estimator(estimator, check):
    check(estimator)


def test_boosted_trees_are_the_same_whoever_owns_rows():
    X, y = load_iris(return_X_y=True)
    X[::7, 2] = np.nan
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    alone = FederBoostClassifier(**SMALL, min_count=5).fit(X, names)
    settings = {**SMALL, "min_count": 5, "protect": "masked"}
    apart = FederBoostClassifier(**settings).fit(X, names, groups=np.arange(150) % 4)
    assert alone.model_.to_bytes("safetensors") == apart.model_.to_bytes("safetensors")
    np.testing.assert_array_equal(apart.predict_proba(X), alone.predict_proba(X))
    assert alone.score(X, names) > 0.95
    assert apart.parties_.tolist() == ["0", "1", "2", "3"]


def test_importances_of_boosted_trees_are_shares_of_gain():
    X, y = load_iris(return_X_y=True)
    y = (X[:, 3] > 1.0).astype(int)
    found = FederBoostClassifier(**SMALL).fit(X[:, [0, 1, 3]], y).feature_importances_
    assert found.argmax() == 2
    assert found.sum() == pytest.approx(1.0)
    constant = FederBoostRegressor(**SMALL).fit(X, np.ones(150))
    assert constant.feature_importances_.tolist() == [0.0] * 4


def test_boosted_regression_of_several_targets_and_of_counts():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.column_stack([X[:, 0] > 0, X[:, 1] * 2])
    assert FederBoostRegressor(trees=10, depth=3).fit(X, y).score(X, y) > 0.8
    counts = rng.poisson(np.exp(X[:, 0]))
    assert (FederBoostRegressor(**SMALL, loss="poisson").fit(X, counts).predict(X) > 0).all()
    with pytest.raises(ValueError, match="class_weight = 'balanced' is for classes"):
        FederBoostRegressor(**SMALL, class_weight="balanced").fit(X, counts)
