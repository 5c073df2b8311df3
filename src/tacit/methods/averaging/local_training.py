"""What a client does in a round, epochs of descent on its own rows or one gradient, and contributes of it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tacit.core.party import Party
from tacit.core.settings_group import Rule, SettingsGroup
from tacit.core.shared import Shared
from tacit.methods.averaging.example_privacy import ExamplePrivacy
from tacit.models.network import Matrix, Network, Targets, Vector

if TYPE_CHECKING:
    from tacit.methods.fedavg import FedAvg

BETA1, BETA2, TINY = 0.9, 0.999, 1e-8  # Adam, as everybody has them
LONGEST = 2.0  # norm of a gradient of a regression, in units of the targets' spread

Optimiser = Literal["sgd", "adam"]
Memory = Mapping[str, Any]  # what an optimiser remembers of the gradients before
Correction = Callable[[Vector, Vector], Vector]  # from a gradient and the weights there, what a step follows


@dataclass(frozen=True)
class LocalTraining(SettingsGroup):
    """How a client trains in a round.

    Parameters
    ----------
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
    """

    epochs: int = 1
    batch: int = 32
    optimiser: Optimiser = "sgd"
    rate: float = 0.1
    momentum: float = 0.0

    def rules(self) -> Iterable[Rule]:
        return (
            ("epochs", self.epochs >= 1, "give a whole number of at least 1"),
            ("batch", self.batch >= 0, "give the rows of a step, or 0 for all"),
            ("rate", 0 < self.rate < inf, "give a learning rate above 0"),
            ("momentum", 0 <= self.momentum < 1, "give a number from 0 up to, but below, 1"),
        )

    def train(
        self,
        network: Network,
        start: Vector,
        X: Matrix,
        targets: Targets,
        rng: np.random.Generator,
        privacy: ExamplePrivacy | None = None,
        correct: Correction | None = None,
        coins: np.random.Generator | None = None,
        row_weights: Vector | None = None,
        anchored: bool = False,
    ) -> Vector:
        """Return the weights after local training; ``start`` is left as it was.

        With ``privacy`` that adds noise, its steps take the place of shuffled batches, and ``coins`` draw
        their rows; ``correct`` is what a method makes of a gradient before it is followed. If ``anchored``,
        the gradient of the same rows at ``start`` is taken off first.
        """
        network.reseed(rng)
        weights = start.copy()
        trained = weights[: network.trained]

        def batch_gradients() -> Iterator[Vector]:
            for rows in self.draw_batches(network, len(targets), rng):
                batch = X[rows], targets[rows], None if row_weights is None else row_weights[rows]
                gradient = network.gradient(weights, *batch)
                yield gradient - network.gradient(anchor, *batch) if anchored else gradient

        anchor, gradients = start.copy(), batch_gradients()
        if privacy is not None and privacy.noise:
            gradients = privacy.noisy_gradients(network, weights, X, targets, self.epochs, coins)
        memory: Memory = {}
        for steps, gradient in enumerate(gradients, 1):
            gradient = shorten(gradient) if targets.ndim == 2 else gradient
            followed = gradient if correct is None else correct(gradient, trained)
            change, memory = self.follow(followed, memory, steps)
            trained -= change
        return weights

    def follow(self, gradient: Vector, memory: Memory, steps: int) -> tuple[Vector, Memory]:
        """Return what the optimiser takes off the weights, and what it remembers after so many steps."""
        if self.optimiser == "adam":
            m, v = (memory.get(name, 0.0) for name in "mv")
            m = m + (1 - BETA1) * (gradient - m)
            v = v + (1 - BETA2) * (gradient * gradient - v)
            scale = np.sqrt(v / (1 - BETA2**steps)) + TINY
            return self.rate / (1 - BETA1**steps) * m / scale, {"m": m, "v": v}
        if not self.momentum:
            return self.rate * gradient, {}
        velocity = gradient + self.momentum * memory.get("m", 0.0)
        return self.rate * velocity, {"m": velocity}

    def draw_batches(self, network: Network, number: int, rng: np.random.Generator) -> Iterator[Any]:
        """Yield the rows of each batch of a round, of so many rows."""
        size = self.batch or number
        for _ in range(self.epochs):
            order = rng.permutation(number)
            ends = [*range(size, number, size), number]
            if network.state and len(ends) > 1 and ends[-1] - ends[-2] == 1:
                del ends[-2]  # statistics over a single row mean nothing: it joins the batch before
            yield from (order[first:end] for first, end in pairwise([0, *ends]))


def shorten(gradient: Vector) -> Vector:
    """Shorten a gradient of squared errors, of any slope: one far value would throw training off."""
    return gradient * (1 / max(1.0, float(np.linalg.norm(gradient)) / LONGEST))


def train_client(
    method: "FedAvg", party: Party, shared: Shared, correct: Correction | None = None, anchored: bool = False
) -> dict[str, Any]:
    """Return u_k Δ_k and u_k after local training, with ``correct`` and ``anchored`` as it takes them."""
    network, number = method.architecture.build(shared.schema), int(shared["round"])
    X, targets, row_weights = method.read_rows(party, shared)
    coins = method.privacy.begin_round(party, number, method.rounds, method.local.epochs)
    start, rng = method.architecture.flatten_weights(party, shared), party.rng("descent", number)
    with np.errstate(all="ignore"):  # what overflows is refused when it is packed
        more = method.privacy, correct, coins, row_weights, anchored
        delta = method.local.train(network, start, X, targets, rng, *more) - start
    share, weight = method.weighting.contribute(targets, shared)
    return {**method.change.pack(delta, share, network, party), **weight}


def compute_gradient(
    method: "FedAvg", party: Party, shared: Shared, batch: int = 0
) -> tuple[Vector, Vector, Targets]:
    """Return ∇F_k at w_t over all rows, or a batch; the weights, whose state may have moved; all targets."""
    network, rng = method.architecture.build(shared.schema), party.rng("descent", int(shared["round"]))
    X, targets, row_weights = method.read_rows(party, shared)
    network.reseed(rng)
    rows: Any = slice(None)
    if 0 < batch < len(targets):
        rows = rng.choice(len(targets), batch, replace=False)
    weights = method.architecture.flatten_weights(party, shared).copy()
    counted = None if row_weights is None else row_weights[rows]
    with np.errstate(all="ignore"):  # what overflows is refused when it is packed
        return network.gradient(weights, X[rows], targets[rows], counted), weights, targets
