"""A number that is none passes every comparison: NaN is neither older nor newer than the last sum.

A client tells its partial sum of a sum once, since two totals over other clients show those in between. A
coordinator that numbers the second one NaN got it.
"""

import sys
from math import nan

import numpy as np
import pytest

from tacit.core.errors import QuorumError
from tacit.core.fields import MOST_SUMMANDS, read_integer
from tacit.core.pending_sum import PendingSum
from tacit.protections.secret_sharing.committee import Committee
from tacit.protections.secret_sharing.share_round import ShareRound
from tacit.protections.secret_sharing.shares import Shares

CLIENTS = [f"client-{index + 1}" for index in range(5)]
ROWS = dict(zip(CLIENTS, np.random.default_rng(6).uniform(-1, 1, size=(5, 4)), strict=True))
VICTIM = "client-3"
OTHERS = [name for name in CLIENTS if name != VICTIM]
NO_NUMBERS = [nan, 2.0, True, "2", -1, 0, 2**63, None, (2,), b"2"]
protections = pytest.mark.parametrize(
    "protection", [Shares(opens="coordinator"), Committee(opens="coordinator")], ids=["shares", "committee"]
)


def second_total(scene, number):
    """Form the sum that was opened once more, without the victim, under another number."""
    half, link = scene.coordinator.protection, scene.coordinator.link
    layout = scene.components.method._layout(None)
    pending = PendingSum(link, number, "method", "vector", layout, tuple(OTHERS))
    if isinstance(scene.protection, Committee):
        lap, holders, gone = half.election.draw, half.election.members, set()
    else:
        lap, holders, gone = 1, tuple(OTHERS), {VICTIM}
    threshold = scene.protection.min_holders(len(holders))
    share_round = ShareRound("shamir", number, lap, holders, threshold)
    formed = half.form(pending, share_round, gone)
    if formed is None or len(formed.by_holder) < threshold:
        raise QuorumError(str({**pending.failures, **pending.lost}))
    return half.open(half.make_total(pending, share_round, formed), layout)


@protections
def test_a_sum_without_a_number_opened_a_second_time(protection, scene_of, monkeypatch):
    """Control: numbers that are taken as they come."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tacit.") and hasattr(module, "read_integer"):
            monkeypatch.setattr(module, "read_integer", lambda fields, name, *limits: fields[name])
    monkeypatch.setattr("tacit.core.steps.check_fields", lambda fields, kinds: None)
    scene = scene_of(protection, ROWS, min_clients=3, quorum=0.5).begin()
    whole = scene.total()["vector"]
    assert np.abs(whole - second_total(scene, nan) - ROWS[VICTIM]).max() < 1e-8


@protections
@pytest.mark.parametrize("number", NO_NUMBERS, ids=str)
def test_is_refused(protection, scene_of, number):
    scene = scene_of(protection, ROWS, min_clients=3, quorum=0.5).begin()
    scene.total()
    with pytest.raises(QuorumError, match=r"MessageError: (field )?'sum' is"):
        second_total(scene, number)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=str)
def test_every_number_is_read_alike(value):
    with pytest.raises(Exception, match=r"^'count' is .* no genuine message$") as refused:
        read_integer({"count": value}, "count", 1, MOST_SUMMANDS)
    assert type(refused.value).__name__ == "MessageError"
    assert [read_integer({"count": good}, "count", 1, 3) for good in (1, 3)] == [1, 3]
