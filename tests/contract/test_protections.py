"""What every protected sum has to keep, run over the registry: a new one is tested the day it is there."""

import numpy as np
import pytest

from tacit.core.errors import OpeningError, QuorumError, TacitError
from tacit.core.events import Replied, TotalOpened
from tacit.core.manifest import Components, Manifest
from tacit.data.preparation import Preparation
from tacit.methods.fedheonn import FedHEONN
from tacit.protections import PROTECTIONS
from tacit.testing import check_protection
from tests.quick import Mode

PLACES = ("coordinator", "clients")


def rows_of(clients, size=7):
    rows = np.random.default_rng(clients).uniform(-1, 1, size=(clients, size))
    return {f"client-{index + 1}": row for index, row in enumerate(rows)}


def assert_sum(protection, total, rows):
    expected = np.sum(list(rows.values()), axis=0)
    tolerance = len(rows) * (protection.promises.precision + len(rows) * np.finfo(float).eps)
    assert np.abs(total["vector"] - expected).max() <= tolerance


def assert_shut(scene):
    """No total was opened, and nobody was asked to open one."""
    assert not scene.told_of(TotalOpened)
    assert not {"protection.open_total", "client.disclose_total"} & {step for step, _ in scene.tap.calls}
    if scene.protection.name == "ring":  # whoever holds the key did not even get the total
        assert not any(b"TPV" in raw for raw in scene.received("coordinator"))


class TestContract:
    @pytest.fixture
    def protection(self, any_protection):
        return any_protection

    def test_it_keeps_what_every_protection_has_to_keep(self, protection, keys_once):
        with keys_once():
            check_protection(protection)

    def test_upload_of_long_vectors_costs_what_is_promised(self, protection, summed):
        def upload(clients, size):
            replies = []
            summed(
                protection,
                rows_of(clients, size),
                bound=1.0,
                subscriber=lambda number, event: (
                    replies.append(event) if isinstance(event, Replied) else None
                ),
            )
            return sum(event.bytes_up for event in replies if event.party == "client-2")

        for clients in (4,) if Mode.quick else (4, 7):
            per_value = (upload(clients, 8192) - upload(clients, 4096)) / 4096
            # A few clients need fewer guard bits in fixed point than are promised for thousands.
            promises = protection.promises
            promised = promises.bytes_per_value * (clients if promises.per_client else 1)
            assert 0.7 < per_value / promised < 1.15

    def test_another_protection_is_another_agreement(self, protection, protections):
        def digest(chosen):
            return Manifest.of("run", Components(FedHEONN(), chosen, Preparation())).digest

        same = [other for other in protections if digest(other) == digest(protection)]
        assert same == [protection]


class TestSums:
    def test_a_single_client_is_summed_only_if_that_is_promised(self, protection, summed):
        rows = rows_of(1)
        if protection.promises.single:
            assert_sum(protection, summed(protection, rows, bound=1.0), rows)
        else:
            with pytest.raises(TacitError):
                summed(protection, rows, bound=1.0)

    def test_names_and_order_of_clients_make_no_difference(self, protection, summed):
        rows = rows_of(5)
        turned = {f"site {name}": row for name, row in reversed(rows.items())}
        assert_sum(protection, summed(protection, turned, bound=1.0), rows)

    @pytest.mark.parametrize("lost", [1, 2, 3])
    def test_clients_may_vanish_down_to_the_quorum(self, protection, summed, lost):
        rows = rows_of(6)
        names = tuple(rows)[1 : 1 + lost]
        total = summed(protection, rows, bound=1.0, lost=names, quorum=0.5)
        assert total.contributors == 6 - lost
        assert_sum(protection, total, {name: row for name, row in rows.items() if name not in names})

    def test_below_the_quorum_nothing_is_opened(self, any_protection, scene_of):
        scene = scene_of(any_protection, rows_of(6), quorum=0.8).begin()
        with pytest.raises(QuorumError, match="client-1"):
            scene.total(lost=("client-1", "client-4"))
        assert_shut(scene)

    def test_over_fewer_than_agreed_nothing_is_opened(self, any_protection, scene_of):
        scene = scene_of(any_protection, rows_of(4), min_clients=5)
        with pytest.raises(OpeningError, match="5"):
            scene.begin().total()
        assert_shut(scene)

    def test_dropouts_below_what_was_agreed_leave_it_shut(self, any_protection, scene_of):
        scene = scene_of(any_protection, rows_of(5), min_clients=4, quorum=0.2).begin()
        with pytest.raises(OpeningError, match="3 contributions"):
            scene.total(lost=("client-2", "client-5"))
        assert_shut(scene)

    def test_the_maker_of_the_keys_may_vanish_once_they_are_made(self, protection, summed):
        rows = rows_of(5)
        total = summed(protection, rows, bound=1.0, lost=("client-1",))
        assert_sum(protection, total, {name: row for name, row in rows.items() if name != "client-1"})

    def test_who_vanished_may_come_back(self, protection, scene_of):
        rows = rows_of(5)
        scene = scene_of(protection, rows).begin()
        assert scene.total(lost=("client-1",)).contributors == 4
        assert_sum(protection, scene.total(), rows)


class TestSizes:
    def test_vectors_of_more_than_a_chunk(self, protection, summed):
        rows = rows_of(3, 6000)
        assert_sum(protection, summed(protection, rows, bound=1.0), rows)

    @pytest.mark.parametrize("name", ["plain", "bfv", "ckks"])
    def test_a_hundred_thousand_values(self, name, summed):
        rows, chosen = rows_of(3, 100_000), PROTECTIONS.build(name)
        assert_sum(chosen, summed(chosen, rows, bound=1.0), rows)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["plain", "bfv", "ckks"])
    def test_ten_million_values(self, name, summed):
        rows, chosen = rows_of(3, 10_000_000), PROTECTIONS.build(name)
        assert_sum(chosen, summed(chosen, rows, bound=1.0), rows)
