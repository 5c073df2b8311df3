"""Faults of published FedHEONN code, each with a test that it is not here."""

import gc
import sys
from functools import lru_cache
from types import FunctionType, ModuleType

import numpy as np
import pytest

from tacit import Federation, FedHEONN, Preparation, Table
from tacit.core.errors import QuorumError
from tacit.core.message import Message
from tacit.core.secret import Secret
from tacit.data.partition import PARTITIONERS
from tacit.protections.ckks import CKKS

MODES = pytest.mark.parametrize("mode", ["sealed", "paper", "robust"])


def classes(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 3
    return Table.of(rng.normal(size=(rows, 4)) + y[:, None], y)


def numbers(low, high, rows=40):
    rng = np.random.default_rng(1)
    return Table.of(rng.normal(size=(rows, 3)), rng.uniform(low, high, size=(rows, 1)), task="regression")


def federation(table, components=1):
    rows = np.array_split(np.arange(table.rows), components)
    return Federation.of({f"site {i}": table.take(r) for i, r in enumerate(rows)})


@MODES
def test_one_client_works(mode):
    model = FedHEONN(mode=mode).fit(federation(classes()), protect="plain")
    assert model.score(classes().values, classes().target) > 0.6


@MODES
def test_a_second_fit_does_not_append(mode):
    trained, method = federation(classes(), 4), FedHEONN(mode=mode)
    first, second = (method.fit(trained, protect="plain") for _ in range(2))
    np.testing.assert_array_equal(first.weights, second.weights)


@MODES
@pytest.mark.parametrize("protect", ["plain", "ckks"])
def test_softplus_does_not_overflow_at_800(mode, protect):
    if (mode, protect) == ("robust", "ckks"):
        pytest.skip("robust mode is for a trusted coordinator")
    table = numbers(700.0, 900.0)
    trained = federation(table, 4).train(FedHEONN(mode=mode, activation="softplus"), protect=protect)
    assert np.isfinite(trained.model.weights).all()
    assert 600 < trained.model.predict(table.values).mean() < 1000


@MODES
@pytest.mark.parametrize(("low", "high"), [(-2.0, 2.0), (0.0, 1.5)])
def test_logistic_targets_outside_its_range_are_refused_by_name(mode, low, high):
    with pytest.raises(QuorumError, match=r"a target lies outside \(0, 1\), the range of logistic"):
        FedHEONN(mode=mode, activation="logistic").fit(federation(numbers(low, high), 2), protect="plain")


@MODES
@pytest.mark.parametrize("scale", ["standard", "none"])
def test_constant_features_without_a_penalty_give_sane_weights(mode, scale):
    """The published code gives weights of 1e15."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(50, 4))
    X[:, 1] = 0.0
    if scale == "standard":
        X[:, 2] = 7.0  # a copy of the bias, once it is not scaled
    table = Table.of(X, X[:, 0] + 1, task="regression")
    method = FedHEONN(mode=mode, lam=0.0, activation="linear")
    model = federation(table, 3).train(method, preparation=Preparation(scale=scale), protect="plain").model
    assert np.abs(model.weights).max() < 10
    np.testing.assert_allclose(model.predict(X), X[:, 0] + 1, atol=1e-8)


@pytest.mark.parametrize("name", sorted(set(PARTITIONERS) - {"by-column", "by-file"}))
@pytest.mark.parametrize("clients", [6, 7])  # 100 rows do not divide evenly
def test_no_rows_are_dropped_in_the_split(name, clients):
    table = Table.of(np.arange(200.0).reshape(100, 2), np.arange(100) % 4)
    found = Federation.embedded(table, clients=clients, partition=name, test=None)
    assert found.clients == clients
    assert sorted(found.holdings.pooled().values[:, 0].tolist()) == table.values[:, 0].tolist()
    kept = Federation.embedded(table, clients=clients, partition=name, test=0.3)
    assert kept.holdings.pooled().rows + kept.test.rows == 100


def messages_of_a_run(mode="paper"):
    heard = []
    digits = Federation.embedded("digits", clients=5, rows=300)
    digits.train(FedHEONN(mode=mode), protect="ckks", transcript=lambda *item: heard.append(item))
    return heard


def test_keys_are_small():
    """Published: 162 MB. Here each client gets 60 bytes and a bundle, the coordinator a name of the key."""
    heard = messages_of_a_run()
    made = [
        Message.decode(raw)
        for who, _, step, raw in heard
        if step == "protection.make_keys" and who == "coordinator"
    ]
    (reply,) = made
    assert len(reply["public"].data) == 16
    assert {name for name in reply if not name.startswith("$")} == {"bundle", "wraps", "public"}
    rides = [raw for who, _, step, raw in heard if step == "client.contribute" and b"ticket/wrap" in raw]
    assert len(rides) == 4
    assert max(map(len, rides)) < 10_000


def holds(start, wanted):
    """Whether these bytes can be reached from an object, through containers and caches."""
    queue, seen = [start], set()
    while queue:
        found = queue.pop()
        if id(found) in seen or isinstance(found, type | ModuleType | FunctionType):
            continue
        seen.add(id(found))
        raw = found.reveal() if isinstance(found, Secret) else found
        if isinstance(raw, bytes) and wanted in raw:
            return True
        queue += gc.get_referents(found)
    return False


def test_a_key_in_a_cache_would_be_found():
    @lru_cache
    def expanded(name, secret):
        return name

    assert not holds(expanded, b"k" * 32)
    expanded("set", b"k" * 32)
    assert holds(expanded, b"k" * 32)
    assert holds({"a": [Secret(b"k" * 32)]}, b"k" * 32)


def test_the_secret_key_is_in_no_module_and_never_at_the_coordinator(scene_of):
    rows = {f"client-{i}": np.ones(3) for i in range(4)}
    scene = scene_of(CKKS(), rows, min_clients=2).begin()
    scene.total()
    key = CKKS().at_client(scene.site("client-2")).key.newest().reveal()
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "tacit":
            found = [label for label, value in vars(module).items() if holds(value, key)]
            assert not found, f"{name}: {found}"
    assert not any(key in raw for _, _, _, raw in scene.heard)
    assert not holds(vars(scene.coordinator.protection.relay.key), key)
    assert not holds(dict(scene.coordinator.link.vault), key)
