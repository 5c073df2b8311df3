"""SCAFFOLD: FedAvg whose clients correct each step by how their gradients differ from those of all.

S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh, "SCAFFOLD: Stochastic Controlled
Averaging for Federated Learning", ICML 2020, algorithm 1 with option II and a global rate of 1::

    y_i ← y_i - η_l (g_i(y_i) - c_i + c)                   K local steps of client i, from the weights x
    c_i⁺ = c_i - c + (x - y_i) / (K η_l)                   its control variate, which it keeps; 0 at first
    x ← x + 1/|S| Σ (y_i - x),  c ← c + 1/N Σ (c_i⁺ - c_i) over the clients S of the round, of N in all

With plain steps c_i⁺ is the mean of the gradients g_i that the client met; so it is computed, whatever the
optimiser. c_i⁺ - c_i is a gradient: it travels in the same protected sum as the change. A client that takes
no part in a round, or whose contribution is lost, keeps its c_i: so c stays the mean of all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit.core.fields import read_integer
from tacit.core.layout import Layout
from tacit.core.marks import apply, contribution, step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.settings_group import check_rules
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.methods.averaging.aggregation import Weighting, confine_gradient, gradient_field
from tacit.methods.averaging.local_training import train_client
from tacit.methods.averaging.rounds import Cohort, HoldOutMonitor
from tacit.methods.fedavg import FedAvg
from tacit.models.network import Vector

# In a client's state: c_i after the last round that it computed, before it, and the number of that round.
OWN, BEFORE, ROUND = KEPT = ("control", "control_before", "control_round")


@dataclass(frozen=True)
class Scaffold(FedAvg):
    """FedAvg with control variates against the drift of clients (Karimireddy et al., 2020)."""

    name = "scaffold"
    kept = KEPT

    weighting: Weighting = field(default_factory=lambda: Weighting("equal"))

    def __post_init__(self) -> None:
        super().__post_init__()
        alike = "c is a plain mean over the clients: give 'equal'"
        check_rules(self.weighting, [("weighting", self.weighting.equal, alike)])
        kept = "clients do not take back their control variates: give 0"
        check_rules(self.stopping, [("collapse", not self.stopping.collapse, kept)])

    def prepare_round(self, monitor: HoldOutMonitor, cohort: Cohort, number: int) -> Cohort:
        """Have clients take back what no total holds, leave out who cannot, and count all of them."""
        coordinator = monitor.coordinator
        if coordinator.manifest.attempt and not monitor.counted:  # a run that was stopped within a round
            monitor.missed = dict.fromkeys(coordinator.parties, number) | monitor.missed
        missed = [name for name in coordinator.parties if name in monitor.missed]
        jobs = {name: {"round": monitor.missed[name]} for name in missed}
        for name, _ in coordinator.ask(self.take_back_variate, jobs=jobs, failures={}) if jobs else ():
            del monitor.missed[name]
        if len(coordinator.parties) > monitor.counted:
            coordinator.round(self.consent, self.count)
            monitor.counted = len(coordinator.parties)
        asked = coordinator.parties if cohort is None else cohort
        return tuple(name for name in asked if name not in monitor.missed) if monitor.missed else cohort

    def summarise(self, monitor: HoldOutMonitor) -> dict[str, Any]:
        """Return also who missed rounds."""
        return {**super().summarise(monitor), "missed": tuple(monitor.missed.items())}

    def _layout(self, schema: Schema) -> Layout:
        network = self.architecture.build(schema)
        return Layout(*self.change.fields(network), gradient_field(network))

    @contribution(_layout, family=None)
    def update(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return y_i - x and c_i⁺ - c_i, and keep c_i⁺."""
        number, common = int(shared["round"]), shared["control"]
        # A round that is computed again begins with what it began with.
        again = party.state.get(ROUND, -1) >= number
        own = party.state.get(BEFORE if again else OWN, np.zeros_like(common))
        met, steps = np.zeros_like(common), 0

        def correct(gradient: Vector, weights: Vector) -> Vector:
            nonlocal met, steps
            met, steps = met + gradient, steps + 1
            corrected: Vector = gradient - own + common
            return corrected

        change = train_client(self, party, shared, correct)
        difference = confine_gradient(met / max(1, steps) - own, party)
        party.state.update({OWN: own + difference, BEFORE: own, ROUND: number})
        return {**change, "gradient": difference}

    @step
    def take_back_variate(self, party: Party, message: Message, shared: Shared) -> Message:
        """Take back c_i⁺ of a round, or of a later one: no total holds it."""
        if party.state.get(ROUND, -1) >= (number := read_integer(message, "round")):
            party.state.update({OWN: party.state[BEFORE], ROUND: number - 1})
        return Message()

    @apply
    def count(self, total: Total, shared: Shared) -> Shared:
        """Set N; those that are new bring a c_i of 0 into the mean c."""
        before, now = int(shared["clients"]), max(int(shared["clients"]), total.contributors)
        return shared | {"clients": now, "control": shared["control"] * (before / now)}

    @apply
    def step(self, total: Total, shared: Shared) -> Shared:
        """Move x by the mean change, and c by the changes of all c_i over N."""
        control = shared["control"] + np.asarray(total["gradient"]) / int(shared["clients"])
        return super().step(total, shared) | {"control": control}

    def incompatibility(self, protection: Protection) -> str | None:
        return "noise and clipping part c from the mean of c_i: use fedavg" if protection.adds_noise else None

    def warnings_for(self, scaled: bool) -> Sequence[str]:
        text = "one that missed rounds, or is new, adds nearly its whole gradient, and the others little: "
        text += "whoever opens totals of control variates then sees about the gradient of one client"
        return (*super().warnings_for(scaled), text)

    @property
    def round_sums(self) -> int:
        return super().round_sums + 1

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        control = np.zeros(self.architecture.build(schema).trained)
        return {**super().init(schema, rng), "control": control, "clients": 0}

    def continue_from(self, shared: Shared) -> Shared:
        return super().continue_from(shared) | {"control": np.zeros_like(shared["control"]), "clients": 0}
