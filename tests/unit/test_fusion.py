"""Fusion Learning: what clients tell of columns, estimators that travel, drawn rows, and bad input."""

from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from tacit import Federation, Preparation, Table, load_model
from tacit.core.errors import ConfigError, DataError, QuorumError
from tacit.data.inputs import Inputs
from tacit.data.table import Column
from tacit.engines.holdings import holdings_of
from tacit.methods.fusion import NOISY, Columns, Fusion
from tacit.models import estimator
from tacit.models.estimator import KINDS, PLACES, Estimator, fit_estimator, name_estimator
from tacit.models.marginals import FAMILIES, LEVELS, Marginal, describe
from tacit.testing import divide, make_rows, train

RNG = np.random.default_rng(1)
X, Y = RNG.normal(size=(60, 3)), RNG.integers(0, 3, 60)
HELPERS = (*KINDS["dummy"].split(), *KINDS["compose"].split(), *KINDS["preprocessing"].split())
SMALL = {"AdaBoost": "n_estimators=3", "Forest": "n_estimators=3", "ExtraTrees": "n_estimators=3"}
SMALL |= {"MLP": "hidden_layer_sizes=(4,), max_iter=5"}


class TestMarginals:
    @pytest.mark.parametrize("family", ["norm", "expon", "uniform"])
    def test_the_family_that_values_were_drawn_from_is_found(self, family):
        from scipy import stats

        values = getattr(stats, family).rvs(loc=30.0, scale=4.0, size=500, random_state=3)
        found = describe(values, ("norm", "expon", "uniform"), 20, 3, np.random.default_rng(0))
        assert found.family == family
        drawn = found.draw(np.random.default_rng(1).uniform(size=4000))
        assert abs(drawn.mean() - values.mean()) < 0.4 and abs(drawn.std() - values.std()) < 0.4

    def test_every_family_can_be_drawn_from(self):
        from scipy import stats

        assert 24 <= len(set(FAMILIES)) == len(FAMILIES)
        for family in FAMILIES:
            shapes = [0.5] * (getattr(stats, family).numargs)
            assert np.isfinite(Marginal(family, [*shapes, 0.0, 1.0]).draw(np.array([0.0, 0.5, 1.0]))).all()

    def test_few_values_are_levels_and_rare_ones_are_not_told(self):
        values = np.repeat([1.0, 2.0, 9.0], [60, 38, 2])
        found = describe(values, ("norm",), 20, 3, np.random.default_rng(0))
        assert found == Marginal(LEVELS, [1.0, 2.0, 60 / 98, 38 / 98])
        assert {*found.draw(np.linspace(0, 1, 50))} == {1.0, 2.0}

    def test_a_constant_column_is_one_level(self):
        assert describe(np.full(7, 4.0), (), 0, 3, np.random.default_rng(0)).parameters == [4.0, 1.0]

    def test_values_of_few_rows_are_never_levels(self):
        found = describe(np.arange(8.0), ("norm",), 20, 3, np.random.default_rng(0))
        assert found.family == "norm"

    def test_parameters_have_so_many_digits(self):
        values = np.random.default_rng(4).normal(1234.5678, 3.21, 200)
        found = describe(values, ("norm",), 0, 3, np.random.default_rng(0)).parameters
        assert found == [round(found[0], 3), float(f"{found[1]:.3g}")]
        exact = describe(values, ("norm",), 0, 0, np.random.default_rng(0)).parameters
        assert np.allclose(exact, [values.mean(), values.std()], rtol=1e-12) and exact != found

    def test_what_cannot_be_fitted_is_said(self, monkeypatch):
        from scipy import stats

        def fails(self, data):
            raise stats.FitError("no convergence")

        monkeypatch.setattr(type(stats.beta), "fit", fails)
        with pytest.raises(DataError, match="none of beta can be fitted to it: give more families"):
            describe(np.linspace(0, 1, 50), ("beta",), 0, 3, np.random.default_rng(0))
        assert (
            describe(np.linspace(0, 1, 50), ("beta", "norm"), 0, 3, np.random.default_rng(0)).family == "norm"
        )


def settings_of(name):
    return next((f"{name}({words})" for part, words in SMALL.items() if part in name), name)


