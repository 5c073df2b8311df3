"""FedAvg: clients train a network on their own rows for a while, and their changes are averaged.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas, "Communication-Efficient Learning of Deep
Networks from Decentralized Data", AISTATS 2017. With the paper's symbols:

    w_t    weights at the start of round t
    C      share of the clients that take part in a round (``fraction``)
    E, B   local epochs and rows of a step (``local.epochs``, ``local.batch``; B = ∞ is batch = 0)
    η      local learning rate (``local.rate``)
    n_k    rows of client k

Each client of the round starts from w_t, takes E epochs of steps and has w_t^k; then
w_{t+1} = Σ n_k w_t^k / Σ n_k (algorithm 1). With E = 1 and B = ∞ this is FedSGD.
What is summed here is the change, w_{t+1} = w_t + Σ u_k Δ_k / Σ u_k with Δ_k = w_t^k - w_t: the same model,
but a change has a bound (``limit``), so that fixed-point sums are short and precise. For the same reason
the weight is u_k = n_k/c ≤ 1, with c² = Σ n_k² ≥ max n_k² from a first protected sum: nobody's n_k is told.
The parts are in :mod:`tacit.methods.averaging`; other papers replace one of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tacit.core.client import manifest_of
from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError
from tacit.core.fields import add_prefix, strip_prefix
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution, step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.settings_group import check_rules
from tacit.core.shared import Shared, Total
from tacit.data.inputs import Inputs
from tacit.data.schema import Schema
from tacit.methods.averaging import architecture as learnt
from tacit.methods.averaging import rounds as turns
from tacit.methods.averaging.aggregation import Change, ServerStep, Weighting
from tacit.methods.averaging.architecture import Architecture, read_targets
from tacit.methods.averaging.example_privacy import ExamplePrivacy
from tacit.methods.averaging.local_training import LocalTraining, train_client
from tacit.methods.averaging.rounds import Cohort, HoldOutMonitor, Stopping
from tacit.methods.base import Method
from tacit.models.network import Matrix, Network, Targets, Vector
from tacit.models.neural import PREFIX, TARGET_CENTRE, Neural

NOBODY = 1e-9  # sum of weights below which nobody has contributed


@dataclass(frozen=True)
class FedAvg(Method):
    """Weighted average of locally trained networks (McMahan et al., 2017).

    Parameters
    ----------
    architecture : Architecture
        The network.
    rounds : int
        Rounds of local training and averaging.
    fraction : float
        Share of the clients that take part in a round, drawn anew each time.
    local : LocalTraining
        What a client does in a round.
    weighting : Weighting
        How much a client counts.
    change : Change
        How a client's change travels.
    stopping : Stopping
        When training ends early, and when a round is taken back.
    privacy : ExamplePrivacy
        DP-SGD at the clients.
    server : ServerStep
        What is done with the mean change.

    Examples
    --------
    >>> import tacit
    >>> federation = tacit.Federation.embedded("digits", clients=10)
    >>> model = FedAvg(rounds=5, local=LocalTraining(epochs=5)).fit(federation)
    >>> model.score(federation.test.values, federation.test.target) > 0.9
    True
    """

    name = "fedavg"
    needs_norms = False
    weighs_classes: ClassVar[bool] = True
    learns_from_models: ClassVar[bool] = True
    kept: ClassVar[tuple[str, ...]] = ()  # in a client's state: what it keeps for itself from round to round
    small: ClassVar[Mapping[str, Any]] = {"hidden": (8,), "rounds": 3, "epochs": 2, "batch": 8, "rate": 0.3}
    default_protection: ClassVar[str] = "masked"

    architecture: Architecture = field(default_factory=Architecture)
    rounds: int = 10
    fraction: float = 1.0
    local: LocalTraining = field(default_factory=LocalTraining)
    weighting: Weighting = field(default_factory=Weighting)
    change: Change = field(default_factory=Change)
    stopping: Stopping = field(default_factory=Stopping)
    privacy: ExamplePrivacy = field(default_factory=ExamplePrivacy)
    server: ServerStep = field(default_factory=ServerStep)

    def __post_init__(self) -> None:
        share = "give a share of the clients, above 0 up to 1"
        whole = ("rounds", self.rounds >= 1, "give a whole number of at least 1")
        check_rules(self, (whole, ("fraction", 0 < self.fraction <= 1, share)))
        self.budget.check_sums("labels" if self.counts_classes else None)

    @property
    def counts_classes(self) -> bool:
        return super().counts_classes or self.weighting.from_labels

    @property
    def budget(self) -> ExamplePrivacy:
        """Return what one row may cost, and the noise of what a client releases of it."""
        return self.privacy

    def train(self, coordinator: Coordinator) -> None:
        turns.give_back(coordinator, self.swap_kept, self.kept)
        remaining = turns.find_remaining(coordinator, self.rounds)
        if not coordinator.progress and (coordinator.shared is None or "scale" not in coordinator.shared):
            self.agree(coordinator)
        monitor = HoldOutMonitor(self.stopping, coordinator, remaining.start)
        for number in remaining:
            left = turns.has_sums_left(coordinator, self.round_sums)
            if not (left and self.budget.allows_round(coordinator, number, self.rounds, self.local.epochs)):
                break
            turns.admit_late_clients(coordinator, number)
            cohort = turns.draw_cohort(coordinator, self.fraction, number)
            cohort = self.prepare_round(monitor, cohort, number)
            going_on = monitor.run_round(number, self.update, self.step, cohort)
            known = {"over": not going_on, **self.compute_epsilon(coordinator, number + 1)}
            coordinator.complete_round(number + 1, **known, **self.summarise(monitor))
            if not going_on:
                break

    def agree(self, coordinator: Coordinator) -> None:
        """Find the norm of all weights, by which each becomes a number up to 1; shares of classes first."""
        if self.weighting.from_labels:
            coordinator.round(self.class_counts, self.share_classes)
        if not self.weighting.equal:
            coordinator.round(self.squares, self.norm)

    def prepare_round(self, monitor: HoldOutMonitor, cohort: Cohort, number: int) -> Cohort:
        """Do what comes before the sums of a round, and return who takes part: nothing, and as drawn."""
        return cohort

    def summarise(self, monitor: HoldOutMonitor) -> dict[str, Any]:
        """Return what a run that goes on later has to know."""
        known = turns.read_kept(monitor.coordinator, self.swap_kept, self.kept)
        return known | {"best": monitor.best, "start": monitor.start}

    def compute_epsilon(self, coordinator: Coordinator, number: int) -> dict[str, float]:
        """Return what so many rounds cost a client, by noise on sums, and a row; 0 without such noise."""
        budget, computed = self.budget, number + coordinator.repeats
        rows = budget.compute_epsilon(computed, self.local.epochs) if budget.noise else 0.0
        return {"epsilon": coordinator.protection.spent(), "epsilon_rows": rows}

    @contribution(lambda method, schema: Layout(Field("square", ())), family=None)
    def squares(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return the square of this client's weight."""
        targets = read_targets(party.data, shared)
        chosen = targets[self.weighting.choose_rows(party, shared, targets)]
        return {"square": self.weighting.weigh(chosen, shared) ** 2}

    def update_layout(self, schema: Schema) -> Layout:
        """Return the layout of a change and its weight."""
        return Layout(*self.change.fields(self.travelling(schema)), *self.weighting.fields())

    def travelling(self, schema: Schema) -> Network:
        """Return the part of the network that is averaged: all of it."""
        return self.architecture.build(schema)

    @contribution(update_layout, family=None)
    def update(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return u_k Δ_k and u_k after local training (ClientUpdate of algorithm 1)."""
        return train_client(self, party, shared)

    def read_rows(self, party: Party, shared: Shared) -> tuple[Matrix, Targets, Vector | None]:
        """Return the prepared rows of a client that take part in a round, their targets and weights."""
        X, targets = Inputs.of(shared).matrix(party.data), read_targets(party.data, shared)
        chosen = self.weighting.choose_rows(party, shared, targets)
        return X[chosen], targets[chosen], self.weigh_rows(party.data.take(chosen), shared)

    @step
    def swap_kept(self, party: Party, message: Message, shared: Shared) -> Message:
        """Take back what the experimenter gives of what this client keeps, and show what it has."""
        if not manifest_of(party).experiment:
            kept = ", ".join(self.kept)
            raise ConfigError(f"{party.id} keeps {kept} at its site: only experiments show or set it")
        party.state.update({name: message[name] for name in self.kept if name in message})
        return Message({name: party.state[name] for name in self.kept if name in party.state})

    @apply
    def norm(self, total: Total, shared: Shared) -> Shared:
        """Set c, which is at least the largest weight."""
        return shared | {"scale": float(np.sqrt(max(float(total["square"]), 1e-300)))}

    @apply
    def step(self, total: Total, shared: Shared) -> Shared:
        """Move to w_{t+1} = w_t + mean change; a round in which nobody counts changes nothing."""
        number = {"round": int(shared["round"]) + 1}
        weight = float(total["weight"]) if "weight" in total else float(total.contributors)
        if weight < NOBODY:
            return shared | number
        network = self.travelling(shared.schema)
        mean, kept = self.change.average(total, weight, network), (*self.server.state, *self.server.told)
        before = self.stopping.remember(shared, (PREFIX, *kept))
        return shared | {**before, **self.server.move(mean, shared, network), **number}

    def flaw(self, name: str, piece: Any, schema: Schema) -> str | None:
        return self.change.find_flaw(name, piece, self.travelling(schema))

    hold_out, consent = turns.hold_out, turns.consent

    @apply
    def take_back(self, total: Total, shared: Shared) -> Shared:
        """Set the weights, and what the server keeps beside them, as they were before the last round."""
        return shared | strip_prefix(turns.PREVIOUS, shared)

    def check(self, schema: Schema) -> None:
        super().check(schema)
        self.travelling(schema).chosen(self.change.protect_layers)
        self.budget.check_budget(self.local.epochs)
        self.budget.check_sums("targets" if schema.task == "regression" else None)
        self.stopping.check_task(schema.task)

    target_moments, scale_targets = learnt.target_moments, learnt.scale_targets
    share_classes = learnt.share_classes

    def agreements(self, schema: Schema, protection: Protection) -> dict[str, tuple[Any, Any]]:
        scaled = schema.task == "classification" or protection.adds_noise
        own = {} if scaled else {TARGET_CENTRE: (self.target_moments, self.scale_targets)}
        return super().agreements(schema, protection) | own

    def incompatibility(self, protection: Protection) -> str | None:
        if not protection.adds_noise:
            return None
        text = "noise would spoil the counts that class_weight needs: leave it out, or use fedheonn"
        return text if self.class_weight else self.weighting.explain_noise_conflict()

    def warnings_for(self, scaled: bool) -> Sequence[str]:
        text = "example_epsilon does not cover the sums that agree on a scale: use scale = 'none'"
        return (text,) if self.budget.noise and scaled else ()

    @property
    def own_epsilon(self) -> float:
        return self.foresee()[1]

    def foresee(self) -> tuple[int, float]:
        """Return how many rounds the budget of DP-SGD allows, and what they cost any one row."""
        return self.budget.foresee(self.rounds, self.local.epochs)

    @property
    def sums(self) -> int:
        return self.weighting.sums + self.rounds * self.round_sums

    @property
    def round_sums(self) -> int:
        return 1 + 2 * self.stopping.active  # scores of the hold-outs, and taking the round back

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        network = self.architecture.build(schema)
        weights = add_prefix(PREFIX, network.named(network.initial(rng)))
        return {**weights, "round": 0, "until": self.rounds}

    def continue_from(self, shared: Shared) -> Shared:
        kept = {name: value for name, value in shared.items() if name != "scale"}
        return Shared(shared.schema, {**kept, "until": int(shared["round"]) + self.rounds})

    def view(self, shared: Shared) -> Mapping[str, Any]:
        own = (*self.server.state, turns.PREVIOUS)
        return {name: value for name, value in shared.items() if not name.startswith(own)}

    def carry_over(self, party: Party, earlier: Party) -> None:
        self.budget.carry_over(party, earlier)
        party.state.update({name: earlier.state[name] for name in self.kept if name in earlier.state})

    def model(self, shared: Shared) -> Neural:
        return self.architecture.make_model(shared)
