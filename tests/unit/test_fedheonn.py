"""FedHEONN is mathematics: closed forms, limits and invariances."""

from __future__ import annotations

import numpy as np
import pytest

from tacit import Federation, FedHEONN, Preparation, Table
from tacit.core.errors import ConfigError, DataError, QuorumError
from tacit.core.events import Events
from tacit.models.activations import ACTIVATIONS, HIGH, LOW
from tacit.models.leastsquares import factor, merge, solve

RAW = Preparation(scale="none")
MODES = ("sealed", "paper", "robust")


def federation_of(table: Table, parts: int = 1, **settings) -> Federation:
    rows = np.array_split(np.arange(table.rows), parts)
    return Federation.of({f"site {i}": table.take(r) for i, r in enumerate(rows)}, **settings)


def classes(rows: int = 60, features: int = 4, labels: int = 3, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(labels, size=rows))
    y[:labels] = np.arange(labels)
    return Table.of(rng.normal(size=(rows, features)) + y[:, None], y)


def numbers(low: float, high: float, rows: int = 40, outputs: int = 2, seed: int = 1) -> Table:
    rng = np.random.default_rng(seed)
    return Table.of(
        rng.normal(size=(rows, 3)), rng.uniform(low, high, size=(rows, outputs)), task="regression"
    )


def weights(table: Table, method: FedHEONN, parts: int = 1, preparation: Preparation = RAW) -> np.ndarray:
    # The halves of label-sorted data know different classes: declare them, as a consortium would.
    declared = {"classes": list(table.classes)} if table.classes else None
    federation = federation_of(table, parts, declared=declared)
    return federation.train(method, preparation=preparation, protect="plain").model.weights


def design(table: Table) -> np.ndarray:
    return np.column_stack([np.ones(table.rows), table.values])


@pytest.mark.parametrize("mode", MODES)
def test_logistic_classifier_is_ridge_regression_on_plus_minus_ln_19(mode):
    table, lam = classes(), 0.37
    X = design(table)
    target = np.where(table.target[:, None] == np.arange(3), np.log(19), -np.log(19))
    penalty = lam / 0.0475**2
    ridge = np.linalg.solve(X.T @ X + penalty * np.eye(5), X.T @ target)
    np.testing.assert_allclose(weights(table, FedHEONN(lam=lam, mode=mode)), ridge, rtol=1e-10)


