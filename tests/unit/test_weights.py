"""Weighted sums: a client folds its own weight in before protection, and nobody learns it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tacit import Federation, Plain, Table
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.data.preparation import Preparation
from tacit.methods.base import Method
from tacit.protections.bfv import BFV
from tacit.protections.ckks import CKKS
from tacit.protections.paillier import Paillier

ROWS = {f"site {i}": np.array([0.1 * i, -0.05 * i, 1.0]) for i in range(1, 5)}


@dataclass(frozen=True)
class Weighted(Method):
    """Sums a vector of each client, times a weight of its own."""

    def _layout(self, schema) -> Layout:
        return Layout(Field("vector", (3,), bound=1.0), Field("weight", (), bound=4.0))

    @contribution(_layout)
    def vector(self, party, shared):
        own = float(party.id[-1])  # known to this client alone
        return {"vector": ROWS[party.id] * own / 4, "weight": own}

    @apply
    def keep(self, total, shared):
        return shared | {"vector": total["vector"], "weight": np.asarray(total["weight"])}

    def train(self, coordinator) -> None:
        coordinator.round(self.vector, self.keep)

    def model(self, shared):
        return shared


def summed(method, protect):
    tables = {name: Table.of(row[None, :], [1.0], task="regression") for name, row in ROWS.items()}
    preparation = Preparation(scale="none")
    return Federation.of(tables).train(method, protect=protect, preparation=preparation, min_count=1).model


PROTECTIONS = [Plain(), Plain(opens="clients"), BFV(), CKKS(), Paillier(key_bits=2048)]


@pytest.mark.parametrize("protect", PROTECTIONS, ids=str)
def test_private_weights_give_a_weighted_mean_and_are_never_told(protect):
    found = summed(Weighted(), protect)
    own = np.arange(1.0, 5.0)
    mean = sum(w * row for w, row in zip(own, ROWS.values(), strict=True)) / own.sum()
    np.testing.assert_allclose(4 * found["vector"] / found["weight"], mean, atol=1e-6)
