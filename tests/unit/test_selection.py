"""Model selection from sums: it is cross-validation, without the rows."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from reproductions.fedheonn_hidden import GOALS, accuracy
from tacit import Federation, FedHEONN, Table
from tacit.core.errors import ConfigError, DataError, QuorumError, UnavailableError
from tacit.methods.heonn.selection import Sums, rank_candidates
from tacit.models.files import load_model
from tacit.models.onelayer import RandomLayer

LAMS = (1e-3, 0.1, 10.0)


def rings(rows: int = 300, seed: int = 0) -> Table:
    """Two classes that no line divides."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=rows)
    angle, radius = rng.uniform(0, 2 * np.pi, rows), 1.0 + y + 0.1 * rng.normal(size=rows)
    return Table.of(np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y)


def sums_of(X, F, d, folds, grams):
    gram = [[[(X[f] * F[f][:, [g]]).T @ (X[f] * F[f][:, [g]]) for g in range(grams)]] for f in folds]
    m = [[X[f].T @ (F[f] ** 2 * d[f])] for f in folds]
    return Sums(np.array(gram), np.array(m), np.array([np.sum((F[f] * d[f]) ** 2, axis=0) for f in folds]))


@pytest.mark.parametrize("grams", [1, 2], ids=["one Gram matrix", "one for each output"])
@pytest.mark.parametrize("width", [2, 4])
def test_the_error_from_sums_is_the_error_over_rows(grams, width):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(50), rng.normal(size=(50, 4))])
    d = rng.normal(size=(50, 2))
    F = np.full((50, 2), 0.3) if grams == 1 else rng.uniform(0.1, 1, size=(50, 2))
    folds = [np.arange(50) % 3 == k for k in range(3)]
    found = rank_candidates(sums_of(X, F, d, folds, grams), (width,), LAMS)
    for candidate in found:
        error = 0.0
        for held in folds:
            for output in range(2):
                A = X[:, : width + 1] * F[:, [output]]
                b = F[:, output] * d[:, output]
                left = A[~held].T @ A[~held] + candidate.lam * np.eye(width + 1)
                w = np.linalg.solve(left, A[~held].T @ b[~held])
                error += np.sum((b[held] - A[held] @ w) ** 2)
        assert candidate.error == pytest.approx(error / np.sum((F * d) ** 2), rel=1e-9)
    assert [c.error for c in found] == sorted(c.error for c in found)


def test_the_best_scale_width_and_penalty_win():
    table = rings()
    federation = Federation.embedded(table, clients=5, partition="label-sorted", seed=1)
    training = federation.train(FedHEONN(hidden=40, scales=(0.01, 2.0), lams=(1e-3, 1e6)), protect="plain")
    scale, width, lam = training.outcome.shared["chosen"]
    assert (scale, lam) == (1, 1e-3)
    assert width in (10, 20, 40)
    assert training.model.weights.shape == (width + 1, 2)
    assert training.model.scores(federation.test)["accuracy"] > 0.95
    plain = federation.train(FedHEONN(), protect="plain")
    assert plain.model.scores(federation.test)["accuracy"] < 0.7  # no line divides them


def test_finalists_are_judged_by_accuracy_in_one_more_sum():
    federation = Federation.embedded(rings(), clients=4, seed=2)
    method = FedHEONN(hidden=24, scales=(0.5, 2.0), finalists=4)
    training = federation.train(method, protect="plain")
    assert len(training.ledger.summary()["waves"]) == 5
    shared = training.outcome.shared
    assert shared["finalists"].shape == (4, 3)
    assert training.model.scores(federation.test)["accuracy"] > 0.9
    chosen = [np.array_equal(shared["chosen"], one) for one in shared["finalists"]]
    assert any(chosen)
    width = int(shared["chosen"][1])
    np.testing.assert_array_equal(shared["weights"], shared["finals"][chosen.index(True)][: width + 1])


@pytest.mark.parametrize("layer", ["tanh", "fourier"])
def test_with_a_layer_who_holds_which_rows_makes_no_difference(layer):
    method = FedHEONN(hidden=30, layer=layer, folds=0)
    found = [
        Federation.embedded(rings(), clients=clients, partition=partition, seed=3)
        .train(method, protect="plain")
        .model.weights
        for clients, partition in ((1, "iid"), (9, "label-sorted"), (30, "dirichlet"))
    ]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-6, atol=1e-9)


