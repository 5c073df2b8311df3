"""One list for all, from which all are missing with whom the victim has masked.

The victim is told to mask with a few others. Then everybody is told, in the same words, that just these have
vanished: a list that all but the victim accept and confirm. Their answers give the victim's seed and the
keys of all its partners. So a client masks with so many that such a list is too short.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from tacit.core.errors import OpeningError, ProtectionError
from tacit.protections.masked import Masked
from tests.helpers.lying import CONTRIBUTE, Lies, open_victim, read_released

VICTIM = "client-2"


@dataclass(frozen=True)
class Sociable(Masked):
    """Clients that confirm lists, but mask with as few others as they are told to."""

    least: int = 2

    def rules(self, clients):
        return replace(super().rules(clients), partners=self.least)


def rows_of(clients, size=5):
    rows = np.random.default_rng(clients).uniform(-1, 1, size=(clients, size))
    return {f"client-{index + 1}": row for index, row in enumerate(rows)}


def carry_out(scene, others):
    """Let the victim mask with so many others, and everybody be told that these vanished."""
    batch = scene.begin().coordinator.protection.batch
    partners = batch.neighbours(VICTIM)[:others]
    lies = Lies(VICTIM, partners, {name: partners for name in batch.holders if name not in partners})
    lies.tell(scene, silent={VICTIM, *partners})
    with pytest.raises((OpeningError, ProtectionError), match="shares of the masks of"):
        scene.coordinator.reveal(scene.components.method.vector)
    return lies, read_released(scene)


@pytest.mark.parametrize(("clients", "neighbours", "others"), [(5, None, 1), (10, None, 3), (70, 8, 3)])
def test_control_with_few_partners(scene_of, clients, neighbours, others):
    scene = scene_of(Sociable(neighbours=neighbours, least=others + 1, active=False), rows_of(clients))
    lies, released = carry_out(scene, others)
    np.testing.assert_allclose(open_victim(scene, lies, released), scene.rows[VICTIM], atol=1e-8)


@pytest.mark.parametrize(("clients", "neighbours"), [(5, None), (10, None), (70, 8)])
@pytest.mark.parametrize("active", [False, True])
def test_a_client_insists_on_more(scene_of, clients, neighbours, active):
    scene = scene_of(Masked(neighbours=neighbours, active=active), rows_of(clients), quorum=0.5)
    least = scene.protection.rules(clients).partners
    batch = scene.begin().coordinator.protection.batch
    Lies(VICTIM, batch.neighbours(VICTIM)[: least - 2]).tell(scene)
    lie = scene.tap.recall
    scene.tap.recall = lambda name, *ask: lie(name, *ask) if name == CONTRIBUTE else None
    scene.coordinator.reveal(scene.components.method.vector)
    assert f"{least - 1} clients around {VICTIM}, agreed were {least}" in scene.coordinator.failures[VICTIM]


@pytest.mark.parametrize(("clients", "neighbours"), [(5, None), (10, None), (70, 8)])
def test_as_few_as_it_accepts_leave_no_list_that_can_be_confirmed(scene_of, clients, neighbours):
    scene = scene_of(Masked(neighbours=neighbours), rows_of(clients))
    lies, released = carry_out(scene, scene.protection.rules(clients).partners - 1)
    with pytest.raises(OpeningError, match="shares of the masks of"):
        open_victim(scene, lies, released)
