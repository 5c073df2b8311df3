"""A coordinator of masked sums opens a sum, and tells those that it did not ask for shares to start it again.

What holds: who has helped gives nothing more, so that the second total is over the others alone, and over no
fewer of them than a total must have. The first total is the control: all that arrived are in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.core.errors import QuorumError
from tacit.protections.masked import Masked
from tacit.protections.masked.coordinator import MaskedSum
from tests.conftest import Scene
from tests.helpers.masked_sums import rows_of


def open_attempt(scene: Scene, pending: Any, asked: list[str], helpers: list[str]) -> Any:
    """Sum the vectors of those asked, in masks that they agree on anew, with shares of some of them only."""
    half = scene.coordinator.protection
    batch = half.batch
    encoding = scene.protection.encoding(pending.layout, batch.clients)
    attempt = MaskedSum(pending, batch, batch.take_slot(), asked, False)
    total, tag, arrived = attempt.collect(encoding, {}, {})
    scene.tap.lose = lambda step, party: step == "protection.unmask" and party not in helpers
    attempt.remove_masks(total, tag, arrived)
    scene.tap.lose = lambda step, party: False
    words = encoding.read_total(total, len(arrived))
    return encoding.code.decode(encoding.read_integers(words, len(arrived)))


def agree_again(scene: Scene, pending: Any, among: list[str]) -> None:
    pending.failures.clear()
    pending.restart()
    half = scene.coordinator.protection
    half.batch = half.keys.reach(among, 1, pending.ask, pending.refuse)


@pytest.mark.parametrize("clients", [8, 10, 20])
def test_it_is_over_those_that_did_not_help(scene_of: Any, clients: int) -> None:
    scene = scene_of(Masked(), rows_of(clients), min_clients=3, quorum=0.1).begin()
    pending = scene.coordinator.begin_sum(scene.components.method.vector)
    names, threshold = list(scene.rows), scene.coordinator.protection.batch.rules.threshold
    helpers, others = names[:threshold], names[threshold:]
    first = open_attempt(scene, pending, names, helpers)
    assert np.allclose(first, scene.expected(), atol=1e-6)  # the control
    agree_again(scene, pending, others)
    second = open_attempt(scene, pending, others, others)
    assert np.allclose(second, scene.expected(without=helpers), atol=1e-6)
    agree_again(scene, pending, [*others, *helpers[:2]])
    with pytest.raises(QuorumError):
        pending.check(list(dict(pending.contributions({}, {"slot": 3}, names))))
    refused = [name for name in names if "it gives nothing more to it" in pending.failures.get(name, "")]
    assert not {*others, *helpers[:2]} - {*refused}


def test_nor_over_fewer_than_agreed(scene_of: Any) -> None:
    scene = scene_of(Masked(), rows_of(8), min_clients=4, quorum=0.1).begin()
    pending = scene.coordinator.begin_sum(scene.components.method.vector)
    names, threshold = list(scene.rows), scene.coordinator.protection.batch.rules.threshold
    open_attempt(scene, pending, names, names[:threshold])
    agree_again(scene, pending, names[threshold:])
    assert scene.coordinator.protection.batch is None
    assert "3 clients, agreed were at least 4" in pending.lost[names[-1]]
