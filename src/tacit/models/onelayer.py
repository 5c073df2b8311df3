"""A network without hidden layers: features straight to outputs."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tacit.data.inputs import Inputs
from tacit.models.activations import ACTIVATIONS
from tacit.models.predictor import Predictor
from tacit.models.randomlayer import LayerKind, RandomLayer

Matrix = NDArray[np.float64]


class OneLayer(Predictor):
    """One-layer network ``f(w₀ + Xw)`` with its own preparation, so that it takes raw rows.

    Parameters
    ----------
    weights : ndarray of shape (features + 1, outputs)
        The bias comes first.
    activation : str
    inputs : Inputs
        Schema and scale that the federation agreed on.
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
        kind: dict[str, str] = {"layer": self.layer.kind} if self.layer else {}
        return {"weights": self.weights, **self._hidden()}, {"activation": self.activation, **kind}

    @classmethod
    def _restore(cls, words: Mapping[str, str], tensors: Mapping[str, Any], inputs: Inputs) -> Self:
        layer = None
        if "layer" in words:
            kind: LayerKind = "fourier" if words["layer"] == "fourier" else "tanh"
            layer = RandomLayer(kind, tensors["hidden_weights"], tensors["hidden_bias"])
        return cls(tensors["weights"], words["activation"], inputs, layer)

    def _hidden(self) -> dict[str, Matrix]:
        if self.layer is None:
            return {}
        return {"hidden_weights": self.layer.weights, "hidden_bias": self.layer.bias}

    def _own(self) -> dict[str, Any]:
        return {
            "activation": self.activation,
            "bias": self.weights[0].tolist(),
            "weights": self.weights[1:].tolist(),
            **({"layer": self.layer.kind} if self.layer else {}),
            **{name: value.tolist() for name, value in self._hidden().items()},
        }
