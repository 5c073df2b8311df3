"""What all models that take raw rows have in common: predictions, scores, and files to read and write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.data.preparation import Inputs
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.models.scores import (
    classification_counts,
    classification_scores,
    exact_macro_auc,
    regression_counts,
    regression_scores,
)

Matrix = NDArray[np.float64]


class Predictor:
    """A model with its own preparation, so that it takes raw rows.

    Parameters
    ----------
    inputs : Inputs
        Schema and scale that the federation agreed on.
    """

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    def outputs(self, rows: Any) -> Matrix:
        """Outputs for raw rows or a table."""
        raise NotImplementedError

    def predict_proba(self, rows: Any) -> Matrix:
        """Class probabilities for raw rows or a table."""
        raise NotImplementedError

    @property
    def schema(self) -> Schema:
        """The schema that the federation agreed on."""
        return self.inputs.schema

    @property
    def classes_(self) -> NDArray[Any]:
        """The agreed classes, in the order of the outputs."""
        return np.array(self.schema.classes)

    def prepared(self, rows: Any) -> Matrix:
        """Raw rows as the network takes them; of a table, unknown categories count as missing."""
        return self.inputs.matrix(self.schema.table_of(rows), lenient=isinstance(rows, Table))

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

    def described(self) -> dict[str, Any]:
        """Features, classes and scale as plain values."""
        return {
            "features": list(self.schema.feature_names),
            "classes": list(self.schema.classes),
            "targets": list(self.schema.target_names),
            **{name: np.asarray(value).tolist() for name, value in self.inputs.values.items()},
        }


def write_model(path: Path, tensors: Mapping[str, Any], inputs: Inputs, described: Mapping[str, str]) -> Path:
    """Write a model as safetensors: its arrays and the scale as tensors, the rest as metadata."""
    from safetensors.numpy import save_file

    plain = {name: np.ascontiguousarray(value) for name, value in {**tensors, **inputs.values}.items()}
    words = {**described, "schema": msgspec.json.encode(inputs.schema).decode()}
    # One entry only: safetensors writes several in any order, and the same model must be the same bytes.
    save_file(plain, path, {"tacit": msgspec.json.encode(words).decode()})
    return path


def read_file(path: Path, *formats: str) -> tuple[dict[str, Any], dict[str, str], Schema]:
    """Read what :func:`write_model` wrote in one of these formats: tensors, description and schema."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            described = (file.metadata() or {}).get("tacit", "{}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        words = msgspec.json.decode(described, type=dict[str, str])
    except (SafetensorError, OSError, msgspec.MsgspecError) as error:
        raise DataError(f"{path.name} is not a model that can be read: {error}") from None
    if words.get("format") not in formats:
        raise DataError(
            f"{path.name}: model format {words.get('format')!r}, this Tacit reads {' and '.join(formats)}"
        )
    return tensors, words, Schema.from_message({"schema": words["schema"].encode()})
