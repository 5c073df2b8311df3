"""What a client does by itself in a round: some epochs of gradient descent on its own rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.crypto.noise import gaussian
from tacit.models.network import Matrix, Network, Vector

Optimiser = Literal["sgd", "adam"]
BETA1, BETA2, TINY = 0.9, 0.999, 1e-8  # Adam, as everybody has them


@dataclass(frozen=True)
class Descent:
    """How a client descends.

    Parameters
    ----------
    epochs : int
        Passes over the rows.
    batch : int
        Rows of a step; 0 takes all at once.
    optimiser : {"sgd", "adam"}
    rate : float
        Learning rate.
    momentum : float
        Of SGD.
    proximal : float
        μ of FedProx: pulls towards the weights that the round started from.
    """

    epochs: int = 1
    batch: int = 32
    optimiser: Optimiser = "sgd"
    rate: float = 0.1
    momentum: float = 0.0
    proximal: float = 0.0


@dataclass(frozen=True)
class ExampleNoise:
    """DP-SGD: rows drawn by coins, their gradients clipped one by one, Gaussian noise on the sum.

    Parameters
    ----------
    sampling : float
        Probability with which a row is part of a step.
    clip : float
        Longest L2 norm of one row's gradient.
    noise : float
        Standard deviation of the noise over ``clip``.
    """

    sampling: float
    clip: float
    noise: float

    def steps(self, epochs: int) -> int:
        """Steps that look at as many rows as so many epochs."""
        return max(1, round(epochs / self.sampling))


def trained(
    network: Network,
    start: Vector,
    X: Matrix,
    labels: NDArray[np.int64],
    descent: Descent,
    rng: np.random.Generator,
    private: ExampleNoise | None = None,
) -> Vector:
    """Give the weights after local training; ``start`` is left as it was.

    Examples
    --------
    >>> from tacit.models.mlp import MLP
    >>> network = MLP((1, 2), initialisation="zeros")
    >>> X, labels = np.array([[-1.0], [1.0]]), np.array([0, 1])
    >>> one_step = Descent(batch=0, rate=1.0)
    >>> trained(network, np.zeros(4), X, labels, one_step, np.random.default_rng(0)).tolist()
    [-0.5, 0.5, 0.0, 0.0]
    """
    network.reseed(rng)
    weights = start.copy()
    moving, origin = weights[: network.trained], start[: network.trained]
    move = _sgd(descent) if descent.optimiser == "sgd" else _adam(descent)

    def descend(gradient: Vector) -> None:
        if descent.proximal:
            gradient += descent.proximal * (moving - origin)
        move(moving, gradient)

    if private is not None:
        for _ in range(private.steps(descent.epochs)):
            rows = np.flatnonzero(rng.random(len(labels)) < private.sampling)
            total = network.clipped_gradients(weights, X[rows], labels[rows], private.clip)
            total += gaussian(private.noise * private.clip, len(total))
            descend(total / (private.sampling * len(labels)))
        return weights
    size = descent.batch or len(labels)
    for _ in range(descent.epochs):
        order = rng.permutation(len(labels))
        ends = [*range(size, len(labels), size), len(labels)]
        if network.state and len(ends) > 1 and ends[-1] - ends[-2] == 1:
            del ends[-2]  # statistics over a single row mean nothing: it joins the batch before
        for first, end in pairwise([0, *ends]):
            rows = order[first:end]
            descend(network.gradient(weights, X[rows], labels[rows]))
    return weights


def _sgd(descent: Descent) -> Callable[[Vector, Vector], None]:
    velocity: list[Vector] = []

    def move(weights: Vector, gradient: Vector) -> None:
        if descent.momentum:
            if velocity:
                gradient += descent.momentum * velocity[0]
            velocity[:] = [gradient]
        weights -= descent.rate * gradient

    return move


def _adam(descent: Descent) -> Callable[[Vector, Vector], None]:
    moments: list[Vector] = []
    steps = 0

    def move(weights: Vector, gradient: Vector) -> None:
        nonlocal steps
        steps += 1
        if not moments:
            moments[:] = [np.zeros_like(gradient), np.zeros_like(gradient)]
        m, v = moments
        m += (1 - BETA1) * (gradient - m)
        v += (1 - BETA2) * (gradient * gradient - v)
        scale = np.sqrt(v / (1 - BETA2**steps)) + TINY
        weights -= descent.rate / (1 - BETA1**steps) * m / scale

    return move
