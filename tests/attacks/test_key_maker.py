"""The client that makes the federation's key leaves out a part that the coordinator needs.

The control is the same run with the key as it was made. The coordinator must end with an error of its own,
not with whatever line first misses the part.
"""

import pytest

from tacit.core.errors import MessageError, QuorumError
from tacit.methods.fedheonn import FedHEONN
from tacit.protections import PROTECTIONS

CASES = {
    "ckks": (FedHEONN(mode="paper"), {}, QuorumError, "blob under key"),
    "paillier": (
        FedHEONN(),
        {"holder": "clients", "key_bits": 2048},
        MessageError,
        "public key is truncated: 0 bytes",
    ),
}


def train(coordinator):
    method, preparation = coordinator.components.method, coordinator.components.preparation
    coordinator.enrol()
    coordinator.protection.prepare(2)
    preparation.train(coordinator)
    method.train(coordinator)


@pytest.mark.parametrize("name", CASES)
def test_the_coordinator_ends_with_an_error_of_its_own(coordinator_of, monkeypatch, keys_once, name):
    method, settings, error, reason = CASES[name]
    protection = PROTECTIONS.build(name, settings)
    generate = type(protection).generate

    def lacking(self):
        secret, _ = generate(self)
        return secret, b""

    with keys_once():
        train(coordinator_of(method, protection, min_clients=2))  # the control
        monkeypatch.setattr(type(protection), "generate", lacking)
        with pytest.raises(error, match=reason):
            train(coordinator_of(method, protection, min_clients=2))
