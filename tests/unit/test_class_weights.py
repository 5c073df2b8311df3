"""Class weights: scikit-learn's, agreed in a protected sum, and as rows that are there so many times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from tacit import FedAvg, Federation, FedHEONN, Table
from tacit.core.errors import ConfigError, QuorumError
from tacit.methods import METHODS
from tacit.methods.averaging.example_privacy import ExamplePrivacy
from tacit.methods.averaging.local_training import LocalTraining
from tacit.methods.base import Method
from tacit.methods.ensemble import FedHEONNEnsemble
from tacit.methods.heonn.exchange import invert_class_targets
from tacit.models.mlp import MLP
from tacit.models.torch_network import TorchNetwork
from tacit.protections.noised import Noised

RARE = 40


@pytest.fixture(scope="module")
def table() -> Table:
    """Four hundred rows, a tenth of which are of the second class."""
    rng = np.random.default_rng(0)
    ill = np.arange(400) < RARE
    X = rng.normal(size=(400, 4)) + np.outer(ill, [1.5, 1.0, 0.0, -1.0])
    order = rng.permutation(400)
    return Table.of(X[order], np.where(ill, "ill", "well")[order])


@pytest.fixture(scope="module")
def federation(table: Table) -> Federation:
    return Federation.embedded(table, clients=5, test=0.3, seed=1)


def weighted_least_squares(federation: Federation, lam: float) -> Any:
    """The closed form of the pooled rows, with scikit-learn's weights."""
    pooled = federation.holdings.pooled()
    X = (pooled.values - pooled.values.mean(axis=0)) / pooled.values.std(axis=0)
    X = np.concatenate([np.ones((len(X), 1)), X], axis=1)
    weights = compute_class_weight("balanced", classes=np.arange(2), y=pooled.target)[pooled.target]
    (low, high), (slope, _) = invert_class_targets("logistic")
    d_bar = np.where(pooled.target[:, None] == np.arange(2), high, low)
    gram = slope**2 * (X.T * weights) @ X + lam * np.eye(X.shape[1])
    return np.linalg.solve(gram, slope**2 * (X.T * weights) @ d_bar)


@pytest.mark.parametrize(
    ("mode", "protect"), [("sealed", "plain"), ("sealed", "masked"), ("paper", "plain"), ("robust", "plain")]
)
def test_the_closed_form_is_that_of_weighted_rows(mode: str, protect: str, federation: Federation) -> None:
    method = FedHEONN(0.1, mode=mode, class_weight="balanced")
    training = federation.train(method, protect=protect)
    np.testing.assert_allclose(training.model.weights, weighted_least_squares(federation, 0.1), rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in METHODS if "classification" in METHODS.get(name).tasks])
def test_every_classifier_finds_more_of_a_rare_class(name: str, federation: Federation) -> None:
    tiny = METHODS.get(name).tiny().config()
    scores = [
        federation.train(METHODS.build(name, tiny | chosen), protect="plain").model.scores(federation.test)
        for chosen in ({}, {"class_weight": "balanced"})
    ]
    assert METHODS.get(name).weighs_classes
    assert scores[1]["per_class"][0]["recall"] > scores[0]["per_class"][0]["recall"]
    assert scores[1]["balanced_accuracy"] > scores[0]["balanced_accuracy"]


@pytest.mark.parametrize("protect", ["masked", "ckks"])
def test_weights_are_scikit_learns_and_counts_are_protected(protect: str, federation: Federation) -> None:
    seen: dict[str, list[bytes]] = {"plain": [], protect: []}
    pooled = federation.holdings.pooled()
    for name, received in seen.items():

        def transcript(to: str, sender: str, step: str, content: bytes, kept: Any = received) -> None:
            kept.append(bytes(content))

        method = FedAvg(rounds=1, class_weight="balanced")
        training = federation.train(method, protect=name, transcript=transcript)
    counts = [np.bincount(federation.holdings.rows(i).target, minlength=2) for i in range(5)]
    for each in counts:
        vector = each.astype(np.float64).tobytes()
        assert any(vector in content for content in seen["plain"])
        assert not any(vector in content for content in seen[protect])
    expected = compute_class_weight("balanced", classes=np.arange(2), y=pooled.target)
    if training.outcome.shared is not None:
        np.testing.assert_allclose(training.outcome.shared["class_weights"], expected, rtol=1e-12)
    assert np.bincount(pooled.target) @ expected == pytest.approx(pooled.rows)


