"""The ring protocol for multi-layer perceptrons: every round, all clients take one step together.

E. Angulo, J. Márquez, R. Villanueva-Polanco, "Training of Classification Models via Federated Learning and
Homomorphic Encryption", Sensors 23, 2023, sections 3.3 and 3.4. With the paper's names:

    hidden_layers_size, activations, initialization      ``hidden``, ``activation``, ``initialisation``
    γ, learning_rate                                      ``rate``
    epochs                                                ``rounds``: a step on all rows is an epoch
    standardization, key length                           of the preparation and of ``ring``

Client i has the gradient ∇F_i of all its rows. The encrypted sum goes around the ring, the server decrypts
it and divides by the number of clients, and all move to X_{n+1} = X_n - γ ∇F(X_n). So the model is that
of gradient descent on the pooled rows, where each client counts the same; with ``weighting = "rows"`` each
row does. What the paper leaves to future work is here too: batches, L2, momentum and Adam, applied to the
mean gradient; and totals that clients open, without a server's key (``bfv``, for one).

If n - 1 of n clients have a gradient of exactly zero for a parameter, the total shows that of the last one
(section 5.2.2); with p the share of zeros, n p^(n-1) (1 - p) of the parameters are expected to be such.
``watch`` counts how many are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar

import numpy as np

from tacit.core.errors import OpeningError
from tacit.core.events import Noted
from tacit.core.fields import add_prefix, strip_prefix
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.settings_group import Rule, check_rules
from tacit.core.shared import Shared, Total
from tacit.methods.averaging.aggregation import Change, ServerStep, Weighting
from tacit.methods.averaging.architecture import Architecture
from tacit.methods.averaging.local_training import LocalTraining, compute_gradient
from tacit.methods.averaging.rounds import Cohort, HoldOutMonitor
from tacit.methods.fedavg import FedAvg
from tacit.models.network import Vector
from tacit.models.neural import PREFIX

MEMORY = "memory/"  # of shared values: what the optimiser remembers


@dataclass(frozen=True)
class CommonStep(LocalTraining):
    """The step that all take together once the mean gradient is known.

    Parameters
    ----------
    epochs : int
        1: a round is one step, and ``rounds`` says how many.
    batch : int
        Rows that a client draws for its gradient; 0 for all.
    optimiser : {"sgd", "adam"}
        What follows the mean gradient; its memory stays from round to round.
    rate : float
        Learning rate γ.
    l2 : float
        Penalty: this times the weights joins the gradient.
    """

    batch: int = 0
    rate: float = 0.01
    l2: float = 0.0

    def rules(self) -> Iterable[Rule]:
        own = ("epochs", self.epochs == 1, "a round is one step: set rounds instead")
        return (*super().rules(), own, ("l2", 0 <= self.l2 < inf, "give a number of at least 0"))


@dataclass(frozen=True)
class CommonMemory(ServerStep):
    """The memory of the optimiser, which stays where totals open."""

    state: ClassVar[tuple[str, ...]] = (MEMORY,)


@dataclass(frozen=True)
class RingMLP(FedAvg):
    """Gradient descent in common, a step each round (Angulo et al., 2023).

    Parameters
    ----------
    rounds : int
        Steps; with ``batch = 0`` the paper's epochs.
    watch : bool
        Count before each round the parameters for which a single client has a gradient, and note it. One
        more sum, which tells the coordinator how many clients have one for each: for experiments.
    """

    name = "ring-mlp"
    tasks = ("classification",)
    default_protection: ClassVar[str] = "ring"
    small: ClassVar[Mapping[str, Any]] = {"hidden": (8,), "rounds": 4, "rate": 1.0}

    architecture: Architecture = field(default_factory=lambda: Architecture(hidden=(), activation="tanh"))
    rounds: int = 120
    local: CommonStep = field(default_factory=CommonStep)
    weighting: Weighting = field(default_factory=lambda: Weighting(weighting="equal"))
    change: Change = field(default_factory=lambda: Change(limit=16.0))
    server: CommonMemory = field(default_factory=CommonMemory)
    watch: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        common = "a step is common to all clients: use fedavg, or protect with noised"
        check_rules(self.privacy, [("noise", not self.privacy.noise, common)], self.privacy.prefix)

    @contribution(lambda self, schema: self.update_layout(schema), family=None)
    def update(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return -u_i ∇F_i and u_i: it travels as a change does."""
        network = self.architecture.build(shared.schema)
        gradient, moved, targets = compute_gradient(self, party, shared, self.local.batch)
        delta = moved - self.architecture.flatten_weights(party, shared)
        delta[: network.trained] = -gradient
        share, weight = self.weighting.contribute(targets, shared)
        return {**self.change.pack(delta, share, network, party), **weight}

    @apply
    def step(self, total: Total, shared: Shared) -> Shared:
        network, moved = self.architecture.build(shared.schema), super().step(total, shared)
        before, after = (network.flat(strip_prefix(PREFIX, values)) for values in (shared, moved))
        start = before[: network.trained]
        gradient = start - after[: network.trained] + self.local.l2 * start
        steps = int(shared["round"]) + 1
        change, memory = self.local.follow(gradient, strip_prefix(MEMORY, shared), steps)
        after[: network.trained] = start - change
        return moved | add_prefix(PREFIX, network.named(after)) | add_prefix(MEMORY, memory)

    def prepare_round(self, monitor: HoldOutMonitor, cohort: Cohort, number: int) -> Cohort:
        if not self.watch:
            return cohort
        coordinator = monitor.coordinator
        counts = coordinator.reveal(self.activity, cohort)
        alone, expected = count_alone(np.rint(counts["active"]), counts.contributors)
        text = f"round {number + 1}: {alone:,} of {counts['active'].size:,} parameters have the gradient of "
        text += f"a single client, which the total shows; by n p^(n-1) (1-p) there would be {expected:,.1f}"
        coordinator.events.emit(Noted("gradients", text, "warning" if alone else "info"))
        return cohort

    def _activity_layout(self, schema: Any) -> Layout:
        return Layout(Field("active", (self.architecture.build(schema).trained,), bound=1.0))

    @contribution(_activity_layout, family=None, revealed=True)
    def activity(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return a one for every parameter that has a gradient here in this round, if that was agreed."""
        if not self.watch:
            raise OpeningError(f"{party.id} counts no gradients: watch is off, as agreed")
        return {"active": compute_gradient(self, party, shared, self.local.batch)[0] != 0.0}

    def incompatibility(self, protection: Protection) -> str | None:
        if protection.adds_noise and self.watch:
            return "with noise nobody can count gradients of a single client: leave watch out"
        return super().incompatibility(protection)

    @property
    def round_sums(self) -> int:
        return super().round_sums + self.watch


def count_alone(active: Vector, clients: int) -> tuple[int, float]:
    """Return how many parameters one client alone has a gradient for, and how many the paper expects."""
    zeros = 1.0 - float(active.sum()) / (clients * active.size)
    expected = active.size * clients * zeros ** (clients - 1) * (1.0 - zeros)
    return int((active == 1).sum()), expected
