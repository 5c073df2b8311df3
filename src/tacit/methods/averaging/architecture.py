"""The network that is learnt: which one, with which layers and first weights."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.fields import add_prefix, strip_prefix
from tacit.core.party import Party
from tacit.core.settings_group import Rule, SettingsGroup
from tacit.core.shared import Shared
from tacit.data.inputs import Inputs
from tacit.data.schema import Schema
from tacit.models.mlp import HiddenActivation, Initialisation
from tacit.models.network import Network, Vector
from tacit.models.neural import (
    PREFIX,
    TARGET_CENTRE,
    TARGET_SPREAD,
    Neural,
    Sizes,
    name_of,
    network_of,
    sizes_of,
)


@dataclass(frozen=True)
class Architecture(SettingsGroup):
    """Which network is learnt, and from where it starts.

    Parameters
    ----------
    network : str
        "mlp", "cnn" (torch), a network of the entry-point group tacit.models, or in Python a factory.
    hidden : sizes
        Sizes of the hidden layers of "mlp": 32, "437,312", or "" for none.
    activation : {"relu", "tanh", "sigmoid"}
        Of the hidden layers of "mlp".
    initialisation : {"he", "random", "zeros"}
        First weights of "mlp".
    """

    network: Any = "mlp"
    hidden: Sizes = (32,)
    activation: HiddenActivation = "relu"
    initialisation: Initialisation = "he"

    def __post_init__(self) -> None:
        if isinstance(self.hidden, list):
            object.__setattr__(self, "hidden", tuple(self.hidden))
        super().__post_init__()
        sizes_of(self.hidden)

    def rules(self) -> Iterable[Rule]:
        named = isinstance(self.network, str) or callable(self.network)
        return (("network", named, "give a name, or a factory of torch modules"),)

    def config(self) -> dict[str, Any]:
        """Return the settings as plain values; a factory by its name only, for code never travels."""
        return {**super().config(), "network": name_of(self.network)}

    def build(self, schema: Schema) -> Network:
        """Return the network for a schema, made once per process."""
        return network_of(features=schema.features, outputs=schema.outputs, **super().config())

    def start_weights(self, schema: Schema, rng: np.random.Generator) -> dict[str, Any]:
        """Return the first weights, as shared values."""
        network = self.build(schema)
        return add_prefix(PREFIX, network.named(network.initial(rng)))

    def flatten_weights(self, party: Party, shared: Shared) -> Vector:
        """Return the shared weights as one vector; clients of one process and wave share it."""
        found: tuple[Shared, Vector] | None = party.cache.get("flat")
        if found is None or found[0] is not shared:
            found = shared, self.build(shared.schema).flat(strip_prefix(PREFIX, shared))
            party.cache["flat"] = found
        return found[1]

    def make_model(self, shared: Shared) -> Neural:
        """Return the model that has the shared weights."""
        scale = {name: shared[name] for name in (TARGET_CENTRE, TARGET_SPREAD) if name in shared}
        return Neural(strip_prefix(PREFIX, shared) | scale, super().config(), Inputs.of(shared))
