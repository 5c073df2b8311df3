"""Networks with one trained layer: alone, behind a fixed random layer, and many that vote."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from tacit.core.random import generator
from tacit.data.inputs import Inputs
from tacit.models.activations import ACTIVATIONS
from tacit.models.predictor import Matrix, Predictor, evidence, shares

LayerKind = Literal["tanh", "fourier"]
Vote = Literal["majority", "mean"]


@dataclass(frozen=True, eq=False)
class RandomLayer:
    """A fixed layer ``tanh(X W + b)`` or ``cos(X W + b)`` before the trained one: nobody trains it.

    Random features (Rahimi and Recht, "Random Features for Large-Scale Kernel Machines", 2007; Huang, Zhu and
    Siew, "Extreme learning machine", 2006) make a closed form nonlinear: everyone draws the same layer from a
    public seed, so that it costs no message, and the first units of a wide layer are those of a narrow one.
    """

    kind: LayerKind
    weights: Matrix
    bias: Matrix

    @classmethod
    def draw(cls, seed: int, features: int, width: int, scale: float, kind: LayerKind) -> Self:
        """Draw a layer from a public seed; ``scale`` says how far inputs are spread before the function."""
        directions = generator(b"public", seed, "directions").standard_normal((width, features)).T
        offsets = generator(b"public", seed, "offsets")
        if kind == "tanh":
            bias = scale * offsets.standard_normal(width)
        else:
            bias = offsets.uniform(0.0, 2 * np.pi, width)
        return cls(kind, directions * (scale / np.sqrt(features)), bias)

    def __call__(self, X: Matrix) -> Matrix:
        hidden = X @ self.weights
        hidden += self.bias
        return np.tanh(hidden, out=hidden) if self.kind == "tanh" else np.cos(hidden, out=hidden)

    def first(self, width: int) -> Self:
        """Return a layer of the first units only."""
        return replace(self, weights=self.weights[:, :width], bias=self.bias[:width])


class OneLayer(Predictor):
    """One-layer network ``f(w₀ + Xw)`` with its own preparation, so that it takes raw rows.

    Parameters
    ----------
    weights : ndarray of shape (features + 1, outputs)
        The bias comes first.
    layer : RandomLayer, optional
        A fixed random layer between features and weights.
    """

    FORMAT = "tacit-one-layer-1"

    def __init__(
        self, weights: Matrix, activation: str, inputs: Inputs, layer: RandomLayer | None = None
    ) -> None:
        super().__init__(activation, inputs)
        self.weights = np.asarray(weights)
        self.layer = layer

    def _outputs(self, X: Matrix) -> Matrix:
        if self.layer is not None:
            X = self.layer(X)
        return ACTIVATIONS[self.activation].function(X @ self.weights[1:] + self.weights[0])

    def _content(self) -> tuple[dict[str, Any], dict[str, str]]:
        tensors, words = {"weights": self.weights}, {"activation": self.activation}
        if self.layer is not None:
            tensors |= {"hidden_weights": self.layer.weights, "hidden_bias": self.layer.bias}
            words |= {"layer": self.layer.kind}
        return tensors, words

    @classmethod
    def restore(cls, words: Mapping[str, str], tensors: Mapping[str, Any], inputs: Inputs) -> Self:
        layer = None
        if "layer" in words:
            kind: LayerKind = "fourier" if words["layer"] == "fourier" else "tanh"
            layer = RandomLayer(kind, tensors["hidden_weights"], tensors["hidden_bias"])
        return cls(tensors["weights"], words["activation"], inputs, layer)


class Ensemble(Predictor):
    """One-layer networks ``f(w₀ + Xw)``, each with weights for some of the features.

    Parameters
    ----------
    weights : ndarray of shape (estimators, features + 1, outputs)
        The bias comes first; zero where an estimator does not use a feature.
    vote : {"majority", "mean"}
        Whether a class is chosen by most estimators (of equals the first class), or by their mean
        probability. Targets of a regression are always the mean.
    """

    FORMAT = "tacit-ensemble-1"

    def __init__(self, weights: Matrix, activation: str, inputs: Inputs, vote: Vote = "mean") -> None:
        super().__init__(activation, inputs)
        self.weights = np.asarray(weights)
        self.vote = vote

    def _each(self, X: Matrix) -> Iterator[Matrix]:
        """Return the outputs of one estimator after the other: all at once would not fit for many rows."""
        f = ACTIVATIONS[self.activation].function
        return (f(X @ one[1:] + one[0]) for one in self.weights)

    def _outputs(self, X: Matrix) -> Matrix:
        return sum(self._each(X), start=np.zeros(1)) / len(self.weights)

    def _evidence(self, X: Matrix) -> Matrix:
        each = (evidence(outputs, self.activation) for outputs in self._each(X))
        if len(self.weights) == 1:
            return next(each)
        places = np.arange(self.weights.shape[-1])
        mean = self.vote == "mean"
        votes = (shares(one) if mean else one.argmax(axis=1)[:, None] == places for one in each)
        return sum(votes, start=np.zeros(1))

    def _content(self) -> tuple[dict[str, Any], dict[str, str]]:
        return {"weights": self.weights}, {"activation": self.activation, "vote": self.vote}

    @classmethod
    def restore(cls, words: Mapping[str, str], tensors: Mapping[str, Any], inputs: Inputs) -> Self:
        vote: Vote = "mean" if words["vote"] == "mean" else "majority"
        return cls(tensors["weights"], words["activation"], inputs, vote)
