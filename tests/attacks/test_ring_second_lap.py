"""A server that claims a client has vanished gets a second total of a ring, and subtracts.

All clients go around once and the total is handed over. Then the server says that somebody vanished, and
sends the same sum around without the victim, with another client at the end if need be.
"""

from math import nan

import numpy as np
import pytest

from tacit.core.errors import QuorumError
from tacit.core.values import Blob
from tacit.protections.ring import Lap, Ring, RingClient

CLIENTS = [f"client-{index + 1}" for index in range(5)]
ROWS = dict(zip(CLIENTS, np.random.default_rng(5).uniform(-1, 1, size=(5, 4)), strict=True))
VICTIM = "client-3"
OTHERS = [name for name in CLIENTS if name != VICTIM]


@pytest.fixture
def scene(scene_of):
    return scene_of(Ring(key_bits=2048), ROWS, min_clients=3, quorum=0.5).begin()


def totals_of(scene, laps):
    """Send one sum around several times, each with its ring and its number, and open what is handed over."""
    half = scene.coordinator.protection
    pending = scene.coordinator.begin_sum(scene.components.method.vector)
    found = []
    for number, ring in laps:
        pending.restart()
        common = {"public": half.public, "summands": len(CLIENTS), "lap": number, "closer": ring[0]}
        last = half._send_around(pending, ring, common)
        if last is None:
            raise QuorumError(str(pending.failures))
        cipher = Blob("cipher", half._hand_over(pending, ring, common, last))
        found.append(half.open({"cipher": cipher, "summands": len(CLIENTS)}, pending.layout))
    return found


class TestWithoutTheRule:
    """Control: clients as they were, which only counted laps."""

    @pytest.fixture(autouse=True)
    def old_clients(self, monkeypatch):
        def take_turn(self, ticket):
            lap = Lap(ticket["sum"], ticket["lap"], ticket["closer"])
            if (lap.sum, lap.number) <= self.party.state.get("turn", (0, 0)):
                raise AssertionError("a lap that was before")
            self.party.state.update({"turn": (lap.sum, lap.number), "closer": lap.closer})
            return lap

        monkeypatch.setattr(RingClient, "_take_turn", take_turn)
        monkeypatch.setattr(RingClient, "_check_open", lambda self, lap: None)

    @pytest.mark.parametrize("ring", [OTHERS, OTHERS[::-1]], ids=["same closer", "another closer"])
    def test_the_difference_is_the_victims_row(self, scene, ring):
        whole, without = totals_of(scene, [(1, CLIENTS), (2, ring)])
        assert np.abs(whole - without - ROWS[VICTIM]).max() < 1e-8


class TestWithTheRule:
    def test_who_handed_over_a_total_begins_no_further_lap(self, scene):
        with pytest.raises(QuorumError, match="client-1 handed over the total of sum 1"):
            totals_of(scene, [(1, CLIENTS), (2, OTHERS)])

    def test_another_closer_is_refused_by_all_who_know_the_first(self, scene):
        with pytest.raises(QuorumError, match="was told that client-1 hands over the total of sum 1"):
            totals_of(scene, [(1, CLIENTS), (2, OTHERS[::-1])])

    def test_a_ring_that_the_closer_does_not_begin(self, scene):
        """Its first client takes part in two laps, the second of which comes back to the true closer."""
        with pytest.raises(QuorumError, match="client-2 was told to begin the ring of client-1"):
            half = scene.coordinator.protection
            pending = scene.coordinator.begin_sum(scene.components.method.vector)
            common = {"public": half.public, "summands": len(CLIENTS), "lap": 1, "closer": CLIENTS[0]}
            half._send_around(pending, CLIENTS[1:], common)
            raise QuorumError(str(pending.failures))

    @pytest.mark.parametrize("lap", [nan, 2.0, True, "2", -1, 0, 2**63, None])
    def test_a_lap_that_is_no_number_after_the_first(self, scene, lap):
        with pytest.raises(QuorumError, match=r"MessageError: (field )?'(ticket/)?lap' is"):
            totals_of(scene, [(1, CLIENTS), (lap, OTHERS)])

    def test_one_lap_is_handed_over_though_others_were_begun(self, scene):
        """A ring that re-forms, as it may: its total is that of the last lap."""
        half = scene.coordinator.protection
        pending = scene.coordinator.begin_sum(scene.components.method.vector)
        common = {"public": half.public, "summands": len(CLIENTS), "lap": 1, "closer": "client-1"}
        first = half._send_around(pending, CLIENTS, common)
        pending.restart()
        second = half._send_around(pending, OTHERS, {**common, "lap": 2})
        with pytest.raises(QuorumError, match="client-1 did not begin lap 1 of sum 1"):
            half._hand_over(pending, CLIENTS, common, first)
        cipher = Blob("cipher", half._hand_over(pending, OTHERS, {**common, "lap": 2}, second))
        total = half.open({"cipher": cipher, "summands": len(CLIENTS)}, pending.layout)
        assert np.abs(total - scene.expected(without=[VICTIM])).max() < 1e-8
