"""What methods of all kinds are, and what they leave behind."""

from typing import Any, Protocol

from tacit.core.method import Method
from tacit.data.table import Table

__all__ = ["Method", "Model"]


class Model(Protocol):
    """What a method leaves behind."""

    @property
    def classes_(self) -> Any:
        """The agreed classes."""

    def predict(self, rows: Any) -> Any:
        """Predict labels or targets for raw rows."""

    def predict_proba(self, rows: Any) -> Any:
        """Predict class probabilities for raw rows."""

    def score(self, rows: Any, truth: Any) -> float:
        """Return the accuracy or R²."""

    def counts(self, table: Table) -> dict[str, Any]:
        """Return the counts over a table from which all scores follow."""

    def scores(self, table: Table) -> dict[str, Any]:
        """Return all scores on a table."""

    def save(self, path: Any) -> Any:
        """Write as safetensors."""

    def to_bytes(self, kind: str) -> bytes:
        """Return the model as a file of a standard format."""

    def as_dict(self) -> dict[str, Any]:
        """Return the model as plain values."""
