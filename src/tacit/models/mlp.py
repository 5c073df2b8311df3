"""Multi-layer perceptrons with gradients by hand: no framework, and no overhead for small networks.

With a₀ = X, a_k = f(a_{k-1} W_k + b_k) and the softmax of the last outputs, the gradient of the mean
cross-entropy by a layer's outputs starts as δ = (p - onehot)/n and goes back by δ_{k-1} = (δ_k W_kᵀ) f'; then
∂W_k = a_{k-1}ᵀ δ_k and ∂b_k = Σ δ_k. f' is a function of a for all three activations. A regression has no
softmax, and δ = (outputs - targets)/n, the gradient of half the squared error.

The squared norm of a single row's gradient is Σ_k (‖a_{k-1}‖² + 1) ‖δ_k‖²: clipping row by row needs none.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from tacit.core.errors import ConfigError
from tacit.models.activations import logistic
from tacit.models.network import Matrix, Network, Targets, Vector, slope_of_loss

Function = Callable[[Matrix], Any]
HiddenActivation = Literal["relu", "tanh", "sigmoid"]
Initialisation = Literal["he", "random", "zeros"]
FUNCTIONS: dict[str, tuple[Function, Function]] = {  # f of x, and f' as a function of f(x)
    "relu": (lambda x: np.maximum(x, 0.0), lambda a: a > 0),
    "tanh": (np.tanh, lambda a: 1.0 - a * a),
    "sigmoid": (logistic, lambda a: a * (1.0 - a)),
}
DECODER, PULL = "decoder.", 10.0  # of SuffiAE: names of the arrays that decode, weight of the reconstruction
LARGEST = 100_000_000  # parameters: a typing error in a layer's size would fill the memory


class MLP(Network):
    """Fully connected layers, with a softmax at the end of a classifier.

    Parameters
    ----------
    sizes : sequence of int
        Inputs, hidden layers, outputs: (561, 437, 312, 6).
    activation : {"relu", "tanh", "sigmoid"}
        Of the hidden layers.
    initialisation : {"he", "random", "zeros"}
        "he" draws with a variance of 2 over the inputs of the layer, "random" with 0.01; biases are zero.
        With "zeros" all units of a hidden layer stay alike: of use without one, or to repeat a paper.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        activation: HiddenActivation = "relu",
        initialisation: Initialisation = "he",
        first: int = 1,  # number of its first layer, in the network of which it is a section
        ends: bool = True,  # whether its last layer is the last of that network, without activation
    ) -> None:
        self.sizes = tuple(sizes)
        if any(type(size) is not int or size < 1 for size in self.sizes):
            raise ConfigError(f"layer sizes {self.sizes}: give whole numbers of at least 1")
        pairs = list(pairwise(self.sizes))
        if sum(a * b for a, b in pairs) > LARGEST:
            raise ConfigError(f"layers of {self.sizes} have over {LARGEST:,} weights: use smaller ones")
        self.activation, self._ends = activation, ends
        self.initialisation = initialisation
        shapes: dict[str, tuple[int, ...]] = {}
        for number, (inputs, outputs) in enumerate(pairs, first):
            shapes[f"layer{number}.weight"] = (inputs, outputs)
            shapes[f"layer{number}.bias"] = (outputs,)
        super().__init__(shapes)
        self._function, self._slope = FUNCTIONS[activation]

    def stages(self) -> list[str]:
        return self.layers()

    def section(self, start: int, stop: int) -> "MLP":
        ends = stop == len(self.sizes) - 1
        return MLP(self.sizes[start : stop + 1], self.activation, first=start + 1, ends=ends)

    def run(self, weights: Vector, X: Matrix) -> Matrix:
        outputs = self.outputs(weights, X)
        return outputs if self._ends else np.asarray(self._function(outputs))

    def pull(self, weights: Vector, X: Matrix, slope: Matrix) -> tuple[Vector, Matrix]:
        values, outputs = self._forward(weights, X)
        slope = slope if self._ends else slope * self._slope(self._function(outputs))
        deltas = self._slopes(weights, values, slope)
        return self._summed(values, deltas, 1.0), deltas[0] @ self._layers(weights)[0][0].T

    def initial(self, rng: np.random.Generator) -> Vector:
        weights = np.zeros(self.size)
        for name, array in self.named(weights).items():
            if name.endswith("weight") and self.initialisation != "zeros":
                deviation = 0.1 if self.initialisation == "random" else (2.0 / array.shape[0]) ** 0.5
                array[...] = rng.normal(scale=deviation, size=array.shape)
        return weights

    def outputs(self, weights: Vector, X: Matrix) -> Matrix:
        return self._forward(weights, X)[1]

    def last_inputs(self, weights: Vector, X: Matrix) -> Matrix:
        return self._forward(weights, X)[0][-1]

    def _layers(self, vector: Vector) -> list[tuple[Matrix, Vector]]:
        places = self._places
        return [
            (vector[w].reshape(shape), vector[b])
            for (_, shape, w), (_, _, b) in zip(places[::2], places[1::2], strict=True)
        ]

    def _run(self, X: Matrix, layers: Sequence[tuple[Matrix, Vector]]) -> list[Matrix]:
        values = [X]
        for W, b in layers:
            values.append(self._function(values[-1] @ W + b))
        return values

    def _forward(self, weights: Vector, X: Matrix) -> tuple[list[Matrix], Matrix]:
        *hidden, (W, b) = self._layers(weights)
        values = self._run(X, hidden)
        return values, values[-1] @ W + b

    def _backward(
        self, weights: Vector, X: Matrix, targets: Targets, row_weights: Vector | None = None
    ) -> tuple[list[Matrix], list[Matrix]]:
        """Return every layer's inputs, and the gradients of each row's own loss by every layer's outputs."""
        values, outputs = self._forward(weights, X)
        return values, self._slopes(weights, values, slope_of_loss(outputs, targets, row_weights))

    def _slopes(self, weights: Vector, values: list[Matrix], delta: Matrix) -> list[Matrix]:
        layers, deltas = self._layers(weights), [delta]
        for (W, _), value in zip(layers[:0:-1], values[:0:-1], strict=True):
            deltas.append((deltas[-1] @ W.T) * self._slope(value))
        return deltas[::-1]

    def gradient(
        self, weights: Vector, X: Matrix, targets: Targets, row_weights: Vector | None = None
    ) -> Vector:
        values, deltas = self._backward(weights, X, targets, row_weights)
        return self._summed(values, deltas, 1.0 / len(targets))

    def clipped_gradients(self, weights: Vector, X: Matrix, targets: Targets, clip: float) -> Vector:
        values, deltas = self._backward(weights, X, targets)
        squares = sum(
            (np.einsum("ij,ij->i", a, a) + 1.0) * np.einsum("ij,ij->i", d, d)
            for a, d in zip(values, deltas, strict=True)
        )
        finite = np.isfinite(squares)
        if not finite.all():  # such a row counts as zero, or the whole sum would tell of it
            values = [np.where(finite[:, None], value, 0.0) for value in values]
            deltas = [np.where(finite[:, None], delta, 0.0) for delta in deltas]
            squares = np.where(finite, squares, 0.0)
        shrink = clip / np.maximum(np.sqrt(squares), clip)
        return self._summed(values, [delta * shrink[:, None] for delta in deltas], 1.0)

    def _summed(self, values: list[Matrix], deltas: list[Matrix], factor: float) -> Vector:
        total = np.empty(self.size)
        for (W, b), value, delta in zip(self._layers(total), values, deltas, strict=True):
            np.matmul(value.T, delta, out=W)
            np.sum(delta, axis=0, out=b)
        total *= factor
        return total


