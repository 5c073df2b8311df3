"""FedHEONN at the edge of its digits: what can be learnt is learnt, and what cannot be is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.core.errors import TacitError
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.federation import Federation
from tacit.methods.ensemble import FedHEONNEnsemble
from tacit.methods.fedheonn import FedHEONN

SUMS = ("masked", "shares", "paillier", "bfv", "ckks")


def trained(X, y, method, protect="plain", scale="standard", clients=5):
    """Weights of a federation over these rows."""
    task = "regression" if y.dtype.kind == "f" else "classification"
    table = Table.of(np.asarray(X, dtype=float), y, task=task)
    parts = {f"client-{i}": table.take(slice(i, None, clients)) for i in range(clients)}
    classes = {} if table.task == "regression" else {"declared": {"classes": list(table.classes)}}
    federation = Federation.of(parts, **classes)
    return federation.train(method, protect=protect, preparation=Preparation(scale=scale)).model


def rows(count=300, features=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, features))
    return X, X @ rng.normal(size=features) + 0.3 * rng.normal(size=count)


@pytest.mark.parametrize("protect", SUMS)
class TestRegression:
    """Targets have no bound, so their sums have digits of their own: the Gram matrix is as fine as ever."""

    def test_columns_that_nearly_repeat(self, protect):
        X, y = rows()
        X[:, 3] = X[:, 0] + 0.03 * X[:, 3]
        exact = trained(X, y, FedHEONN(activation="linear")).weights
        found = trained(X, y, FedHEONN(activation="linear"), protect).weights
        assert np.abs(found - exact).max() < 1e-6 * np.abs(exact).max()

    def test_the_columns_of_a_category(self, protect):
        """They add up to one in every row, so that only λ tells their weights apart."""
        X, y = rows()
        X[:, 2], X[:, 3] = X[:, 2] > 0, X[:, 2] <= 0
        exact = trained(X, y, FedHEONN()).predict(X)
        assert np.abs(trained(X, y, FedHEONN(), protect).predict(X) - exact).max() < 1e-6

    def test_a_constant_column(self, protect):
        X, y = rows()
        X[:, 2] = 7.0
        found = trained(X, y, FedHEONN(activation="linear"), protect).weights
        assert not found[3].any()
        assert np.abs(found - trained(X, y, FedHEONN(activation="linear")).weights).max() < 1e-6


def test_columns_that_repeat_without_a_penalty_are_refused():
    X, y = rows()
    X[:, 2], X[:, 3] = X[:, 2] > 0, X[:, 2] <= 0
    with pytest.raises(TacitError, match="too small for weights to 1e-06: raise lam"):
        trained(X, y, FedHEONN(lam=1e-9), "masked")


@pytest.mark.parametrize(("activation", "lam"), [("logistic", 1e-12), ("softplus", 1e-9), ("linear", 1e-12)])
def test_a_constant_column_and_hardly_any_penalty(activation, lam):
    X, y = rows()
    X[:, 2] = 7.0
    labels = (y > 0).astype(int)
    found = trained(X, labels, FedHEONN(lam, activation)).weights
    without = trained(np.delete(X, 2, axis=1), labels, FedHEONN(lam, activation)).weights
    assert np.allclose(np.delete(found, 3, axis=0), without, rtol=1e-9)
    assert not found[3].any()


def test_repeated_places_of_a_patch_are_no_columns_of_their_own():
    X, y = rows(features=6)
    method = FedHEONNEnsemble(3, 1.0, 1.0, replace_features=True, activation="linear")
    found = trained(X, y, method, "masked").weights
    assert np.abs(found - trained(X, y, method).weights).max() < 1e-6


class TestPaper:
    """Factors hide nothing of what rounding takes: where outputs would suffer, there is no model."""

    @staticmethod
    def outputs(model, X):
        return np.column_stack([np.ones(len(X)), model.inputs.matrix(Table.of(X))]) @ model.weights

    @pytest.mark.parametrize(
        ("spread", "protect"),
        [(1.0, "ckks"), (1e3, "ckks"), (1e5, "ckks"), (1e3, "masked"), (1e7, "masked"), (1e5, "plain")],
    )
    def test_features_that_are_not_scaled(self, spread, protect):
        X, y = rows()
        X[:, 3] *= spread
        labels = (y > 0).astype(int)
        sealed = trained(X, labels, FedHEONN(), scale="none")
        try:
            paper = trained(X, labels, FedHEONN(mode="paper"), protect, scale="none")
        except TacitError as error:
            assert "scale = 'standard'" in str(error)
            assert spread > 1.0
            return
        plain = [np.column_stack([np.ones(len(X)), X]) @ model.weights for model in (paper, sealed)]
        assert np.abs(plain[0] - plain[1]).max() < 1e-3

    @pytest.mark.parametrize("protect", ["plain", "masked", "ckks"])
    @pytest.mark.parametrize("apart", [1e-2, 1e-4, 1e-6, 1e-8])
    def test_columns_that_nearly_repeat(self, apart, protect):
        X, y = rows()
        X[:, 3] = X[:, 0] + apart * X[:, 3]
        labels = (y > 0).astype(int)
        exact = trained(X, labels, FedHEONN(0.0, mode="robust")).weights
        try:
            found = trained(X, labels, FedHEONN(0.0, mode="paper"), protect).weights
        except TacitError as error:
            assert "set mode = 'sealed'" in str(error)
            assert (apart, protect) not in ((1e-2, "plain"), (1e-2, "masked"), (1e-4, "plain"))
            return
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        assert np.abs(np.column_stack([np.ones(len(Z)), Z]) @ (found - exact)).max() < 5e-3


@pytest.mark.parametrize("lam", [0.0, 1e-3])
def test_robust_takes_features_in_any_units(lam):
    X, y = rows(600, 3)
    units = np.array([1e-8, 1.0, 1e12])
    labels = (y > 0).astype(int)
    found = trained(X * units, labels, FedHEONN(lam, mode="robust"), scale="none").weights
    A = np.column_stack([np.ones(len(X)), X * units]) * 0.0475
    lengths = np.linalg.norm(A, axis=0)
    target = np.where(labels[:, None] == np.arange(2), 1, -1) * np.log(19) * 0.0475
    A = np.vstack([A / lengths, np.diag(np.sqrt(lam) / lengths)])
    exact = np.linalg.lstsq(A, np.vstack([target, np.zeros((4, 2))]), rcond=None)[0] / lengths[:, None]
    whole = np.column_stack([np.ones(len(X)), X * units])
    assert np.allclose(whole @ found, whole @ exact, rtol=1e-6)


class TestTinyUnits:
    """Σx² is summed before anything is scaled: what vanishes there must not vanish silently."""

    @pytest.mark.parametrize("unit", [1e-9, 1e-12, 1e-30, 1e-200])
    @pytest.mark.parametrize("protect", ["masked", "ckks"])
    def test_a_feature_that_would_vanish_is_refused_by_name(self, unit, protect):
        X, y = rows()
        X[:, 2] *= unit
        with pytest.raises(TacitError, match="feature 'x2' has values so small"):
            trained(X, (y > 0).astype(int), FedHEONN(), protect)

    def test_nothing_vanishes_where_nothing_is_rounded(self):
        X, y = rows()
        labels = (y > 0).astype(int)
        tiny = trained(X * [1, 1, 1e-12, 1], labels, FedHEONN()).weights
        assert np.allclose(tiny, trained(X, labels, FedHEONN()).weights)

    @pytest.mark.parametrize("protect", ["masked", "ckks"])
    def test_zeros_are_no_tiny_values(self, protect):
        X, y = rows()
        X[:, 2] = 0.0
        assert not trained(X, (y > 0).astype(int), FedHEONN(), protect).weights[3].any()

    @pytest.mark.parametrize("unit", [1e-13, 1e-18, 1e-20])
    @pytest.mark.parametrize("protect", ["masked", "ckks"])
    def test_targets_that_would_vanish_are_refused(self, unit, protect):
        X, y = rows()
        with pytest.raises(TacitError, match="targets are zero, or so small"):
            trained(X, y * unit, FedHEONN(activation="linear"), protect)

    def test_a_network_without_rows_has_no_targets_to_lose(self):
        X, y = rows(60, 3)
        method = FedHEONNEnsemble(10, 0.02, 1.0, lam=1.0, activation="linear")
        assert 0 < len(trained(X, y, method, "ckks").weights) < 10
