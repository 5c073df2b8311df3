"""Which network a name means: ours, one that an installed package brings, or a factory at hand.

A manifest names a network and never carries its code: a site builds what it has installed itself, under
the entry-point group ``tacit.models``. A factory from a notebook works where all parties are in that process.
"""

from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from typing import Any

from tacit.core.errors import ConfigError, nearest
from tacit.models.mlp import MLP, HiddenActivation, Initialisation, SuffiAE
from tacit.models.network import Network

GROUP = "tacit.models"
Sizes = int | str | tuple[int, ...]


def sizes_of(hidden: Sizes) -> tuple[int, ...]:
    """Return the sizes of hidden layers, however they were written.

    >>> sizes_of(32), sizes_of("437,312"), sizes_of(()), sizes_of("")
    ((32,), (437, 312), (), ())
    """
    if isinstance(hidden, str):
        try:
            return tuple(int(word) for word in hidden.split(",") if word.strip())
        except ValueError:
            raise ConfigError(f"hidden is '{hidden}': give layer sizes such as 437,312") from None
    return (hidden,) if isinstance(hidden, int) else tuple(hidden)


@lru_cache(maxsize=8)
def network_of(
    network: str | Callable[[int, int], Any],
    features: int,
    outputs: int,
    hidden: Sizes = (32,),
    activation: HiddenActivation = "relu",
    initialisation: Initialisation = "he",
) -> Network:
    """Build a network, once per process; ``hidden``, ``activation`` and ``initialisation`` are of "mlp" only.

    It is "mlp", "suffiae", "cnn", a name under the entry-point group ``tacit.models``, or a factory that
    makes a ``torch.nn.Module`` from the numbers of features and outputs.
    """
    if network == "mlp":
        return MLP((features, *sizes_of(hidden), outputs), activation, initialisation)
    if network == "suffiae":
        return SuffiAE(features, sizes_of(hidden), outputs)
    from tacit.models.torch_network import TorchNetwork, small_cnn

    if network == "cnn":
        return TorchNetwork(small_cnn, features, outputs)
    if callable(network):
        return TorchNetwork(network, features, outputs)
    points = {point.name: point for point in metadata.entry_points(group=GROUP)}
    if network not in points:
        known = sorted({"mlp", "suffiae", "cnn", *points})
        raise ConfigError(
            f"unknown network '{network}': {nearest(network, known)}. A site builds only what it has "
            f"installed itself, under the entry-point group {GROUP}"
        )
    return TorchNetwork(points[network].load(), features, outputs)
