"""A trained network with its preparation: takes raw rows, gives class probabilities or targets.

A manifest names a network and never carries its code: a site builds what it has installed itself, under
the entry-point group ``tacit.models``. A factory from a notebook works where all parties are in that process.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import metadata
from typing import Any, Self

import msgspec
import numpy as np

from tacit.core.errors import ConfigError, nearest
from tacit.core.fields import add_prefix, strip_prefix
from tacit.data.inputs import Inputs
from tacit.data.table import Table
from tacit.models.heads import fit_layer
from tacit.models.mlp import MLP, HiddenActivation, Initialisation, SuffiAE
from tacit.models.network import Matrix, Network, softmax
from tacit.models.predictor import Predictor

PREFIX = "weights/"  # of its arrays, wherever they travel or are written
TARGET_CENTRE, TARGET_SPREAD = "target_centre", "target_spread"  # in which a regression learnt its targets

GROUP = "tacit.models"
Sizes = int | str | tuple[int, ...]


class Neural(Predictor):
    """A network; that of a classifier has a softmax at the end.

    Parameters
    ----------
    arrays : mapping
        The network's arrays by name; beside them mean and spread of the targets, if it learnt them scaled.
    settings : mapping
        ``network``, ``hidden``, ``activation`` and ``initialisation``, as :func:`network_of` takes them.
    """

    FORMAT = "tacit-network-1"

    def __init__(self, arrays: Mapping[str, Any], settings: Mapping[str, Any], inputs: Inputs) -> None:
        super().__init__("softmax", inputs)
        self.settings = dict(settings)
        self.arrays = {name: np.asarray(array) for name, array in arrays.items()}

    @property
    def network(self) -> Network:
        """The network itself."""
        return network_of(features=self.schema.features, outputs=self.schema.outputs, **self.settings)

    def _outputs(self, X: Matrix) -> Matrix:
        network = self.network
        outputs = network.outputs(network.flat(self.arrays), X)
        spread, centre = self.arrays.get(TARGET_SPREAD), self.arrays.get(TARGET_CENTRE)
        return outputs if spread is None else np.asarray(outputs * spread + centre)

    def _probabilities(self, X: Matrix) -> Matrix:
        return softmax(self._outputs(X))

    def fit_head(self, table: Table) -> Self:
        """Return the same network with a last layer of its own, fitted to a table from the one there is."""
        network, targets = self.network, self.schema.arrange(table).target
        if self.schema.task == "classification":
            targets = self.schema.labels(table)
        elif TARGET_SPREAD in self.arrays:
            targets = (targets - self.arrays[TARGET_CENTRE]) / self.arrays[TARGET_SPREAD]
        inputs = network.last_inputs(network.flat(self.arrays), self._matrix(table))
        found = fit_layer(inputs, targets, network.last_weights(self.arrays))
        return type(self)({**self.arrays, **network.last_layer(found)}, self.settings, self.inputs)

    def _content(self) -> tuple[dict[str, Any], dict[str, str]]:
        named = {**self.settings, "network": name_of(self.settings["network"])}
        return add_prefix(PREFIX, self.arrays), {"network": msgspec.json.encode(named).decode()}

    @classmethod
    def restore(
        cls,
        words: Mapping[str, str],
        tensors: Mapping[str, Any],
        inputs: Inputs,
        factory: Callable[[int, int], Any] | None = None,
    ) -> Self:
        """Make a model of what :meth:`_content` returned; one that no package brings needs its factory."""
        settings: dict[str, Any] = msgspec.json.decode(words["network"])
        if isinstance(settings["hidden"], list):
            settings["hidden"] = tuple(settings["hidden"])
        if factory is not None:
            settings["network"] = factory
        elif ":" in settings["network"]:
            raise ConfigError(f"the model was made by {settings['network']}: give that factory to read it")
        return cls(strip_prefix(PREFIX, tensors), settings, inputs)


def name_of(network: Any) -> str:
    """Return the name of a network, for manifest and file: a factory is named by where it lives."""
    return network if isinstance(network, str) else f"{network.__module__}:{network.__qualname__}"


def sizes_of(hidden: Sizes) -> tuple[int, ...]:
    """Return the sizes of hidden layers, however they were written: 32, "437,312", "" or a tuple."""
    if isinstance(hidden, str):
        try:
            return tuple(int(word) for word in hidden.split(",") if word.strip())
        except ValueError:
            raise ConfigError(f"hidden is '{hidden}': give layer sizes such as 437,312") from None
    return (hidden,) if isinstance(hidden, int) else tuple(hidden)


@lru_cache(maxsize=8)
def network_of(
    network: str | Callable[[int, int], Any],
    features: int,
    outputs: int,
    hidden: Sizes = (32,),
    activation: HiddenActivation = "relu",
    initialisation: Initialisation = "he",
) -> Network:
    """Build a network, once per process; a factory makes a torch module from features and outputs."""
    if network == "mlp":
        return MLP((features, *sizes_of(hidden), outputs), activation, initialisation)
    if network == "suffiae":
        return SuffiAE(features, sizes_of(hidden), outputs)
    from tacit.models.torch_network import TorchNetwork, small_cnn

    if network == "cnn" or callable(network):
        return TorchNetwork(network if callable(network) else small_cnn, features, outputs)
    points = {point.name: point for point in metadata.entry_points(group=GROUP)}
    if network not in points:
        known = sorted({"mlp", "suffiae", "cnn", *points})
        raise ConfigError(
            f"unknown network '{network}': {nearest(network, known)}. A site builds only what it has "
            f"installed itself, under the entry-point group {GROUP}"
        )
    return TorchNetwork(points[network].load(), features, outputs)
