"""Every method that averages networks under every protection: five rounds on digits, the same as plain."""

from functools import cache

import numpy as np
import pytest

from tacit.core.errors import ConfigError
from tacit.data.files import load
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.holdings import holdings_of
from tacit.federation import Federation
from tacit.methods import METHODS
from tacit.methods.averaging.aggregation import MOST_GRADIENT
from tacit.methods.fedavg import FedAvg
from tacit.models.neural import PREFIX
from tests.quick import representatives

NAMES = [name for name in METHODS if issubclass(METHODS.get(name), FedAvg)]
CLIENTS, ROUNDS = 4, 5


@pytest.fixture(scope="module")
def digits():
    table = load("digits").take(np.arange(240))
    table = Table.of(table.values / 16.0, table.target)
    return holdings_of(table, np.arange(table.rows) % CLIENTS, 0.0, 0)


def weights(digits, name, protection):
    """Weights after five rounds of a small network."""
    method = METHODS.build(name, {"hidden": 8, "rounds": ROUNDS, "batch": 20, "activation": "tanh"})
    federation = Federation(digits, seed=1)
    settings = {} if getattr(protection, "adds_noise", False) else {"min_count": 5}  # also of plain sums
    training = federation.train(method, protect=protection, preparation=Preparation(scale="none"), **settings)
    assert not training.failures
    return method, training


@pytest.fixture(scope="module")
def plain(digits):
    """A function that gives a method's weights under plain sums."""
    return cache(lambda name: weights(digits, name, "plain")[1].model.arrays)


@pytest.mark.parametrize("name", representatives(NAMES, "fedavg", "fedyogi"))
def test_protected_equals_plain_after_five_rounds(name, any_protection, digits, plain, keys_once):
    with keys_once():
        if any_protection.name == "noised" and name not in ("mime", "ring-mlp"):
            with pytest.raises(ConfigError, match="cannot protect"):  # who has most rows would stand out
                weights(digits, name, any_protection)
            return
        method, training = weights(digits, name, any_protection)
    if any_protection.name == "noised":  # under which clients of any size count the same here
        assert training.ledger.summary()["privacy"]["epsilon"] > 0
        return
    # A round's mean is off by at most the promised share of the limit, times clients over Σ u ≥ 1; the
    # server's optimisers divide by √v + τ, and a network carries what it got wrong from round to round.
    # A gradient's error, of its own limit, moves each of three local steps.
    gradient = 3 * method.local.rate * MOST_GRADIENT if name in ("scaffold", "mime") else 0.0
    adaptive = hasattr(method.server, "eta")
    gain = method.server.eta / method.server.tau if adaptive else 1.0 + gradient
    gain *= 10.0 if name == "graffl" else 1.0  # factors of its mixture are inverse roots of what is summed
    promised = any_protection.promises.precision * CLIENTS * method.change.limit
    tolerance = 5 * ROUNDS * gain * promised + 1e-12
    assert training.model.arrays.keys() == plain(name).keys()
    for array, found in training.model.arrays.items():
        assert np.abs(found - plain(name)[array]).max() <= tolerance, PREFIX + array