def test_modes_agree_with_a_layer_too():
    federation = Federation.embedded(rings(), clients=6, seed=4)
    found = [
        federation.train(FedHEONN(hidden=20, mode=mode, folds=0), protect="plain").model.weights
        for mode in ("sealed", "paper", "robust")
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-6, atol=1e-9)


def test_later_clients_join_with_what_was_chosen():
    table = rings(400)
    first, rest = table.take(slice(0, 200)), table.take(slice(200, None))
    method = FedHEONN(hidden=16, scales=(2.0,), lams=(1e-2, 1.0), folds=2)
    begun = Federation.embedded(first, clients=4, test=None, seed=5).train(method, protect="plain")
    joined = Federation.embedded(rest, clients=4, test=None, seed=5).train(
        method, start=begun, protect="plain"
    )
    np.testing.assert_array_equal(joined.outcome.shared["chosen"], begun.outcome.shared["chosen"])
    assert not np.allclose(joined.model.weights, begun.model.weights)
    assert joined.model.score(rest.values, rest.target) > 0.9


@pytest.mark.parametrize("hidden", [0, 16], ids=["linear", "with a layer"])
def test_later_clients_count_in_full_where_finalists_were_compared(hidden):
    table = rings(400)
    first, rest = table.take(slice(0, 200)), table.take(slice(200, None))
    method = FedHEONN(hidden=hidden, lams=(1e-2, 1.0), folds=2, finalists=2)
    begun = Federation.embedded(first, clients=4, test=None, seed=5).train(method, protect="plain")
    joining = Federation.embedded(rest, clients=4, test=None, seed=5)
    joined = joining.train(method, start=begun, protect="plain")
    scale, width, lam = begun.outcome.shared["chosen"]
    # What was chosen, over the rows of all, on the scale that the first agreed on.
    X = joined.model.inputs.matrix(table)
    layer = method.layers(begun.outcome.shared)[int(scale)]
    X = layer.first(int(width))(X) if layer else X
    X = np.column_stack([np.ones(400), X])
    d = np.where(table.target[:, None] == np.arange(2), 1.0, -1.0) * np.log(0.95 / 0.05)
    slope = (0.95 * 0.05) ** 2
    expected = np.linalg.solve(slope * X.T @ X + lam * np.eye(X.shape[1]), slope * X.T @ d)
    np.testing.assert_allclose(joined.model.weights, expected, rtol=1e-6, atol=1e-9)
    assert "finalists" not in joined.outcome.shared
    again = joining.train(method, start=joined, protect="plain")
    assert again.outcome.shared["gram"].shape == joined.outcome.shared["gram"].shape


def test_finalists_of_a_regression_are_refused():
    table = Table.of(np.eye(9), np.arange(9.0), task="regression")
    with pytest.raises(
        ConfigError, match="finalists is 2: they are compared by accuracy, which no regression"
    ):
        Federation.embedded(table, clients=3, test=None).train(
            FedHEONN(folds=2, finalists=2), protect="plain"
        )


def test_no_target_of_a_regression_decides_by_its_unit():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(90, 20))
    noisy, clear = 0.3 * X[:, :1] + rng.normal(size=(90, 1)), X[:, 1:2] + 0.01 * rng.normal(size=(90, 1))
    lams = (0.01, 1.0, 10.0, 100.0, 1000.0)

    def chosen(*targets):
        table = Table.of(X, np.column_stack(targets), task="regression")
        federation = Federation.embedded(table, clients=4, test=None, seed=1)
        training = federation.train(FedHEONN(activation="linear", folds=3, lams=lams), protect="plain")
        return training.outcome.shared["chosen"].tolist()

    assert chosen(noisy)[2] > chosen(clear)[2]
    both = chosen(noisy, clear)
    assert chosen(1e6 * noisy, clear) == chosen(noisy, 1e6 * clear) == both
    assert chosen(noisy + 1e3, clear) == chosen(1e6 * (noisy + 1e3), clear)
    assert chosen(clear, 0 * clear) == chosen(clear)


def test_targets_that_are_all_zero_give_weights_of_zero():
    table = Table.of(np.random.default_rng(0).normal(size=(40, 3)), np.zeros((40, 1)), task="regression")
    method = FedHEONN(activation="linear", folds=3, lams=(0.1, 1.0))
    with np.errstate(all="raise"):
        training = Federation.embedded(table, clients=4, test=None).train(method, protect="plain")
    assert not training.model.weights.any()
    assert training.outcome.shared["chosen"][2] == 1.0  # of equals the larger penalty


