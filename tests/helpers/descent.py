"""Gradient descent in a few rounds: the smallest method whose sums bear noise."""

from dataclasses import dataclass

import numpy as np

from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.data.inputs import Inputs
from tacit.methods.base import Method
from tacit.models.onelayer import OneLayer


@dataclass(frozen=True)
class Descent(Method):
    """Fits one-hot targets by least squares; every round sums the clients' mean gradients.

    Parameters
    ----------
    rounds : int
    rate : float
    unannounced : int
        Rounds beyond those for which keys and noise are made.
    """

    name = "descent"
    tasks = ("classification",)

    rounds: int = 3
    rate: float = 1.0
    unannounced: int = 0

    @property
    def sums(self):
        return self.rounds

    def init(self, schema, rng):
        return {"weights": np.zeros((schema.features + 1, schema.outputs))}

    def train(self, coordinator):
        for _ in range(self.rounds + self.unannounced):
            coordinator.round(self.gradient, self.descend)

    def _layout(self, schema):
        return Layout(Field("gradient", (schema.features + 1, schema.outputs)))

    @contribution(_layout)
    def gradient(self, party, shared):
        rows = np.insert(Inputs.of(shared).matrix(party.data), 0, 1.0, axis=1)
        wanted = shared.schema.labels(party.data)[:, None] == np.arange(shared.schema.outputs)
        return {"gradient": rows.T @ (rows @ shared["weights"] - wanted) / len(rows)}

    @apply
    def descend(self, total, shared):
        step = self.rate * total["gradient"] / total.contributors
        return shared | {"weights": shared["weights"] - step}

    def model(self, shared):
        return OneLayer(shared["weights"], "linear", Inputs.of(shared))
