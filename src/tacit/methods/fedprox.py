"""FedProx: FedAvg plus a pull of every client towards the weights that the round started from.

T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, "Federated Optimization in Heterogeneous
Networks", MLSys 2020: client k minimises F_k(w) + μ/2 ‖w - w_t‖² instead of F_k(w) (eq. 2), so its gradient
gains μ (w - w_t). With μ = 0 it is FedAvg.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tacit.core.marks import contribution
from tacit.core.party import Party
from tacit.core.settings_group import Rule
from tacit.core.shared import Shared
from tacit.methods.averaging.local_training import Correction, LocalTraining, train_client
from tacit.methods.fedavg import FedAvg
from tacit.models.network import Vector


@dataclass(frozen=True)
class ProximalTraining(LocalTraining):
    """Local training that is held near the common weights.

    Parameters
    ----------
    mu : float
        Strength μ of the pull towards the common weights, at least 0.
    """

    mu: float = 0.01

    def rules(self) -> Iterable[Rule]:
        return (*super().rules(), ("mu", self.mu >= 0, "give a number of at least 0"))

    def pull_towards(self, start: Vector) -> Correction | None:
        """Return what adds μ (w - w_t) to a gradient (eq. 2)."""
        if not self.mu:
            return None
        return lambda gradient, weights: gradient + self.mu * (weights - start[: len(weights)])


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with clients held near the common weights (Li et al., 2020)."""

    name = "fedprox"

    local: ProximalTraining = field(default_factory=ProximalTraining)

    @contribution(lambda self, schema: self.update_layout(schema), family=None)
    def update(self, party: Party, shared: Shared) -> dict[str, Any]:
        start = self.architecture.flatten_weights(party, shared)
        return train_client(self, party, shared, self.local.pull_towards(start))
