"""FederBoost: the same trees whoever holds which rows, and what happens if clients come and go."""

import re
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

from tacit.core.errors import ConfigError, DataError, QuorumError, SchemaError
from tacit.core.events import Events, Noted, TotalOpened
from tacit.core.message import Message
from tacit.data.preparation import Preparation
from tacit.data.schema import Schema
from tacit.data.table import Column, Table
from tacit.engines.holdings import SeparateHoldings
from tacit.federation import Federation
from tacit.methods.federboost import FederBoost
from tacit.models.trees import ARRAYS, NODES
from tacit.protections.masked import Masked
from tacit.protections.plain import Plain
from tests.conftest import Tap, divide

LOSSES = ("logistic", "softmax", "squared", "poisson")
KEEP = Preparation(missing="keep")
SMALL = FederBoost(trees=3, depth=3, buckets=16, min_child_weight=0.1)


def make_rows(loss, rows=300):
    """Numbers with gaps and ties, and a category; what is to be learnt depends on all of them."""
    rng = np.random.default_rng(1)
    values = np.column_stack([rng.normal(size=rows), rng.integers(0, 4, rows), rng.lognormal(0, 3, rows)])
    words = rng.integers(0, 3, rows)
    signal = values[:, 0] + values[:, 1] - 2.0 * (words == 1) + 0.1 * np.log(values[:, 2])
    values[rng.random(values.shape) < 0.1] = np.nan
    names = [Column("a"), Column("b"), Column("c"), Column("d", "category", categories=("x", "y", "z"))]
    values = np.column_stack([values, words])
    if loss in ("logistic", "softmax"):
        codes = np.digitize(signal, [0.5] if loss == "logistic" else [0.0, 1.0])
        return Table("t", tuple(names), values, codes, "classification", tuple(range(codes.max() + 1)))
    target = rng.poisson(np.exp(signal / 3)) if loss == "poisson" else signal
    return Table("t", tuple(names), values, target[:, None].astype(float), "regression")


def by_label(table):
    return table.take(np.argsort(table.target.reshape(table.rows, -1)[:, 0], kind="stable"))


def train(held, method=SMALL, protect=None, **settings):
    settings = {"preparation": KEEP, **settings}
    return Federation(held, seed=3).train(method, protect=protect or Plain(), **settings)


def trees_of(training):
    return {name: training.model.arrays[name] for name in (*NODES, *ARRAYS)}


def assert_same_trees(one, other):
    for name, array in trees_of(one).items():
        assert np.array_equal(array, trees_of(other)[name]), name


class TestSameTrees:
    @pytest.mark.parametrize("loss", LOSSES)
    def test_one_and_ten_clients_grow_the_same_trees(self, loss):
        table, method = make_rows(loss), FederBoost(trees=2, depth=3, buckets=16, loss=loss)
        alone = train(divide(table, 1), method)
        assert (alone.model.arrays["feature"] >= 0).sum() >= 4
        for held in (divide(table, 10), divide(by_label(table), 10)):
            assert_same_trees(alone, train(held, method))

    @pytest.mark.parametrize("loss", LOSSES)
    def test_a_hundred_clients_grow_the_trees_of_one(self, loss):
        table, method = make_rows(loss), FederBoost(trees=2, depth=2, buckets=8, loss=loss)
        alone = train(divide(table, 1), method)
        for held in (divide(table, 100), divide(by_label(table), 100)):
            assert_same_trees(alone, train(held, method))

    @pytest.mark.parametrize("protect", ["masked", "bfv"])
    def test_whatever_hides_the_contributions(self, protect, keys_once):
        held = divide(make_rows("softmax"), 5)
        with keys_once():
            assert_same_trees(train(held, min_count=5), train(held, protect=protect, min_count=5))

    def test_grown_leaf_by_leaf(self):
        table, method = make_rows("softmax"), FederBoost(trees=2, grow="leaf", leaves=6, buckets=16)
        alone = train(divide(table, 1), method)
        leaves = np.add.reduceat(alone.model.arrays["feature"] < 0, alone.model.arrays["tree_start"][:-1])
        assert leaves.max() == 6
        assert_same_trees(alone, train(divide(table, 7), method))
        assert_same_trees(alone, train(divide(table, 7), method, Plain(opens="clients")))

    def test_column_samples_are_public_and_row_samples_are_not(self):
        table = make_rows("squared")
        drawn = FederBoost(trees=3, depth=2, buckets=16, columns=0.5)
        alone = train(divide(table, 1), drawn)
        assert_same_trees(alone, train(divide(table, 6), drawn))
        assert not np.array_equal(*(trees_of(t)["value"] for t in (alone, train(divide(table, 1), SMALL))))
        used, starts = (trees_of(alone)[name] for name in ("feature", "tree_start"))
        for first, end in pairwise(starts):
            assert len({*used[first:end]} - {-1}) <= 2, "two of four columns a round"
        sampled = FederBoost(trees=3, depth=2, buckets=16, samples=0.5)
        one, other = (train(divide(table, clients), sampled) for clients in (1, 6))
        assert not np.array_equal(trees_of(one)["cover"], trees_of(other)["cover"])
        assert trees_of(one)["cover"][0] < 0.6 * table.rows


