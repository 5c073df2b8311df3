"""What models with a closed form have in common: from raw rows to predictions, counts, scores and files."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tacit.core.display import Shown
from tacit.core.errors import ConfigError, DataError, nearest
from tacit.data.inputs import Inputs
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.models.activations import HIGH, LOW
from tacit.models.scores import classification_counts, regression_counts, regression_scores, score_classes

Matrix = NDArray[np.float64]

DIGEST = "digest"
EXPORTS = {"safetensors": ".safetensors", "onnx": ".onnx", "xgboost": ".json"}  # with the ending of files
WORDS = {"format", "schema", "activation", "layer", "vote", "network", "loss", DIGEST}  # of all formats


class Predictor(Shown):
    """A model with its own preparation (the schema and scale agreed on), so that it takes raw rows."""

    FORMAT: ClassVar[str]  # of its files

    def __init__(self, activation: str, inputs: Inputs) -> None:
        self.activation = activation
        self.inputs = inputs

    @property
    def schema(self) -> Schema:
        """The schema that the federation agreed on."""
        return self.inputs.schema

    @property
    def classes_(self) -> NDArray[Any]:
        """The agreed classes, in the order of the outputs."""
        return np.array(self.schema.classes)

    def facts(self) -> dict[str, Any]:
        schema = self.schema
        predicts = {"predicts": schema.target_names, "classes": schema.classes or None}
        return {**predicts, "from": tuple(column.name for column in schema.columns)}

    def _outputs(self, X: Matrix) -> Matrix:
        raise TypeError(f"{type(self).__name__} must say what it computes")

    def _evidence(self, X: Matrix) -> Matrix:
        return evidence(self._outputs(X), self.activation)

    def _matrix(self, rows: Any) -> Matrix:
        # Of a table, unknown categories count as "other" or, if there is none, as missing.
        return self.inputs.matrix(self.schema.table_of(rows), lenient=isinstance(rows, Table))

    def outputs(self, rows: Any) -> Matrix:
        """Return the outputs for raw rows or a table."""
        return self._outputs(self._matrix(rows))

    def _probabilities(self, X: Matrix) -> Matrix:
        return shares(self._evidence(X))

    def predict_proba(self, rows: Any) -> Matrix:
        """Return the probabilities of the classes for raw rows or a table."""
        if self.schema.task != "classification":
            raise DataError("a regression model has no probabilities: call predict")
        return self._probabilities(self._matrix(rows))

    def predict(self, rows: Any) -> NDArray[Any]:
        """Return the most probable class, or the predicted targets."""
        if self.schema.task == "classification":
            return np.asarray(self.classes_[self.predict_proba(rows).argmax(axis=1)])
        outputs = self.outputs(rows)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def score(self, rows: Any, truth: Any) -> float:
        """Return the accuracy of a classifier, or the R² of a regression."""
        if self.schema.task == "classification":
            return float(np.mean(self.predict(rows) == np.asarray(truth)))
        outputs = self.outputs(rows)
        counts = regression_counts(np.asarray(truth, dtype=np.float64).reshape(len(outputs), -1), outputs)
        return float(regression_scores(counts)["r2"])

    def counts(self, table: Table) -> dict[str, Any]:
        """Return the counts over a table from which all scores follow; those of several tables add up."""
        if self.schema.task == "classification":
            return classification_counts(self.schema.labels(table), self.predict_proba(table))
        return regression_counts(table.target, self.outputs(table), self._centre())

    def _centre(self) -> Matrix:
        """Return targets near their mean, such as those of a row of zeros, the mean of standardised rows."""
        return np.asarray(self._outputs(np.zeros((1, self.schema.features)))[0])

    def scores(self, table: Table) -> dict[str, Any]:
        """Return all scores on a table, as scikit-learn defines them."""
        if self.schema.task == "regression":
            return regression_scores(regression_counts(table.target, self.outputs(table)))
        return score_classes(self.schema.labels(table), self.predict_proba(table), self.schema.classes)

    def predictions(self, rows: Any) -> Any:
        """Return an Arrow table of what is predicted for a DataFrame, with probabilities by class.

        Columns that the model does not know, such as identifiers, stand before it as they are.
        """
        from tacit.data.arrow import to_arrow

        data = to_arrow(rows, "rows")
        known = {column.name for column in self.schema.columns}
        found = data.drop_columns([name for name in data.column_names if name in known])
        table = self.schema.table_of(data.select([name for name in data.column_names if name in known]))
        predicted, targets = self.predict(table), self.schema.target_names
        columns = {"prediction": predicted}
        if self.schema.task == "classification":
            shares_of = zip(self.classes_.tolist(), self.predict_proba(table).T, strict=True)
            columns |= {f"probability of {label}": share for label, share in shares_of}
        elif len(targets) > 1:
            columns = {f"prediction of {name}": one for name, one in zip(targets, predicted.T, strict=True)}
        for name, values in columns.items():
            if name in found.column_names:
                raise DataError(f"rows have a column '{name}', which is the name of a result: rename it")
            found = found.append_column(name, [values])
        return found

    def _content(self) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """Return the arrays and the words of a file of this kind of model, beside scale and schema."""
        raise NotImplementedError

    def to_bytes(self, kind: str) -> bytes:
        """Return the model as a file of one of the kinds in ``EXPORTS``."""
        from tacit.models.onnx_export import to_onnx
        from tacit.models.xgboost_export import to_xgboost

        if kind != "safetensors":
            return to_onnx(self) if kind == "onnx" else to_xgboost(self)
        tensors, described = self._content()
        plain = {name: np.ascontiguousarray(v) for name, v in {**tensors, **self.inputs.values}.items()}
        words = {"format": self.FORMAT, **described, "schema": msgspec.json.encode(self.schema).decode()}
        words[DIGEST] = _digest(words, plain)
        # One entry only: safetensors writes several in any order, and the same model must be the same bytes.
        return save(plain, {"tacit": msgspec.json.encode(words).decode()})

    def save(self, path: Path | str) -> Path:
        """Write as safetensors, for :func:`tacit.load_model`, whatever the name ends in."""
        place = Path(path)
        place.write_bytes(self.to_bytes("safetensors"))
        return place

    @classmethod
    def restore(cls, words: Mapping[str, str], tensors: Mapping[str, Any], inputs: Inputs) -> Self:
        """Make a model of what :meth:`_content` returned."""
        raise NotImplementedError

    def export(self, path: Path | str, kind: str | None = None) -> Path:
        """Write as safetensors, ONNX or, of trees, XGBoost's JSON: by the ending, or as ``kind`` says."""
        place = Path(path)
        place.write_bytes(self.to_bytes(kind_of(place, kind)))
        return place

    def to_sklearn(self) -> Any:
        """Return a fitted scikit-learn estimator that predicts as this model does."""
        from tacit.models.scikit import FittedClassifier, FittedRegressor

        return (FittedClassifier if self.schema.task == "classification" else FittedRegressor)(self)


