"""Invertible activation functions: f, its inverse and its slope at the inverse.

The closed form of Fontenla-Romero et al. measures the error before the activation, at
``d̄ = f⁻¹(d)``, and weights it by ``f'(d̄)``; both are functions of the target alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
ActivationName = Literal["logistic", "softplus", "linear"]
LOW, HIGH = 0.05, 0.95  # a classifier's targets, inside the range of the logistic function


@dataclass(frozen=True)
class Activation:
    """An activation with its inverse; targets lie strictly between ``low`` and ``high``."""

    function: Callable[[Matrix], Matrix]
    inverse: Callable[[Matrix], Matrix]
    slope_at_target: Callable[[Matrix], Matrix]
    low: float
    high: float


def logistic(x: Matrix) -> Matrix:
    """Return 1 / (1 + e⁻ˣ) without overflow for any x."""
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, decay) / (1.0 + decay)


def softplus(x: Matrix) -> Matrix:
    """Return ln(1 + eˣ), the smooth rectifier, without overflow for any x."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def inverse_softplus(d: Matrix) -> Matrix:
    """Return ln(eᵈ - 1), written so that large d (800, say) do not overflow."""
    return d + np.log(-np.expm1(-d))


ACTIVATIONS: dict[str, Activation] = {
    "logistic": Activation(logistic, lambda d: np.log(d / (1.0 - d)), lambda d: d * (1.0 - d), 0.0, 1.0),
    "softplus": Activation(softplus, inverse_softplus, lambda d: -np.expm1(-d), 0.0, np.inf),
    "linear": Activation(lambda x: x, lambda d: d, np.ones_like, -np.inf, np.inf),
}
