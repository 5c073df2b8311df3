"""A trained network with its preparation: takes raw rows, gives class probabilities or targets."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import msgspec
import numpy as np

from tacit.core.errors import ConfigError
from tacit.data.inputs import Inputs
from tacit.data.table import Table
from tacit.models.heads import fit_layer
from tacit.models.network import Matrix, Network, softmax
from tacit.models.predictor import Predictor
from tacit.models.zoo import network_of

PREFIX = "weights/"  # of its arrays, wherever they travel or are written
TARGET_CENTRE, TARGET_SPREAD = "target_centre", "target_spread"  # in which a regression learnt its targets


class Neural(Predictor):
    """A network; that of a classifier has a softmax at the end.

    Parameters
    ----------
    arrays : mapping
        The network's arrays by name; beside them mean and spread of the targets, if it learnt them scaled.
    settings : mapping
        ``network``, ``hidden``, ``activation`` and ``initialisation``, as :func:`network_of` takes them.
    inputs : Inputs
        Schema and scale that the federation agreed on.
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
        """Return the outputs, of a classifier before the softmax."""
        network = self.network
        outputs = network.outputs(network.flat(self.arrays), X)
        if TARGET_SPREAD not in self.arrays:
            return outputs
        return np.asarray(outputs * self.arrays[TARGET_SPREAD] + self.arrays[TARGET_CENTRE])

    def _probabilities(self, X: Matrix) -> Matrix:
        return softmax(self._outputs(X))

    def fit_head(self, table: Table) -> Self:
        """Return the same network with a last layer fitted to a table, from the one there is: a client's own.

        It is in closed form, and the nearer to the present one, the less rows of the table say otherwise when
        they are left out.
        """
        network, targets = self.network, self.schema.arrange(table).target
        if self.schema.task == "classification":
            targets = self.schema.labels(table)
        elif TARGET_SPREAD in self.arrays:
            targets = (targets - self.arrays[TARGET_CENTRE]) / self.arrays[TARGET_SPREAD]
        inputs = network.last_inputs(network.flat(self.arrays), self._matrix(table))
        found = fit_layer(inputs, targets, network.last_weights(self.arrays))
        return type(self)({**self.arrays, **network.last_layer(found)}, self.settings, self.inputs)

    # -- the way out -------------------------------------------------------------------------------

    def _content(self) -> tuple[dict[str, Any], dict[str, str]]:
        tensors = {PREFIX + name: array for name, array in self.arrays.items()}
        return tensors, {"network": msgspec.json.encode(self._named()).decode()}

    def _named(self) -> dict[str, Any]:
        return {**self.settings, "network": name_of(self.settings["network"])}

    @classmethod
    def _restore(
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
        arrays = {name.removeprefix(PREFIX): array for name, array in tensors.items()}
        return cls(arrays, settings, inputs)

    def _own(self) -> dict[str, Any]:
        return {**self._named(), "weights": {name: array.tolist() for name, array in self.arrays.items()}}


def name_of(network: Any) -> str:
    """Return the name of a network, for manifest and file: a factory is named by where it lives.

    >>> name_of("mlp"), name_of(name_of)
    ('mlp', 'tacit.models.neural:name_of')
    """
    return network if isinstance(network, str) else f"{network.__module__}:{network.__qualname__}"
