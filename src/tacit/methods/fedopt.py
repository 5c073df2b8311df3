"""FedAdagrad, FedAdam and FedYogi: FedAvg whose mean change is the gradient of an adaptive server optimiser.

S. J. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konečný, S. Kumar, H. B. McMahan, "Adaptive
Federated Optimization", ICLR 2021, algorithm 2. With Δ the mean change of a round:

    m ← β₁ m + (1 - β₁) Δ
    v ← v + Δ²                              FedAdagrad
    v ← β₂ v + (1 - β₂) Δ²                  FedAdam
    v ← v - (1 - β₂) Δ² sign(v - Δ²)        FedYogi
    w ← w + η m / (√v + τ)

With the rates here (1 - β₁) η/τ is about 1 (docs/averaging.md says why). The paper begins with v = τ², Flower
with 0: ``v0`` is that choice. With ``bias_correction``, which Flower's FedAdam has and the paper's has not, η
is multiplied by √(1 - β₂^(t+1)) / (1 - β₁^(t+1)) in round t = 1, 2, …; Kingma and Ba have t for t + 1.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar

import numpy as np

from tacit.core.settings_group import Rule
from tacit.core.shared import Shared
from tacit.methods.averaging.aggregation import ServerStep
from tacit.methods.fedavg import FedAvg
from tacit.models.network import Network, Vector
from tacit.models.neural import PREFIX


@dataclass(frozen=True)
class AdamStep(ServerStep):
    """Adam: v is a moving average of squares. The other steps differ in how v moves.

    Parameters
    ----------
    eta : float
        Learning rate η of the server.
    beta1 : float
        Decay β₁ of the mean change.
    beta2 : float
        Decay β₂ of its square; FedAdagrad has none.
    tau : float
        τ, which keeps the division from running away; the larger, the less adaptive.
    v0 : float
        Where v starts, in units of τ²: 0 as in Flower, 1 as in the paper.
    bias_correction : bool
        Correct for m and v having started at zero.
    """

    state: ClassVar[tuple[str, ...]] = ("m/", "v/")

    eta: float = 0.2
    beta1: float = 0.5
    beta2: float = 0.99
    tau: float = 0.1
    v0: float = 0.0
    bias_correction: bool = False

    def rules(self) -> Iterable[Rule]:
        return (
            ("eta", 0 < self.eta < inf, "give a learning rate above 0"),
            ("beta1", 0 <= self.beta1 < 1, "give a number from 0 up to, but below, 1"),
            ("beta2", 0 <= self.beta2 < 1, "give a number from 0 up to, but below, 1"),
            ("tau", 0 < self.tau < inf, "give a small number above 0"),
            ("v0", 0 <= self.v0 < inf, "give 0 or a number above"),
        )

    def move(self, mean: Mapping[str, Any], shared: Shared, network: Network) -> dict[str, Any]:
        """Return the weights after one step, and m and v; state that is not trained is averaged plainly."""
        result, eta = super().move(mean, shared, network), self.eta
        if self.bias_correction:
            count = int(shared["round"]) + 2
            eta *= np.sqrt(1 - self.beta2**count) / (1 - self.beta1**count)
        for name in network.parameters:
            delta = mean[name]
            m = self.beta1 * shared.get(f"m/{name}", 0.0) + (1 - self.beta1) * delta
            start = np.full_like(delta, self.v0 * self.tau**2)
            v = self._next_v(shared.get(f"v/{name}", start), delta**2)
            weights = shared[PREFIX + name] + eta * m / (np.sqrt(v) + self.tau)
            result |= {f"m/{name}": m, f"v/{name}": v, PREFIX + name: weights}
        return result

    def _next_v(self, v: Vector, square: Vector) -> Vector:
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True)
class AdagradStep(AdamStep):
    """Adagrad: v adds up all squares."""

    eta: float = 0.3
    beta1: float = 0.0
    v0: float = 1.0

    def _next_v(self, v: Vector, square: Vector) -> Vector:
        return v + square


@dataclass(frozen=True)
class YogiStep(AdamStep):
    """Yogi: v grows and shrinks by at most (1 - β₂) Δ², whatever it is."""

    def _next_v(self, v: Vector, square: Vector) -> Vector:
        return v - (1 - self.beta2) * square * np.sign(v - square)


@dataclass(frozen=True)
class FedAdagrad(FedAvg):
    """FedAvg with Adagrad at the server (Reddi et al., 2021)."""

    name = "fedadagrad"

    server: AdagradStep = field(default_factory=AdagradStep)


@dataclass(frozen=True)
class FedAdam(FedAvg):
    """FedAvg with Adam at the server (Reddi et al., 2021)."""

    name = "fedadam"

    server: AdamStep = field(default_factory=AdamStep)


@dataclass(frozen=True)
class FedYogi(FedAvg):
    """FedAvg with Yogi at the server (Reddi et al., 2021)."""

    name = "fedyogi"

    server: YogiStep = field(default_factory=YogiStep)
