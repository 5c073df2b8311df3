"""Networks that learn by gradient, as methods see them: named arrays, in training one flat vector.

What travels between the parties are *named arrays*, in order from the input to the output. While a client
trains, they are one vector: parameters first, then *state*, such as the running means of batch normalisation,
which no gradient moves.

A rule for state, the same for every method: real-valued state is averaged with the clients' weights, plainly,
whatever the server does with parameters (Adam's step on a running variance could make it negative);
whole numbers (batch counters) neither travel nor change.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, nearest

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Targets = NDArray[np.int64] | NDArray[np.float64]  # labels, or a row of numbers for each row


class Network:
    """Base of all networks: shapes of the arrays that are trained, and of those that are only averaged."""

    inputs_first = True  # whether a linear layer's weights have a row for each of its inputs

    def __init__(
        self, parameters: Mapping[str, tuple[int, ...]], state: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        self.parameters = dict(parameters)
        self.state = dict(state or {})
        self.shapes = {**self.parameters, **self.state}
        self.trained = sum(prod(shape) for shape in self.parameters.values())
        self.size, self._places = 0, []
        for name, shape in self.shapes.items():
            start, self.size = self.size, self.size + prod(shape)
            self._places.append((name, shape, slice(start, self.size)))

    def reseed(self, rng: np.random.Generator) -> None:
        """Tell layers that draw at random where to draw from; most networks have none."""

    def initial(self, rng: np.random.Generator) -> Vector:
        """Return the weights before training."""
        raise NotImplementedError

    def outputs(self, weights: Vector, X: Matrix) -> Matrix:
        """Return the outputs, of a classifier before the softmax."""
        raise NotImplementedError

    @property
    def last_width(self) -> int:
        """How many inputs the last layer has; refused if it is not linear, or has no bias."""
        *_, weight, bias = ("", *self.parameters)
        shapes = [self.parameters.get(name, ()) for name in (weight, bias)]
        if layer_of(weight) != layer_of(bias) or [*map(len, shapes)] != [2, 1]:
            way_out = "end the model with one, or set fit_heads = false"
            raise ConfigError(f"'{layer_of(bias)}' is no linear layer with a bias, as heads are: {way_out}")
        return shapes[0][0 if self.inputs_first else 1]

    def last_inputs(self, weights: Vector, X: Matrix) -> Matrix:
        """Return the inputs of the last layer."""
        raise NotImplementedError

    def last_layer(self, found: Matrix) -> dict[str, Matrix]:
        """Return the arrays of a last layer with these weights of (1, inputs) for each output."""
        weight, bias = [*self.parameters][-2:]
        return {weight: found[1:] if self.inputs_first else found[1:].T, bias: found[0]}

    def last_weights(self, arrays: Mapping[str, Matrix]) -> Matrix:
        """Return the weights of (1, inputs) for each output that the last layer has in these arrays."""
        weight, bias = ([*self.parameters][place] for place in (-2, -1))
        return np.vstack([arrays[bias], arrays[weight] if self.inputs_first else arrays[weight].T])

    def gradient(
        self, weights: Vector, X: Matrix, targets: Targets, row_weights: Vector | None = None
    ) -> Vector:
        """Return the gradient of the mean loss, as :func:`slope_of_loss` has it; may move the state."""
        raise NotImplementedError

    def clipped_gradients(self, weights: Vector, X: Matrix, targets: Targets, clip: float) -> Vector:
        """Return the sum of the rows' own gradients, each shortened to ``clip``; to 0 if it overflows."""
        raise NotImplementedError

    def stages(self) -> list[str]:
        """Return the names of what follows each other from input to output: where it can be cut."""
        raise ConfigError(f"a {type(self).__name__} cannot be cut: it does not say what follows what")

    def section(self, start: int, stop: int) -> "Network":
        """Return the part between two stages, whose arrays keep their names; it can ``run`` and ``pull``."""
        raise NotImplementedError

    def run(self, weights: Vector, X: NDArray[Any]) -> NDArray[Any]:
        """Return the outputs of a section in training."""
        raise NotImplementedError

    def pull(self, weights: Vector, X: NDArray[Any], slope: NDArray[Any]) -> tuple[Vector, NDArray[Any]]:
        """Return the gradients by weights and inputs, from that by outputs; may move state in ``weights``."""
        raise NotImplementedError

    def named(self, vector: Vector) -> dict[str, NDArray[np.float64]]:
        """Cut a flat vector into its named arrays (views)."""
        return {name: vector[place].reshape(shape) for name, shape, place in self._places}

    def flat(self, arrays: Mapping[str, Any]) -> Vector:
        """Join named arrays into a new flat vector."""
        vector = np.empty(self.size)
        for name, _, place in self._places:
            vector[place] = np.asarray(arrays[name]).reshape(-1)
        return vector

    def layers(self) -> list[str]:
        """Return the names of the layers from input to output: what stands before the last dot of a name."""
        return list(dict.fromkeys(layer_of(name) for name in self.shapes))

    def chosen(self, layers: int | str) -> set[str]:
        """Return the names of the arrays that belong to layers, chosen as by ``protect_layers``."""
        known = self.layers()
        if layers == "all":
            return set(self.shapes)
        if layers == "first-and-last":
            wanted = {known[0], known[-1]}
        elif isinstance(layers, int):
            if not 1 <= layers <= len(known):
                raise ConfigError(f"the last {layers} of {len(known)} layers: give 1 to {len(known)}")
            wanted = set(known[-layers:])
        else:
            return self._matching(layers)
        return {name for name in self.shapes if layer_of(name) in wanted}

    def _matching(self, layers: str) -> set[str]:
        found: set[str] = set()
        for word in (word.strip() for word in layers.split(",")):
            try:
                pattern = re.compile(word)
            except re.error as error:
                raise ConfigError(f"'{word}' is no regular expression: {error}") from None
            hits = {n for n in self.shapes if pattern.fullmatch(n) or pattern.fullmatch(layer_of(n))}
            if not hits:
                valid = ["all", "first-and-last", *self.layers()]
                raise ConfigError(f"no layer is called '{word}': {nearest(word, valid)}")
            found |= hits
        return found