@pytest.mark.parametrize(
    "protect", [Plain(), Plain(opens="clients"), Masked()], ids=("plain", "log", "masked")
)
def test_columns_that_are_not_drawn_do_not_travel(protect):
    table = make_rows("squared")
    columns = tuple(Column(f"c{place}") for place in range(20))
    wide = Table("t", columns, np.repeat(table.values[:, :1], 20, axis=1), table.target, table.task)

    def sent(share, trees):
        method = FederBoost(trees=trees, depth=2, buckets=64, columns=share)
        return train(divide(wide, 3), method, protect).ledger.summary()["bytes_up"]

    tenth, all_columns = (sent(share, 8) - sent(share, 4) for share in (0.1, 1.0))
    assert tenth < 0.3 * all_columns


def test_all_rows_in_one_place_keep_what_clients_kept_aside_for_early_stopping():
    federation = Federation.embedded("wine", clients=4, holdout=0.2)
    pooled, aside = federation.pooled(), federation.holdings.holdout_sizes
    assert pooled.holdings.holdout_sizes.tolist() == [aside.sum()]
    assert np.array_equal(pooled.holdings.rows(0).values, federation.holdings.pooled().values)
    method = FederBoost(trees=2, depth=2, patience=1)
    assert pooled.train(method, protect="plain").model.scores(federation.test)["accuracy"] > 0.5


@pytest.mark.parametrize("protect", ["plain", "masked", Masked(opens="clients"), "bfv", "shares"], ids=str)
def test_categories_alone_are_learnt(protect, keys_once):
    words = np.random.default_rng(0).integers(0, 3, (90, 2))
    columns = tuple(Column(name, "category", categories=("x", "y", "z")) for name in ("a", "b"))
    target = (words[:, 0] == 1).astype(np.int64)
    table = Table("t", columns, words.astype(float), target, "classification", (0, 1))
    with keys_once():
        trained = train(divide(table, 3), FederBoost(trees=2, depth=2), protect)
    assert trained.model.scores(table)["accuracy"] == 1.0


def test_areas_under_curves_are_those_of_xgboost():
    xgboost = pytest.importorskip("xgboost")
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y, found = X[order], y[order], []
    settings = {"max_depth": 3, "eta": 0.3, "max_bin": 32, "tree_method": "hist", "nthread": 1}
    for fold in range(5):
        test = np.arange(len(X)) % 5 == fold
        held = divide(Table.of(X[~test], y[~test]), 2)
        model = train(held, FederBoost(trees=20, depth=3, buckets=33)).model
        data = xgboost.DMatrix(X[~test], y[~test])
        booster = xgboost.train({**settings, "objective": "binary:logistic"}, data, 20)
        theirs = booster.predict(xgboost.DMatrix(X[test]))
        found.append([roc_auc_score(y[test], p) for p in (model.predict_proba(X[test])[:, 1], theirs)])
    ours, baseline = np.mean(found, axis=0)
    assert ours > baseline - 0.002


def told(events, contribution):
    return [e for e in events if isinstance(e, TotalOpened) and e.contribution.startswith(contribution)]


def nodes_of(event):
    """Which nodes an opened total was of, whatever part of its places was summed."""
    return re.sub(r"_\d_of_8$", "", event.contribution)


def test_a_wave_for_each_level_and_few_sums_for_all_buckets():
    events = []
    train(divide(make_rows("softmax"), 4), events=Events(lambda _, event: events.append(event)))
    opened = [nodes_of(event) for event in told(events, "")]
    cuts = [name for name in opened if name in ("counts", "labels")]
    assert len(cuts) == 17 <= 40
    assert opened[17:] == ["roots", "histograms_1", "histograms_2"] * 3
    assert len(opened) == SMALL.sums


def test_buckets_that_no_value_is_in_are_not_sent():
    """Columns of three values: four of 64 places hold rows; trees are those of as many buckets as needed."""
    rng = np.random.default_rng(1)
    X = rng.integers(0, 3, size=(400, 5)).astype(float)
    table = Table.of(X, (X[:, 0] + X[:, 1] + rng.integers(0, 2, 400) > 2).astype(int))
    held, events = divide(table, 4), []
    wide = train(held, FederBoost(trees=3, depth=3), events=Events(lambda _, event: events.append(event)))
    assert {event.contribution for event in told(events, "roots")} == {"roots_1_of_8"}
    assert max(event.values for event in told(events, "histograms")) <= 5 * 64 * 2 / 8 * 2
    narrow = train(held, FederBoost(trees=3, depth=3, buckets=4))
    assert_same_trees(wide, narrow)


