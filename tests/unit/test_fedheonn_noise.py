"""FedHEONN with noise: what one row brings, what it costs, what is learnt, and what is refused."""

from __future__ import annotations

import dataclasses
from functools import partial

import dp_accounting
import numpy as np
import pytest

from tacit import Federation, FedHEONN, Table
from tacit.core.errors import ConfigError, DataError, ProtectionError
from tacit.core.events import BudgetSpent, Event, Events, Noted, TotalOpened
from tacit.core.layout import Field, Layout
from tacit.core.party import Charge, Party
from tacit.core.secret import Secret
from tacit.core.shared import Shared, Total
from tacit.crypto.accounting import LARGE_ORDERS, ORDERS, sigma_for
from tacit.data import noisy_scale
from tacit.data.inputs import Recoding
from tacit.data.preparation import Preparation
from tacit.data.schema import Schema
from tacit.data.table import Column
from tacit.engines import sites
from tacit.methods.fedavg import FedAvg
from tacit.methods.heonn.exchange import invert_targets
from tacit.methods.heonn.noisy import PARTS, NoisySums, group_rows
from tacit.models.files import load_model
from tacit.models.onnx_export import to_onnx
from tacit.protections.noised import Noised
from tacit.protections.noised.grid import TAIL_SHARE
from tests.helpers.onnx_rows import onnx_feed

RAW = Preparation(scale="none")
TASKS = {
    "logistic": ("classification", "logistic"),
    "softplus": ("classification", "softplus"),
    "linear": ("classification", "linear"),
    "regression": ("regression", "linear"),
}


