"""HWFedAvg and NWFedAvg: FedAvg that counts clients with homogeneous classes more, or less.

B. Santos, J. Templeton, R. Chemli, E. Cerasti, F. Pugliese, M. Bruno, M. De Cubellis, M. Jug, "Exploring
Aggregation Strategies for Federated Learning in National Statistics", IFC-Bank of Italy workshop, 2023.
With p_ij the share of class j among the N_i rows of client i, and P_j its share among all rows:

    s_i = Σ_j P_j p_ij²,    P̃_i = s_i / Σ s_i,    w_i = (1/P̃_i) / Σ 1/P̃_i,    α_i = N_i / N
    W_i = α_i w_i / Σ α_i w_i

The sums cancel: W_i ∝ N_i/s_i (HWFedAvg), and its inverse is ∝ s_i/N_i (NWFedAvg); without the sizes
(``by_size``) 1/s_i and s_i. So a client needs nobody's numbers but P_j, from a protected sum of class counts,
and neither histograms nor weights are shown; the paper shows W_i to the coordinator (``expose_weights``). It
also suggests leaving out heterogeneous clients ("exclude": they have no weight, and nobody learns whom), or
some of their rows ("subsample": at most P_j N_i of class j, drawn anew in every round); here those whose s_i
is above ``threshold`` times that of a client with the shares P_j.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from tacit.core.layout import Field
from tacit.core.party import Party
from tacit.core.settings_group import Rule
from tacit.core.shared import Shared
from tacit.methods.averaging.aggregation import Weighting
from tacit.methods.fedavg import FedAvg
from tacit.models.network import Targets, Vector


def concentration(counts: Vector, shares: Vector) -> float:
    """Return s_i = Σ_j P_j p_ij²: small for a client with evenly spread classes."""
    return float(shares @ (counts / counts.sum()) ** 2)


@dataclass(frozen=True)
class HomogeneityWeighting(Weighting):
    """The weights of HWFedAvg: clients with homogeneous classes count more.

    Parameters
    ----------
    by_size : bool
        Whether the number of rows is part of the weight.
    heterogeneous : {"keep", "exclude", "subsample"}
        What becomes of clients with very uneven classes in a round.
    threshold : float
        How many times the concentration of all rows together a client may have before it counts as such.
    expose_weights : bool
        Show each client's weight to the coordinator, as the paper does.
    """

    from_labels: ClassVar[bool] = True
    sums = 2  # of the class counts, and of the squared weights

    by_size: bool = True
    heterogeneous: Literal["keep", "exclude", "subsample"] = "keep"
    threshold: float = 1.5
    expose_weights: bool = False

    def rules(self) -> Iterable[Rule]:
        return (
            ("weighting", not self.equal, "clients have weights of their own here, 'equal' is for fedavg"),
            ("threshold", self.threshold >= 1, "give 1 or more; 1 is as even as all rows together"),
        )

    def prefer(self, concentration: float, rows: int) -> float:
        """Return N_i/s_i, or without the size 1/s_i."""
        return 1.0 / concentration * rows if self.by_size else 1.0 / concentration

    def weigh(self, labels: Targets, shared: Shared) -> float:
        """Return W_i, up to the sums that cancel; 0 for a client that is left out."""
        s, largest = self._concentrations(labels, shared)
        return 0.0 if self.heterogeneous == "exclude" and s > largest else self.prefer(s, len(labels))

    def choose_rows(self, party: Party, shared: Shared, labels: Targets) -> Any:
        s, largest = self._concentrations(labels, shared)
        if self.heterogeneous != "subsample" or s <= largest:
            return slice(None)
        fair = np.ceil(shared["class_shares"] * len(labels)).astype(int)
        order = party.rng("subset", int(shared["round"])).permutation(len(labels))
        kept = [order[labels[order] == code][: fair[code]] for code in range(len(fair))]
        return np.sort(np.concatenate(kept))

    def fields(self) -> list[Field]:
        return [Field("weight", (), bound=1.0, clear=self.expose_weights)]

    def explain_noise_conflict(self) -> str:
        return "its weights and class counts are sums that noise and clipping would spoil: use fedavg"

    def _concentrations(self, labels: Targets, shared: Shared) -> tuple[float, float]:
        """Return s_i, and the largest of a client that is not heterogeneous."""
        shares: Vector = shared["class_shares"]
        s = concentration(np.bincount(labels, minlength=len(shares)).astype(np.float64), shares)
        return s, self.threshold * float(shares @ shares**2)


@dataclass(frozen=True)
class InverseHomogeneityWeighting(HomogeneityWeighting):
    """The weights of NWFedAvg: clients with homogeneous classes count less."""

    def prefer(self, concentration: float, rows: int) -> float:
        """Return the inverse of HWFedAvg's: s_i/N_i, or without the size s_i."""
        return concentration / rows if self.by_size else concentration


@dataclass(frozen=True)
class HWFedAvg(FedAvg):
    """FedAvg that counts clients with homogeneous classes more (Santos et al., 2023)."""

    name = "hwfedavg"
    tasks = ("classification",)

    weighting: HomogeneityWeighting = field(default_factory=HomogeneityWeighting)


@dataclass(frozen=True)
class NWFedAvg(FedAvg):
    """FedAvg that counts clients with homogeneous classes less (Santos et al., 2023)."""

    name = "nwfedavg"
    tasks = ("classification",)

    weighting: InverseHomogeneityWeighting = field(default_factory=InverseHomogeneityWeighting)
