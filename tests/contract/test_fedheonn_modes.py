"""FedHEONN's three modes give one model: for any number of clients, however rows are divided and arrive."""

import numpy as np
import pytest

from tacit import Federation, FedHEONN, Preparation, Table
from tacit.core.errors import ConfigError, TacitError
from tacit.core.message import Message
from tacit.engines.holdings import Holdings
from tacit.models.activations import ACTIVATIONS
from tacit.protections.plain import Plain

MODES = ("sealed", "paper", "robust")
RAW = Preparation(scale="none")


def rows_of(count=240, features=6, seed=0):
    """Ordinary rows: features of different size, some related, three classes."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(3, size=count)
    classes[:3] = range(3)
    X = rng.normal(size=(count, features)) + classes[:, None] * rng.uniform(size=features)
    X[:, -1] += X[:, 0]
    return Table.of(X * 10.0 ** rng.integers(-2, 3, size=features), classes)


def held(table, clients, order="iid", arrival="forward"):
    rows = np.random.default_rng(1).permutation(table.rows)
    if order == "label-sorted":
        rows = rows[np.argsort(table.target[rows], kind="stable")]
    offsets = np.linspace(0, table.rows, clients + 1).astype(int)
    holdings = Holdings(table.take(rows), offsets, [f"client-{i + 1}" for i in range(clients)])
    turn = {"forward": slice(None), "backward": slice(None, None, -1)}[arrival]
    return holdings.part(np.arange(clients)[turn])


def weights(holdings, method, protect="plain", **settings):
    federation = Federation(holdings, seed=3, declared={"classes": [0, 1, 2]})
    return federation.train(method, protect=protect, **settings).model.weights


def relative(one, other):
    return np.abs(one - other).max() / np.abs(other).max()


@pytest.fixture(scope="module")
def reference():
    table = rows_of()
    return {
        activation: weights(held(table, 1), FedHEONN(mode="robust", activation=activation))
        for activation in ("logistic", "softplus")
    }


@pytest.mark.parametrize("mode", MODES)
class TestOneModel:
    @pytest.mark.parametrize("activation", ["logistic", "softplus"])
    @pytest.mark.parametrize("clients", [1, 3, 80])
    @pytest.mark.parametrize("order", ["iid", "label-sorted"])
    def test_for_any_number_of_clients_and_any_division(self, mode, activation, clients, order, reference):
        found = weights(held(rows_of(), clients, order), FedHEONN(mode=mode, activation=activation))
        assert relative(found, reference[activation]) < 1e-9

    @pytest.mark.parametrize("order", ["iid", "label-sorted"])
    def test_in_any_order_of_arrival(self, mode, order, reference):
        found = weights(held(rows_of(), 40, order, "backward"), FedHEONN(mode=mode))
        assert relative(found, reference["logistic"]) < 1e-9

    @pytest.mark.parametrize("protect", ["ckks", "masked"])
    def test_under_protection(self, mode, protect, reference):
        if mode == "robust":
            with pytest.raises(
                ConfigError, match="mode 'robust' shows the coordinator every client's triangle"
            ):
                weights(held(rows_of(), 12), FedHEONN(mode=mode), protect)
            return
        for order in ("iid", "label-sorted"):
            found = weights(held(rows_of(), 12, order), FedHEONN(mode=mode), protect)
            assert relative(found, reference["logistic"]) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "protect"),
    [("sealed", "plain"), ("paper", "plain"), ("robust", "plain"), ("sealed", "ckks"), ("paper", "ckks")],
)
def test_with_twenty_thousand_clients(mode, protect):
    table = rows_of(40_000)
    reference = weights(held(table, 1), FedHEONN(mode="robust"))
    for order in ("iid", "label-sorted"):
        found = weights(held(table, 20_000, order), FedHEONN(mode=mode), protect)
        assert relative(found, reference) < (1e-9 if protect == "plain" else 1e-6)


def ill_conditioned(rows=400, features=8, condition=1e9, seed=4):
    """A regression whose columns, the ones among them, have this condition number."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    X -= X.mean(axis=0)
    U, _, V = np.linalg.svd(X, full_matrices=False)
    X = U * np.geomspace(np.sqrt(rows), np.sqrt(rows) / condition, features) @ V
    y = np.column_stack([np.ones(rows), X]) @ rng.normal(size=features + 1)
    return Table.of(X, y, task="regression")


