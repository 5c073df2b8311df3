"""MIME and MimeLite: clients follow the server's optimiser, whose state stays as it is during a round.

S. P. Karimireddy, M. Jaggi, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh, "Breaking the
centralized barrier for cross-device federated learning", NeurIPS 2021 (at first "Mime: Mimicking Centralized
Stochastic Algorithms in Federated Learning"), algorithm 1. With the paper's symbols::

    x, y_i     weights at the start of a round, and those of client i
    m          state of the base optimiser, descent with momentum (``server``)
    U          its step and its update: U(g, m) = β₁ m + (1 - β₁) g
    c          mean of the clients' gradients ∇f_i(x) over all of their rows
    η, ζ       rate of the local steps (``local.rate``), and the rows of one

    y_i ← y_i - η U(∇f_i(y_i; ζ) - ∇f_i(x; ζ) + c, m)      MIME
    y_i ← y_i - η U(∇f_i(y_i; ζ), m)                       MimeLite (``lite``)
    x ← mean of y_i,  m ← U(c, m)

MIME needs c before the local steps, so a round has two protected sums; MimeLite has one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tacit.core.layout import Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.settings_group import Rule, check_rules
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.methods.averaging.aggregation import ServerStep, Weighting, confine_gradient, gradient_field
from tacit.methods.averaging.local_training import compute_gradient, train_client
from tacit.methods.averaging.rounds import Cohort, HoldOutMonitor
from tacit.methods.fedavg import FedAvg
from tacit.models.network import Vector


@dataclass(frozen=True)
class FrozenStep(ServerStep):
    """The base optimiser of clients and server.

    Parameters
    ----------
    beta1 : float
        Decay β₁ of the mean gradient; 0 is plain descent.
    """

    told: ClassVar[tuple[str, ...]] = ("frozen/",)

    beta1: float = 0.9

    def rules(self) -> Iterable[Rule]:
        return (("beta1", 0 <= self.beta1 < 1, "give a number from 0 up to, but below, 1"),)

    def follow(self, gradient: Vector, shared: Shared) -> Vector:
        """Return U(g, m)."""
        mixed: Vector = self.beta1 * shared["frozen/m"] + (1 - self.beta1) * gradient
        return mixed


@dataclass(frozen=True)
class Mime(FedAvg):
    """FedAvg by the server's optimiser, frozen at the clients (Karimireddy et al., 2021).

    Parameters
    ----------
    lite : bool
        MimeLite: clients follow their own gradients, and a round has one sum instead of two.
    """

    name = "mime"
    tasks = ("classification",)

    weighting: Weighting = field(default_factory=lambda: Weighting("equal"))
    server: FrozenStep = field(default_factory=FrozenStep)
    lite: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        given = "clients follow the base optimiser: set beta1 instead"
        plain = {"optimiser": self.local.optimiser == "sgd", "momentum": not self.local.momentum}
        check_rules(self.local, [(name, fine, given) for name, fine in plain.items()])
        uncovered = "no epsilon covers gradients over all rows, which are summed here: give 0, or use fedavg"
        check_rules(self.privacy, [("noise", not self.privacy.noise, uncovered)], self.privacy.prefix)

    def prepare_round(self, monitor: HoldOutMonitor, cohort: Cohort, number: int) -> Cohort:
        if not self.lite:
            monitor.coordinator.round(self.gradient, self.centre, cohort, monitor.state)
        return cohort

    def _gradient_layout(self, schema: Schema) -> Layout:
        return Layout(gradient_field(self.architecture.build(schema)), *self.weighting.fields())

    @contribution(_gradient_layout, family=None)
    def gradient(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return u_i ∇f_i(x) over all rows, and u_i."""
        found, _, targets = compute_gradient(self, party, shared)
        share, weight = self.weighting.contribute(targets, shared)
        return {"gradient": share * confine_gradient(found, party), **weight}

    def _layout(self, schema: Schema) -> Layout:
        network = self.architecture.build(schema)
        beside = [gradient_field(network)] if self.lite else []
        return Layout(*self.change.fields(network), *self.weighting.fields(), *beside)

    @contribution(_layout, family=None)
    def update(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return u_i (y_i - x) and u_i, of MimeLite also u_i ∇f_i(x)."""
        centre = 0.0 if self.lite else shared["frozen/c"]
        follow = self.server.follow
        change = train_client(self, party, shared, lambda g, w: follow(g + centre, shared), not self.lite)
        return {**change, **self.gradient(party, shared)} if self.lite else change

    @apply
    def centre(self, total: Total, shared: Shared) -> Shared:
        """Set c, the mean gradient; if nobody counts, to nothing."""
        weight = float(total.get("weight", total.contributors))
        return shared | {"frozen/c": np.asarray(total["gradient"]) / max(weight, 1e-300)}

    @apply
    def step(self, total: Total, shared: Shared) -> Shared:
        shared = self.centre(total, shared) if self.lite else shared
        return super().step(total, shared) | {"frozen/m": self.server.follow(shared["frozen/c"], shared)}

    @property
    def round_sums(self) -> int:
        return super().round_sums + (not self.lite)

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        nothing = np.zeros(self.architecture.build(schema).trained)
        return {**super().init(schema, rng), "frozen/m": nothing}
