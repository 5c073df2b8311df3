"""What a client does by itself in a round: some epochs of gradient descent on its own rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Literal

import numpy as np

from tacit.core.settings_group import Rule, SettingsGroup
from tacit.methods.averaging.example_privacy import ExamplePrivacy
from tacit.models.network import Matrix, Network, Targets, Vector

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
        """Return what the values must satisfy."""
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
        their rows; ``correct`` is what a method makes of a gradient before it is followed. The losses of rows
        count by ``row_weights``, if there are any. If ``anchored``, the gradient of the same rows at
        ``start`` is taken off first.

        >>> from tacit.models.mlp import MLP
        >>> network = MLP((1, 2), initialisation="zeros")
        >>> X, labels = np.array([[-1.0], [1.0]]), np.array([0, 1])
        >>> one_step = LocalTraining(batch=0, rate=1.0)
        >>> one_step.train(network, np.zeros(4), X, labels, np.random.default_rng(0)).tolist()
        [-0.5, 0.5, 0.0, 0.0]
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
    shorter: Vector = gradient * (1 / max(1.0, float(np.linalg.norm(gradient)) / LONGEST))
    return shorter
