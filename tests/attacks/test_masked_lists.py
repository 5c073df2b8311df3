"""Another list of survivors for every holder: the victim's seed, and the keys of all with whom it has masked.

The coordinator tells the victim to mask with as few others as it accepts. It then tells every holder of
shares that the victim arrived and that some of those others vanished, each time others. Every list by itself
is one that an honest coordinator might have sent. Without confirmations all these shares can be read, and the
victim's upload is cleared of every mask.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from tacit.core.errors import OpeningError, ProtectionError
from tacit.core.message import Message
from tacit.core.values import Blob
from tacit.protections.masked import Masked
from tacit.protections.masked.client import MaskedClient
from tacit.protections.masked.confirming import CONFIRM, lock
from tests.helpers.lying import open_victim, place_of_release, read_released, spread_lies

VICTIM = "client-2"


@dataclass(frozen=True)
class Unconfirmed(Masked):
    """What was: shares that anybody reads who receives them, and as few partners as shares open a mask."""

    def at_client(self, party):
        return UnconfirmedClient(self, party)

    def rules(self, clients):
        found = super().rules(clients)
        return replace(found, partners=found.threshold)


class UnconfirmedClient(MaskedClient):
    def _lock(self, released, slot, around, alive):
        pads = bytes(CONFIRM * len(around.holders))
        where = place_of_release(self.party, slot)
        locked = lock(released, pads, self.settings.rules(around.clients).threshold, where)
        return Message(shares=Blob("share", locked), confirms=Blob("public", pads))


def rows_of(clients, size=5):
    rows = np.random.default_rng(clients).uniform(-1, 1, size=(clients, size))
    return {f"client-{index + 1}": row for index, row in enumerate(rows)}


def carry_out(scene):
    """The lies, and what can be read of all that clients gave."""
    batch = scene.begin().coordinator.protection.batch
    lies = spread_lies(batch, VICTIM)
    lies.tell(scene)
    # The sum itself comes to nothing, as holders gave shares of different secrets.
    with pytest.raises((OpeningError, ProtectionError), match="shares of the masks of"):
        scene.coordinator.reveal(scene.components.method.vector)
    return lies, read_released(scene, partners={VICTIM: lies.partners})


CASES = [(5, False), (10, True), (40, True)]
SPARSE = pytest.param(100, False, marks=pytest.mark.slow)


@pytest.mark.parametrize(("clients", "active"), [*CASES, (70, False), SPARSE])
def test_control_without_confirmations(scene_of, clients, active):
    scene = scene_of(Unconfirmed(active=active), rows_of(clients))
    lies, released = carry_out(scene)
    assert lies.suffice(scene.coordinator.protection.batch)
    np.testing.assert_allclose(open_victim(scene, lies, released), scene.rows[VICTIM], atol=1e-8)


@pytest.mark.parametrize(("clients", "active"), [*CASES, (5, True), (70, True), SPARSE])
def test_nothing_can_be_read(scene_of, clients, active):
    scene = scene_of(Masked(active=active), rows_of(clients))
    lies, released = carry_out(scene)
    with pytest.raises(OpeningError, match="shares of the masks of"):
        open_victim(scene, lies, released)
    if scene.coordinator.protection.batch.rules.complete:
        assert not released


def test_one_list_for_all_is_opened(scene_of):
    scene = scene_of(Masked(), rows_of(10), quorum=0.5).begin()
    total = scene.total({"client-4", "client-9"})
    assert len(read_released(scene)) == 8 * 10
    np.testing.assert_allclose(total["vector"], scene.expected({"client-4", "client-9"}), atol=1e-8)