def table_of(task: str = "classification", rows: int = 60, seed: int = 0, unit: float = 1.0) -> Table:
    """Three columns of numbers and one of words."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(rows, 3))
    words = rng.integers(0, 3, rows)
    values = np.column_stack([numbers * unit, words]).astype(float)
    columns = (
        *(Column(f"x{index}") for index in range(3)),
        Column("w", "category", categories=("a", "b", "c")),
    )
    if task == "regression":
        target = numbers @ rng.normal(size=(3, 2)) + 0.1 * rng.normal(size=(rows, 2)) + (5, -7)
        return Table("rows", columns, values, target, "regression", (), ("u", "v"))
    labels = np.argmax(numbers + 0.2 * rng.normal(size=(rows, 3)), axis=1)
    return Table("rows", columns, values, labels, classes=("k", "l", "m"))


def schema_of(table: Table) -> Schema:
    return Schema(table.columns, table.task, tuple(table.classes), table.target_names)


def party_of(table: Table) -> Party:
    return Party("client-1", lambda: table, Secret(b"s" * 32))


def rows_of(federation: Federation, values: np.ndarray) -> np.ndarray:
    """The same rows with words in place of their codes."""
    words = np.array(federation.test.columns[3].categories)
    return np.column_stack([values[:, :3].astype(object), words[values[:, 3].astype(int)]])


@pytest.fixture(scope="module")
def many() -> Federation:
    """Clients with rows enough for any noise here, in units that differ by orders of magnitude."""
    table = table_of(rows=6000)
    scaled = table.values * np.array([1e4, 1.0, 1e-3, 1.0]) + np.array([3e4, 0.0, 0.0, 0.0])
    return Federation.embedded(
        Table("rows", table.columns, scaled, table.target, classes=table.classes), clients=12, seed=2
    )


class TestWhatARowBrings:
    """Bounded by 1, all statistics of a sum together, whatever the row is; and no row is bounded for less."""

    @pytest.mark.parametrize("name", TASKS)
    @pytest.mark.parametrize("norm", [1.0, 3.0])
    def test_to_the_terms(self, name: str, norm: float) -> None:
        task, activation = TASKS[name]
        method = FedHEONN(activation=activation, row_norm=norm)
        for unit in (1e-3, 1.0, 1e3, 1e200):
            table = table_of(task, unit=unit)
            shared = Shared(schema_of(table), {})
            lengths = self.lengths(method, "noisy_terms", table, shared)
            assert lengths.max() <= 1 + 1e-12
            assert unit != 1e3 or lengths.max() > 0.99

    @pytest.mark.parametrize("task", ["classification", "regression"])
    def test_to_the_sums_of_the_scale(self, task: str) -> None:
        preparation = Preparation()
        for unit in (1e-30, 1.0, 1e30):
            table = table_of(task, unit=unit)
            columns = 5 if task == "regression" else 3
            bounds = {"low": np.full(columns, -0.5), "high": np.full(columns, 1.0)}
            shared = Shared(schema_of(table), bounds)
            assert self.lengths(preparation, "magnitudes", table, shared) == pytest.approx(1.0)
            moments = self.lengths(preparation, "noisy_moments", table, shared)
            assert moments.max() <= 1 + 1e-12
            assert unit != 1e30 or moments.max() > 0.9

    @staticmethod
    def lengths(part: object, contribution: str, table: Table, shared: Shared) -> np.ndarray:
        """Norm by which each row changes the vector of a client that has it beside all others."""
        function = getattr(part, contribution)
        layout = function.tacit.layout(part, shared.schema)
        assert layout.row_norm == 1.0
        whole = layout.pack(function(party_of(table), shared))
        found = []
        for row in range(12):
            rest = table.take(np.delete(np.arange(table.rows), row))
            found.append(np.linalg.norm(whole - layout.pack(function(party_of(rest), shared))))
        return np.array(found)


class TestClosedForm:
    @pytest.mark.parametrize("name", TASKS)
    def test_without_noise_it_is_the_plain_model(self, name: str) -> None:
        task, activation = TASKS[name]
        table = table_of(task, rows=200)
        table = dataclasses.replace(table, columns=table.columns[:3], values=table.values[:, :3])
        federation = Federation.of({"one": table.take(slice(0, 90)), "two": table.take(slice(90, None))})
        method = FedHEONN(activation=activation, lam=0.7, row_norm=100.0)
        plain = federation.train(dataclasses.replace(method, lam=0.0), protect="plain", preparation=RAW)
        schema = plain.schema
        # The scale of targets, too, is undone.
        targets = {"target_centre": np.array([5.0, -7.0]), "target_spread": np.array([9.0, 8.0])}
        shared = Shared(schema, targets if task == "regression" else {})
        terms = method.noisy_terms(party_of(table), shared)
        free = dataclasses.replace(method, lam=0.0).solve_noisy(Total(terms, 2), shared)["weights"]
        assert free == pytest.approx(plain.model.weights, abs=1e-9)
        # The penalty is that of eq. 2, but for the bias, which has none here.
        penalised = method.solve_noisy(Total(terms, 2), shared)["weights"]
        X, (d_bar, slope) = Recoding(schema, None).encode(table), invert_targets(activation, table, schema)
        for output in range(schema.outputs):
            F = np.diag(slope[:, output])
            A = F @ np.column_stack([np.ones(200), X])
            system = A.T @ A + np.diag([0.0, *[0.7] * 3])
            expected = np.linalg.solve(system, A.T @ F @ d_bar[:, output])
            assert penalised[:, output] == pytest.approx(expected, abs=1e-9)

    def test_a_shorter_norm_shortens_rows_and_not_their_weight(self) -> None:
        table = table_of(rows=200)
        shared = Shared(schema_of(table), {})
        groups = group_rows(table, shared)
        X = Recoding(schema_of(table), None).encode(table)
        sums = NoisySums(0.0, "linear", 0.5)
        terms = sums.terms(X, groups, 1)
        short = NoisySums(0.0, "linear", 100.0).terms(
            X * np.minimum(1, 0.5 / np.linalg.norm(X, axis=1, keepdims=True)), groups, 1
        )
        assert terms["counts"] == pytest.approx(short["counts"])
        assert terms["sums"] == pytest.approx(short["sums"] * 200)
        assert terms["gram"] == pytest.approx(short["gram"] * 200**2)

    def test_negative_eigenvalues_and_a_penalty_from_the_noise(self) -> None:
        """Noise that swallows the Gram matrix leaves weights that are small, not wild."""
        table = table_of(rows=2000)
        shared = Shared(schema_of(table), {})
        method = FedHEONN(activation="linear")
        terms = method.noisy_terms(party_of(table), shared)
        gram = terms["gram"] - 1e4 * np.eye(6)[np.triu_indices(6)]
        weights = method.solve_noisy(Total({**terms, "gram": gram}, 1, noise=20.0), shared)["weights"]
        assert np.isfinite(weights).all() and np.abs(weights[1:]).max() < 20

    def test_noise_beyond_all_rows_is_said(self) -> None:
        table = table_of(rows=60)
        shared = Shared(schema_of(table), {})
        terms = FedHEONN().noisy_terms(party_of(table), shared)
        with pytest.raises(DataError, match="the noise is larger than what all clients bring together"):
            FedHEONN().solve_noisy(Total(terms, 1, noise=5.0), shared)


class TestScale:
    def test_bounds_and_moments_without_noise(self) -> None:
        values = np.array([[3.0, -20.0, 0.0], [2.0, 30.0, 0.0], [1.5, 10.0, np.nan]])
        table = Table("rows", tuple(Column(name) for name in "abc"), values, np.zeros(3, int), classes=("k",))
        preparation, shared = Preparation(missing="mean"), Shared(schema_of(table), {})
        for contribution, apply in (
            (preparation.magnitudes, preparation.apply_magnitudes),
            (preparation.noisy_moments, preparation.apply_noisy_moments),
        ):
            shared = apply(Total(contribution(party_of(table), shared), 1), shared)
        assert shared["low"].tolist() == [1.0, -64.0, 0.0]
        assert shared["high"].tolist() == [4.0, 64.0, 0.0]
        assert shared["centre"][:2] == pytest.approx(values[:, :2].mean(axis=0))
        assert shared["spread"][:2] == pytest.approx(values[:, :2].std(axis=0))
        assert shared["constant"].tolist() == [False, False, True]
        assert shared["fill"].tolist() == shared["centre"].tolist()

    def test_what_is_not_told_from_noise_is_left_out(self) -> None:
        schema = Schema((Column("a"), Column("b")), "classification", ("k",), ("y",))
        counts = np.zeros((2, noisy_scale.INTERVALS))
        counts[0, 40], counts[1, 40] = 100.0, 30.0
        shared = Shared(schema, {})
        found = Preparation().apply_magnitudes(Total({"magnitudes": counts}, 1, noise=10.0), shared)
        assert (found["high"] > found["low"]).tolist() == [True, False]

    def test_noise_far_from_a_columns_values_is_not_taken_for_values(self) -> None:
        # Three columns have some 200 intervals. One of noise alone that counts stretches its column's bounds
        # by any factor, and the column is lost: with four deviations for all, that was one run in 300.
        schema = Schema((Column("a"), Column("b"), Column("c")), "classification", ("k",), ("y",))
        shared, rng = Shared(schema, {}), np.random.default_rng(0)
        for _ in range(2000):
            counts = rng.normal(scale=10.0, size=(3, noisy_scale.INTERVALS))
            counts[:, 40:42] += 200.0
            found = Preparation().apply_magnitudes(Total({"magnitudes": counts}, 1, noise=10.0), shared)
            assert (noisy_scale.EDGES[39] <= found["low"]).all()
            assert (found["high"] <= noisy_scale.EDGES[43]).all()

    def test_fewer_values_do_as_the_largest_count_or_beside_others(self) -> None:
        schema = Schema((Column("a"), Column("b")), "classification", ("k",), ("y",))
        counts = np.zeros((2, noisy_scale.INTERVALS))
        counts[0, [40, 50]], counts[1, [40, 41, 42, 50]] = (45.0, 44.0), (60.0, 45.0, 45.0, 45.0)
        total = Total({"magnitudes": counts}, 1, noise=10.0)
        found = Preparation().apply_magnitudes(total, Shared(schema, {}))
        assert found["low"].tolist() == noisy_scale.EDGES[[40, 40]].tolist()
        assert found["high"].tolist() == noisy_scale.EDGES[[41, 43]].tolist()

    def test_a_spread_below_the_noise_is_taken_for_the_noise(self) -> None:
        schema = Schema((Column("a"),), "classification", ("k",), ("y",))
        shared = Shared(schema, {"low": np.array([-1.0]), "high": np.array([1.0])})
        moments = np.array([[1000.0], [0.0], [0.1]]) * np.array([[0.5], [1.0], [1.0]]) / 1.5
        spread = Preparation().apply_noisy_moments(Total({"moments": moments}, 1, noise=10.0), shared)
        assert spread["spread"][0] == pytest.approx(np.sqrt(2 * 15.0 / 1000))


class TestBudget:
    @pytest.mark.parametrize("where", ["central", "distributed"])
    def test_epsilon_is_the_figure_of_dp_accounting(self, many: Federation, where: str) -> None:
        told: list[Event] = []
        events = Events(lambda number, event: told.append(event))
        protection = Noised(epsilon=2.0, unit="row", where=where)
        many.train(FedHEONN(), protect=protection, min_clients=10, events=events)
        opened = [event.contribution for event in told if isinstance(event, TotalOpened)]
        assert opened == ["magnitudes", "noisy_moments", "noisy_terms"]  # nothing else opens
        delta = 1e-5 * (1 if where == "central" else 1 - TAIL_SHARE)
        noise = sigma_for(2.0, delta, 2 + PARTS)
        (said,) = [event.text for event in told if isinstance(event, Noted) and "noise of" in event.text]
        assert said.startswith(
            f"noise of {noise:.3g} times what a row brings, over √k in a sum that takes k of {2 + PARTS} "
            "parts of the budget, for epsilon 2 in all for any row"
        )
        theirs = dp_accounting.rdp.RdpAccountant(ORDERS + LARGE_ORDERS)
        spent = [event.epsilon for event in told if isinstance(event, BudgetSpent)]
        for epsilon, parts in zip(spent, (1, 1, PARTS), strict=True):
            theirs.compose(dp_accounting.GaussianDpEvent(noise), parts)
            assert epsilon == theirs.get_epsilon(delta)
        assert 1.99 < spent[-1] <= 2.0
        # What was released: two sums with that noise, and one with less. Their exact cost is within it.
        exact = dp_accounting.pld.PLDAccountant()
        exact.compose(dp_accounting.GaussianDpEvent(noise), 2)
        exact.compose(dp_accounting.GaussianDpEvent(noise / np.sqrt(PARTS)))
        assert exact.get_epsilon(delta) <= spent[-1]

    @pytest.mark.parametrize("where", ["central", "distributed"])
    def test_the_noise_is_the_accounted_one(self, many: Federation, where: str, monkeypatch) -> None:
        """Deviation as it is told to the closed form, and as it is found in the total."""
        protection, seen = Noised(epsilon=0.5, unit="row", where=where), []
        solve = NoisySums.solve

        def spy(sums, total, shared):
            seen.append((total, shared))
            return solve(sums, total, shared)

        monkeypatch.setattr(NoisySums, "solve", spy)
        many.train(FedHEONN(activation="softplus"), protect=protection, min_clients=10)
        (total, shared), delta = seen[0], 1e-5 * (1 if where == "central" else 1 - TAIL_SHARE)
        share = 1 if where == "central" else 12 / 9  # clients that add a part, over those that need to
        expected = sigma_for(0.5, delta, 2 + PARTS) / np.sqrt(PARTS) * np.sqrt(share)
        assert expected <= total.noise < 1.002 * expected  # rounding counts as sensitivity
        truth = FedHEONN(activation="softplus").noisy_terms(party_of(many.holdings.pooled()), shared)
        errors = np.concatenate([(total[name] - truth[name]).ravel() for name in truth])
        assert abs(errors.std() / expected - 1) < 5 / np.sqrt(2 * errors.size)

    def test_a_row_more_moves_the_grid_by_no_more_than_is_accounted(self) -> None:
        layout = Layout(Field("vector", (400,)), row_norm=1.0, parts=4)
        protection = Noised(epsilon=1.0, unit="row")
        grid = protection.choose_grid(layout, 20, 10, 3)
        multiplier = sigma_for(1.0, 1e-5, 10) / 2
        assert grid.variance == pytest.approx((multiplier * (1 / grid.unit + 2 * 20)) ** 2)
        assert grid.layout.bounds.tolist() == [np.inf] * 400
        with pytest.raises(ProtectionError, match="needs a bound of what one row brings"):
            protection.choose_grid(Layout(Field("vector", (4,))), 20, 10, 3)

    def test_a_site_is_charged_for_rows_before_noise_is_drawn(self, many: Federation, monkeypatch) -> None:
        charged: list[Charge] = []
        monkeypatch.setattr(sites, "Party", partial(Party, charge=charged.append))
        many.train(FedHEONN(), protect=Noised(epsilon=2.0, unit="row", where="distributed"), min_clients=10)
        assert [(one.unit, one.releases, one.most) for one in charged[::12]] == [
            ("row", 1, 10),
            ("row", 1, 10),
            ("row", PARTS, 10),
        ]

    def test_a_client_gives_no_more_parts_than_were_announced(self) -> None:
        party = party_of(table_of())
        party.state["noised"] = (10, 3, 1)
        half = Noised(unit="row", where="central").at_client(party)
        layout = Layout(Field("vector", (1,)), row_norm=1.0, parts=8)
        with pytest.raises(ProtectionError, match="nothing bounds what a single row brings to contribution"):
            half.protect({}, np.zeros(1), Layout(Field("vector", (1,))))
        with pytest.raises(ProtectionError, match="the privacy budget is spent"):
            half._count_sum(2, 10, layout.parts)
        assert half._count_sum(2, 10, 7) is None


class TestLearning:
    @pytest.mark.parametrize(
        "chosen",
        [
            {"where": "central"},
            {"where": "distributed", "inner": "masked"},
            {"where": "distributed", "inner": "ckks"},  # opens at the clients, who must agree
        ],
        ids=str,
    )
    def test_within_three_points_of_plain(self, many: Federation, chosen: dict) -> None:
        plain = many.train(FedHEONN(), protect="plain").model.scores(many.test)["accuracy"]
        protection = Noised(epsilon=1.0, unit="row", **chosen)
        private = many.train(FedHEONN(), protect=protection, min_clients=12).model.scores(many.test)
        assert private["accuracy"] > plain - 0.03 > 0.85

    def test_regression(self) -> None:
        federation = Federation.embedded(table_of("regression", rows=20_000), clients=10, seed=1)
        method = FedHEONN(activation="linear", row_norm=3.0)
        protection = Noised(epsilon=2.0, unit="row")
        assert federation.train(method, protect=protection).model.scores(federation.test)["r2"] > 0.75

    def test_rows_are_shortened_wherever_the_model_predicts(self, many: Federation, tmp_path) -> None:
        model = many.train(FedHEONN(row_norm=0.7), protect=Noised(epsilon=8.0, unit="row")).model
        rows = np.array(many.test.values[:50])
        rows[0, :3] *= 1e6
        expected = model.predict_proba(rows_of(many, rows))
        prepared = model.inputs.matrix(model.schema.table_of(rows_of(many, rows)))
        assert np.linalg.norm(prepared, axis=1) == pytest.approx(0.7)
        saved = load_model(model.save(tmp_path / "model.safetensors"))
        assert (saved.predict_proba(rows_of(many, rows)) == expected).all()
        runtime = pytest.importorskip("onnxruntime")
        (found,) = runtime.InferenceSession(to_onnx(model)).run(
            ["probabilities"], onnx_feed(model, rows_of(many, rows))
        )
        assert found == pytest.approx(expected, abs=1e-9)

    def test_a_random_layer(self, many: Federation) -> None:
        method = FedHEONN(hidden=10, folds=0)
        model = many.train(method, protect=Noised(epsilon=4.0, unit="row")).model
        assert model.scores(many.test)["accuracy"] > 0.6

    def test_whole_clients_if_there_are_many(self) -> None:
        federation = Federation.embedded(table_of(rows=1500), clients=150, seed=1)
        protection = Noised(epsilon=20.0, unit="client", where="distributed")
        model = federation.train(FedHEONN(), protect=protection, min_clients=140).model
        assert model.scores(federation.test)["accuracy"] > 0.7

    def test_a_client_counts_once_however_many_rows_it_has(self) -> None:
        table, protection = table_of(rows=60), Noised(epsilon=1e7, unit="client")
        sizes = [slice(0, 5), slice(5, 10), slice(10, 60)]
        federation = Federation.of({f"c{i}": table.take(rows) for i, rows in enumerate(sizes)})
        seen = []
        solve = NoisySums.solve
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(NoisySums, "solve", lambda *given: seen.append(given[1]) or solve(*given))
            federation.train(FedHEONN(), protect=protection, preparation=RAW)
        shared = Shared(schema_of(table), {})
        means = [
            FedHEONN().noisy_terms(party_of(table.take(rows)), shared)["counts"] / (rows.stop - rows.start)
            for rows in sizes
        ]
        assert seen[0]["counts"] == pytest.approx(np.sum(means, axis=0), abs=0.01)


class TestRefusals:
    @pytest.mark.parametrize(
        ("method", "settings", "said"),
        [
            (FedHEONN(mode="paper"), {}, "mode 'paper' shows factors or triangles without noise"),
            (FedHEONN(mode="robust"), {}, "mode 'robust' shows factors or triangles without noise"),
            (FedHEONN(folds=3), {}, "each fold would bear noise of its own"),
            (FedHEONN(hidden=5), {}, "each fold would bear noise of its own"),
            (FedAvg(), {}, "nothing bounds what a single row brings to"),
            (FedHEONN(), {"min_count": 5}, "the noise hides every single row"),
            (FedHEONN(), {"preparation": Preparation(scale="minmax")}, "scale = 'minmax' with missing"),
            (
                FedHEONN(),
                {"preparation": Preparation(scale="none", missing="mean")},
                "scale = 'none' with missing = 'mean' needs extremes or means that have no bound",
            ),
        ],
    )
    def test_before_anything_is_sent(self, method, settings, said, many: Federation) -> None:
        sent: list[object] = []
        with pytest.raises(ConfigError, match=said):
            many.train(
                method,
                protect=Noised(unit="row"),
                events=Events(lambda n, event: sent.append(event)),
                **settings,
            )
        assert not [event for event in sent if type(event).__name__ == "WaveStarted"]

    def test_scores_of_rows_kept_aside(self) -> None:
        federation = Federation.embedded(table_of(), clients=4, holdout=0.2, test=None)
        with pytest.raises(ConfigError, match="clients keep rows aside, and nothing bounds what one"):
            federation.train(FedHEONN(), protect=Noised(unit="row"))

    def test_regression_whose_rows_are_weighted_by_their_target(self) -> None:
        table = table_of("regression")
        federation = Federation.embedded(table, clients=4, test=None)
        opened: list[object] = []
        events = Events(lambda n, event: opened.append(event) if isinstance(event, TotalOpened) else None)
        with pytest.raises(ConfigError, match="noised cannot protect fedheonn: activation = 'softplus'"):
            federation.train(FedHEONN(activation="softplus"), protect=Noised(unit="row"), events=events)
        assert not opened

    def test_to_hide_one_of_few_clients(self, many: Federation) -> None:
        opened: list[object] = []
        events = Events(lambda n, event: opened.append(event) if isinstance(event, TotalOpened) else None)
        with pytest.raises(
            ConfigError, match="the noise that hides a client exceeds what 12 of them bring, "
        ):
            many.train(FedHEONN(), protect=Noised(epsilon=1.0), events=events)
        assert not opened

    @pytest.mark.parametrize("norm", [0.0, -1.0, float("nan"), float("inf")])
    def test_a_norm_that_is_none(self, norm: float) -> None:
        with pytest.raises(ConfigError, match="row_norm is"):
            FedHEONN(row_norm=norm)

    def test_going_on_from_an_earlier_training(self, many: Federation) -> None:
        protection = Noised(epsilon=8.0, unit="row")
        first = many.train(FedHEONN(), protect=protection)
        with pytest.raises(ConfigError, match="under noise no sums are kept for others to add to"):
            many.train(FedHEONN(), protect=protection, start=first)
