"""A network without hidden layers: features straight to outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.data.preparation import Inputs
from tacit.models.activations import ACTIVATIONS
from tacit.models.predictor import Predictor, read_file, write_model

Matrix = NDArray[np.float64]
FORMAT = "tacit-one-layer-1"


class OneLayer(Predictor):
    """One-layer network ``f(w₀ + Xw)`` with its own preparation, so that it takes raw rows.

    Parameters
    ----------
    weights : ndarray of shape (features + 1, outputs)
        The bias comes first.
    activation : str
    inputs : Inputs
        Schema and scale that the federation agreed on.
    """

    def __init__(self, weights: Matrix, activation: str, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.weights = np.asarray(weights)
        self.activation = activation

    def outputs(self, rows: Any) -> Matrix:
        """Outputs of the network for raw rows or a table; of a table, unknown categories count as missing."""
        X = self.prepared(rows)
        return ACTIVATIONS[self.activation].function(X @ self.weights[1:] + self.weights[0])

    def predict_proba(self, rows: Any) -> Matrix:
        """Outputs as probabilities: cut at zero and scaled to sum to one."""
        if self.schema.task != "classification":
            raise DataError("a regression model has no probabilities: call predict")
        clipped = np.maximum(self.outputs(rows), 1e-12)
        shares: Matrix = clipped / clipped.sum(axis=1, keepdims=True)
        return shares

    # -- the way out -------------------------------------------------------------------------------

    def save(self, path: Path) -> Path:
        """Write as safetensors: weights and scale as tensors, the schema as metadata."""
        described = {"format": FORMAT, "activation": self.activation}
        return write_model(path, {"weights": self.weights}, self.inputs, described)

    @classmethod
    def load(cls, path: Path) -> OneLayer:
        """Read what :meth:`save` wrote."""
        tensors, described, schema = read_file(path, FORMAT)
        return cls(tensors.pop("weights"), described["activation"], Inputs(schema, tensors))

    def as_dict(self) -> dict[str, Any]:
        """Give the model as plain values, for export as JSON."""
        return {
            "format": FORMAT,
            "activation": self.activation,
            "bias": self.weights[0].tolist(),
            "weights": self.weights[1:].tolist(),
            **self.described(),
        }
