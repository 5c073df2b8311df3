"""FedAvg: clients train a network on their own rows for a while, and their changes are averaged.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas, "Communication-Efficient Learning of Deep
Networks from Decentralized Data", AISTATS 2017. With the paper's symbols:

    w_t    weights at the start of round t
    C      share of the clients that take part in a round (``fraction``)
    E, B   local epochs and rows of a step (``epochs``, ``batch``; B = ∞ is batch = 0)
    η      local learning rate (``rate``)
    n_k    rows of client k

Each client of the round starts from w_t, takes E epochs of steps and has w_t^k; then
w_{t+1} = Σ n_k w_t^k / Σ n_k (algorithm 1). With E = 1 and B = ∞ this is FedSGD.

What is summed here is the change, w_{t+1} = w_t + Σ u_k Δ_k / Σ u_k with Δ_k = w_t^k - w_t: the same model,
but a change has a bound (``limit``), so that fixed-point sums are short and precise. For the same reason
the weight is u_k = n_k/c ≤ 1, with c² = Σ n_k² from a first protected sum: nobody's n_k is told, and c is
at least the largest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.core.coordinator import Coordinator
from tacit.core.errors import DataError
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.party import Party
from tacit.core.shared import Shared, Total
from tacit.data.preparation import Inputs
from tacit.data.schema import Schema
from tacit.methods.averaging import Averaging, cohort
from tacit.methods.early_stopping import Watch
from tacit.methods.example_privacy import check_budget
from tacit.models.local import trained
from tacit.models.neural import PREFIX

ABSURD = 1e3  # times the limit: such a change is no learning, and is refused
NOBODY = 1e-9  # sum of weights below which nobody has contributed


@dataclass(frozen=True)
class FedAvg(Averaging):
    """Weighted average of locally trained networks (McMahan et al., 2017).

    Parameters
    ----------
    network : str
        "mlp", "cnn" (torch), a network of the entry-point group tacit.models, or in Python a factory.
    hidden : sizes
        Sizes of the hidden layers of "mlp": 32, "437,312", or "" for none.
    activation : {"relu", "tanh", "sigmoid"}
        Of the hidden layers of "mlp".
    initialisation : {"he", "random", "zeros"}
        First weights of "mlp".
    rounds : int
        Rounds of local training and averaging.
    fraction : float
        Share of the clients that take part in a round, drawn anew each time.
    epochs : int
        Passes over a client's rows in a round.
    batch : int
        Rows of a step; 0 for all at once, which with one epoch is FedSGD.
    optimiser : {"sgd", "adam"}
        Of the clients; its memory starts anew in every round.
    rate : float
        Learning rate of the clients.
    momentum : float
        Momentum of "sgd".
    weighting : {"rows", "equal"}
        Whether a client counts by its rows, or as much as any other.
    limit : float
        Largest change of a parameter in a round; a client whose change is larger scales it down as a whole,
        and refuses itself beyond a thousand times that.
    protect_layers : layers
        What is summed under protection: "all", a number k for the last k layers, "first-and-last", or names
        or regular expressions, separated by commas. The other layers travel in the clear.
    patience : int
        Stop after so many rounds without a lower loss on the clients' hold-outs; 0 for never.
    collapse : float
        Take a round back if accuracy on the clients' hold-outs falls by more than this below the best; 0 for
        never.
    example_noise : float
        DP-SGD at every client: standard deviation of the noise over example_clip; 0 for none.
    example_clip : float
        Longest norm of the gradient of one row.
    example_sampling : float
        Probability with which a row is part of a step.
    example_epsilon : float
        Budget of the whole run for any one row; training stops before it would be exceeded.
    example_delta : float
        Probability with which that may not hold.

    Examples
    --------
    >>> import tacit
    >>> federation = tacit.Federation.embedded("digits", clients=10)
    >>> model = FedAvg(rounds=5, epochs=5).fit(federation)
    >>> model.score(federation.test.values, federation.test.target) > 0.9
    True
    """

    name = "fedavg"
    default_protection: ClassVar[str] = "masked"
    paper = (
        "McMahan, Moore, Ramage, Hampson and Agüera y Arcas, Communication-Efficient Learning of Deep "
        "Networks from Decentralized Data, 2017"
    )

    def train(self, coordinator: Coordinator) -> None:
        """Agree on weights, then rounds of local training and averaging."""
        rounds = self.span(coordinator)
        if not coordinator.progress and (coordinator.shared is None or "scale" not in coordinator.shared):
            self.agree(coordinator)
        watch = Watch(self, coordinator)
        for number in rounds:
            if not self.affordable(coordinator, number):
                break
            self.welcome_late(coordinator, number)
            coordinator.round(self.update, self.step, cohort(coordinator, self.fraction, number))
            going_on = watch.goes_on(number)
            spent = self.spent(coordinator, number + 1)
            coordinator.mark(number + 1, best=watch.best, over=not going_on, epsilon=spent)
            if not going_on:
                break

    def agree(self, coordinator: Coordinator) -> None:
        """Find the norm of all weights, by which each becomes a number up to 1."""
        if self.weighting == "rows":
            coordinator.round(self.squares, self.norm)

    # -- client ------------------------------------------------------------------------------------

    def weight(self, labels: NDArray[np.int64], shared: Shared) -> float:
        """n_k: how much a client counts."""
        return float(len(labels))

    def rows(self, party: Party, shared: Shared, labels: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Rows that take part in a round; None for all."""
        return None

    def _squares_layout(self, schema: Schema) -> Layout:
        return Layout(Field("square", ()))

    @contribution(_squares_layout)
    def squares(self, party: Party, shared: Shared) -> dict[str, Any]:
        """Square of this client's weight."""
        labels = shared.schema.labels(party.data)
        chosen = self.rows(party, shared, labels)
        return {"square": self.weight(labels if chosen is None else labels[chosen], shared) ** 2}

    def _update_layout(self, schema: Schema) -> Layout:
        network = self.built(schema)
        covered = network.chosen(self.protect_layers)
        fields = [
            Field(
                f"delta/{name}",
                shape,
                bound=self.limit if name in network.parameters else None,
                clear=name not in covered,
            )
            for name, shape in network.shapes.items()
        ]
        return Layout(*fields, *self._weight_fields())

    def _weight_fields(self) -> list[Field]:
        return [Field("weight", (), bound=1.0)] if self.weighting == "rows" else []

    @contribution(_update_layout)
    def update(self, party: Party, shared: Shared) -> dict[str, Any]:
        """u_k Δ_k and u_k after local training (ClientUpdate of algorithm 1)."""
        network, number = self.built(shared.schema), int(shared["round"])
        X, labels = Inputs.of(shared).matrix(party.data), shared.schema.labels(party.data)
        if (chosen := self.rows(party, shared, labels)) is not None:
            X, labels = X[chosen], labels[chosen]
        if (private := self.private) is not None:
            check_budget(party, number, self)
        start = self.flat(party, shared)
        rng = party.rng("descent", number)
        with np.errstate(all="ignore"):  # what overflows is refused below
            delta = trained(network, start, X, labels, self.descent(), rng, private) - start
        self._bounded(party, delta, network.trained)
        if self.weighting == "equal":
            return {f"delta/{name}": array for name, array in network.named(delta).items()}
        # Noise on the norm, or a client that joined late, may leave it smaller than a weight.
        share = min(1.0, self.weight(labels, shared) / float(shared["scale"]))
        named = network.named(delta * share)
        return {**{f"delta/{name}": array for name, array in named.items()}, "weight": np.array(share)}

    def _bounded(self, party: Party, delta: NDArray[np.float64], trained: int) -> None:
        """Scale a change down to the limit; refuse one that is no number, or absurd."""
        largest = float(np.abs(delta[:trained]).max())
        if not np.isfinite(delta).all() or largest > ABSURD * self.limit:
            raise DataError(
                f"local training ran away: a weight changed by more than {ABSURD * self.limit:g}, or is no "
                "number; lower the rate, or look for odd values in the rows",
                private=f"largest change {largest:g}",
            )
        if largest > self.limit:
            delta[:trained] *= self.limit / largest * (1 - 1e-15)
            party.note(f"its change exceeded the limit of {self.limit:g} and was scaled down", "warning")

    # -- whoever opens the total -------------------------------------------------------------------

    @apply
    def norm(self, total: Total, shared: Shared) -> Shared:
        """c: at least the largest weight."""
        return shared | {"scale": float(np.sqrt(max(float(total["square"]), 1e-300)))}

    @apply
    def step(self, total: Total, shared: Shared) -> Shared:
        """w_{t+1} = w_t + mean change; a round in which nobody counts changes nothing."""
        number = {"round": int(shared["round"]) + 1}
        weight = float(total["weight"]) if "weight" in total else float(total.contributors)
        if weight < NOBODY:
            return shared | number
        network = self.built(shared.schema)
        mean = {name: np.asarray(total[f"delta/{name}"]) / weight for name in network.shapes}
        for name in network.parameters:
            # A mean of changes is within their limit; noise on the sum may not be, and is cut there.
            mean[name] = np.clip(mean[name], -self.limit, self.limit)
        return shared | {**self.remembered(shared), **self.moved(mean, shared), **number}

    def moved(self, mean: Mapping[str, Any], shared: Shared) -> dict[str, Any]:
        """Weights after the server's step; methods with a server optimiser take another one."""
        return {PREFIX + name: shared[PREFIX + name] + change for name, change in mean.items()}

    def flaw(self, name: str, piece: Any, schema: Schema) -> str | None:
        """Refuse a visible change that is larger than a client may make."""
        network = self.built(schema)
        bounded = name.removeprefix("delta/") in network.parameters or name == "weight"
        limit = 1.0 if name == "weight" else self.limit
        if bounded and np.abs(piece).max(initial=0.0) > limit:
            return f"exceeds its bound of {limit:g}"
        return None
