"""MIME and MimeLite: clients follow the server's optimiser, whose state stays as it is during a round.

S. P. Karimireddy, M. Jaggi, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh, "Breaking the
centralized barrier for cross-device federated learning", NeurIPS 2021 (at first "Mime: Mimicking Centralized
Stochastic Algorithms in Federated Learning"), algorithm 1. With the paper's symbols:

    x, y_i     weights at the start of a round, and those of client i
    s          state of the base optimiser: m, and v of Adam (``server``)
    U, V       its step and its update: U(g, s) = β₁ m + (1 - β₁) g, of Adam over √v + τ;
               V: m ← β₁ m + (1 - β₁) g, v ← β₂ v + (1 - β₂) g²
    c          mean of the clients' gradients ∇f_i(x) over all of their rows
    η, ζ       rate of the local steps (``local.rate``), and the rows of one

    y_i ← y_i - η U(∇f_i(y_i; ζ) - ∇f_i(x; ζ) + c, s)      MIME
    y_i ← y_i - η U(∇f_i(y_i; ζ), s)                       MimeLite (``lite``)
    x ← mean of y_i,  s ← V(c, s)

MIME needs c before the local steps, so a round has two protected sums; MimeLite has one, of changes and
gradients together. With β₁ = 0 and "momentum" the base optimiser is plain descent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, Literal

import numpy as np

from tacit.core.errors import ConfigError
from tacit.core.layout import Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.settings_group import Rule
from tacit.core.shared import Shared, Total
from tacit.data.schema import Schema
from tacit.methods.averaging.aggregation import ServerStep, Weighting
from tacit.methods.averaging.gradients import Gradients, count_alike
from tacit.methods.averaging.local_training import Correction
from tacit.methods.averaging.rounds import Sums
from tacit.methods.fedavg import FedAvg
from tacit.models.network import Vector


@dataclass(frozen=True)
class FrozenStep(ServerStep):
    """The base optimiser of clients and server.

    Parameters
    ----------
    base : {"momentum", "adam"}
        Which one: descent with momentum, or Adam.
    beta1 : float
        Decay β₁ of the mean gradient.
    beta2 : float
        Decay β₂ of its square, of "adam".
    tau : float
        τ, which keeps the division of "adam" from running away.
    """

    told: ClassVar[tuple[str, ...]] = ("frozen/",)

    base: Literal["momentum", "adam"] = "momentum"
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 0.01

    def rules(self) -> Iterable[Rule]:
        """Return what the values must satisfy."""
        return (
            ("beta1", 0 <= self.beta1 < 1, "give a number from 0 up to, but below, 1"),
            ("beta2", 0 <= self.beta2 < 1, "give a number from 0 up to, but below, 1"),
            ("tau", 0 < self.tau < inf, "give a small number above 0"),
        )

    def follow(self, gradient: Vector, shared: Shared) -> Vector:
        """Return U(g, s), by which a step goes."""
        mixed: Vector = self.beta1 * shared["frozen/m"] + (1 - self.beta1) * gradient
        return mixed / (np.sqrt(shared["frozen/v"]) + self.tau) if self.base == "adam" else mixed

    def learn(self, gradient: Vector, shared: Shared) -> dict[str, Vector]:
        """Return V(g, s), the state after a round."""
        m = self.beta1 * shared["frozen/m"] + (1 - self.beta1) * gradient
        return {"frozen/m": m, "frozen/v": self.beta2 * shared["frozen/v"] + (1 - self.beta2) * gradient**2}


@dataclass(frozen=True)
class Mime(FedAvg):
    """FedAvg whose clients follow the server's optimiser, frozen for a round (Karimireddy et al., 2021).

    Parameters
    ----------
    lite : bool
        MimeLite: clients follow their own gradients, and a round has one sum instead of two.
    """

    name = "mime"
    paper = (
        "Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich and Suresh, Breaking the centralized barrier for "
        "cross-device federated learning, 2021"
    )

    weighting: Weighting = field(default_factory=count_alike)
    server: FrozenStep = field(default_factory=FrozenStep)
    gradients: Gradients = field(default_factory=Gradients)
    lite: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local.optimiser != "sgd" or self.local.momentum:
            raise ConfigError(
                f"clients of {self.name} follow the base optimiser, and have none of their own: set base and "
                "beta1, and leave optimiser = 'sgd' and momentum = 0"
            )
        if self.privacy.noise:
            raise ConfigError(
                f"{self.name} sums gradients over all rows, which example_epsilon would not cover: use fedavg"
            )

    def list_sums(self) -> Sums:
        """Return the sums of a round: MIME's first is over gradients."""
        updates = (self.update, self.step)
        return (updates,) if self.lite else ((self.gradient, self.centre), updates)

    # -- a client ----------------------------------------------------------------------------------

    def _gradient_layout(self, schema: Schema) -> Layout:
        return Layout(*self.gradients.fields(self.architecture.build(schema)), *self.weighting.fields())

    @contribution(_gradient_layout, family=None)
    def gradient(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return u_i ∇f_i(x) over all rows, and u_i."""
        start = self.architecture.flatten_weights(party, shared).copy()
        X, labels = self.read_rows(party, shared)
        with np.errstate(all="ignore"):  # what overflows is refused
            found = self.architecture.build(shared.schema).gradient(start, X, labels)
        share = self.weighting.share(labels, shared)
        weight = {} if self.weighting.equal else {"weight": np.array(share)}
        return {"gradient": share * self.gradients.confine(found, party), **weight}

    def _layout(self, schema: Schema) -> Layout:
        network = self.architecture.build(schema)
        beside = self.gradients.fields(network) if self.lite else []
        return Layout(*self.change.fields(network), *self.weighting.fields(), *beside)

    @contribution(_layout, family=None)
    def update(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Return u_i (y_i - x) and u_i, of MimeLite also u_i ∇f_i(x)."""
        change = self.train_client(party, shared, self.make_correction(party, shared), not self.lite)
        return {**change, **self.gradient(party, shared)} if self.lite else change

    def make_correction(self, party: Party, shared: Shared) -> Correction:
        """Return U of a gradient, to which MIME adds c."""
        centre = 0.0 if self.lite else shared["frozen/c"]
        return lambda gradient, weights: self.server.follow(gradient + centre, shared)

    # -- whoever opens the total -------------------------------------------------------------------

    @apply
    def centre(self, total: Total, shared: Shared) -> Shared:
        """Set c."""
        return shared | {"frozen/c": self.gradients.average(total)}

    @apply
    def step(self, total: Total, shared: Shared) -> Shared:
        """Move x by the mean change, and s by c."""
        centre = self.gradients.average(total) if self.lite else shared["frozen/c"]
        return super().step(total, shared) | self.server.learn(centre, shared)

    # -- what a federation asks of every method ----------------------------------------------------

    @property
    def round_sums(self) -> int:
        """Return the sums of a round at the most."""
        return super().round_sums + (not self.lite)

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        """Return the first weights, and an optimiser that has seen nothing."""
        nothing = np.zeros(self.architecture.build(schema).trained)
        return {**super().init(schema, rng), "frozen/m": nothing, "frozen/v": nothing}
