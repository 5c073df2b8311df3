"""Keys that all clients share: who makes them, who hands them on, how they are renewed."""

import numpy as np
import pytest

from tacit.core.claims import read_claim
from tacit.core.differencing import OpenedTotals
from tacit.core.errors import ConfigError, ProtectionError, QuorumError
from tacit.core.events import Noted, Relayed
from tacit.core.message import Message
from tacit.federation import Federation
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.bfv import BFV
from tacit.protections.ckks import CKKS
from tacit.protections.keys.shared_key import SharedKey
from tacit.protections.paillier import Paillier

CLIENTS = [f"client-{index + 1}" for index in range(5)]
ROWS = dict(zip(CLIENTS, np.random.default_rng(6).uniform(-1, 1, size=(5, 4)), strict=True))
SHARED = [BFV(), CKKS(), Paillier(holder="clients", key_bits=2048)]

every_shared_key = pytest.mark.parametrize("protection", SHARED, ids=["bfv", "ckks", "paillier"])


def right(scene, total):
    return np.abs(total["vector"] - scene.expected()).max() < 1e-6


def again(scene):
    """Sum the vectors, as if they were new ones, with whatever the tap loses."""
    scene.coordinator.link.opened_totals = OpenedTotals()
    return scene.coordinator.reveal(scene.components.method.vector)


def rotate(scene):
    """Have a new key made for all that take part."""
    link = scene.coordinator.link
    scene.coordinator.protection.relay.rotate(link.ask, link.parties)


def join_late(scene, late):
    """Enrol all but one, and that one once the key is made, as a standing federation does."""
    everybody, coordinator = scene.tap.engine.parties, scene.coordinator
    scene.tap.engine.parties = lambda role="client": [
        name for name in everybody(role) if name != late or role != "client"
    ]
    scene.begin()
    scene.tap.engine.parties = everybody
    first = Message.decode(next(raw for step, raw in scene.tap.calls if step == "client.enrol"))
    call = {name: first[name] for name in ("manifest", "protection/exchange")}
    for reply in list(coordinator.link.wave("client.enrol", [late], call, {}, failures=coordinator.failures)):
        coordinator.protection.welcome(late, {"exchange": reply.message["protection/exchange"]})
    coordinator.link.briefing.known.pop(late, None)  # it enrolled, and was told neither schema nor totals
    coordinator.parties = (*coordinator.parties, late)


@every_shared_key
class TestLateJoiners:
    def test_a_late_joiner_gets_the_key_from_another_client_than_its_maker(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=2, quorum=0.5)
        join_late(scene, "client-5")
        scene.coordinator.parties = CLIENTS[:4]
        scene.total()
        scene.coordinator.parties = (*CLIENTS[1:], "client-1")
        scene.tap.lose = lambda step, party: party == "client-1"
        total = again(scene)
        assert total.contributors == 4
        senders = {event.sender for event in scene.told_of(Relayed) if event.receiver == "client-5"}
        assert senders == {"client-2"}
        assert (
            protection.at_client(scene.site("client-5")).key.newest()
            == protection.at_client(scene.site("client-1")).key.newest()
        )

    def test_if_one_holder_does_not_answer_the_next_one_hands_it_on(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=2, quorum=0.5)
        join_late(scene, "client-5")
        scene.coordinator.parties = CLIENTS[:4]
        scene.total()
        scene.coordinator.parties = tuple(CLIENTS)
        scene.tap.lose = lambda step, party: step == "protection.share_key" and party != "client-3"
        assert right(scene, again(scene))
        asked = [party for step, party, _ in scene.tap.jobs if step == "protection.share_key"]
        assert asked == ["client-1", "client-2", "client-3"]

    def test_it_opens_totals_from_before_it_came(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=2, quorum=0.5)
        join_late(scene, "client-5")
        scene.coordinator.parties = CLIENTS[:4]
        scene.round()
        scene.coordinator.parties = tuple(CLIENTS)
        scene.round()
        scene.finish()  # all replicas are the same, that of the late one too
        assert not scene.coordinator.failures

    def test_nobody_hands_the_key_to_the_coordinator(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=2).begin()
        scene.total()
        signed = scene.coordinator.link.vault["exchange"]
        assert signed is not None
        exchange = np.zeros((1, len(scene.coordinator.protection.directory["client-1"])), np.uint8)
        with pytest.raises(QuorumError, match="told to seal for coordinator"):
            list(
                scene.coordinator.ask(
                    SharedKey.share_key,
                    {"names": b"coordinator", "exchanges": exchange},
                    parties=["client-2"],
                )
            )

    def test_who_has_no_key_hands_none_on(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=2).begin()
        exchange = np.frombuffer(scene.coordinator.protection.directory["client-3"], np.uint8)[None]
        with pytest.raises(QuorumError, match=r"client-2 has no key|it has no key"):
            list(
                scene.coordinator.ask(
                    SharedKey.share_key, {"names": b"client-3", "exchanges": exchange}, parties=["client-2"]
                )
            )


