"""The second client of a ring and the server, together, open the contribution of the first.

What the first client sends on holds nobody else's contribution; the second unseals it, and the server has the
key. So the client that begins a ring blinds what it sends, and takes that off when the sum comes back.
"""

import numpy as np
import pytest

from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import unseal
from tacit.protections.keys.authenticated import sealing_key
from tacit.protections.ring import Lap, Ring

CLIENTS = [f"client-{index + 1}" for index in range(4)]
ROWS = dict(zip(CLIENTS, np.random.default_rng(7).uniform(-1, 1, size=(4, 5)), strict=True))


def opened_by_two(scene):
    """What the second client unseals, decrypted with the server's key."""
    half, found = scene.coordinator.protection, []

    def rewrite(step, party, message):
        if step == "client.contribute" and party == "client-1":
            friend, run = scene.site("client-2"), scene.coordinator.manifest.digest
            key = sealing_key(friend, party, half.directory[party])
            where = Lap(1, 1, party).hop(run, party, friend.id)
            found.append(unseal(key, message["hop"].data, where))

    scene.tap.rewrite = rewrite
    total = scene.total()["vector"]
    assert np.abs(total - scene.expected()).max() < 1e-8
    layout = scene.components.method._layout(None)
    return half.open({"cipher": Blob("cipher", found[0]), "summands": len(CLIENTS)}, layout)


@pytest.fixture
def scene(scene_of):
    return scene_of(Ring(key_bits=2048), ROWS, min_clients=3).begin()


def test_without_blinding_it_is_the_row(scene, monkeypatch):
    monkeypatch.setattr("tacit.crypto.paillier.blind", lambda key, blob: (blob, Secret(b"")))
    monkeypatch.setattr("tacit.crypto.paillier.unblind", lambda key, blob, blinding: blob)
    assert np.abs(opened_by_two(scene) - ROWS["client-1"]).max() < 1e-8


def test_with_it_the_row_does_not_show(scene):
    """Decoding finds that it is no total, or gives numbers that have nothing to do with the row."""
    try:
        opened = opened_by_two(scene)
    except Exception as error:  # noqa: BLE001
        assert type(error).__name__ in ("ProtectionError", "MessageError")
    else:
        assert np.abs(opened - ROWS["client-1"]).max() > 1e-3
