"""The last layer of a network in closed form, as FedHEONN solves a layer, from its inputs x.

A class has the targets 0.05 and 0.95, met before the logistic function: d̄ = ±2.94. Its slope is the same at
both, so that the closed form is ridge regression of d̄ on x: (Σ xxᵀ + λI) w = Σ x d̄. The largest output wins
before a softmax, too. λ is the mean square of x, whose size depends on the layers before.

A client's own layer is w = v + u, with v the layer for all, and u the ridge regression of what v leaves:
(Σ xxᵀ + λI) u = Σ x (d̄ - xᵀv). The client chooses λ, from its mean square of x up, and v or 0 in its place,
by the squared error of each of its rows when that row is left out: r / (1 - h), h = xᵀ(Σ xxᵀ + λI)⁻¹x.
"""

import numpy as np

from tacit.models.activations import ACTIVATIONS, HIGH, LOW
from tacit.models.network import Matrix, Targets, Vector

PENALTIES = 4.0 ** np.arange(9)  # that are tried, in mean squares of x


def _pair(inputs: Matrix, targets: Targets, outputs: int, weights: Vector | None) -> tuple[Matrix, Matrix]:
    """Return x, with a leading one, and d̄, both times the root of a row's weight."""
    x, wanted = np.insert(inputs, 0, 1.0, axis=1), np.asarray(targets, np.float64)
    if targets.ndim == 1:
        low, high = ACTIVATIONS["logistic"].inverse(np.array([LOW, HIGH]))
        wanted = np.where(targets[:, None] == np.arange(outputs), high, low)
    roots = 1.0 if weights is None else np.sqrt(weights)[:, None]
    return x * roots, wanted * roots


def sum_layer(
    inputs: Matrix, targets: Targets, outputs: int, row_weights: Vector | None = None
) -> tuple[Matrix, Matrix]:
    """Return Σ xxᵀ and Σ x d̄; targets of a regression are d̄ as they are."""
    x, wanted = _pair(inputs, targets, outputs, row_weights)
    return x.T @ x, x.T @ wanted


def solve_layer(gram: Matrix, m: Matrix) -> Matrix:
    """Return the weights of (1, inputs), one column for each output."""
    return np.asarray(np.linalg.solve(gram + _penalty(gram) * np.eye(len(gram)), m), np.float64)


def _penalty(gram: Matrix) -> float:
    return max(float(np.trace(gram)) / len(gram) / max(float(gram[0, 0]), 1.0), 1e-9)


def fit_layer(inputs: Matrix, targets: Targets, common: Matrix, row_weights: Vector | None = None) -> Matrix:
    """Return a client's own layer, as near to the common one as leaving out one row at a time suggests."""
    x, wanted = _pair(inputs, targets, common.shape[1], row_weights)
    gram = x.T @ x
    values, basis = np.linalg.eigh(gram)
    values, turned, least, fitted = np.maximum(values, 0.0), x @ basis, np.inf, common
    for start in (common, np.zeros_like(common)):
        left = wanted - x @ start
        sums = turned.T @ left
        for penalised in (values + penalty for penalty in _penalty(gram) * PENALTIES):
            change = sums / penalised[:, None]
            own = 1 - (turned**2) @ (1 / penalised)  # 1 - h
            error = float((((left - turned @ change) / own[:, None]) ** 2).sum())
            if error < least:
                least, fitted = error, start + basis @ change
    return fitted
