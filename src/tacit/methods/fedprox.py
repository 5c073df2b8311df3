"""FedProx: FedAvg plus a pull of every client towards the weights that the round started from.

T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, "Federated Optimization in Heterogeneous
Networks", MLSys 2020: client k minimises F_k(w) + μ/2 ‖w - w_t‖² instead of F_k(w) (eq. 2), so its gradient
gains μ (w - w_t). With μ = 0 it is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tacit.core.errors import ConfigError
from tacit.methods.fedavg import FedAvg
from tacit.models.local import Descent


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with clients held near the common weights (Li et al., 2020).

    Parameters
    ----------
    mu : float
        Strength μ of the pull towards the common weights, at least 0.
    """

    name = "fedprox"
    paper = (
        "Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, Federated Optimization in Heterogeneous Networks, "
        "2020"
    )

    mu: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mu >= 0:
            raise ConfigError(f"mu is {self.mu}: give a number of at least 0")

    def descent(self) -> Descent:
        """FedAvg's, with the pull."""
        return replace(super().descent(), proximal=self.mu)