@pytest.mark.parametrize("activation", ["logistic", "softplus", "linear"])
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("lam", [1e-3, 0.0])
@pytest.mark.parametrize("mode", MODES)
def test_weights_satisfy_the_normal_equations_of_the_paper(activation, task, lam, mode):
    table = classes() if task == "classification" else numbers(0.1, 0.9)
    X, f = design(table), ACTIVATIONS[activation]
    if task == "classification":
        d = np.where(table.target[:, None] == np.arange(3), HIGH, LOW)
    else:
        d = table.target
    found = weights(table, FedHEONN(lam=lam, activation=activation, mode=mode), parts=3)
    for output in range(d.shape[1]):
        F2 = f.slope_at_target(d[:, output]) ** 2
        left = (X.T * F2) @ X + lam * np.eye(X.shape[1])
        right = X.T @ (F2 * f.inverse(d[:, output]))
        np.testing.assert_allclose(left @ found[:, output], right, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("activation", ["logistic", "softplus", "linear"])
@pytest.mark.parametrize("parts", [2, 7, 60])
@pytest.mark.parametrize("mode", MODES)
def test_who_holds_which_rows_makes_no_difference(activation, parts, mode):
    table, method = classes(), FedHEONN(activation=activation, mode=mode)
    expected = weights(table, method)
    shuffled = table.take(np.random.default_rng(3).permutation(table.rows))
    for held in (table, shuffled):
        np.testing.assert_allclose(weights(held, method, parts), expected, rtol=1e-8, atol=1e-11)


def test_rows_twice_equal_rows_with_half_the_penalty():
    table = classes()
    twice = table.take(np.tile(np.arange(table.rows), 2))
    np.testing.assert_allclose(
        weights(twice, FedHEONN(lam=0.2)), weights(table, FedHEONN(lam=0.1)), rtol=1e-9
    )


def test_a_huge_penalty_leaves_no_weights():
    assert np.abs(weights(classes(), FedHEONN(lam=1e12))).max() < 1e-9


@pytest.mark.parametrize("mode", ["paper", "robust"])
def test_without_penalty_rank_deficient_data_give_the_solution_of_least_norm(mode):
    rng = np.random.default_rng(5)
    base = rng.normal(size=(30, 2))
    X = np.column_stack([base, base[:, 0], np.full(30, 4.0), np.zeros(30)])
    y = rng.normal(size=30)
    table = Table.of(X, y, task="regression")
    found = weights(table, FedHEONN(lam=0.0, activation="linear", mode=mode), parts=4)
    expected = np.linalg.lstsq(design(table), y[:, None], rcond=None)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
    assert np.abs(found).max() < 10  # the published code gives weights of 1e15 here


def test_sealed_without_penalty_leaves_constant_features_out_and_refuses_repeated_ones():
    rng = np.random.default_rng(5)
    base = rng.normal(size=(30, 2))
    y = rng.normal(size=30)
    method, prepared = FedHEONN(lam=0.0, activation="linear"), Preparation()
    constant = Table.of(np.column_stack([base, np.full(30, 4.0)]), y, task="regression")
    found = weights(constant, method, 3, prepared)
    expected = weights(Table.of(base, y, task="regression"), method, 3, prepared)
    np.testing.assert_allclose(found[:3], expected, rtol=1e-9)
    assert found[3] == 0
    repeated = Table.of(np.column_stack([base, base[:, 0]]), y, task="regression")
    with pytest.raises(DataError, match=r"least eigenvalue.*raise lam.*mode = 'robust'"):
        weights(repeated, method, 3, prepared)


def test_fewer_rows_than_features():
    rng = np.random.default_rng(6)
    table = Table.of(rng.normal(size=(5, 20)), [0, 1, 0, 1, 1])
    one = weights(table, FedHEONN())
    np.testing.assert_allclose(weights(table, FedHEONN(), parts=5), one, rtol=1e-8, atol=1e-12)


def test_a_second_fit_starts_afresh():
    federation, method = federation_of(classes(), 3, declared={"classes": [0, 1, 2]}), FedHEONN()
    first, second = method.fit(federation, protect="plain"), method.fit(federation, protect="plain")
    np.testing.assert_array_equal(first.weights, second.weights)


def test_softplus_takes_targets_of_800():
    table = numbers(100.0, 900.0, outputs=1)
    model = FedHEONN(activation="softplus").fit(federation_of(table), protect="plain")
    assert np.isfinite(model.weights).all()
    assert model.predict(table.values).max() > 100


@pytest.mark.parametrize(("activation", "low", "high"), [("logistic", -2.0, 2.0), ("softplus", -1.0, 1.0)])
def test_targets_outside_the_range_of_the_activation_are_refused(activation, low, high):
    federation = federation_of(numbers(low, high))
    with pytest.raises(QuorumError, match=f"range of {activation}"):
        FedHEONN(activation=activation).fit(federation, protect="plain")


def test_clients_that_join_later_give_the_model_of_all_together():
    table = classes(90)
    early, late = table.take(slice(0, 50)), table.take(slice(50, 90))
    declared = {"classes": [0, 1, 2]}
    method = FedHEONN()
    first = federation_of(early, 3, declared=declared).train(method, protect="plain")
    both = federation_of(late, 2, declared=declared).train(method, start=first, protect="plain")
    # The scale stays that of the first clients: all together under that scale is the same model.
    scaled = Table.of(
        (table.values - first.outcome.shared["centre"]) / first.outcome.shared["spread"], table.target
    )
    together = weights(scaled, method, 5)
    np.testing.assert_allclose(both.model.weights, together, rtol=1e-8, atol=1e-11)


def test_joining_needs_the_same_columns():
    first = federation_of(classes()).train(FedHEONN(), protect="plain")
    with pytest.raises(DataError, match="schema differs"):
        federation_of(classes(features=5)).train(FedHEONN(), start=first, protect="plain")


def test_folds_cannot_choose_for_rows_that_were_summed_without_them():
    first = federation_of(classes()).train(FedHEONN(), protect="plain")
    with pytest.raises(ConfigError, match="kept no sums by fold"):
        federation_of(classes()).train(FedHEONN(folds=3, lams=(0.1, 1.0)), start=first, protect="plain")


def test_logistic_factor_is_sent_once_for_all_outputs():
    def bytes_up(activation: str, labels: int) -> int:
        federation = federation_of(classes(200, 20, labels), declared={"classes": list(range(labels))})
        return federation.train(
            FedHEONN(activation=activation, mode="paper"), protect="plain"
        ).ledger.summary()["bytes_up"]

    factor_bytes = 21 * 21 * 8
    growth = bytes_up("logistic", 10) - bytes_up("logistic", 2)
    assert growth < 8 * (21 * 8) + 500  # m grows by eight columns, the factor not at all
    assert bytes_up("softplus", 10) > 10 * factor_bytes


def test_merging_factors_is_factoring_all_rows():
    rng = np.random.default_rng(7)
    A = rng.normal(size=(50, 6))
    merged = merge([factor(part) for part in np.array_split(A, 9)])
    np.testing.assert_allclose(merged @ merged.T, A.T @ A, rtol=1e-11, atol=1e-11)
    singular = np.linalg.svd(A, compute_uv=False)
    np.testing.assert_allclose(np.linalg.norm(merged, axis=0), singular, rtol=1e-11)


def test_factor_of_rows_of_zeros_solves_to_zero():
    US = factor(np.zeros((4, 3)))
    assert US.shape == (3, 1)
    np.testing.assert_array_equal(solve(US, np.zeros((3, 2)), 0.0), np.zeros((3, 2)))


@pytest.mark.parametrize("bad", [{"lam": -1.0}, {"lam": float("nan")}, {"activation": "relu"}])
def test_impossible_settings_are_refused_at_once(bad):
    with pytest.raises(ConfigError):
        FedHEONN(**bad)


def test_digits_over_five_seeds_reach_the_goal_whoever_holds_what():
    accuracies = []
    for seed in range(5):
        found = []
        for clients, partition in ((1, "iid"), (100, "iid"), (100, "label-sorted")):
            federation = Federation.embedded("digits", clients=clients, partition=partition, seed=seed)
            model = FedHEONN().fit(federation, protect="plain")
            found.append((model.weights, model.predict(federation.test.values)))
        accuracies.append(model.scores(federation.test)["accuracy"])
        for other, predicted in found[1:]:
            assert np.abs(other - found[0][0]).max() <= 1e-8 * np.abs(found[0][0]).max()
            np.testing.assert_array_equal(predicted, found[0][1])
    assert np.mean(accuracies) >= 0.925


def test_a_poisoned_client_is_left_out_and_named():
    table = classes(60)
    spoilt = Table.of(np.full((5, 4), np.nan), [0, 1, 2, 0, 1])
    tables = {f"site {i}": table.take(r) for i, r in enumerate(np.array_split(np.arange(60), 9))}
    seen: list[object] = []
    federation = Federation.of({**tables, "spoilt": spoilt}, declared={"classes": [0, 1, 2]})
    training = federation.train(
        FedHEONN(), events=Events(lambda n, event: seen.append(event)), protect="plain"
    )
    assert "missing values" in training.failures["spoilt"]
    np.testing.assert_allclose(
        training.model.weights, weights(table, FedHEONN(), 9, Preparation()), rtol=1e-9
    )


def test_parties_of_separate_tables_work_in_worker_processes_and_can_be_pooled():
    tables = {f"site {i}": classes(20, seed=i) for i in range(3)}
    here, there = Federation.of(tables), Federation.of(tables, workers=1)
    expected = here.train(FedHEONN(), protect="plain").model.weights
    np.testing.assert_array_equal(there.train(FedHEONN(), protect="plain").model.weights, expected)
    np.testing.assert_allclose(
        here.pooled().train(FedHEONN(), protect="plain").model.weights, expected, rtol=1e-9
    )


def test_values_of_absurd_size_are_that_clients_failure():
    table = classes(60)
    huge = Table.of(np.full((5, 4), 1e160), [0, 1, 2, 0, 1])
    tables = {f"site {i}": table.take(r) for i, r in enumerate(np.array_split(np.arange(60), 9))}
    federation = Federation.of({**tables, "huge": huge}, declared={"classes": [0, 1, 2]})
    training = federation.train(FedHEONN(), preparation=RAW, protect="plain")
    assert "'square' holds NaN or infinite values" in training.failures["huge"]
