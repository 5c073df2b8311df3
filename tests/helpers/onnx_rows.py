"""Rows as an exported ONNX model takes them: one input for each column."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.models.predictor import Predictor


def onnx_feed(model: Predictor, rows: Any) -> dict[str, Any]:
    """Return plain rows (None or NaN: missing) by column: numbers as floats, categories as text."""
    feed = {}
    for column, values in zip(model.schema.columns, np.asarray(rows).T, strict=True):
        if column.kind == "number":
            feed[column.name] = values.astype(np.float64)[:, None]
        else:
            words = ["" if value is None or value != value else str(value) for value in values]
            feed[column.name] = np.array(words, dtype=object)[:, None]
    return feed