class SuffiAE(MLP):
    """A classifier with tanh that also decodes its last hidden layer, the *summary* of a row in [-1, 1]ᵈ.

    Its loss is the cross-entropy plus ``PULL`` times half the mean squared error of the reconstruction.
    """

    def __init__(self, features: int, hidden: Sequence[int], classes: int) -> None:
        mirror = MLP((*hidden[::-1], features)).parameters
        super().__init__((features, *hidden, classes), "tanh")
        Network.__init__(self, self.parameters | {DECODER + name: shape for name, shape in mirror.items()})
        self._head, self._pull = len(hidden), PULL / features  # place of the classifier among the layers

    def outputs(self, weights: Vector, X: Matrix) -> Matrix:
        W, b = self._layers(weights)[self._head]
        return self.encode(weights, X) @ W + b

    def encode(self, weights: Vector, X: Matrix) -> Matrix:
        """Return the summaries of rows."""
        return self._run(X, self._layers(weights)[: self._head])[-1]

    def decode(self, weights: Vector, summaries: Matrix) -> Matrix:
        """Return the rows that summaries stand for."""
        *inner, (W, b) = self._layers(weights)[self._head + 1 :]
        return self._run(summaries, inner)[-1] @ W + b

    def _backward(
        self, weights: Vector, X: Matrix, targets: Targets, row_weights: Vector | None = None
    ) -> tuple[list[Matrix], list[Matrix]]:
        chain, place = self._layers(weights), self._head
        (head, bias), (W, b) = chain.pop(place), chain[-1]
        values = self._run(X, chain[:-1])
        wrong = slope_of_loss(values[place] @ head + bias, targets, row_weights)
        deltas = [slope_of_loss(values[-1] @ W + b, X, row_weights) * self._pull]
        for number in range(len(chain) - 1, 0, -1):
            back = deltas[0] @ chain[number][0].T + (wrong @ head.T if number == place else 0.0)
            deltas.insert(0, back * self._slope(values[number]))
        values.insert(place, values[place])
        deltas.insert(place, wrong)
        return values, deltas
