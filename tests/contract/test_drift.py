"""SCAFFOLD and MIME beside plain NumPy references of their papers' algorithms, and what clients keep."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tacit import Architecture, ExamplePrivacy, LocalTraining, Stopping, Weighting
from tacit.core.client import strip_prefix
from tacit.core.errors import ConfigError, DataError
from tacit.core.shared import Shared
from tacit.data.files import load
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.holdings import Holdings
from tacit.engines.sites import Sites, site_secret
from tacit.core.random import generator
from tacit.federation import Federation
from tacit.methods.fedavg import FedAvg
from tacit.methods.mime import FrozenStep, Mime
from tacit.methods.scaffold import OWN, Scaffold
from tacit.models.mlp import MLP
from tacit.models.neural import PREFIX
from tacit.protections.plain import Plain

ROUNDS, SIZES = 3, (50, 40, 30, 20)
UNSCALED, SMALL = Preparation(scale="none"), Architecture(hidden=5, activation="tanh")
LOCAL = LocalTraining(epochs=2, batch=16, rate=0.2)


@pytest.fixture(scope="module")
def held():
    """Clients with few digits each: rows sorted by label."""
    table = load("digits").take(np.arange(sum(SIZES)))
    table = table.take(np.argsort(table.target, kind="stable"))
    names = [f"c{i + 1}" for i in range(len(SIZES))]
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    return Holdings(Table.of(table.values / 16.0, table.target), offsets, names)


def learnt(method, held, **settings):
    return Federation(held, seed=4).train(method, **{"protect": "plain", "preparation": UNSCALED, **settings})


class Reference:
    """The papers' clients and server, with arrays only; batches are drawn as our clients draw them."""

    def __init__(self, held, rounds=ROUNDS):
        self.network, self.rounds = MLP((64, 5, 10), "tanh"), rounds
        self.rows = [held.rows(index) for index in range(len(held.names))]
        self.names = held.names
        kept = []
        learnt(
            FedAvg(rounds=1, architecture=SMALL, local=replace(LOCAL, rate=1e-300)), held, keep=kept.append
        )
        self.x = self.network.flat(strip_prefix(PREFIX, kept[0].shared))

    def gradient(self, w, i, rows=slice(None)):
        """The mean gradient of the cross-entropy of one hidden layer, written out."""
        X, y = self.rows[i].values[rows], self.rows[i].target[rows]
        named = self.network.named(w)
        W1, b1, W2, b2 = named.values()
        hidden = np.tanh(X @ W1 + b1)
        scores = np.exp(hidden @ W2 + b2)
        error = (scores / scores.sum(axis=1, keepdims=True) - np.eye(10)[y]) / len(y)
        back = (error @ W2.T) * (1 - hidden**2)
        parts = X.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)
        return np.concatenate([part.reshape(-1) for part in parts])

    def batches(self, i, number):
        rng = generator(site_secret(4, self.names[i]).reveal(), "descent", number)
        for _ in range(LOCAL.epochs):
            order = rng.permutation(len(self.rows[i].target))
            for first, end in pairwise([*range(0, len(order), LOCAL.batch), len(order)]):
                yield order[first:end]


def scaffold(reference, cohorts):
    """Algorithm 1 of SCAFFOLD with option II."""
    x, clients, eta = reference.x.copy(), len(reference.rows), LOCAL.rate
    c, own = np.zeros_like(x), [np.zeros_like(x) for _ in range(clients)]
    for number, cohort in enumerate(cohorts):
        dy, dc = [], []
        for i in cohort:
            y, steps = x.copy(), 0
            for rows in reference.batches(i, number):
                y -= eta * (reference.gradient(y, i, rows) - own[i] + c)
                steps += 1
            plus = own[i] - c + (x - y) / (steps * eta)
            dy.append(y - x)
            dc.append(plus - own[i])
            own[i] = plus
        x = x + sum(dy) / len(cohort)
        c = c + len(cohort) / clients * (sum(dc) / len(cohort))
    return x, c, own


def mime(reference, lite, base, eta, beta1=0.9, beta2=0.99, tau=0.01):
    """Algorithm 1 of MIME, and of MimeLite."""
    x, clients = reference.x.copy(), range(len(reference.rows))
    m, v = np.zeros_like(x), np.zeros_like(x)
    for number in range(reference.rounds):
        c, ys = sum(reference.gradient(x, j) for j in clients) / len(clients), []
        for i in clients:
            y = x.copy()
            for rows in reference.batches(i, number):
                g = reference.gradient(y, i, rows)
                if not lite:
                    g = g - reference.gradient(x, i, rows) + c
                u = (1 - beta1) * g + beta1 * m
                y -= eta * (u / (np.sqrt(v) + tau) if base == "adam" else u)
            ys.append(y)
        m, v = (1 - beta1) * c + beta1 * m, (1 - beta2) * c**2 + beta2 * v
        x = sum(ys) / len(ys)
    return x, m


@pytest.fixture(scope="module")
def reference(held):
    return Reference(held)


def weights(reference, training):
    return reference.network.flat(strip_prefix(PREFIX, training.outcome.shared))


def test_scaffold_is_the_papers(held, reference):
    training = learnt(Scaffold(rounds=ROUNDS, architecture=SMALL, local=LOCAL), held)
    x, c, _ = scaffold(reference, [range(4)] * ROUNDS)
    assert np.abs(weights(reference, training) - x).max() <= 1e-10
    assert np.abs(training.outcome.shared["control"] - c).max() <= 1e-10
    assert np.abs(x - reference.x).max() > 0.1


@pytest.mark.parametrize("base", ["momentum", "adam"])
@pytest.mark.parametrize("lite", [False, True])
def test_mime_is_the_papers(held, reference, lite, base):
    server, local = FrozenStep(base=base), replace(LOCAL, rate=0.02 if base == "adam" else 0.2)
    training = learnt(Mime(rounds=ROUNDS, architecture=SMALL, local=local, server=server, lite=lite), held)
    x, m = mime(reference, lite, base, local.rate)
    assert np.abs(weights(reference, training) - x).max() <= 1e-10
    assert np.abs(training.outcome.shared["frozen/m"] - m).max() <= 1e-10
    assert np.abs(x - reference.x).max() > 0.01