def kind_of(path: Path, kind: str | None = None) -> str:
    """Return the kind of file that a model is written as: that of its ending, unless one is given."""
    if kind is not None and kind not in EXPORTS:
        raise ConfigError(f"unknown format '{kind}': {nearest(kind, EXPORTS)}")
    by_name = next((one for one, ending in EXPORTS.items() if path.suffix.lower() == ending), None)
    if not (found := kind or by_name):
        endings = ", ".join(EXPORTS.values())
        raise ConfigError(f"{path.name}: models are written as {endings}: end its name so")
    if found != (by_name or found):
        raise ConfigError(f"{path.name} would hold {kind}: end its name so, or choose format {by_name}")
    return found


def evidence(outputs: Matrix, activation: str) -> Matrix:
    """Return how much each output speaks for its class.

    The largest output wins, except under softplus: F weighs a row of the class (f'(d̄) at 0.95 over that at
    0.05)² = 158 times as much as another, so that outputs overshoot, wrong ones too. There the output
    nearest to the target 0.95 wins.
    """
    return 1 / (LOW + np.abs(outputs - HIGH)) if activation == "softplus" else outputs


def shares(found: Matrix) -> Matrix:
    """Turn evidence into probabilities: cut at zero and scaled to sum to one."""
    clipped = np.maximum(found, 1e-12)
    return np.asarray(clipped / clipped.sum(axis=1, keepdims=True))


def read_any(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Read the words and tensors of a model file."""
    try:
        with safe_open(path, framework="numpy") as file:
            described = (file.metadata() or {}).get("tacit", "{}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        words = msgspec.json.decode(described, type=dict[str, str])
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        told = f"{path.name} is not a model that can be read: {error}"
        raise DataError(f"{told}. Give a run, or the .safetensors file of one") from None
    if unknown := sorted(words.keys() - WORDS):
        raise DataError(f"{path.name} is damaged, or of a later release: it says '{unknown[0][:40]}'")
    found = words.pop(DIGEST, None)  # models of releases before have none
    if found is not None and found != _digest(words, tensors):
        raise DataError(f"{path.name} is damaged: it is not what was written. Export the model again")
    return words, tensors


def _digest(words: Mapping[str, str], tensors: Mapping[str, Any]) -> str:
    found = hashlib.sha256(msgspec.json.encode(sorted(words.items())))
    for name, array in sorted(tensors.items()):
        found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()