def test_predictions_never_fall_with_a_column_that_they_must_rise_with():
    table = make_rows("squared")
    settings = {"trees": 10, "depth": 4, "buckets": 16, "min_child_weight": 0.1}
    methods = FederBoost(**settings), FederBoost(**settings, increasing=("a",), decreasing=("c",))
    models = [train(divide(table, 2), method).model for method in methods]
    grid = np.tile(table.values[:20], (40, 1))
    for name, column, sign in (("a", 0, 1), ("c", 2, -1)):
        rows = grid.copy()
        rows[:, column] = np.repeat(
            np.linspace(-3, 3, 40) if name == "a" else np.geomspace(1e-3, 1e3, 40), 20
        )
        free, bound = (model.predict(shown(rows)) for model in models)
        steps = np.diff(np.reshape(bound, (40, 20)), axis=0) * sign
        assert steps.min() >= 0
        assert (np.diff(np.reshape(free, (40, 20)), axis=0) * sign).min() < 0


def shown(rows):
    """The same rows as a user gives them: categories by their words."""
    return [[*row[:3], "xyz"[int(row[3])]] for row in rows.tolist()]


class TestStopping:
    def test_trees_since_the_lowest_loss_are_dropped(self):
        rng = np.random.default_rng(0)
        table = Table.of(rng.normal(size=(400, 3)), rng.integers(0, 2, 400))  # nothing can be learnt
        found = []
        for place in ("coordinator", "clients"):
            held = divide(table, 4)
            held.holdout_sizes = np.full(4, 30)
            method = FederBoost(trees=30, depth=3, buckets=16, patience=2)
            found.append(train(held, method, Plain(opens=place)))
        assert found[0].model.trees < 28
        assert len([1 for e in found[0].record.notes if "no lower loss" in e["text"]]) == 1
        assert_same_trees(*found)
        shorter = FederBoost(trees=found[0].model.trees, depth=3, buckets=16)
        assert_same_trees(found[0], train(held, shorter))

    def test_a_stopped_run_goes_on_between_trees(self):
        held, kept = divide(make_rows("softmax"), 4), []
        whole = train(held, keep=kept.append)
        again = train(held, resume=kept[1])
        assert [one.progress["round"] for one in kept] == [1, 2, 3]
        assert_same_trees(whole, again)

    def test_other_clients_go_on_by_as_many_trees(self):
        table = make_rows("squared")
        first = train(divide(table.take(slice(0, 200)), 3))
        second = train(divide(table.take(slice(100, 300)), 3), start=first)
        assert second.model.trees == 2 * first.model.trees
        ours, old = (t.model.arrays["value"] for t in (second, first))
        assert np.array_equal(ours[: len(old)], old)


@pytest.fixture
def learnt(monkeypatch):
    """Train while some asks never reach their party; gives the training and all that was told."""
    whole = Federation._engine

    def run(holdings, lose, method=SMALL, **settings):
        events = []

        @contextmanager
        def engine(self, manifest, components):
            with whole(self, manifest, components) as inner:
                tap = Tap(inner)
                tap.lose = lambda step, party: lose(step, party, [nodes_of(e) for e in told(events, "")])
                yield tap

        monkeypatch.setattr(Federation, "_engine", engine)
        record = Events(lambda number, event: events.append(event))
        federation = Federation(holdings, seed=3, quorum=0.4)
        return federation.train(method, preparation=KEEP, events=record, **settings), events

    return run


