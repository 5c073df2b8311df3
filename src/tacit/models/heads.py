"""The last layer of a network in closed form, as FedHEONN solves a layer, from sums over its inputs x.

A class has the targets 0.05 and 0.95, met before the logistic function: d̄ = ±2.94. Its slope is the same at
both, so that the closed form is ridge regression of d̄ on x: (Σ xxᵀ + λI) w = Σ x d̄. The largest output wins
before a softmax, too. λ is the mean square of x, whose size depends on the layers before.
"""

import numpy as np

from tacit.models.activations import ACTIVATIONS, HIGH, LOW
from tacit.models.network import Matrix, Targets, Vector


def sum_layer(
    inputs: Matrix, targets: Targets, outputs: int, row_weights: Vector | None = None
) -> tuple[Matrix, Matrix]:
    """Return Σ xxᵀ and Σ x d̄, x with a leading one; targets of a regression are d̄ as they are."""
    x = np.concatenate([np.ones((len(inputs), 1)), inputs], axis=1)
    low, high = ACTIVATIONS["logistic"].inverse(np.array([LOW, HIGH]))
    wanted = targets if targets.ndim == 2 else np.where(targets[:, None] == np.arange(outputs), high, low)
    left = x.T if row_weights is None else x.T * row_weights
    return left @ x, left @ wanted


def solve_layer(gram: Matrix, m: Matrix) -> Matrix:
    """Return the weights of (1, inputs), one column for each output."""
    penalty = np.trace(gram) / len(gram) / max(float(gram[0, 0]), 1.0)
    return np.linalg.solve(gram + max(penalty, 1e-9) * np.eye(len(gram)), m)