class TestEstimators:
    @pytest.mark.parametrize("name", [name for name in PLACES if name not in HELPERS])
    def test_what_is_read_back_predicts_the_same(self, name):
        from sklearn.base import is_classifier

        targets = Y if is_classifier(name_estimator(name, "")) else np.abs(X[:, :1]) + 0.1
        raw = fit_estimator(settings_of(name), X, targets, np.random.default_rng(0))  # compares predictions
        assert raw == fit_estimator(settings_of(name), X, targets, np.random.default_rng(0))
        assert b"loss_curve_" not in raw and b"n_samples_seen_" not in raw

    def test_one_class_needs_no_estimator(self):
        raw = fit_estimator("LogisticRegression", X, np.full(60, 2), np.random.default_rng(0))
        assert (estimator._restored(msgspec.msgpack.decode(raw), 3).predict(X) == 2).all()

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("KNeighbors", "'KNeighbors' is no estimator that can travel"),
            ("MLP(hidden=3)", "unexpected keyword argument"),
            ("MLP(max_iter=open('x'))", "write an estimator like"),
            ("__import__('os').system('true')", "is no estimator that can travel"),
            ("MLP(", "write an estimator like"),
        ],
    )
    def test_other_words_are_refused(self, text, words):
        with pytest.raises(ConfigError, match=words):
            name_estimator(text, "classification")

    def test_settings_that_do_not_fit_name_no_row(self):
        with pytest.raises(DataError, match="cannot be fitted to these rows") as caught:
            fit_estimator("MLP(max_iter=-1)", X, Y, np.random.default_rng(0))
        assert "max_iter" not in caught.value.public.partition("cannot")[2]

    @pytest.mark.parametrize("place", [0, 1, 2])
    @pytest.mark.parametrize("value", [-7, 0, 99])
    def test_a_tree_that_leads_astray_is_refused(self, place, value):
        raw = msgspec.msgpack.decode(fit_estimator("DecisionTree", X, Y, np.random.default_rng(0)))
        tree = raw["estimator"][1]["tree_"]["tree"]
        nodes = np.frombuffer(tree[place]["array"][2], np.int64).copy()
        nodes[0] = value if place < 2 or value else -1
        tree[place]["array"][2] = nodes.tobytes()
        with pytest.raises(ValueError, match="nodes of a tree lead astray"):
            estimator._restored(raw, 3)

    @pytest.mark.parametrize("kind", ["KNeighborsClassifier", "Popen", "__import__"])
    def test_no_other_class_is_made(self, kind):
        with pytest.raises(KeyError, match=kind):
            estimator._restored({"estimator": [kind, {}]}, 3)


class TestMethod:
    def test_categories_constants_and_gaps_are_drawn(self):
        rng = np.random.default_rng(2)
        colour, size = rng.integers(0, 3, 120).astype(float), rng.normal(size=120)
        columns = (
            Column("colour", "category", categories=("blue", "green", "red")),
            Column("size"),
            Column("one"),
        )
        values = np.column_stack([colour, size, np.ones(120)])
        values[::17, 1] = np.nan
        table = Table("t", columns, values, (colour == 2).astype(int), classes=("no", "yes"))
        held = holdings_of(table, np.arange(120) // 40, 0.0, seed=0)
        method = Fusion("DecisionTree", families=("norm",), samples=200)
        preparation = Preparation(missing="mean")
        training = Federation(held).train(method, protect="plain", preparation=preparation)
        assert training.model.score([["red", 0.3, 1.0], ["blue", 0.3, 1.0]], ["yes", "no"]) == 1.0

    def test_a_client_of_one_class_and_a_constant_column_takes_part(self):
        rows = make_rows("classification")
        rows = rows.take(np.argsort(rows.target, kind="stable"))
        rows.values[:50, 1] = 5.0  # constant at the clients of the first class
        method = Fusion("GaussianNB", families=("norm",), samples=150)
        training = train(method, holdings_of(rows, np.arange(150) // 25, 0.0, seed=0))
        assert not training.failures and training.scores is None
        assert training.model.score(rows.values, np.array(rows.classes)[rows.target]) > 0.85

    def test_upsampling_finds_more_of_the_smaller_class(self):
        rng = np.random.default_rng(7)
        values = np.r_[rng.normal(0, 1, (500, 2)), rng.normal(1.2, 1, (60, 2))]
        table = Table.of(values, np.repeat([0, 1], [500, 60])).take(rng.permutation(560))
        held = holdings_of(table, np.arange(560) // 140, 0.0, seed=0)
        found = [
            np.mean(
                train(Fusion("LogisticRegression", upsample=up, families=("norm",)), held).model.predict(
                    values
                )
            )
            for up in (False, True)
        ]
        assert found[0] < 0.08 < 0.2 < found[1]

    def test_a_copula_keeps_correlations(self):
        rng = np.random.default_rng(3)
        x = rng.normal(size=300)
        table = Table.of(np.column_stack([x, np.exp(x), rng.normal(size=300)]), x > 0)
        marginal, correlation = Marginal("norm", [0.0, 1.0]), [[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1]]
        schema = train(Fusion.tiny(), holdings_of(table, np.zeros(300, int), 0.0, seed=0)).model.schema
        for told, expected in ((correlation, 0.9), ([], 0.0)):
            drawn = Columns([marginal] * 3, told).draw(4000, rng, Inputs(schema, {}))
            assert abs(np.corrcoef(drawn.T)[0, 1] - expected) < 0.05

    def test_the_model_is_written_and_read(self, tmp_path):
        rows = make_rows("classification")
        model = train(Fusion("RandomForest(n_estimators=5)", families=("norm",)), divide(rows)).model
        read = load_model(model.save(tmp_path / "m.safetensors"))
        assert isinstance(read, Estimator)
        assert (read.predict_proba(rows.values) == model.predict_proba(rows.values)).all()

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"families": ("norml",)}, "unknown distribution 'norml': did you mean 'norm'"),
            ({"samples": 0}, "samples is 0: give a number of at least 1"),
            ({"epsilon": float("nan")}, "epsilon is nan: give a number of at least 0"),
        ],
    )
    def test_settings_without_sense_are_refused(self, settings, words):
        with pytest.raises(ConfigError, match=words):
            Fusion(**settings)

    def test_a_final_model_for_another_task_is_refused_before_anything_is_asked(self):
        with pytest.raises(ConfigError, match="'Nope' is no estimator that can travel"):
            train(Fusion(final="Nope"), divide(make_rows("classification")))
        with pytest.raises(ConfigError, match="epsilon is for classes"):
            train(Fusion(epsilon=1.0), divide(make_rows("regression")))

    def test_other_clients_cannot_continue(self):
        with pytest.raises(ConfigError, match="train all clients together"):
            Fusion().continue_from(None)

    @pytest.mark.parametrize(
        ("name", "raw"),
        [
            ("model", b"\xff"),
            ("model", msgspec.msgpack.encode({"estimator": ["GaussianNB", {}]})),
            (
                "distributions",
                msgspec.msgpack.encode(Columns([Marginal("norm", [0.0, 1.0, 2.0, 3.0])] * 4, [])),
            ),
            ("distributions", msgspec.msgpack.encode(Columns([Marginal("system", [0.0, 1.0])] * 4, []))),
            ("distributions", msgspec.msgpack.encode(Columns([Marginal("norm", [0.0, np.nan])] * 4, []))),
            ("distributions", msgspec.msgpack.encode(Columns([Marginal("norm", [0.0, 1.0])] * 3, []))),
            ("distributions", msgspec.msgpack.encode(Columns([Marginal("norm", [0.0, 1.0])] * 4, [[1.0]]))),
        ],
    )
    def test_crafted_bytes_are_refused(self, name, raw):
        from tacit.methods.fusion import _pack

        schema = train(Fusion.tiny(), divide(make_rows("classification"))).model.schema
        assert Fusion().flaw(name, _pack(raw), schema)
        assert Fusion().flaw(name, np.frombuffer(b"\x01", np.uint8), schema)

    def test_a_column_that_cannot_be_fitted_is_named(self, monkeypatch):
        def fails(*given):
            raise DataError("none can be fitted")

        monkeypatch.setattr("tacit.methods.fusion.describe", fails)
        with pytest.raises(QuorumError, match="column 'x0': none can be fitted"):
            train(Fusion.tiny(), divide(make_rows("classification")))


