"""One client on both sides of another in a ring: with the server it opens what that one adds.

The server orders the ring, and tells each client whose running sum it gets and for whom it seals its own. A
friend that it names for both sends an encryption of nothing and gets back one of the victim's row.
"""

import hashlib

import numpy as np
import pytest

from tacit.core.errors import QuorumError
from tacit.core.message import Message
from tacit.core.tags import FIELD, ask_context, tagged
from tacit.core.values import Blob
from tacit.crypto.channel import seal, unseal
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.paillier import Packing, PublicKey
from tacit.protections.keys.authenticated import sealing_key
from tacit.protections.ring import Lap, Ring, RingClient
from tests.conftest import quick_keys

CLIENTS = [f"client-{index + 1}" for index in range(4)]
ROWS = dict(zip(CLIENTS, np.random.default_rng(7).uniform(-1, 1, size=(4, 5)), strict=True))
FRIEND = "client-2"


class Server:
    """A server with a friend among the clients, which it names as both neighbours of another one."""

    def __init__(self, scene, victim):
        self.scene, self.victim = scene, victim
        self.half, self.run = scene.coordinator.protection, scene.coordinator.manifest.digest
        self.friend = scene.site(FRIEND)
        self.layout = scene.components.method._layout(None)
        self.hop = b""
        scene.tap.recall, scene.tap.rewrite = self.recall, self.rewrite

    def recall(self, step, party, call, job):
        asked, own = Message.decode(call), Message.decode(job).without(FIELD)
        if party != self.victim or step not in ("client.contribute", "protection.hand_over"):
            return None
        around = {"name": FRIEND, "exchange": self.half.directory[FRIEND]}
        if step == "client.contribute":
            own |= {"ticket/next": around["name"], "ticket/next_exchange": around["exchange"]}
            if "ticket/incoming" in own:
                own |= {"ticket/previous": FRIEND, "ticket/previous_exchange": around["exchange"]}
                own |= {"ticket/incoming": Blob("sealed", self.sealed(self.of_nothing(), party))}
        else:
            told = {"previous": FRIEND, "previous_exchange": around["exchange"]}
            told["incoming"] = Blob("sealed", self.sealed(self.claimed(self.hop), party))
            asked = Message({**asked, **told})
        context = ask_context(asked["$serial"], party, hashlib.sha256(asked.encode()).digest())
        return asked.encode(), tagged(own, self.half.link.transport.channels[party], *context).encode()

    def rewrite(self, step, party, message):
        if step == "client.contribute" and party == self.victim:
            key = sealing_key(self.friend, party, self.half.directory[party])
            self.hop = unseal(key, message["hop"].data, self.lap.hop(self.run, party, FRIEND))

    @property
    def lap(self):
        return Lap(1, 1, CLIENTS[0])

    def sealed(self, blob, party):
        key = sealing_key(self.friend, party, self.half.directory[party])
        return seal(key, blob, self.lap.hop(self.run, FRIEND, party))

    def of_nothing(self):
        code = FixedPoint.of(self.layout, 32, len(CLIENTS), False)
        return PublicKey.from_bytes(self.half.public).encrypt(
            code.encode(np.zeros(5)), Packing(32, code.guard_bits)
        )

    def claimed(self, blob):
        """What came from the victim, as if three clients had added to it."""
        from tacit.crypto.paillier import add_blobs

        key = PublicKey.from_bytes(self.half.public)
        return add_blobs(key, add_blobs(key, blob, self.of_nothing()), self.of_nothing())

    def opened(self, blob):
        return self.half.open({"cipher": Blob("cipher", blob), "summands": len(CLIENTS)}, self.layout)


@pytest.fixture
def scene(scene_of):
    return scene_of(Ring(key_bits=2048), ROWS, min_clients=3).begin()


@pytest.fixture
def unchecked(monkeypatch):
    monkeypatch.setattr(RingClient, "_check_neighbours", lambda self, before: None)


class TestInTheMiddle:
    def test_control(self, scene, unchecked):
        server = Server(scene, "client-3")
        with pytest.raises(QuorumError), quick_keys():
            scene.total()  # the next client gets nothing that is sealed for it
        np.testing.assert_allclose(server.opened(server.hop), ROWS["client-3"], atol=1e-8)

    def test_it_is_refused(self, scene):
        Server(scene, "client-3")
        with pytest.raises(QuorumError, match="client-2 is before and after it in the ring"):
            scene.total()


class TestAtTheBeginning:
    def test_control(self, scene, unchecked):
        server = Server(scene, "client-1")
        scene.tap.lose = lambda step, party: False
        found = []
        rewrite = server.rewrite

        def listen(step, party, message):
            rewrite(step, party, message)
            if step == "protection.hand_over":
                found.append(message["cipher"].data)

        scene.tap.rewrite = listen
        hand_over(scene)
        np.testing.assert_allclose(server.opened(found[0]), ROWS["client-1"], atol=1e-8)

    def test_it_is_refused(self, scene):
        Server(scene, "client-1")
        lost = hand_over(scene)
        assert "client-2 is before and after it in the ring" in lost["client-1"]


def hand_over(scene):
    """Have the first client begin the ring, and hand over what its neighbour makes of that at once."""
    coordinator, lost = scene.coordinator, {}
    common = {"public": coordinator.protection.public, "lap": 1, "closer": CLIENTS[0]}
    pending = coordinator.begin_sum(scene.components.method.vector)
    with quick_keys():
        told = {**common, "summands": len(CLIENTS)}
        assert dict(pending.contributions({CLIENTS[0]: {}}, told, CLIENTS[:1]))
        list(coordinator.link.ask(RingClient.hand_over, {**common, "sum": 1}, None, CLIENTS[:1], lost))
    return lost