class TestClientsThatComeAndGo:
    def test_trees_start_again_without_those_that_vanish(self, learnt, keys_once):
        """The second tree loses its clients after two levels; with plain sums nobody needs to hide them."""
        table = make_rows("squared")

        def lose(step, party, opened):
            return party == "client-4" and opened.count("roots") >= 2 and opened[-1] == "histograms_1"

        gone = []

        def lose_for_good(step, party, opened):
            if lose(step, party, opened):
                gone.append(party)
            return bool(gone) and party == "client-4"

        training, events = learnt(divide(table, 4), lose_for_good, protect=Plain())
        names = [nodes_of(event) for event in told(events, "")][17:]
        # The total of the third level is over fewer: the second tree starts again, over those that are left.
        assert (
            names
            == ["roots", "histograms_1", "histograms_2"] * 2 + ["roots", "histograms_1", "histograms_2"] * 2
        )
        assert [e.contributors for e in told(events, "roots")] == [4, 4, 3, 3]
        assert any("start again" in e.text for e in events if isinstance(e, Noted))
        assert training.outcome.holders == ("client-1", "client-2", "client-3")
        assert training.model.trees == 3

    def test_under_protection_as_many_differ_as_a_total_must_have(self, learnt, keys_once):
        def lose(step, party, opened):
            return party == "client-2" and "histograms_1" in opened

        with keys_once():
            _, events = learnt(divide(make_rows("squared"), 8), lose, protect="masked")
        over = {event.contributors for event in told(events, "")}
        assert over == {8, 5}

    def test_too_few_late_clients_wait_and_enough_take_part(self, learnt, keys_once):
        names = [f"client-{i + 1}" for i in range(8)]
        for late, counts in ((names[-1:], [7, 7, 7]), (names[-3:], [5, 8, 8])):

            def lose(step, party, opened, late=late):
                return party in late and "roots" not in opened

            with keys_once():
                _, events = learnt(divide(make_rows("squared"), 8), lose, protect="masked")
            assert [e.contributors for e in told(events, "roots")] == counts

    def test_only_the_last_trees_are_told_again(self, learnt):
        sizes = {}
        view = FederBoost.view

        def watched(self, shared):
            found = view(self, shared)
            sizes[shared["brief"]] = len(Message(found).encode())
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FederBoost, "view", watched)
            method = FederBoost(trees=20, depth=3, buckets=16)
            learnt(divide(make_rows("squared"), 3), lambda *_: False, method, protect=Plain())
        assert sizes[True] < 0.5 * sizes[False]


class TestBadInput:
    @pytest.mark.parametrize(
        ("settings", "text"),
        [
            ({"trees": 0}, "trees is 0: give a whole number"),
            ({"trees": 2.5}, r"option trees = 2\.5: give a whole number"),
            ({"depth": "3"}, "option depth = '3': give a whole number"),
            ({"depth": 13}, "depth is 13: give 1 to 12 levels"),
            ({"grow": "leaf", "leaves": 1}, "leaves is 1: give 2 to 1024"),
            ({"rate": 0.0}, "rate is 0.0: give a share, above 0"),
            ({"buckets": 257}, "buckets is 257: give 2 to 256"),
            ({"lam": -1.0}, "lam is -1.0: give a finite number"),
            ({"samples": 1.5}, "samples is 1.5: give a share"),
        ],
    )
    def test_settings_say_what_they_may_be(self, settings, text):
        with pytest.raises(ConfigError, match=text):
            FederBoost(**settings)

    @pytest.mark.parametrize(
        ("loss", "settings", "text"),
        [
            ("softmax", {"loss": "logistic"}, "does not fit classification with 3 outputs"),
            ("softmax", {"loss": "squared"}, "with 3 outputs: leave it out, or set task = 'regression'"),
            ("squared", {"increasing": ("d",)}, "names 'd': give columns of numbers: valid: a, b, c"),
            ("squared", {"increasing": ("a",), "decreasing": ("a",)}, "both increasing and decreasing"),
        ],
    )
    def test_settings_that_do_not_fit_the_rows(self, loss, settings, text):
        with pytest.raises(ConfigError, match=text):
            train(divide(make_rows(loss), 3), FederBoost(**settings))

    def test_negative_counts(self):
        table = make_rows("squared")
        with pytest.raises(
            QuorumError, match="negative values, and loss = 'poisson' is for counts"
        ) as caught:
            train(divide(table, 3), FederBoost(trees=1, loss="poisson"))
        assert caught.value.exit_code == DataError.exit_code
        with pytest.raises(QuorumError, match=r"^counts: "):  # by the first sum of the method
            train(divide(table, 3), FederBoost(trees=1, loss="poisson"))

    def test_a_column_that_one_client_lacks(self):
        table = Table.of(np.arange(40.0).reshape(20, 2), np.arange(20) % 2, names=["a", "b"])
        short = Table.of(np.arange(20.0).reshape(20, 1), np.arange(20) % 2, names=["a"])
        held = SeparateHoldings({"one": table, "two": short})
        with pytest.raises(SchemaError, match="'b'"):
            Federation(held, seed=3, quorum=1.0).train(SMALL, protect=Plain())

    def test_a_category_that_nobody_had(self):
        model = train(divide(make_rows("squared"), 3)).model
        with pytest.raises(DataError, match="a value that nobody agreed on"):
            model.predict([[0.0, 1.0, 1.0, "w"]])

    def test_too_many_categories(self):
        words = tuple(f"w{i}" for i in range(300))
        schema = Schema((Column("a", "category", categories=words),), "classification", (0, 1), ("y",))
        with pytest.raises(ConfigError, match="'a' has more than 255 categories: put rare ones together"):
            SMALL.check(schema)

    def test_infinite_values(self):
        table = make_rows("squared")
        table.values[5, 0] = 1e39
        with pytest.raises(QuorumError, match=r"beyond ±3\.4e38"):
            Federation(divide(table, 2), quorum=1.0).train(SMALL, protect=Plain(), preparation=KEEP)