class TestBudget:
    def test_what_is_told_follows_from_noisy_sums_only(self):
        rng = np.random.default_rng(5)
        labels = rng.integers(0, 2, 1500)
        table = Table.of(np.c_[labels, -labels] + rng.normal(0, 0.3, (1500, 2)), labels)
        held = holdings_of(table, np.arange(1500) // 500, 0.0, seed=0)
        method = Fusion("GaussianNB", families=("norm",), epsilon=4.0)
        preparation = Preparation(scale="none")
        one, other = (
            Federation(held).train(method, protect="plain", preparation=preparation).model for _ in range(2)
        )
        assert method.own_epsilon == 4.0 and one.score(table.values, labels) > 0.9
        assert one.raw != other.raw  # noise comes from the operating system

    def test_noise_may_hide_all_rows(self):
        site = SimpleNamespace(state={NOISY: np.full(2 * 6, -1.0)})
        with pytest.raises(DataError, match="noise hides all rows of this client: raise epsilon"):
            Fusion(epsilon=0.1)._draw_private(site, X[:9, :2], Y[:9], 2, np.random.default_rng(0))

    def test_whoever_asks_again_sees_the_same_sums(self):
        rows = make_rows("classification")
        charges = []

        site = SimpleNamespace(state={}, charge=charges.append)
        method, values = Fusion(epsilon=2.0), rows.values / rows.values.max(axis=0)
        first, again = (
            method._draw_private(site, values, rows.target, 3, np.random.default_rng(0)) for _ in range(2)
        )
        assert (first[0] == again[0]).all() and len(charges) == 1
        assert charges[0].unit == "row" and charges[0].most == 1

    def test_a_scale_without_noise_is_warned_of(self):
        assert "does not cover" in Fusion(epsilon=1.0).warnings_for(True)[-1]
        others = [Fusion(epsilon=1.0).warnings_for(False), Fusion().warnings_for(True)]
        assert all("local model" in text for texts in others for text in texts)