class TestIllConditioned:
    table = ill_conditioned()

    def test_robust_mode_is_as_good_as_centralised_least_squares(self):
        X = np.column_stack([np.ones(self.table.rows), self.table.values])
        assert 5e8 < np.linalg.cond(X) < 5e9
        central = np.linalg.lstsq(X, np.asarray(self.table.target).reshape(-1, 1), rcond=None)[0]
        method = FedHEONN(mode="robust", lam=0.0, activation="linear")
        parts = np.array_split(np.arange(self.table.rows), 20)
        federation = Federation.of({f"s{i}": self.table.take(rows) for i, rows in enumerate(parts)})
        found = federation.train(method, preparation=RAW, protect="plain").model.weights
        assert relative(found, central) < 1e-7

    @pytest.mark.parametrize("protect", ["plain", "masked", "ckks"])
    def test_sealed_mode_refuses_by_name(self, protect):
        federation = Federation.of({f"s{i}": self.table.take(slice(i * 80, i * 80 + 80)) for i in range(5)})
        method = FedHEONN(lam=0.0, activation="linear")
        with pytest.raises(TacitError, match=r"least eigenvalue .* mode = 'robust'"):
            federation.train(method, protect=protect, preparation=RAW)


@pytest.mark.parametrize(
    "protect", ["shares", Plain(opens="clients")], ids=["shares", "plain at the clients"]
)
def test_sealed_mode_needs_no_arithmetic_at_the_coordinator(protect, reference):
    """Opened and solved at the clients: the paper's remark on working peer to peer."""
    heard = []
    federation = Federation(held(rows_of(), 9), seed=3, declared={"classes": [0, 1, 2]})
    training = federation.train(FedHEONN(), protect=protect, transcript=lambda *item: heard.append(item))
    assert training.outcome.shared is None  # the coordinator holds no model and no total
    assert relative(training.model.weights, reference["logistic"]) < 1e-6
    seen = {name for who, _, _, raw in heard if who == "coordinator" for name in Message.decode(raw)}
    assert not {name for name in seen if name.startswith("clear/")}
    if protect == "shares":
        arrays = [
            value
            for who, _, step, raw in heard
            if who == "coordinator" and step == "client.contribute"
            for value in Message.decode(raw).values()
            if isinstance(value, np.ndarray)
        ]
        assert not arrays  # sealed shares only


@pytest.mark.parametrize("mode", ["sealed", "paper", "robust"])
@pytest.mark.parametrize("activation", ["logistic", "softplus"])
@pytest.mark.parametrize("targets", [1, 2])
def test_slopes_weigh_the_rows_of_a_regression(mode, activation, targets):
    """Also with one target: then one Gram matrix does not mean that all slopes are the same."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(120, 3))
    y = rng.uniform(0.05, 0.95, size=(120, targets))
    table = Table.of(X, y[:, 0] if targets == 1 else y, task="regression")
    federation = Federation.of({f"s{i}": table.take(slice(i * 40, i * 40 + 40)) for i in range(3)})
    method = FedHEONN(mode=mode, lam=0.0, activation=activation)
    found = federation.train(method, preparation=RAW, protect="plain").model.weights
    f, A = ACTIVATIONS[activation], np.column_stack([np.ones(len(X)), X])
    for output in range(targets):
        slope = f.slope_at_target(y[:, output])
        b = slope * f.inverse(y[:, output])
        expected = np.linalg.lstsq(slope[:, None] * A, b, rcond=None)[0]
        np.testing.assert_allclose(found[:, output], expected, rtol=1e-7)
