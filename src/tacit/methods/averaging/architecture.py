"""The network that is learnt, with which layers and first weights; and what it learns to predict.

A rate that suits one unit of a regression's target lets training run away in another. So all clients agree on
mean and spread of every target, in one protected sum; the model keeps both, and predicts in their units.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from tacit.core.errors import OpeningError
from tacit.core.fields import strip_prefix
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.method import Method
from tacit.core.party import Party
from tacit.core.settings_group import Rule, SettingsGroup
from tacit.core.shared import Shared, Total
from tacit.data.inputs import Inputs
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.models.mlp import HiddenActivation, Initialisation
from tacit.models.network import Network, Targets, Vector
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

SUMS = ("target_sum", "target_square")
LEAST = 1e-12  # variance over mean square that sums can tell from rounding


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


@contribution(lambda _, schema: Layout(Field("rows", ()), *(Field(n, (schema.outputs,)) for n in SUMS)))
def target_moments(self: Method, party: Party, shared: Shared) -> dict[str, Any]:
    """Return n, Σy and Σy² of this client's targets."""
    if isfinite(self.own_epsilon):  # DP-SGD, whose budget does not cover this sum
        raise OpeningError(f"targets are summed without noise: {party.id} takes part with noise only")
    y = np.asarray(party.data.target, dtype=np.float64).reshape(party.data.rows, -1)
    return {"rows": float(len(y)), **dict(zip(SUMS, (y.sum(axis=0), (y**2).sum(axis=0)), strict=True))}


@apply
def scale_targets(self: Method, total: Total, shared: Shared) -> Shared:
    """Set mean and spread of every target; a spread of 1 where a target is constant."""
    rows = max(float(total["rows"]), 1.0)
    mean, mean_square = (np.asarray(total[name]) / rows for name in SUMS)
    variance = mean_square - mean**2
    varies = variance > LEAST * mean_square
    return shared | {TARGET_CENTRE: mean, TARGET_SPREAD: np.sqrt(np.where(varies, variance, 1.0))}


def read_targets(table: Table, shared: Shared) -> Targets:
    """Return the labels of a table, or its targets from the agreed mean, in units of the agreed spread."""
    if shared.schema.task == "classification":
        return np.asarray(shared.schema.labels(table), dtype=np.int64)
    scaled = (table.target - shared.get(TARGET_CENTRE, 0.0)) / shared.get(TARGET_SPREAD, 1.0)
    return np.asarray(scaled, dtype=np.float64)


@apply
def share_classes(self: Method, total: Total, shared: Shared) -> Shared:
    """Set the share of each class, P_j; noise may have made a count negative, or none positive."""
    counts = np.maximum(np.asarray(total["counts"]), 0.0) + 1e-12
    return shared | {"class_shares": counts / counts.sum()}
