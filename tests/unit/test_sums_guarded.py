"""Keys and channels of the protections: who gets what, when, and how it survives a new process."""

import numpy as np
import pytest

from tacit.core.coordinator import Coordinator
from tacit.core.engine import Reply
from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.events import Received, Relayed, WaveEnded, WaveStarted
from tacit.core.link import Link
from tacit.core.manifest import Components, Manifest
from tacit.core.message import Message
from tacit.core.values import Blob
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.embedded import EmbeddedEngine
from tacit.engines.holdings import Holdings
from tacit.engines.sites import pinned_identity, site_secret
from tacit.federation import Federation
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.bfv import BFV
from tacit.protections.ckks import CKKS
from tacit.protections.keys.authenticated import manifest_digest_of, sealing_key
from tacit.protections.keys.key_relay import WRAPPED
from tacit.protections.paillier import Paillier
from tacit.protections.paillier.halves import KEY_SERVER
from tacit.protections.ring import Ring

CLIENTS = [f"client-{index + 1}" for index in range(4)]
ROWS = dict(zip(CLIENTS, np.random.default_rng(5).uniform(-1, 1, size=(4, 5)), strict=True))
SHARED = [BFV(), CKKS(), Paillier(holder="clients", key_bits=2048)]

every_shared_key = pytest.mark.parametrize("protection", SHARED, ids=["bfv", "ckks", "paillier"])


def asks(scene, step="client.contribute"):
    """What each party was asked in the last wave of a step, by party."""
    found = {}
    for receiver, _, name, raw in scene.heard:
        if name == step and receiver != "coordinator":
            found[receiver] = raw
    return found


class TestChannels:
    def test_both_ends_share_a_key_and_nobody_else_has_it(self, guarded, scene_of):
        scene = scene_of(guarded, ROWS, min_clients=2).begin()
        keys = {name: scene.site(name).vault["channel"] for name in CLIENTS}
        for name in CLIENTS:
            assert scene.coordinator.link.transport.channels[name] == keys[name]
        assert len({key.reveal() for key in keys.values()}) == len(CLIENTS)

    def test_two_clients_share_a_sealing_key_that_the_coordinator_cannot_make(self, guarded, scene_of):
        scene = scene_of(guarded, ROWS, min_clients=2).begin()
        one, other, directory = (
            scene.site("client-1"),
            scene.site("client-2"),
            scene.coordinator.protection.directory,
        )
        shared = sealing_key(one, "client-2", directory["client-2"])
        assert shared == sealing_key(other, "client-1", directory["client-1"])
        third = sealing_key(scene.site("client-3"), "client-1", directory["client-1"])
        assert shared != third
        assert shared not in (*scene.coordinator.link.vault.values(), *one.vault.values())

    @pytest.mark.parametrize("name", ["coordinator", "client-1"])
    def test_nothing_is_sealed_for_the_relay_or_for_oneself(self, guarded, scene_of, name):
        scene = scene_of(guarded, ROWS, min_clients=2).begin()
        signed = scene.coordinator.protection.directory["client-1"]
        with pytest.raises(ProtectionError, match=f"told to seal for {name}"):
            sealing_key(scene.site("client-1"), name, signed)

    def test_every_run_has_its_own_keys(self, guarded, scene_of):
        """Site secrets of an experiment repeat; what protects a sum never does."""
        vaults = [scene_of(guarded, ROWS, min_clients=2).begin().site("client-2").vault for _ in range(2)]
        assert vaults[0]["exchange"] != vaults[1]["exchange"]
        assert vaults[0]["channel"] != vaults[1]["channel"]

    def test_ciphertexts_of_the_same_vector_differ(self, guarded, scene_of):
        scene = scene_of(guarded, ROWS, min_clients=2).begin()
        scene.total()
        scene.total()
        sent = [reply.message for step, reply in scene.tap.replies if step == "client.contribute"]
        blobs = [value.data for message in sent for value in message.values() if isinstance(value, Blob)]
        assert len(blobs) == len(set(blobs)) >= 2 * len(CLIENTS)

    def test_who_has_not_enrolled_has_no_run(self, guarded, scene_of):
        scene = scene_of(guarded, ROWS, min_clients=2)
        with pytest.raises(ProtectionError, match="client-1 has not enrolled"):
            manifest_digest_of(scene.site("client-1"))

    def test_a_coordinator_without_an_identity_cannot_begin(self, guarded, scene_of):
        scene = scene_of(guarded, ROWS, min_clients=2)
        scene.coordinator.link.secret = None
        with pytest.raises(ConfigError, match="give the coordinator its secret"):
            scene.begin()