@every_shared_key
class TestRotation:
    def test_a_new_key_serves_the_next_sums_and_the_old_totals_still_open(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=2).begin()
        scene.round()
        old = protection.at_client(scene.site("client-1")).key.newest()
        rotate(scene)
        # The total of the first sum is under the old key, and opens on the ask that brings the new one.
        scene.round()
        assert right(scene, scene.total())
        scene.finish()
        assert not scene.coordinator.failures
        assert {protection.at_client(scene.site(name)).key.newest() == old for name in CLIENTS} == {False}

    def test_who_is_left_out_cannot_open_what_comes_later(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=2, quorum=0.5).begin()
        scene.total()
        scene.coordinator.parties = tuple(CLIENTS[:4])
        rotate(scene)
        scene.total()
        blob = [raw for step, raw in scene.tap.calls if step == "client.disclose_total"][-1]
        call = Message.decode(blob)
        entry = {k[6:]: v for k, v in call.items() if k.startswith("total/")}
        entry["claim"] = read_claim(scene.coordinator.link.briefing.roll.write(), call, {})
        layout = scene.components.method._layout(None)
        assert protection.at_client(scene.site("client-2")).open(entry, layout).shape == (4,)
        with pytest.raises(ProtectionError):
            protection.at_client(scene.site("client-5")).open(entry, layout)

    def test_another_holder_makes_it_if_the_first_does_not_answer(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=2, quorum=0.5).begin()
        scene.total()
        scene.tap.lose = lambda step, party: party == "client-1"
        rotate(scene)
        assert scene.coordinator.protection.relay.key.maker == "client-2"

    def test_if_nobody_can_the_old_key_stays(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=2, quorum=0.5).begin()
        scene.total()
        before = scene.coordinator.protection.relay.key.public
        scene.tap.lose = lambda step, party: step == "protection.make_keys"
        with pytest.raises(ProtectionError, match="the old one stays in use"):
            rotate(scene)
        assert scene.coordinator.protection.relay.key.public == before
        scene.coordinator.failures.clear()
        assert right(scene, scene.total())


def test_keys_are_renewed_after_as_many_sums_as_agreed(scene_of):
    scene = scene_of(CKKS(rotate_every=2), ROWS, min_clients=2).begin()
    seen = []
    for _ in range(5):
        assert right(scene, scene.total())
        seen.append(scene.coordinator.protection.relay.key.public)
    assert [seen.index(key) for key in seen] == [0, 0, 2, 2, 4]


def test_a_model_learnt_under_changing_keys_is_the_same(table_of):
    federation = Federation.embedded(table_of(rows=48), clients=4, test=None, seed=2)
    for mode in ("sealed", "paper"):
        one, other = (
            federation.train(FedHEONN(mode=mode), protect=CKKS(rotate_every=every)).model.weights
            for every in (0, 1)
        )
        np.testing.assert_allclose(one, other, atol=1e-6 * np.abs(one).max())


def test_the_client_that_the_federation_chose_makes_the_key(scene_of):
    scene = scene_of(CKKS(maker="client-4"), ROWS, min_clients=2).begin()
    assert scene.coordinator.protection.relay.key.maker == "client-4"
    assert right(scene, scene.total())


def test_nobody_else_makes_it(scene_of):
    protection = CKKS(maker="client-4")
    scene = scene_of(protection, ROWS, min_clients=2, quorum=0.5)
    scene.tap.lose = lambda step, party: step == "protection.make_keys"
    with pytest.raises(QuorumError):
        scene.begin()
    scene.tap.lose = lambda step, party: False
    with pytest.raises(QuorumError, match="the federation chose client-4"):
        nobody = {"names": b"", "exchanges": np.zeros((0, 96), np.uint8)}
        list(scene.coordinator.ask(SharedKey.make_keys, nobody, parties=["client-2"]))


def test_a_maker_that_is_not_there_and_a_negative_lifetime_are_refused(scene_of):
    with pytest.raises(ConfigError, match="client-9 is to make the keys and has not enrolled"):
        scene_of(CKKS(maker="client-9"), ROWS, min_clients=2).begin()
    with pytest.raises(ConfigError, match="rotate_every is -1"):
        CKKS(rotate_every=-1)


@every_shared_key
def test_a_run_says_aloud_that_clients_share_a_key_and_what_to_take_instead(protection, scene_of):
    scene = scene_of(protection, ROWS, min_clients=2).begin()
    loud = [event.text for event in scene.told_of(Noted) if event.level == "warning"]
    assert any("all clients share one decryption key" in text and "'masked'" in text for text in loud)
