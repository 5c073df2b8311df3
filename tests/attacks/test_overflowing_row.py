"""A coordinator sends weights at which the gradient of one row alone overflows.

If that row's gradient spoiled the sum of a step of DP-SGD, the failure of the step would say, without any
noise, that the row is there. The control is the mean gradient without privacy of examples, which is spoiled.
"""

import numpy as np
import pytest

from tacit.methods.averaging.example_privacy import ExamplePrivacy
from tacit.models.mlp import MLP

ROWS = np.array([[1.0, 0.0], [0.5, 0.5], [9.0, -3.0]])  # the last one is looked for
LABELS = np.array([0, 1, 0])


def crafted(network):
    """Weights whose first unit answers only the row that is looked for, and then beyond all bounds."""
    weights = np.zeros(network.size)
    layers = network.named(weights)
    layers["layer1.weight"][:, 0] = 0.9e308, -0.9e308
    layers["layer1.bias"][0] = -1.2e308
    layers["layer2.weight"][0] = 1.0, -1.0
    return weights


def test_control_a_sum_of_gradients_is_spoiled():
    network = MLP((2, 2, 2))
    weights = crafted(network)
    with np.errstate(all="ignore"):
        assert np.isfinite(network.gradient(weights, ROWS[:2], LABELS[:2])).all()
        assert not np.isfinite(network.gradient(weights, ROWS, LABELS)).all()


@pytest.mark.parametrize("kind", ["mlp", pytest.param("torch", marks=pytest.mark.slow)])
def test_an_overflowing_row_counts_as_zero(kind):
    if kind == "mlp":
        network, rows = MLP((2, 2, 2)), ROWS
        weights = crafted(network)
    else:
        torch = pytest.importorskip("torch")
        from tacit.models.torch_network import TorchNetwork

        def module(features, outputs):
            return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))

        network, rows = TorchNetwork(module, 2, 2), ROWS * [1e38, 1.0]
        weights = np.ones(network.size)
    with np.errstate(all="ignore"):
        without = network.clipped_gradients(weights, rows[:2], LABELS[:2], 1.0)
        together = network.clipped_gradients(weights, rows, LABELS, 1.0)
    assert np.isfinite(together).all()
    assert np.linalg.norm(together - without) <= 1.0 + 1e-6


def test_a_step_of_dp_sgd_does_not_tell_of_it():
    network, privacy = MLP((2, 2, 2)), ExamplePrivacy(noise=1.0, sampling=1.0)
    with np.errstate(all="ignore"):
        (gradient,) = privacy.noisy_gradients(network, crafted(network), ROWS, LABELS, 1, None)
    assert np.isfinite(gradient).all()
