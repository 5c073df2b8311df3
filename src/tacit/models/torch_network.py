"""Networks made with torch: a small convolutional one, and any ``torch.nn.Module`` that a site has.

torch is an extra and imported here only. One module serves all clients of a process: weights are
copied in before a step and gradients out after it. Linear algebra runs on one thread, as everywhere in
Tacit: CPU times then mean something, and results repeat.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, DataError, extra
from tacit.models.network import Matrix, Network, Targets, Vector, layer_of

BLOCK = 1000  # rows at a time, where a module's own values would fill the memory
Factory = Callable[[int, int], Any]  # features, outputs -> torch.nn.Module


def torch_library() -> Any:
    """Import torch, or say how to get it."""
    with extra(
        "this network needs torch, which is not installed: pip install 'tacit-fl[torch]', "
        "or use network = 'mlp', which needs none"
    ):
        import torch
    return torch


class TorchNetwork(Network):
    """A torch module as a network; its forward takes rows of features, and gives no softmax."""

    inputs_first = False

    def __init__(self, factory: Factory, features: int, outputs: int) -> None:
        self._torch = torch_library()
        self._torch.set_num_threads(1)
        self._factory, self._wanted = factory, (features, outputs)
        self.module = self._made()
        parameters = {name: tuple(p.shape) for name, p in self.module.named_parameters() if p.requires_grad}
        if not parameters:
            raise ConfigError("the model has no parameters that could be trained: look at its factory")
        state = {
            name: tuple(buffer.shape)
            for name, buffer in self.module.named_buffers()
            if buffer.is_floating_point() and name in self.module.state_dict()
        }
        super().__init__(parameters, state)

    def _made(self) -> Any:
        module = self._factory(*self._wanted)
        if not isinstance(module, self._torch.nn.Module):
            given = f"the model's factory gave a {type(module).__name__}"
            raise ConfigError(f"{given}: it must give a torch.nn.Module")
        return module

    def stages(self) -> list[str]:
        if not isinstance(self.module, self._torch.nn.Sequential):
            raise ConfigError(f"{type(self.module).__name__} cannot be cut: make it a torch.nn.Sequential")
        return [name for name, _ in self.module.named_children()]

    def section(self, start: int, stop: int) -> "TorchNetwork":
        join = self._torch.nn.Sequential
        part = lambda *_: join(OrderedDict([*self._made().named_children()][start:stop]))  # noqa: E731
        return TorchNetwork(part, *self._wanted)

    def reseed(self, rng: np.random.Generator) -> None:
        self._torch.manual_seed(int(rng.integers(2**63)))

    def initial(self, rng: np.random.Generator) -> Vector:
        with self._torch.random.fork_rng(devices=[]):
            self.reseed(rng)
            return self._joined(self._tensors(self.shapes, self._made()))

    def _tensors(self, names: Iterable[str], module: Any = None) -> list[Any]:
        module = module or self.module
        arrays = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return [arrays[name] for name in names]

    def load(self, weights: Vector) -> Any:
        """Copy weights into the module, and return it."""
        arrays = self.named(weights)
        with self._torch.no_grad():
            for name, tensor in zip(self.shapes, self._tensors(self.shapes), strict=True):
                tensor.copy_(self._torch.from_numpy(np.require(arrays[name], requirements=["C", "W"])))
        return self.module

    def _rows(self, X: Matrix | Targets) -> Any:
        kind = next(self.module.parameters()).dtype
        return self._torch.from_numpy(np.require(X, requirements=["C", "W"])).to(kind)

    def _targets(self, targets: Targets) -> Any:
        return self._torch.from_numpy(targets) if targets.ndim == 1 else self._rows(targets)

    def outputs(self, weights: Vector, X: Matrix) -> Matrix:
        module = self.load(weights).eval()
        with self._torch.no_grad():
            outputs: Matrix = module(self._rows(X)).double().numpy()
        return outputs

    def last_inputs(self, weights: Vector, X: Matrix) -> Matrix:
        found, module = list[Matrix](), self.load(weights).eval()
        last = module.get_submodule(layer_of([*self.parameters][-1]))
        hook = last.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0].double().numpy()))
        with hook, self._torch.no_grad():
            for rows in np.array_split(X, len(X) // BLOCK + 1):
                self.module(self._rows(rows))
        return np.concatenate(found)

    def _losses(self, outputs: Any, targets: Any) -> Any:
        if targets.dim() == 1:
            return self._torch.nn.functional.cross_entropy(outputs, targets, reduction="none")
        if outputs.shape != targets.shape:
            found, wanted = tuple(outputs.shape[1:]), tuple(targets.shape[1:])
            raise ConfigError(f"the model gives {found} numbers for a row, and there are {wanted} targets")
        return ((outputs - targets) ** 2).sum(1) / 2

    def gradient(
        self, weights: Vector, X: Matrix, targets: Targets, row_weights: Vector | None = None
    ) -> Vector:
        """Return the gradient of the mean loss; running means and the like move in ``weights``."""
        torch = self._torch
        if self.state and len(targets) < 2:
            raise DataError("a network with batch normalisation needs two rows of a client at least")
        module = self.load(weights).train()
        losses = self._losses(module(self._rows(X)), self._targets(targets))
        loss = (losses if row_weights is None else losses * self._rows(row_weights)).mean()
        # An unused parameter does not move; that is no error.
        tensors = self._tensors(self.parameters)
        found = torch.autograd.grad(loss, tensors, allow_unused=True, materialize_grads=True)
        self._keep_state(weights)
        return self._joined(found)

    def _keep_state(self, weights: Vector) -> None:
        if self.state:
            weights[self.trained :] = self._joined(self._tensors(self.state))

    def clipped_gradients(self, weights: Vector, X: Matrix, targets: Targets, clip: float) -> Vector:
        if self.state:
            raise ConfigError(
                f"'{next(iter(self.state))}' is state over several rows, as in batch normalisation: no row "
                "has a gradient of its own then; use group or layer normalisation for privacy of examples"
            )
        torch = self._torch
        if not len(targets):
            return np.zeros(self.trained)
        self.load(weights).train()
        names = dict(zip(self.parameters, self._tensors(self.parameters), strict=True))

        def loss(parameters: Any, row: Any, target: Any) -> Any:
            outputs = torch.func.functional_call(self.module, parameters, (row[None],))
            return self._losses(outputs, target[None])[0]

        each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0), randomness="different")
        found = each(names, self._rows(X), self._targets(targets))
        squares = sum((g.double() ** 2).reshape(len(targets), -1).sum(1) for g in found.values())
        finite = torch.isfinite(squares)
        shrink = torch.where(finite, clip / torch.clamp(torch.sqrt(squares), min=clip), 0.0)
        whole = [torch.where(finite.reshape(-1, *[1] * (g.dim() - 1)), g, 0.0) for g in found.values()]
        return self._joined([torch.tensordot(shrink.to(g.dtype), g, dims=1) for g in whole])

    def run(self, weights: Vector, X: NDArray[Any]) -> NDArray[Any]:
        module = self.load(weights).train()
        with self._torch.no_grad():
            outputs: NDArray[Any] = module(self._rows(X)).numpy()
        return outputs

    def pull(self, weights: Vector, X: NDArray[Any], slope: NDArray[Any]) -> tuple[Vector, NDArray[Any]]:
        module, rows = self.load(weights).train(), self._rows(X).requires_grad_()
        tensors = [*self._tensors(self.parameters), rows]
        found = self._torch.autograd.grad(
            module(rows), tensors, self._rows(slope), allow_unused=True, materialize_grads=True
        )
        self._keep_state(weights)
        return self._joined(found[:-1]), found[-1].numpy()

    def _joined(self, tensors: Any) -> Vector:
        joined: Vector = self._torch.cat([t.detach().double().reshape(-1) for t in tensors]).numpy()
        return joined


def small_cnn(features: int, outputs: int) -> Any:
    """Build two convolutions for square pictures of one channel, such as the 64 pixels of a digit."""
    torch = torch_library()
    side = round(features**0.5)
    if side * side != features:
        raise ConfigError(
            f"{features} features are no square picture: network = 'cnn' needs 64, 784 and so on"
        )
    nn = torch.nn
    module = nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(min(side, 4)),
        nn.Flatten(),
        nn.Linear(32 * min(side, 4) ** 2, outputs),
    )
    return module.to(memory_format=torch.channels_last)  # in which a step on a CPU takes three fifths