@every_shared_key
class TestClientKeys:
    def test_the_key_rides_on_the_first_ask_and_never_again(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=2).begin()
        scene.total()
        first = asks(scene)
        assert {name for name, raw in first.items() if b"ticket/wrap" in raw} == set(CLIENTS[1:])
        scene.total()
        assert not any(b"ticket/wrap" in raw for raw in asks(scene).values())
        assert not scene.coordinator.protection.relay.key.wraps

    def test_who_missed_the_first_sum_gets_the_key_with_the_next(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=2, quorum=0.5).begin()
        scene.total(lost=("client-3",))
        assert set(scene.coordinator.protection.relay.key.wraps) == {"client-3"}
        total = scene.total()
        assert total.contributors == 4
        assert np.abs(total["vector"] - scene.expected()).max() < 1e-6
        assert [name for name, raw in asks(scene).items() if b"ticket/wrap" in raw] == ["client-3"]

    def test_who_came_too_late_for_any_key_says_so(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=2).begin()
        with pytest.raises(ProtectionError, match="client-2 has no key"):
            protection.at_client(scene.site("client-2")).key.newest()

    def test_relaying_the_key_is_told(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=2).begin()
        scene.total()
        told = scene.told_of(Relayed)
        assert {(event.sender, event.receiver) for event in told} == {
            ("client-1", name) for name in CLIENTS[1:]
        }
        assert all(event.bytes > WRAPPED for event in told)

    def test_all_clients_open_with_one_key_and_the_coordinator_knows_its_name_only(
        self, protection, scene_of
    ):
        scene = scene_of(protection, ROWS, min_clients=2).begin()
        scene.total()
        keys = [protection.at_client(scene.site(name)).key.newest() for name in CLIENTS]
        assert all(key == keys[0] for key in keys)
        assert keys[0].reveal() not in scene.coordinator.protection.relay.key.public

    def test_a_single_client_is_refused_before_a_key_is_made(self, protection, scene_of):
        scene = scene_of(protection, {"client-1": ROWS["client-1"]})
        with pytest.raises(ProtectionError, match="protects nothing with a single client"):
            scene.begin()


class TestWaves:
    def test_every_wave_that_began_also_ends(self, protection, scene_of):
        """Ledgers would miss what a key server or a disclosing client did."""
        scene = scene_of(protection, ROWS, min_clients=1).begin()
        scene.round()
        scene.total()
        scene.finish()
        begun = [event.wave for event in scene.told_of(WaveStarted)]
        assert [event.wave for event in scene.told_of(WaveEnded)] == begun

    def test_what_was_opened_counts_as_a_total_over_all(self, protection, scene_of):
        scene = scene_of(protection, ROWS, min_clients=1).begin()
        scene.total()
        opened = [event for event in scene.told_of(Received) if event.kind == "aggregate"]
        assert all(event.over == len(CLIENTS) for event in opened)
        handed_over = protection.name == "ring" or bool(protection.services)  # in a step of its own
        assert bool(opened) == (protection.opens == "clients" or handed_over)

    def test_the_key_server_is_asked_once_a_sum(self, scene_of):
        scene = scene_of(Paillier(key_bits=2048), ROWS, min_clients=2).begin()
        scene.total()
        scene.total()
        steps = [step for step, party, _ in scene.tap.jobs if party == KEY_SERVER]
        assert steps == ["client.enrol_service", "protection.serve_key", *2 * ["protection.open_total"]]

    def test_without_a_key_server_the_run_does_not_begin(self, scene_of):
        scene = scene_of(Paillier(key_bits=2048), ROWS, min_clients=2, engine={"services": ()})
        with pytest.raises(ConfigError, match="needs a key-server"):
            scene.begin()

    def test_a_ring_asks_each_client_once_and_none_computes_twice(self, scene_of):
        scene = scene_of(Ring(key_bits=2048), ROWS, min_clients=2, quorum=0.5).begin()
        computed = []

        class Counting(dict):
            def __getitem__(self, name):
                computed.append(name)
                return ROWS[name]

        scene.tap.lose = lambda step, party: party == "client-3"
        method = type(scene.components.method)
        cells = dict(zip(method.vector.__code__.co_freevars, method.vector.__closure__, strict=True))
        cells["rows"].cell_contents = Counting()
        scene.round()
        asked = [party for step, party, _ in scene.tap.jobs if step == "client.contribute"]
        assert asked == ["client-1", "client-2", "client-3", "client-1", "client-2", "client-4"]
        assert computed == ["client-1", "client-2", "client-4"]


