"""Clients of one class, with a column that is constant there only, in methods that are no plain sums."""

import numpy as np
import pytest

from tacit import Federation, Table
from tacit.engines.holdings import holdings_of
from tacit.methods import METHODS


@pytest.mark.parametrize("name", ["flop", "splitfed", "fusion", "graffl"])
def test_a_client_of_one_class_with_a_constant_column_takes_part(name):
    rng = np.random.default_rng(0)
    target = np.repeat([0, 1, 2], 50)
    values = rng.normal(size=(150, 4)) + 3 * np.eye(3, 4)[target]
    values[:50, 3] = 5.0  # constant at the client of the first class, which has no other
    labels = np.array(["a", "b", "c"])[target]
    held = holdings_of(Table.of(values, labels), np.repeat([0, 1, 2], 50), holdout=0.0, seed=0)
    trained = Federation(held, seed=1).train(METHODS.get(name).tiny(), protect="plain")
    assert not trained.failures
    assert {*trained.model.predict(values)} == {"a", "b", "c"}
    assert trained.model.score(values, labels) > 0.7
