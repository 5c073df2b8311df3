"""The ensemble is the base method, many times: limits, invariances, and what a client draws for itself."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest

from reproductions.fedheonn_ensemble import DRAWS, DRY_BEAN, TABLE_2, cross_validated, phase_seconds
from tacit import Federation, FedHEONN, FedHEONNEnsemble, Preparation, Table
from tacit.core.errors import ConfigError, TacitError, UnavailableError
from tacit.core.events import Events, Noted
from tacit.core.party import Party
from tacit.data.files import load
from tacit.data.inputs import Inputs
from tacit.methods.heonn.patches import MAX_REPEATS, draw_features, draw_rows, split_batches
from tacit.models.files import load_model
from tacit.models.onelayer import Ensemble
from tacit.protections.ckks import CKKSCoordinator

MODES = ("sealed", "paper", "robust")
every_mode = pytest.mark.parametrize("mode", MODES)


def classes(rows: int = 120, features: int = 5, labels: int = 3, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(labels, size=rows))
    y[:labels] = np.arange(labels)
    return Table.of(rng.normal(size=(rows, features)) + y[:, None], y)


def numbers(rows: int = 60) -> Table:
    rng = np.random.default_rng(1)
    return Table.of(rng.normal(size=(rows, 4)), rng.uniform(0.1, 0.9, size=(rows, 2)), task="regression")


def federation_of(table: Table, parts: int = 3, order: str = "as it is", **settings) -> Federation:
    rows = np.arange(table.rows)
    if order == "random":
        rows = np.random.default_rng(4).permutation(table.rows)
    declared = {"classes": list(table.classes)} if table.classes else None
    split = np.array_split(rows, parts)
    return Federation.of(
        {f"site {i}": table.take(r) for i, r in enumerate(split)}, declared=declared, **settings
    )


def weights(table: Table, method, parts: int = 3, order: str = "as it is", **settings) -> np.ndarray:
    settings = {"protect": "plain", **settings}
    return federation_of(table, parts, order).train(method, **settings).model.weights


@every_mode
@pytest.mark.parametrize("activation", ["logistic", "softplus", "linear"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_one_estimator_on_everything_is_the_base_method(mode, activation, task):
    table = classes() if task == "classification" else numbers()
    base = federation_of(table).train(FedHEONN(0.01, activation, mode), protect="plain").model
    one = FedHEONNEnsemble(1, 1.0, 1.0, lam=0.01, activation=activation, mode=mode)
    found = federation_of(table).train(one, protect="plain").model
    np.testing.assert_allclose(found.weights[0], base.weights, rtol=1e-9, atol=1e-12)
    if task == "regression":
        np.testing.assert_allclose(found.predict(table.values), base.predict(table.values), rtol=1e-8)
        return
    np.testing.assert_array_equal(found.predict(table.values), base.predict(table.values))
    np.testing.assert_allclose(found.predict_proba(table.values), base.predict_proba(table.values), 1e-8)


@pytest.mark.parametrize("activation", ["logistic", "softplus"])
@pytest.mark.parametrize("replace", [False, True])
def test_all_modes_give_the_same_ensemble(activation, replace):
    table = classes()
    found = [
        weights(table, FedHEONNEnsemble(4, 0.5, 0.6, replace, replace, activation=activation, mode=mode))
        for mode in MODES
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-7, atol=1e-10)


@every_mode
def test_random_subspace_does_not_depend_on_who_holds_which_rows(mode):
    table, method = classes(), FedHEONNEnsemble(5, 1.0, 0.6, mode=mode)
    pooled = weights(table, method, 1)
    assert len({tuple(np.flatnonzero(one[1:, 0])) for one in pooled}) > 1
    for parts in (2, 40):
        for order in ("as it is", "random"):
            np.testing.assert_allclose(weights(table, method, parts, order), pooled, rtol=1e-7, atol=1e-10)


def test_random_subspace_is_the_base_method_on_some_columns():
    table, method = classes(), FedHEONNEnsemble(5, 1.0, 0.6)
    found = weights(table, method)
    for one in found:
        columns = np.flatnonzero(one[1:, 0])
        assert len(columns) == 3
        base = weights(Table.of(table.values[:, columns], table.target), FedHEONN())
        np.testing.assert_allclose(one[[0, *(columns + 1)]], base, rtol=1e-8)


def test_pasting_sees_every_feature_and_other_rows_each_time():
    found = weights(classes(), FedHEONNEnsemble(4, 0.5, 1.0))
    assert (found != 0).all()
    assert len({one.tobytes() for one in found}) == 4


def test_another_draw_is_other_features_and_no_draw_shares_them():
    def columns(estimators, draw):
        found = weights(classes(), FedHEONNEnsemble(estimators, 1.0, 0.6, draw=draw))
        return [tuple(np.flatnonzero(one[1:, 0])) for one in found]

    first, second, third = (columns(3, draw) for draw in range(3))
    assert first != second != third != first
    assert second == columns(3, 1)
    assert first == columns(9, 0)[:3]  # the first draw is the one that is not asked for


def test_a_late_draw_takes_no_longer_than_the_first():
    schema, calls = mock.Mock(features=8), []

    def counted(*args):
        calls.append(args)
        return draw_features(*args)

    with mock.patch("tacit.methods.heonn.patches.draw_features", counted):
        FedHEONNEnsemble(5, draw=9_999).init(schema, np.random.default_rng(0))
    assert len(calls) == 5


def contributions(tables: dict[str, Table], method: FedHEONNEnsemble) -> dict[str, np.ndarray]:
    """Gram matrices that each client contributes."""
    seen, terms = {}, FedHEONNEnsemble.terms

    @functools.wraps(terms)
    def watched(self, party, shared):
        found = terms(self, party, shared)
        seen[party.id] = found["gram"]
        return found

    with mock.patch.object(FedHEONNEnsemble, "terms", watched):
        Federation.of(tables).train(method, protect="plain")
    return seen


@contextmanager
def without_rows(*estimators: int):
    """Let nobody draw a row for some of the networks."""
    rng = Party.rng

    def marked(self, *label):
        found = rng(self, *label)
        return None if label[0] == "rows" and label[1] in estimators else found

    def drawn(rng, rows, share, replace):
        return np.zeros(0, np.int64) if rng is None else draw_rows(rng, rows, share, replace)

    with (
        mock.patch.object(Party, "rng", marked),
        mock.patch("tacit.methods.heonn.patches.draw_rows", drawn),
    ):
        yield


def test_clients_with_the_same_rows_draw_different_ones():
    # The published code seeds all clients alike.
    table = classes()
    seen = contributions({"one": table, "two": table}, FedHEONNEnsemble(3, 0.5, 1.0))
    assert not any(np.allclose(a, b) for a, b in zip(seen["one"], seen["two"], strict=True))
    everything = contributions({"one": table, "two": table}, FedHEONNEnsemble(3, 1.0, 1.0))
    np.testing.assert_array_equal(everything["one"], everything["two"])


def test_columns_drawn_twice_act_as_two_columns():
    rng, X, y = np.random.default_rng(2), np.random.default_rng(3).normal(size=(50, 4)), np.arange(50.0)
    columns, factors = draw_features(rng, 4, 1.0, True)
    assert len(set(columns.tolist())) < 4
    penalty = 0.7 * np.eye(4)
    twice, once = X[:, columns], X[:, columns] * factors
    expected = twice @ np.linalg.solve(twice.T @ twice + penalty, twice.T @ y)
    found = once @ np.linalg.solve(once.T @ once + penalty, once.T @ y)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_features_are_drawn_without_repetition_unless_asked():
    rng = np.random.default_rng(0)
    for share, size in ((0.75, 48), (0.3, 19), (0.001, 1), (1.0, 64)):
        columns, factors = draw_features(rng, 64, share, False)
        assert len(np.unique(columns)) == len(columns) == size
        assert (factors == 1).all()


def test_a_share_of_few_rows_is_right_on_average():
    sizes = [len(draw_rows(np.random.default_rng(seed), 4, 0.1, False)) for seed in range(4000)]
    assert set(sizes) == {0, 1}
    assert np.mean(sizes) == pytest.approx(0.4, abs=0.04)
    assert all(len(draw_rows(np.random.default_rng(s), 7, 1.0, False)) == 7 for s in range(50))


def test_with_replacement_no_row_counts_more_often_than_units_have_room_for():
    class Loaded:
        def random(self):
            return 0.0

        def integers(self, high, size):
            return np.zeros(size, dtype=np.int64)

    assert len(draw_rows(Loaded(), 100, 1.0, True)) == MAX_REPEATS  # always the same row


def test_an_outlier_drawn_sixteen_times_is_not_refused():
    values = np.zeros((100, 2))
    values[0] = 1e3  # all there is of this column
    values[:, 1] = np.arange(100)
    table = Table.of(values, np.arange(100) % 2)
    always = np.repeat(0, MAX_REPEATS)
    with mock.patch("tacit.methods.heonn.patches.draw_rows", lambda *_: always):
        training = federation_of(table, 1).train(FedHEONNEnsemble(2, 1.0, 1.0, True), protect="plain")
    assert not training.failures


@every_mode
def test_a_memory_bound_gives_the_same_model_and_is_kept(mode):
    table, free = classes(), FedHEONNEnsemble(3, 0.9, 0.6, True, mode=mode)
    expected = weights(table, free)
    largest, matrix = [0], Inputs.matrix

    def measured(self, rows, **settings):
        found = matrix(self, rows, **settings)
        largest.append(found.size)
        return found

    with mock.patch.object(Inputs, "matrix", measured):
        found = weights(table, FedHEONNEnsemble(3, 0.9, 0.6, True, mode=mode, max_memory=34))
    assert 0 < max(largest) <= 34
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-11)


def test_stretches_cover_everything_once():
    members = np.arange(17)
    assert [len(b) for b in split_batches(members, 5)] == [5, 5, 5, 2]
    assert np.concatenate(list(split_batches(members, 5))).tolist() == members.tolist()
    assert [len(b) for b in split_batches(members[:0], 5)] == [0]
    assert [len(b) for b in split_batches(members, None)] == [17]


@every_mode
def test_processes_change_no_bit(mode):
    one, two = (
        weights(classes(), FedHEONNEnsemble(7, 0.5, 0.6, mode=mode, processes=processes))
        for processes in (1, 3)
    )
    np.testing.assert_array_equal(one, two)


@every_mode
def test_clients_that_join_later_give_the_ensemble_of_all_together(mode):
    table, method = classes(90), FedHEONNEnsemble(3, 1.0, 0.6, mode=mode)
    first = federation_of(table.take(slice(0, 50)), 3).train(method, protect="plain")
    # Who joins knows the classes from the first training.
    late = Federation.of({"late": table.take(slice(50, 90))}).train(method, start=first, protect="plain")
    shared = first.outcome.shared
    scaled = Table.of((table.values - shared["centre"]) / shared["spread"], table.target)
    together = weights(scaled, method, 5, preparation=Preparation(scale="none"))
    np.testing.assert_allclose(late.model.weights, together, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("mode", ["sealed", "paper"])
@pytest.mark.parametrize("protect", ["ckks", "masked"])
def test_a_protection_changes_nothing(mode, protect):
    table, method = classes(), FedHEONNEnsemble(4, 0.5, 0.6, replace_features=True, mode=mode)
    plain = weights(table, method)
    found = weights(table, method, protect=protect)
    assert np.abs(found - plain).max() <= 1e-4 * np.abs(plain).max()


@pytest.mark.parametrize("activation", ["logistic", "softplus"])
def test_in_paper_mode_the_coordinator_multiplies_unopened(activation):
    table = classes()
    method = FedHEONNEnsemble(5, 0.5, 0.6, activation=activation, mode="paper")
    products, mapped = [], CKKSCoordinator.multiply

    def watched(self, *args):
        products.append(mapped(self, *args))
        return products[-1]

    with mock.patch.object(CKKSCoordinator, "multiply", watched):
        found = weights(table, method, protect="ckks")
    assert [bool(product and product["multiplied"]) for product in products] == [True]
    plain = weights(table, method)
    assert np.abs(found - plain).max() <= 1e-4 * np.abs(plain).max()


def test_all_estimators_travel_in_one_vector():
    def upload(method):
        federation = federation_of(classes(200, 12), 3)
        return federation.train(method, protect="ckks").ledger.summary()

    base, many = upload(FedHEONN()), upload(FedHEONNEnsemble(8, 0.5, 0.75))
    assert many["messages"] == base["messages"]
    # 8 × (55 + 30) values in one vector are cheaper by the value than one network's 91 + 39.
    assert many["bytes_up"] / (8 * 85) < 0.8 * base["bytes_up"] / 130


def test_majority_and_mean_are_what_they_say():
    table = classes()
    model = federation_of(table).train(FedHEONNEnsemble(5, 0.2, 0.6, vote="majority"), protect="plain").model
    each = [Ensemble(one[None], "logistic", model.inputs) for one in model.weights]
    votes = np.stack([one.predict_proba(table.values).argmax(axis=1) for one in each])
    most = np.array([np.bincount(column, minlength=3).argmax() for column in votes.T])
    np.testing.assert_array_equal(model.predict(table.values), model.classes_[most])
    model.vote = "mean"
    mean = np.mean([one.predict_proba(table.values) for one in each], axis=0)
    np.testing.assert_allclose(model.predict_proba(table.values), mean, rtol=1e-12)


def test_a_regression_is_the_mean():
    table = numbers()
    model = (
        federation_of(table).train(FedHEONNEnsemble(4, 0.5, 0.6, activation="linear"), protect="plain").model
    )
    each = [Ensemble(one[None], "linear", model.inputs).predict(table.values) for one in model.weights]
    np.testing.assert_allclose(model.predict(table.values), np.mean(each, axis=0), rtol=1e-12)


def test_a_saved_ensemble_comes_back(tmp_path):
    table = classes()
    model = federation_of(table).train(FedHEONNEnsemble(3, vote="mean"), protect="plain").model
    back = load_model(model.save(tmp_path / "model.safetensors"))
    assert isinstance(back, Ensemble)
    assert back.vote == "mean"
    np.testing.assert_array_equal(back.predict_proba(table.values), model.predict_proba(table.values))


@pytest.mark.parametrize(
    ("mode", "protect"),
    [("sealed", "plain"), ("paper", "plain"), ("robust", "plain"), ("sealed", "ckks"), ("paper", "ckks")],
)
def test_a_network_that_drew_no_row_has_no_vote(mode, protect):
    table, method = classes(), FedHEONNEnsemble(4, 0.5, 0.6, mode=mode)
    events, told = Events(), []
    events.subscribe(lambda _, event: told.append(event))
    with without_rows(1, 3):
        model = federation_of(table).train(method, protect=protect, events=events).model
    assert model.weights.shape == (2, 6, 3)
    assert model.weights.any(axis=(1, 2)).all()
    if (mode, protect) != ("sealed", "ckks"):  # there only the clients know
        assert [e.text for e in told if isinstance(e, Noted) and "networks" in e.text] == [
            "2 of 4 networks drew none of these clients' rows: raise samples"
        ]


@pytest.mark.parametrize("protect", ["plain", "ckks"])
@pytest.mark.parametrize("mode", ["sealed", "paper"])
def test_an_ensemble_without_any_row_is_refused(mode, protect):
    with without_rows(0, 1), pytest.raises(TacitError, match=r"none of 2 networks drew a row.*Raise samples"):
        federation_of(classes()).train(FedHEONNEnsemble(2, 0.01, mode=mode), protect=protect)


def test_a_network_whose_targets_are_all_zero_still_has_a_vote():
    table = Table.of(np.random.default_rng(0).normal(size=(30, 3)), np.zeros((30, 1)), task="regression")
    assert weights(table, FedHEONNEnsemble(3, activation="linear")).shape == (3, 4, 1)


@every_mode
def test_a_network_gets_its_vote_when_clients_join_that_have_rows_for_it(mode):
    table, method = classes(90), FedHEONNEnsemble(3, 1.0, 0.6, mode=mode)
    with without_rows(1):
        first = federation_of(table.take(slice(0, 50)), 3).train(method, protect="plain")
    late = Federation.of({"late": table.take(slice(50, 90))}).train(method, start=first, protect="plain")
    assert (len(first.model.weights), len(late.model.weights)) == (2, 3)


@pytest.mark.parametrize(
    "bad",
    [
        {"estimators": 0},
        {"samples": 0.0},
        {"samples": 1.1},
        {"features": float("nan")},
        {"lam": -1.0},
        {"processes": 0},
        {"draw": -1},
        {"draw": 10_000},
        {"max_memory": 0},
    ],
)
def test_impossible_settings_are_refused_at_once(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        FedHEONNEnsemble(**bad)


def test_a_memory_that_holds_no_row_is_refused_before_anything_is_summed():
    with pytest.raises(ConfigError, match="max_memory is 4 values, a row has 5"):
        federation_of(classes()).train(FedHEONNEnsemble(max_memory=4), protect="plain")


def test_triangles_in_the_clear_are_no_protection():
    with pytest.raises(ConfigError, match="robust"):
        federation_of(classes()).train(FedHEONNEnsemble(mode="robust"), protect="ckks")


def test_a_malformed_factor_is_that_clients_failure():
    method, schema = FedHEONNEnsemble(3, 1.0, 0.6, mode="paper"), mock.Mock(features=5, task="classification")
    good = np.zeros((3, 1, 4, 2))
    assert method.flaw("factor", good, schema) is None
    assert "agreed were 3 networks" in method.flaw("factor", good[:2], schema)
    assert "agreed was (1, 4, rank)" in method.flaw("factor", good[:, :, :3], schema)
    assert "agreed were 3 networks" in method.flaw("factor", np.zeros(()), schema)
    assert "agreed was (1, 4, rank)" in method.flaw("factor", np.zeros(3), schema)
    assert "absurd" in method.flaw("factor", good + 1e160, schema)


def at_hand(data: str) -> None:
    try:
        load(data)
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "encoding", "gain"), [("digits", "–", 0.4), ("obesity_levels", "ordinal", 4.0)]
)
def test_the_papers_settings_gain_what_the_paper_says(data, encoding, gain):
    at_hand(data)
    base, ensemble = next(row[2:4] for row in TABLE_2 if row[:2] == (data, encoding))
    found = [
        np.mean([cross_validated(m, data, encoding, seed) for seed in range(2)]) for m in (base, ensemble)
    ]
    assert found[1] - found[0] > gain


@pytest.mark.slow
def test_a_draw_that_is_chosen_aside_gains_on_dry_bean():
    at_hand("dry_bean")
    base, ensemble, _ = DRY_BEAN
    found = [np.mean([cross_validated(m, "dry_bean", "–", s) for s in range(5)]) for m in (base, ensemble)]
    chosen = np.mean([cross_validated(ensemble, "dry_bean", "–", s, draws=DRAWS) for s in range(5)])
    assert chosen > 90.4 > found[0]
    assert chosen > found[1]


def test_phases_are_timed_apart():
    seconds = [phase_seconds("digits", 4, 2, 2, phase, 0) for phase in ("fit", "aggregation", "solution")]
    assert min(seconds) > 0
