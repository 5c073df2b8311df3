"""HWFedAvg and NWFedAvg: FedAvg that counts clients with homogeneous classes more, or less.

B. Santos, J. Templeton, R. Chemli, E. Cerasti, F. Pugliese, M. Bruno, M. De Cubellis, M. Jug, "Exploring
Aggregation Strategies for Federated Learning in National Statistics", IFC-Bank of Italy workshop, 2023.
With p_ij the share of class j among the N_i rows of client i, and P_j its share among all rows:

    s_i = Σ_j P_j p_ij²,    P̃_i = s_i / Σ s_i,    w_i = (1/P̃_i) / Σ 1/P̃_i,    α_i = N_i / N
    W_i = α_i w_i / Σ α_i w_i

The sums cancel: W_i ∝ N_i/s_i (HWFedAvg), and its inverse is ∝ s_i/N_i (NWFedAvg); without the sizes
(``by_size``) 1/s_i and s_i. So a client needs nobody's numbers but P_j, which come from a protected sum of
class counts, and sends its change times W_i and W_i itself through the sum: neither histograms nor weights
are shown. The paper shows W_i to the coordinator (``expose_weights``).

It also suggests leaving heterogeneous clients out for a round, or using a subset of their rows; here those
whose s_i is above ``threshold`` times that of a client with the shares P_j: "exclude" gives them no weight,
and nobody learns whom; "subsample" trains on at most P_j N_i rows of class j, drawn anew in every round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.methods.fedavg import FedAvg

Vector = NDArray[np.float64]
Labels = NDArray[np.int64]


def class_counts(labels: Labels, classes: int) -> Vector:
    """N_ij: rows of each class."""
    return np.bincount(labels, minlength=classes).astype(np.float64)


def concentration(counts: Vector, shares: Vector) -> float:
    """s_i = Σ_j P_j p_ij²: small for a client with evenly spread classes.

    >>> even, P = np.array([5.0, 5.0]), np.array([0.5, 0.5])
    >>> concentration(even, P), concentration(np.array([10.0, 0.0]), P)
    (0.25, 0.5)
    """
    return float(shares @ (counts / counts.sum()) ** 2)


@dataclass(frozen=True)
class HomogeneityWeighted(FedAvg):
    """Base of both: everything but the direction of the weights.

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

    name: ClassVar[str] = ""
    paper = (
        "Santos, Templeton, Chemli, Cerasti, Pugliese, Bruno, De Cubellis and Jug, Exploring Aggregation "
        "Strategies for Federated Learning in National Statistics, 2023"
    )

    by_size: bool = True
    heterogeneous: Literal["keep", "exclude", "subsample"] = "keep"
    threshold: float = 1.5
    expose_weights: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weighting != "rows":
            raise ConfigError(f"{self.name} has weights of its own: weighting = 'equal' is for fedavg")
        if self.example_noise:
            raise ConfigError(
                f"{self.name} sums class counts and weights that follow from labels, which example_epsilon "
                "would not cover: use fedavg"
            )
        if not self.threshold >= 1:
            raise ConfigError(
                f"threshold is {self.threshold}: give 1 or more; 1 is as even as all rows together"
            )

    def incompatibility(self, protection: Protection) -> str | None:
        """Refuse noise on weights, which are the whole point here."""
        if super().incompatibility(protection):
            return "its weights and class counts are sums that noise and clipping would spoil: use fedavg"
        return None

    @property
    def sums(self) -> int:
        """FedAvg's, and the class counts."""
        return super().sums + 1

    def agree(self, coordinator: Coordinator) -> None:
        """Find P_j, then the norm of the weights."""
        coordinator.round(self.classes, self.share)
        super().agree(coordinator)

    def _classes_layout(self, schema: Schema) -> Layout:
        return Layout(Field("counts", (schema.outputs,)))

    @contribution(_classes_layout)
    def classes(self, party: Party, shared: Shared) -> dict[str, Any]:
        """N_ij of this client."""
        return {"counts": class_counts(shared.schema.labels(party.data), shared.schema.outputs)}

    @apply
    def share(self, total: Total, shared: Shared) -> Shared:
        """P_j; noise may have made a count negative, or none positive."""
        counts = np.maximum(np.asarray(total["counts"]), 0.0) + 1e-12
        return shared | {"class_shares": counts / counts.sum()}

    def tilt(self, concentration: float) -> float:
        """Weight of a client from its s_i, before its size."""
        raise NotImplementedError

    def sized(self, tilt: float, rows: int) -> float:
        """Weight with the size."""
        raise NotImplementedError

    def weight(self, labels: Labels, shared: Shared) -> float:
        """W_i, up to the sums that cancel; none for a client that is left out."""
        s = concentration(class_counts(labels, shared.schema.outputs), shared["class_shares"])
        if self.heterogeneous == "exclude" and s > self._most(shared):
            return 0.0
        return self.sized(self.tilt(s), len(labels)) if self.by_size else self.tilt(s)

    def _most(self, shared: Shared) -> float:
        shares: Vector = shared["class_shares"]
        return self.threshold * float(shares @ shares**2)

    def rows(self, party: Party, shared: Shared, labels: Labels) -> Labels | None:
        """Rows of a heterogeneous client that take part, where only a subset does."""
        if self.heterogeneous != "subsample":
            return None
        counts = class_counts(labels, shared.schema.outputs)
        if concentration(counts, shared["class_shares"]) <= self._most(shared):
            return None
        fair = np.ceil(shared["class_shares"] * len(labels)).astype(int)
        order = party.rng("subset", int(shared["round"])).permutation(len(labels))
        kept = [order[labels[order] == code][: fair[code]] for code in range(len(fair))]
        return np.sort(np.concatenate(kept))

    def _weight_fields(self) -> list[Field]:
        return [Field("weight", (), bound=1.0, clear=self.expose_weights)]


@dataclass(frozen=True)
class HWFedAvg(HomogeneityWeighted):
    """FedAvg that counts clients with homogeneous classes more (Santos et al., 2023).

    Examples
    --------
    >>> import tacit
    >>> federation = tacit.Federation.embedded("digits", clients=12, partition="majority-even")
    >>> model = HWFedAvg(rounds=5, epochs=5).fit(federation)
    >>> model.score(federation.test.values, federation.test.target) > 0.8
    True
    """

    name = "hwfedavg"

    def tilt(self, concentration: float) -> float:
        """1 / s_i."""
        return 1.0 / concentration

    def sized(self, tilt: float, rows: int) -> float:
        """N_i / s_i."""
        return tilt * rows


@dataclass(frozen=True)
class NWFedAvg(HomogeneityWeighted):
    """FedAvg that counts clients with homogeneous classes less (Santos et al., 2023)."""

    name = "nwfedavg"

    def tilt(self, concentration: float) -> float:
        """The inverse of HWFedAvg's: s_i."""
        return concentration

    def sized(self, tilt: float, rows: int) -> float:
        """The inverse of HWFedAvg's: s_i / N_i."""
        return tilt / rows