@lru_cache(maxsize=8)
def cut_network(network: Network, cut: str, tail: str) -> list[Network | None]:
    """Cut a network after one stage (by default the first) and before another; a part may be None."""
    names = network.stages()
    if odd := [name for name in (cut, tail) if name and name not in names]:
        raise ConfigError(f"no layer is called '{odd[0]}': {nearest(odd[0], names)}")
    trained = [i for i, name in enumerate(names) if any(n.partition(".")[0] == name for n in network.shapes)]
    stop = names.index(cut) + 1 if cut else [*trained, len(names)][1]
    begin = names.index(tail) if tail else len(names)
    if tail and begin <= stop:
        raise ConfigError(f"tail = '{tail}' leaves nothing after '{names[stop - 1]}', where the cut is")
    parts = list[Network | None]()
    for a, b in pairwise((0, stop, begin, len(names))):
        if a < b and not any(a <= i < b for i in trained):
            raise ConfigError(f"nothing is trained in {', '.join(names[a:b])}: cut at another layer")
        parts.append(network.section(a, b) if a < b else None)
    return parts


def layer_of(name: str) -> str:
    """Return the layer that an array belongs to: "features.0" of "features.0.weight", "scale" of "scale"."""
    return name.rpartition(".")[0] or name


def slope_of_loss(outputs: Matrix, targets: Targets, row_weights: Vector | None = None) -> Matrix:
    """Return the gradient of each row's own loss by its outputs: cross-entropy, or half the squared error."""
    if targets.ndim == 2:
        slope: Matrix = outputs - targets
    else:
        slope = softmax(outputs)
        slope[np.arange(len(targets)), targets] -= 1.0
    if row_weights is not None:
        slope *= row_weights[:, None]
    return slope


def softmax(outputs: Matrix) -> Matrix:
    """Turn outputs into probabilities, without overflow."""
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    shares: Matrix = shifted / shifted.sum(axis=1, keepdims=True)
    return shares
