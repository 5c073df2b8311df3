"""A client's part of a round: local training, and what it contributes of its change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.party import Party
from tacit.core.shared import Shared
from tacit.methods.averaging.local_training import Correction

if TYPE_CHECKING:
    from tacit.methods.fedavg import FedAvg


def train_client(
    method: FedAvg, party: Party, shared: Shared, correct: Correction | None, anchored: bool = False
) -> dict[str, Any]:
    """Return u_k Δ_k and u_k; if ``anchored``, steps follow what differs from gradients at w_t."""
    network, number = method.architecture.build(shared.schema), int(shared["round"])
    X, targets, row_weights = method.read_rows(party, shared)
    coins = method.privacy.begin_round(party, number, method.rounds, method.local.epochs)
    start, rng = method.architecture.flatten_weights(party, shared), party.rng("descent", number)
    with np.errstate(all="ignore"):  # what overflows is refused when it is packed
        more = method.privacy, correct, coins, row_weights, anchored
        delta = method.local.train(network, start, X, targets, rng, *more) - start
    share = method.weighting.share(targets, shared)
    weight = {} if method.weighting.equal else {"weight": np.array(share)}
    return {**method.change.pack(delta, share, network, party), **weight}