def weights(protection, table_of, keys_once, **engine):
    federation = Federation.embedded(table_of(rows=48), clients=4, test=None, seed=2)
    federation._engine_settings |= engine
    with keys_once():
        return np.asarray(federation.train(FedHEONN(), protect=protection).model.weights)


@pytest.fixture(scope="module")
def warm(protection, table_of, keys_once):
    return weights(protection, table_of, keys_once)


class TestNewProcesses:
    """A deployed site is a new process for every step: nothing may live in memory only."""

    @pytest.mark.parametrize(
        "engine",
        [{"cold": True}, {"cold": True, "keep_replies": True}, {"workers": 1}],
        ids=["cold", "kept", "worker"],
    )
    def test_the_model_is_the_same(self, protection, table_of, keys_once, warm, engine):
        found = weights(protection, table_of, keys_once, **engine)
        if protection.name == "ckks":
            # Noise is fresh in every run; the moments go through sums without a bound, which are exact.
            assert np.abs(found - warm).max() <= 1e-9 * np.abs(warm).max()
        else:
            assert found.tobytes() == warm.tobytes()

    def test_a_cold_party_sums_like_a_warm_one(self, protection, scene_of):
        totals = [
            scene_of(protection, ROWS, engine={"cold": cold}).begin().total()["vector"]
            for cold in (False, True)
        ]
        allowed = 2 * len(ROWS) * protection.promises.precision
        assert np.abs(totals[0] - totals[1]).max() <= (allowed if protection.name == "ckks" else 0.0)


class Lossy(EmbeddedEngine):
    """Loses what one client is asked in the first sum."""

    def ask(self, call, jobs):
        first = Message.decode(call).get("sum") == 1
        for party, job in jobs:
            if first and party in ("site 3", "site 4"):  # by two clients, totals may differ here
                yield Reply(party, Message(), "StepError: lost on the way", len(call), 0)
            else:
                yield from super().ask(call, [(party, job)])


@every_shared_key
def test_a_client_first_asked_in_a_later_round_gets_its_key_with_the_totals(protection):
    table = Table.of(np.arange(30.0).reshape(15, 2) % 7, np.arange(15) % 2)
    held = Holdings(table, np.arange(0, 16, 3), [f"site {index}" for index in range(5)])
    components = Components(FedHEONN(), protection, Preparation())
    manifest = Manifest.of("run", components, min_clients=2, quorum=0.5, experiment=True)
    engine = Lossy(held, assemble=lambda asked: components)
    coordinator = Coordinator(
        Link(
            engine,
            manifest,
            components,
            secret=site_secret(0, "coordinator"),
            pinned=lambda name: pinned_identity(0, name),
        )
    )
    coordinator.enrol()
    coordinator.protection.prepare(2)
    assert components.preparation.train(coordinator) == ("site 0", "site 1", "site 2")
    assert coordinator.round(components.method.terms, components.method.solve) == coordinator.parties
    assert coordinator.finish().holders == coordinator.parties
