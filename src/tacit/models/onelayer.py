"""A network without hidden layers: features straight to outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.data.preparation import Inputs
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.models.activations import ACTIVATIONS
from tacit.models.randomlayer import LayerKind, RandomLayer
from tacit.models.scores import (
    classification_counts,
    classification_scores,
    exact_macro_auc,
    regression_counts,
    regression_scores,
)

Matrix = NDArray[np.float64]
FORMAT = "tacit-one-layer-1"


class OneLayer:
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

    def __init__(
        self, weights: Matrix, activation: str, inputs: Inputs, layer: RandomLayer | None = None
    ) -> None:
        self.weights = np.asarray(weights)
        self.activation = activation
        self.inputs = inputs
        self.layer = layer

    @property
    def schema(self) -> Schema:
        """The schema that the federation agreed on."""
        return self.inputs.schema

    @property
    def classes_(self) -> NDArray[Any]:
        """The agreed classes, in the order of the outputs."""
        return np.array(self.schema.classes)

    def outputs(self, rows: Any) -> Matrix:
        """Outputs of the network for raw rows or a table; of a table, unknown categories count as missing."""
        X = self.inputs.matrix(self.schema.table_of(rows), lenient=isinstance(rows, Table))
        if self.layer is not None:
            X = self.layer(X)
        return ACTIVATIONS[self.activation].function(X @ self.weights[1:] + self.weights[0])

    def predict_proba(self, rows: Any) -> Matrix:
        """Outputs as probabilities: cut at zero and scaled to sum to one."""
        if self.schema.task != "classification":
            raise DataError("a regression model has no probabilities: call predict")
        clipped = np.maximum(self.outputs(rows), 1e-12)
        shares: Matrix = clipped / clipped.sum(axis=1, keepdims=True)
        return shares

    def predict(self, rows: Any) -> NDArray[Any]:
        """Most likely class, or the predicted targets."""
        outputs = self.outputs(rows)
        if self.schema.task == "classification":
            return np.asarray(self.classes_[outputs.argmax(axis=1)])
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def score(self, rows: Any, truth: Any) -> float:
        """Accuracy of a classifier, R² of a regression."""
        if self.schema.task == "classification":
            return float(np.mean(self.predict(rows) == np.asarray(truth)))
        outputs = self.outputs(rows)
        counts = regression_counts(np.asarray(truth, dtype=np.float64).reshape(len(outputs), -1), outputs)
        return float(regression_scores(counts)["r2"])

    def counts(self, table: Table) -> dict[str, Any]:
        """Counts over a table from which all scores follow."""
        if self.schema.task == "classification":
            return classification_counts(self.schema.labels(table), self.predict_proba(table))
        return regression_counts(table.target, self.outputs(table))

    def scores(self, table: Table) -> dict[str, Any]:
        """All scores on a table."""
        counts = self.counts(table)
        if self.schema.task == "regression":
            return regression_scores(counts)
        auc = exact_macro_auc(self.schema.labels(table), self.outputs(table))
        return classification_scores(counts, self.schema.classes, auc)

    # -- the way out -------------------------------------------------------------------------------

    def save(self, path: Path) -> Path:
        """Write as safetensors: weights and scale as tensors, the schema as metadata."""
        from safetensors.numpy import save_file

        tensors = {"weights": self.weights, **self._hidden(), **self.inputs.values}
        plain = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
        described = {
            "format": FORMAT,
            "activation": self.activation,
            **({"layer": self.layer.kind} if self.layer else {}),
            "schema": msgspec.json.encode(self.schema).decode(),
        }
        # One entry only: safetensors writes several in any order, and the same model must be the same bytes.
        metadata = {"tacit": msgspec.json.encode(described).decode()}
        save_file(plain, path, metadata)
        return path

    @classmethod
    def load(cls, path: Path) -> OneLayer:
        """Read what :meth:`save` wrote."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                described = (file.metadata() or {}).get("tacit", "{}")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise DataError(f"{path.name} is not a model that can be read: {error}") from None
        try:
            metadata = msgspec.json.decode(described, type=dict[str, str])
        except msgspec.MsgspecError as error:
            raise DataError(f"{path.name} is not a model that can be read: {error}") from None
        if metadata.get("format") != FORMAT:
            raise DataError(
                f"{path.name}: model format {metadata.get('format')!r}, this Tacit reads {FORMAT}"
            )
        schema = Schema.from_message({"schema": metadata["schema"].encode()})
        layer = None
        if "layer" in metadata:
            kind: LayerKind = "fourier" if metadata["layer"] == "fourier" else "tanh"
            layer = RandomLayer(kind, tensors.pop("hidden_weights"), tensors.pop("hidden_bias"))
        return cls(tensors.pop("weights"), metadata["activation"], Inputs(schema, tensors), layer)

    def _hidden(self) -> dict[str, Matrix]:
        if self.layer is None:
            return {}
        return {"hidden_weights": self.layer.weights, "hidden_bias": self.layer.bias}

    def as_dict(self) -> dict[str, Any]:
        """Give the model as plain values, for export as JSON."""
        return {
            "format": FORMAT,
            "activation": self.activation,
            "bias": self.weights[0].tolist(),
            "weights": self.weights[1:].tolist(),
            **({"layer": self.layer.kind} if self.layer else {}),
            **{name: value.tolist() for name, value in self._hidden().items()},
            "features": list(self.schema.feature_names),
            "classes": list(self.schema.classes),
            "targets": list(self.schema.target_names),
            **{name: np.asarray(value).tolist() for name, value in self.inputs.values.items()},
        }
