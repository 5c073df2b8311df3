"""The nearest class mean: each row gets the class whose mean row is nearest.

R. Tibshirani, T. Hastie, B. Narasimhan, G. Chu, "Diagnosis of multiple cancer types by shrunken centroids of
gene expression", 2002, without the shrinking. The mean m of a class is Σx / n: one sum over the clients. And
|x - m|² is least where x·m - |m|²/2 is largest, so that the model is a network of one layer.
"""

from dataclasses import dataclass

import numpy as np

from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.data.inputs import Inputs
from tacit.methods.base import Method
from tacit.models.onelayer import OneLayer


@dataclass(frozen=True)
class ClassMeans(Method):
    """Nearest class mean, from one sum (Tibshirani et al., 2002)."""

    name = "class-means"
    paper = "Tibshirani, Hastie, Narasimhan and Chu, Diagnosis of multiple cancer types, 2002"
    tasks = ("classification",)
    closed_form = True
    default_protection = "masked"

    def train(self, coordinator):
        """Form one sum, and take it apart into means."""
        coordinator.round(self.sums_by_class, self.average)

    @contribution(lambda self, schema: Layout(Field("sums", (schema.features + 1, schema.outputs))))
    def sums_by_class(self, party, shared):
        """Return n (first row) and Σx of each class over this client's rows."""
        rows = Inputs.of(shared).matrix(party.data, bias=True)
        return {"sums": rows.T @ np.eye(shared.schema.outputs)[shared.schema.labels(party.data)]}

    @apply
    def average(self, total, shared):
        """Return the means as weights of a layer, its bias first."""
        means = total["sums"][1:] / np.maximum(total["sums"][0], 1.0)
        return shared | {"weights": np.vstack([-(means**2).sum(axis=0) / 2, means])}

    def model(self, shared):
        """Return the layer."""
        return OneLayer(shared["weights"], "logistic", Inputs.of(shared))
