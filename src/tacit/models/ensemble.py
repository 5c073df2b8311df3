"""Many one-layer networks that vote."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tacit.data.inputs import Inputs
from tacit.models.activations import ACTIVATIONS
from tacit.models.predictor import Predictor, evidence, shares

Matrix = NDArray[np.float64]
Vote = Literal["majority", "mean"]


class Ensemble(Predictor):
    """One-layer networks ``f(w₀ + Xw)``, each with weights for some of the features.

    Parameters
    ----------
    weights : ndarray of shape (estimators, features + 1, outputs)
        The bias comes first; zero where an estimator does not use a feature.
    activation : str
    inputs : Inputs
        Schema and scale that the federation agreed on.
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
        found: Matrix = sum(self._each(X), start=np.zeros(1)) / len(self.weights)
        return found

    def _evidence(self, X: Matrix) -> Matrix:
        if len(self.weights) == 1:
            return evidence(self._outputs(X), self.activation)
        if self.vote == "mean":
            each = (shares(evidence(outputs, self.activation)) for outputs in self._each(X))
            total: Matrix = sum(each, start=np.zeros(1))
            return total
        votes = np.zeros((len(X), self.weights.shape[-1]))
        for outputs in self._each(X):
            votes[np.arange(len(X)), evidence(outputs, self.activation).argmax(axis=1)] += 1
        return votes

    def _content(self) -> tuple[dict[str, Any], dict[str, str]]:
        return {"weights": self.weights}, {"activation": self.activation, "vote": self.vote}

    @classmethod
    def _restore(cls, words: Mapping[str, str], tensors: Mapping[str, Any], inputs: Inputs) -> Self:
        vote: Vote = "mean" if words["vote"] == "mean" else "majority"
        return cls(tensors["weights"], words["activation"], inputs, vote)

    def _own(self) -> dict[str, Any]:
        return {
            "activation": self.activation,
            "vote": self.vote,
            "bias": self.weights[:, 0].tolist(),
            "weights": self.weights[:, 1:].tolist(),
        }
