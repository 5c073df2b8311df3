"""Reads a model from its file, whichever method made it."""

from __future__ import annotations

from pathlib import Path

from tacit.models.neural import FORMAT as NETWORK
from tacit.models.neural import Neural
from tacit.models.onelayer import FORMAT as ONE_LAYER
from tacit.models.onelayer import OneLayer
from tacit.models.predictor import read_file


def read_model(path: Path) -> OneLayer | Neural:
    """Read a model that some run wrote.

    Raises
    ------
    DataError
        If it is no model of Tacit, or of a newer one.
    """
    _, described, _ = read_file(path, ONE_LAYER, NETWORK)
    return OneLayer.load(path) if described["format"] == ONE_LAYER else Neural.load(path)