def test_a_gradient_counts_rows_as_often_as_they_weigh() -> None:
    rng = np.random.default_rng(0)
    X, labels, times = rng.normal(size=(6, 3)), np.array([0, 1, 2, 0, 1, 2]), np.array([1, 3, 2, 1, 1, 4])
    network = MLP((3, 4, 3))
    weights = network.initial(rng)
    again = np.repeat(np.arange(6), times)
    expected = network.gradient(weights, X[again], labels[again]) * len(again) / 6
    np.testing.assert_allclose(network.gradient(weights, X, labels, times.astype(float)), expected)
    torch = pytest.importorskip("torch")
    other = TorchNetwork(lambda f, o: torch.nn.Linear(f, o, dtype=torch.float64), 3, 3)
    weights = other.initial(rng)
    expected = other.gradient(weights, X[again], labels[again]) * len(again) / 6
    np.testing.assert_allclose(other.gradient(weights, X, labels, times.astype(float)), expected, atol=1e-12)


def test_under_noise_the_weights_follow_from_the_sums_there_are(table: Table) -> None:
    many = Table.of(np.tile(table.values, (25, 1)), np.tile(np.array(table.classes)[table.target], 25))
    federation = Federation.embedded(many, clients=10, test=0.2, seed=1)
    protection = Noised(epsilon=20.0, unit="row")
    plain, balanced = (
        federation.train(FedHEONN(class_weight=chosen), protect=protection).model.scores(federation.test)
        for chosen in (None, "balanced")
    )
    assert balanced["balanced_accuracy"] > plain["balanced_accuracy"] + 0.1


@dataclass(frozen=True)
class Unweighted(Method):
    """Does not weigh."""


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (Unweighted(class_weight="balanced"), "does not weigh them"),
    ],
)
def test_what_cannot_weigh_classes_says_so(method: Method, words: str, federation: Federation) -> None:
    with pytest.raises(ConfigError, match=words):
        federation.train(method, protect="plain")


def test_a_regression_and_noise_on_counts_are_refused(federation: Federation) -> None:
    numbers = Table.of(np.eye(6), np.arange(6.0), task="regression")
    with pytest.raises(ConfigError, match="a regression has none"):
        Federation.embedded(numbers, clients=2, test=None).train(
            FedHEONN(class_weight="balanced"), protect="plain"
        )
    with pytest.raises(ConfigError, match="labels are summed without noise"):
        FedAvg(class_weight="balanced", privacy=ExamplePrivacy(noise=1.0))
    with pytest.raises(ConfigError, match="spoil the counts"):
        federation.train(FedAvg(class_weight="balanced"), protect=Noised())
    assert FedHEONN(class_weight="balanced").standing is None
    assert FedHEONNEnsemble(class_weight="balanced").standing is None


def test_nobody_counts_classes_or_targets_that_were_not_agreed(table: Table) -> None:
    """A coordinator that asks anyway is refused by every client; DP-SGD would not cover these sums."""

    class Curious(FedAvg):
        """Asks for class counts that the settings do not mention."""

        def train(self, coordinator: Any) -> None:
            coordinator.round(self.class_counts, self.balance_classes)

    class Nosy(FedAvg):
        """Asks for the targets' moments beside DP-SGD."""

        def train(self, coordinator: Any) -> None:
            coordinator.round(self.target_moments, self.scale_targets)

        def check(self, schema: Any) -> None:
            """Refuse nothing."""

        def agreements(self, schema: Any, protection: Any) -> dict[str, tuple[Any, Any]]:
            return {}

    federation = Federation.embedded(table, clients=3, test=None)
    with pytest.raises(QuorumError, match="no class_weight was agreed"):
        federation.train(Curious(), protect="plain")
    numbers = Federation.embedded(
        Table.of(table.values, table.values[:, :1], task="regression"), clients=3, test=None
    )
    with pytest.raises(QuorumError, match="takes part with noise only"):
        numbers.train(Nosy(privacy=ExamplePrivacy(noise=1.0)), protect="plain")


def test_whoever_continues_a_training_weighs_as_it_did(table: Table) -> None:
    first, second = (
        Federation.embedded(table.take(slice(start, start + 200)), clients=4, test=None) for start in (0, 200)
    )
    weighted = FedHEONN(class_weight="balanced")
    start = first.train(weighted, protect="plain")
    later = second.train(weighted, protect="plain", start=start)
    found, expected = (one.outcome.shared["class_weights"] for one in (later, start))
    np.testing.assert_array_equal(found, expected)
    plain = first.train(FedHEONN(), protect="plain")
    with pytest.raises(ConfigError, match="had no class_weight"):
        second.train(weighted, protect="plain", start=plain)


def test_local_training_takes_row_weights() -> None:
    network, X, labels = MLP((1, 2), initialisation="zeros"), np.array([[-1.0], [1.0]]), np.array([0, 1])
    step = LocalTraining(batch=0, rate=1.0)
    rng = np.random.default_rng(0)
    found = step.train(network, np.zeros(4), X, labels, rng, row_weights=np.array([2.0, 0.0]))
    assert found.tolist() == [-0.5, 0.5, 0.5, -0.5]
