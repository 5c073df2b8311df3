"""A trained network with its preparation: takes raw rows, gives class probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tacit.core.errors import ConfigError
from tacit.data.preparation import Inputs
from tacit.models.network import Matrix, Network, softmax
from tacit.models.predictor import Predictor, read_file, write_model
from tacit.models.zoo import network_of

FORMAT = "tacit-network-1"
PREFIX = "weights/"  # of its arrays, wherever they travel or are written


class Neural(Predictor):
    """A network with a softmax at the end.

    Parameters
    ----------
    arrays : mapping
        The network's arrays by name.
    settings : mapping
        ``network``, ``hidden``, ``activation`` and ``initialisation``, as :func:`network_of` takes them.
    inputs : Inputs
        Schema and scale that the federation agreed on.
    """

    def __init__(self, arrays: Mapping[str, Any], settings: Mapping[str, Any], inputs: Inputs) -> None:
        super().__init__(inputs)
        self.settings = dict(settings)
        self.arrays = {name: np.asarray(array) for name, array in arrays.items()}

    @property
    def network(self) -> Network:
        """The network itself."""
        return network_of(features=self.schema.features, outputs=self.schema.outputs, **self.settings)

    def outputs(self, rows: Any) -> Matrix:
        """Outputs before the softmax, for raw rows or a table."""
        network = self.network
        return network.outputs(network.flat(self.arrays), self.prepared(rows))

    def predict_proba(self, rows: Any) -> Matrix:
        """Class probabilities for raw rows or a table."""
        return softmax(self.outputs(rows))

    # -- the way out -------------------------------------------------------------------------------

    def save(self, path: Path) -> Path:
        """Write as safetensors: arrays and scale as tensors, settings and schema as metadata."""
        named = {**self.settings, "network": name_of(self.settings["network"])}
        described = {"format": FORMAT, "network": msgspec.json.encode(named).decode()}
        tensors = {PREFIX + name: array for name, array in self.arrays.items()}
        return write_model(path, tensors, self.inputs, described)

    @classmethod
    def load(cls, path: Path, factory: Callable[[int, int], Any] | None = None) -> Neural:
        """Read what :meth:`save` wrote; a network that no package brings needs its factory."""
        tensors, described, schema = read_file(path, FORMAT)
        settings: dict[str, Any] = msgspec.json.decode(described["network"])
        if isinstance(settings["hidden"], list):
            settings["hidden"] = tuple(settings["hidden"])
        if factory is not None:
            settings["network"] = factory
        elif ":" in settings["network"]:
            raise ConfigError(f"the model was made by {settings['network']}: give that factory to read it")
        arrays = {name: tensors.pop(name) for name in list(tensors) if name.startswith(PREFIX)}
        return cls({n.removeprefix(PREFIX): a for n, a in arrays.items()}, settings, Inputs(schema, tensors))

    def as_dict(self) -> dict[str, Any]:
        """Give the model as plain values, for export as JSON."""
        return {
            "format": FORMAT,
            **{**self.settings, "network": name_of(self.settings["network"])},
            "weights": {name: array.tolist() for name, array in self.arrays.items()},
            **self.described(),
        }


def name_of(network: Any) -> str:
    """Name of a network, for manifest and file: a factory is named by where it lives.

    >>> name_of("mlp"), name_of(name_of)
    ('mlp', 'tacit.models.neural:name_of')
    """
    return network if isinstance(network, str) else f"{network.__module__}:{network.__qualname__}"