def test_a_model_with_a_layer_is_saved_whole(tmp_path):
    federation = Federation.embedded(rings(), clients=3)
    model = FedHEONN(hidden=12).fit(federation, protect="plain")
    again = load_model(model.save(tmp_path / "model.safetensors"))
    rows = federation.test.values
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
    assert again.layer.kind == "tanh"
    assert len(again.layer.bias) == len(again.weights) - 1


def test_layers_of_one_seed_are_nested_and_bounded():
    X = np.random.default_rng(0).normal(size=(20, 3)) * 100
    for kind in ("tanh", "fourier"):
        wide = RandomLayer.draw(9, 3, 8, 2.0, kind)
        np.testing.assert_array_equal(wide(X)[:, :5], RandomLayer.draw(9, 3, 5, 2.0, kind)(X))
        np.testing.assert_array_equal(wide.first(5)(X), wide(X)[:, :5])
        assert np.abs(wide(X)).max() <= 1


def test_a_client_with_fewer_rows_than_folds_takes_part():
    table = rings(40)
    federation = Federation.embedded(table, clients=30, test=None, seed=6)
    assert federation.train(FedHEONN(folds=4, lams=LAMS), protect="plain").model.weights.shape == (3, 2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hidden": -1}, "hidden is -1"),
        ({"scales": (1.0, 2.0, 3.0, 4.0, 5.0)}, "1 to 4 finite numbers"),
        ({"scales": (0.0,)}, "above 0"),
        ({"scales": (float("nan"),)}, "finite numbers above 0"),
        ({"scales": (1.0, float("inf"))}, "finite numbers above 0"),
        ({"lam": float("inf")}, "a finite number of at least 0"),
        ({"folds": 1}, "folds is 1"),
        ({"lams": (1.0,)}, "set folds"),
        ({"lams": (-1.0,), "folds": 2}, r"lams is \(-1.0,\)"),
        ({"finalists": 2}, "set folds"),
        ({"mode": "paper", "folds": 3}, "mode is paper: it forms no sums to choose from"),
        ({"rank": 2}, "mode = 'paper'"),
    ],
    ids=str,
)
def test_settings_that_cannot_work(settings, said):
    with pytest.raises(ConfigError, match=said):
        FedHEONN(**settings)


def test_an_earlier_training_with_other_units_is_no_start():
    first = Federation.embedded(rings(100), clients=3, test=None).train(
        FedHEONN(hidden=4, folds=0), protect="plain"
    )
    huge = rings(4000, seed=7)
    with pytest.raises(QuorumError, match="exceeds its bound"):
        Federation.embedded(huge, clients=1, test=None).train(
            FedHEONN(hidden=4, folds=0), start=first, protect="plain"
        )


def test_a_candidate_that_asks_for_too_many_digits_gives_way_to_the_next():
    federation = Federation.embedded(rings(), clients=4, partition="label-sorted", seed=1)

    def least_penalty_first(*sums):
        return sorted(rank_candidates(*sums), key=lambda candidate: candidate.lam)

    # Hundreds of units of two features nearly repeat each other: nothing but the penalty keeps them apart.
    with mock.patch("tacit.methods.heonn.selection.rank_candidates", least_penalty_first):
        training = federation.train(FedHEONN(hidden=400, scales=(1.0,), lams=(1e-13, 1e-3)), protect="plain")
        assert training.outcome.shared["chosen"][2] == 1e-3
        finalists = federation.train(
            FedHEONN(hidden=400, scales=(1.0,), lams=(1e-13, 1e-3), finalists=2), protect="plain"
        )
        assert finalists.outcome.shared["chosen"][2] == 1e-3
    with pytest.raises(DataError, match="least eigenvalue"):
        federation.train(FedHEONN(hidden=400, scales=(1.0,), lams=(1e-13, 1e-14)), protect="plain")


@pytest.mark.slow
@pytest.mark.parametrize("data", list(GOALS)[:3])
def test_a_random_layer_reaches_its_goals_without_the_test_set(data):
    try:
        found = [accuracy(data, seed, protect="plain") for seed in range(3)]
    except UnavailableError as error:
        pytest.skip(str(error))
    assert np.mean(found) >= GOALS[data][0]
