"""What methods that average networks have in common: settings, networks, cohorts and hold-outs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import numpy as np

from tacit.core.client import over, under
from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, TacitError
from tacit.core.events import BudgetSpent, Noted
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.protection import Protection
from tacit.core.shared import Shared, Total
from tacit.data.preparation import Inputs
from tacit.data.schema import Schema, vocabulary
from tacit.methods.base import Method
from tacit.methods.example_privacy import ROUNDS, epsilon_after, rounds_within
from tacit.models.local import Descent, ExampleNoise, Optimiser
from tacit.models.mlp import HiddenActivation, Initialisation
from tacit.models.network import Network, Vector
from tacit.models.neural import PREFIX, Neural, name_of
from tacit.models.zoo import Sizes, network_of, sizes_of

PREVIOUS = "previous/"
KEPT = (PREFIX, "m/", "v/")  # what a round changes, and what taking it back restores


@dataclass(frozen=True)
class Averaging(Method):
    """Base of methods that average networks; the settings are described at :class:`FedAvg`."""

    tasks = ("classification",)
    needs_norms = False

    network: Any = "mlp"
    hidden: Sizes = (32,)
    activation: HiddenActivation = "relu"
    initialisation: Initialisation = "he"
    rounds: int = 10
    fraction: float = 1.0
    epochs: int = 1
    batch: int = 32
    optimiser: Optimiser = "sgd"
    rate: float = 0.1
    momentum: float = 0.0
    weighting: Literal["rows", "equal"] = "rows"
    limit: float = 1.0
    protect_layers: int | str = "all"
    patience: int = 0
    collapse: float = 0.0
    example_noise: float = 0.0
    example_clip: float = 1.0
    example_sampling: float = 0.1
    example_epsilon: float = 8.0
    example_delta: float = 1e-5

    def __post_init__(self) -> None:
        if isinstance(self.hidden, list):
            object.__setattr__(self, "hidden", tuple(self.hidden))
        if not (isinstance(self.network, str) or callable(self.network)):
            raise ConfigError(f"network is {self.network!r}: give a name, or a factory of torch modules")
        whole = "give a whole number of at least 1"
        for name, fine, way_out in (
            ("rounds", self.rounds >= 1, whole),
            ("epochs", self.epochs >= 1, whole),
            ("batch", self.batch >= 0, "give the rows of a step, or 0 for all"),
            ("fraction", 0 < self.fraction <= 1, "give a share of the clients, above 0 up to 1"),
            ("rate", 0 < self.rate < inf, "give a learning rate above 0"),
            ("momentum", 0 <= self.momentum < 1, "give a number from 0 up to, but below, 1"),
            ("limit", 0 < self.limit < inf, "give the largest change of a weight, above 0"),
            ("patience", self.patience >= 0, "give a number of rounds, or 0 for never"),
            ("collapse", 0 <= self.collapse < 1, "give a share of accuracy, or 0 for never"),
            ("example_noise", 0 <= self.example_noise < inf, "give 0 for none, or about 1"),
            ("example_clip", 0 < self.example_clip < inf, "give the longest norm of a gradient, above 0"),
            ("example_sampling", 0 < self.example_sampling <= 1, "give a probability above 0"),
            ("example_epsilon", self.example_epsilon > 0, "give a budget above 0"),
            ("example_delta", 0 < self.example_delta < 1, "give a probability above 0 and below 1"),
        ):
            if not fine:
                raise ConfigError(f"{name} is {getattr(self, name)}: {way_out}")
        sizes_of(self.hidden)

    def config(self) -> dict[str, Any]:
        """Give the settings as plain values; a factory by its name only, for code never travels."""
        return {**super().config(), "network": name_of(self.network)}

    @classmethod
    def tiny(cls) -> Averaging:
        """A small network and few rounds."""
        return cls(hidden=(8,), rounds=3, epochs=2, batch=8, rate=0.3)

    def check(self, schema: Schema) -> None:
        """Refuse a task, a network or a choice of layers that cannot work."""
        super().check(schema)
        self.built(schema).chosen(self.protect_layers)
        if self.private is not None and not rounds_within(self):
            raise ConfigError(
                f"one round costs epsilon {epsilon_after(self, 1):.3g}, the budget is "
                f"{self.example_epsilon:g}: "
                "raise example_noise, lower example_sampling or epochs, or raise example_epsilon"
            )

    def incompatibility(self, protection: Protection) -> str | None:
        """Refuse noise on weights: their squares would be clipped, and the mean divided by noise."""
        if protection.adds_noise and self.weighting != "equal":
            return "clients count by weights, which noise and clipping would spoil: set weighting = 'equal'"
        return None

    def warnings_for(self, scaled: bool) -> Sequence[str]:
        """Warn of sums that the budget for rows leaves out."""
        text = "example_epsilon does not cover the sums that agree on a scale: use scale = 'none'"
        return (text,) if self.example_noise and scaled else ()

    @property
    def sums(self) -> int:
        """Norm of the weights, then each round's update and, where it is watched, its check and undoing."""
        return int(self.weighting == "rows") + self.rounds * self.round_sums

    @property
    def round_sums(self) -> int:
        """Sums of a round at the most."""
        return 1 + 2 * self.watched

    @property
    def watched(self) -> bool:
        """Whether hold-outs are looked at after each round."""
        return bool(self.patience or self.collapse)

    # -- the network -------------------------------------------------------------------------------

    def built(self, schema: Schema) -> Network:
        """The network for a schema, made once per process."""
        return network_of(features=schema.features, outputs=schema.outputs, **self._network_settings)

    @property
    def _network_settings(self) -> dict[str, Any]:
        return {n: getattr(self, n) for n in ("network", "hidden", "activation", "initialisation")}

    def descent(self) -> Descent:
        """How clients descend."""
        return Descent(self.epochs, self.batch, self.optimiser, self.rate, self.momentum)

    @property
    def private(self) -> ExampleNoise | None:
        """DP-SGD, if there is any."""
        if not self.example_noise:
            return None
        return ExampleNoise(self.example_sampling, self.example_clip, self.example_noise)

    def init(self, schema: Schema, rng: np.random.Generator) -> Mapping[str, Any]:
        """First weights, the same everywhere."""
        network = self.built(schema)
        return {**over(PREFIX, network.named(network.initial(rng))), "round": 0, "until": self.rounds}

    def joined(self, shared: Shared) -> Shared:
        """Go on from a finished training, as many rounds again; weights are agreed anew."""
        kept = {name: value for name, value in shared.items() if name != "scale"}
        return Shared(shared.schema, {**kept, "until": int(shared["round"]) + self.rounds})

    def view(self, shared: Shared) -> Mapping[str, Any]:
        """Clients need the weights, not the server's own."""
        hidden = ("m/", "v/", PREVIOUS)
        return {name: value for name, value in shared.items() if not name.startswith(hidden)}

    def flat(self, party: Party, shared: Shared) -> Vector:
        """Weights as one vector; clients of one process and wave share it."""
        found: tuple[Shared, Vector] | None = party.cache.get("flat")
        if found is None or found[0] is not shared:
            found = shared, self.built(shared.schema).flat(under(PREFIX, shared))
            party.cache["flat"] = found
        return found[1]

    def model(self, shared: Shared) -> Neural:
        """Make the model from the weights."""
        return Neural(under(PREFIX, shared), self._network_settings, Inputs.of(shared))

    # -- rounds ------------------------------------------------------------------------------------

    def span(self, coordinator: Coordinator) -> range:
        """Rounds that are still to do."""
        known: Mapping[str, Any] = coordinator.shared or {}
        done = int(coordinator.progress.get("round", known.get("round", 0)))
        return range(done, done if coordinator.progress.get("over") else int(known.get("until", self.rounds)))

    def welcome_late(self, coordinator: Coordinator, number: int) -> None:
        """Let clients that were not there when the run began take part from now on."""
        if not (late := coordinator.late()):
            return
        try:
            admitted = coordinator.admit(
                late, coordinator.components.preparation.agreement(vocabulary(coordinator.schema))
            )
        except TacitError as error:
            coordinator.events.emit(Noted("enrolment", f"nobody joins late: {error}", "warning"))
            return
        for name in admitted:
            coordinator.events.emit(Noted(name, f"joined late, in round {number + 1}"))

    def affordable(self, coordinator: Coordinator, number: int) -> bool:
        """Whether the budgets allow another round; tells what the examples' is by then."""
        left = coordinator.components.protection.left(coordinator)
        if left is not None and left < self.round_sums + coordinator.reserved:
            text = f"noise was sized for {left} more sums, too few for a round: training ends here"
            coordinator.events.emit(Noted("privacy", text, "warning"))
            return False
        if self.private is None:
            return True
        allowed, computed = rounds_within(self), number + coordinator.repeats
        if computed >= allowed:
            text = f"example_epsilon {self.example_epsilon:g} allows {allowed} rounds: training ends here"
            coordinator.events.emit(Noted("privacy", text, "warning"))
            return False
        spent = epsilon_after(self, computed + 1)
        left = allowed - computed - 1
        coordinator.events.emit(
            BudgetSpent(number + 1, spent, self.example_epsilon, self.example_delta, left)
        )
        return True

    def spent(self, coordinator: Coordinator, number: int) -> float:
        """Epsilon after so many rounds: of the examples, or of the clients; 0 where there is no noise."""
        if self.private is not None:
            return epsilon_after(self, number + coordinator.repeats)
        return float(coordinator.components.protection.spent(coordinator))

    def carry(self, party: Party, known: Party) -> None:
        """Go on counting the rounds that cost the examples' budget."""
        party.state[ROUNDS] = max(known.state.get(ROUNDS, 0), party.state.get(ROUNDS, 0))

    # -- hold-outs ---------------------------------------------------------------------------------

    def _hold_out_layout(self, schema: Schema) -> Layout:
        return Layout(Field("hits", ()), Field("loss", ()), Field("rows", ()))

    @contribution(_hold_out_layout)
    def hold_out(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Hits, losses and rows of this party's hold-out."""
        if not party.holdout.rows:
            return {"hits": 0.0, "loss": 0.0, "rows": 0.0}
        counts = self.model(shared).counts(party.holdout)
        confusion = counts["confusion"]
        return {"hits": np.trace(confusion), "loss": counts["loss"], "rows": confusion.sum()}

    def _consent_layout(self, schema: Schema) -> Layout:
        return Layout(Field("consent", (), bound=1.0))

    @contribution(_consent_layout)
    def consent(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Nothing but a one: wherever totals open, the last round is taken back with it."""
        return {"consent": 1.0}

    @apply
    def take_back(self, total: Total, shared: Shared) -> Shared:
        """Weights, and what the server keeps beside them, as they were before the last round."""
        return shared | under(PREVIOUS, shared)

    def remembered(self, shared: Shared) -> dict[str, Any]:
        """What a round may have to be taken back to."""
        kept = {name: value for name, value in shared.items() if name.startswith(KEPT)}
        return over(PREVIOUS, kept) if self.collapse else {}


def cohort(coordinator: Coordinator, fraction: float, number: int) -> tuple[str, ...] | None:
    """Clients of a round: a share of them drawn by public randomness, but never too few to open a total."""
    fewest = coordinator.components.protection.min_contributions(coordinator.manifest.min_clients)
    wanted = max(round(fraction * len(coordinator.parties)), fewest)
    if wanted >= len(coordinator.parties):
        return None
    drawn = coordinator.rng("cohort", number).choice(len(coordinator.parties), size=wanted, replace=False)
    return tuple(coordinator.parties[index] for index in sorted(drawn.tolist()))
