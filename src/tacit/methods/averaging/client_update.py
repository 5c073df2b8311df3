"""A client's part of a round: local training or one gradient, and what it contributes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.party import Party
from tacit.core.shared import Shared
from tacit.methods.averaging.local_training import Correction
from tacit.models.network import Targets, Vector

if TYPE_CHECKING:
    from tacit.methods.fedavg import FedAvg


def train_client(
    method: FedAvg, party: Party, shared: Shared, correct: Correction | None = None, anchored: bool = False
) -> dict[str, Any]:
    """Return u_k Δ_k and u_k after local training, whose steps follow what ``correct`` makes of a gradient.

    If ``anchored``, the gradient of the same rows at w_t is taken off before.
    """
    network, number = method.architecture.build(shared.schema), int(shared["round"])
    X, targets, row_weights = method.read_rows(party, shared)
    coins = method.privacy.begin_round(party, number, method.rounds, method.local.epochs)
    start, rng = method.architecture.flatten_weights(party, shared), party.rng("descent", number)
    with np.errstate(all="ignore"):  # what overflows is refused when it is packed
        more = method.privacy, correct, coins, row_weights, anchored
        delta = method.local.train(network, start, X, targets, rng, *more) - start
    share, weight = method.weighting.contribute(targets, shared)
    return {**method.change.pack(delta, share, network, party), **weight}


def compute_gradient(
    method: FedAvg, party: Party, shared: Shared, batch: int = 0
) -> tuple[Vector, Vector, Targets]:
    """Return ∇F_k at w_t over all rows, or a batch; the weights, whose state may have moved; all targets."""
    network, rng = method.architecture.build(shared.schema), party.rng("descent", int(shared["round"]))
    X, targets, row_weights = method.read_rows(party, shared)
    network.reseed(rng)
    rows: Any = slice(None)
    if 0 < batch < len(targets):
        rows = rng.choice(len(targets), batch, replace=False)
    weights = method.architecture.flatten_weights(party, shared).copy()
    counted = None if row_weights is None else row_weights[rows]
    with np.errstate(all="ignore"):  # what overflows is refused when it is packed
        return network.gradient(weights, X[rows], targets[rows], counted), weights, targets
