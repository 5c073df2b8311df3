"""A fixed random layer in front of a linear one: what it computes is public, and nobody trains it.

Random features (Rahimi and Recht, "Random Features for Large-Scale Kernel Machines", 2007; Huang, Zhu and
Siew, "Extreme learning machine", 2006) make a closed form nonlinear: everyone draws the same layer from a
public seed, so that it costs no message, and the first units of a wide layer are those of a narrow one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.random import generator

Matrix = NDArray[np.float64]
LayerKind = Literal["tanh", "fourier"]


@dataclass(frozen=True, eq=False)
class RandomLayer:
    """``tanh(X W + b)`` or ``cos(X W + b)``: values in [-1, 1].

    Examples
    --------
    >>> X = np.array([[0.5, -1.0]])
    >>> wide, narrow = (RandomLayer.draw(7, 2, width, 1.0, "tanh") for width in (5, 3))
    >>> bool(np.all(wide(X)[:, :3] == narrow(X)))
    True
    """

    kind: LayerKind
    weights: Matrix
    bias: Matrix

    @classmethod
    def draw(cls, seed: int, features: int, width: int, scale: float, kind: LayerKind) -> RandomLayer:
        """Draw a layer from a public seed; ``scale`` says how far inputs are spread before the function."""
        directions = generator(b"public", seed, "directions").standard_normal((width, features)).T
        offsets = generator(b"public", seed, "offsets")
        if kind == "tanh":
            bias = scale * offsets.standard_normal(width)
        else:
            bias = offsets.uniform(0.0, 2 * np.pi, width)
        return cls(kind, directions * (scale / np.sqrt(features)), bias)

    def __call__(self, X: Matrix) -> Matrix:
        """Return the units' values for prepared rows."""
        hidden = X @ self.weights
        hidden += self.bias
        return np.tanh(hidden, out=hidden) if self.kind == "tanh" else np.cos(hidden, out=hidden)

    def first(self, width: int) -> RandomLayer:
        """Return a layer of the first units only."""
        return RandomLayer(self.kind, self.weights[:, :width], self.bias[:width])
