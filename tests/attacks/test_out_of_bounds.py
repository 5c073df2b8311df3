"""A contribution beyond its bound: a weight of a thousand where all others have at most one.

The attacker is a client. Where its vector can be seen it is refused by name, value and bound; where it
cannot, the total stays shut.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.core.errors import OpeningError
from tacit.core.events import Refused
from tacit.core.layout import Field, Layout
from tacit.core.message import Message
from tacit.crypto.fixedpoint import FixedPoint
from tacit.ledger.cost import CostLedger
from tacit.protections import PROTECTIONS
from tests.quick import representatives

ROWS = {
    name: {"weight": np.array([0.5]), "change": np.array([0.1, -0.2])}
    for name in map("site-{}".format, range(6))
}
MALLORY = "site-2"
BOUNDS = {"weight": 1.0, "change": 1.0}


def test_of_plain_sums_the_client_is_refused_by_name_value_and_bound(scene_of):
    ledger = CostLedger()
    scene = scene_of(PROTECTIONS.build("plain"), ROWS, bound=BOUNDS, subscriber=ledger).begin()

    def rewrite(step: str, party: str, message: Message) -> Message | None:
        evil = (step, party) == ("client.contribute", MALLORY)
        return message | {"vector": np.array([1e9, 0.1, -0.2])} if evil else None

    scene.tap.rewrite = rewrite
    total = scene.total()
    reason = "'weight' holds 1e+09, its bound is 1"
    assert scene.coordinator.failures == {MALLORY: reason}
    assert total["weight"][0] == pytest.approx(2.5)
    assert [event.party for event in scene.told_of(Refused)] == [MALLORY]
    assert ledger.summary()["failures"] == [{"party": MALLORY, "step": "client.contribute", "reason": reason}]


def test_a_coordinator_without_the_check_adds_it(scene_of, monkeypatch):
    monkeypatch.setattr(Layout, "beyond", lambda layout, vector: None)
    scene = scene_of(PROTECTIONS.build("plain"), ROWS, bound=BOUNDS).begin()
    huge = np.array([1e9, 0.1, -0.2])
    scene.tap.rewrite = lambda step, party, message: (
        message | {"vector": huge} if (step, party) == ("client.contribute", MALLORY) else None
    )
    assert scene.total()["weight"][0] == pytest.approx(1e9 + 2.5)


@pytest.mark.parametrize("kind", [np.int8, np.int64])
def test_the_least_integer_whose_absolute_value_is_within_any_bound_is_refused(scene_of, kind):
    least = np.full(3, np.iinfo(kind).min, kind)
    assert (np.abs(least) < 0).all()  # the control: this is what a check of absolute values sees
    scene = scene_of(PROTECTIONS.build("plain"), ROWS, bound=BOUNDS).begin()
    scene.tap.rewrite = lambda step, party, message: (
        message | {"vector": least} if (step, party) == ("client.contribute", MALLORY) else None
    )
    assert scene.total()["weight"][0] == pytest.approx(2.5)
    assert scene.coordinator.failures == {MALLORY: "no vector of 3 values"}
    assert (
        Field("change", (3,), clear=True).flaw(least) == f"'change' holds {least.dtype}, agreed was float64"
    )


def greedy(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Rows of which one client's are too large, and clients whose own checks let them pass."""
    monkeypatch.setattr(Layout, "_check", staticmethod(lambda field, array: None))
    monkeypatch.setattr(
        FixedPoint, "encode", lambda code, vector: np.rint(vector * code._scale).astype(np.int64)
    )
    return ROWS | {MALLORY: {"weight": np.array([1000.0]), "change": np.array([0.1, -0.2])}}


HIDING = {
    "shares": PROTECTIONS.build("shares"),
    "shares at the coordinator": PROTECTIONS.build("shares", {"opens": "coordinator"}),
    "additive": PROTECTIONS.build("shares", {"scheme": "additive"}),
    "committee": PROTECTIONS.build("committee"),
}
REFUSALS = {
    "coordinator": "a total that 6 contributions within their bounds cannot have",
    "clients": "OpeningError: it does not open this total of vector",  # the same words whatever the reason
}


@pytest.mark.parametrize("name", representatives(HIDING, "shares", "shares at the coordinator"))
@pytest.mark.parametrize("checked", [False, True])
def test_of_hidden_sums_the_total_stays_shut(scene_of, monkeypatch, name, checked):
    rows = greedy(monkeypatch)
    if not checked:
        monkeypatch.setattr(FixedPoint, "_check_range", lambda code, totals: None)
    scene = scene_of(HIDING[name], rows, bound=BOUNDS).begin()
    if not checked:
        assert scene.total()["weight"][0] == pytest.approx(1002.5, abs=1e-3)
        return
    with pytest.raises(Exception, match=REFUSALS[HIDING[name].opens]) as caught:
        scene.total()
    assert isinstance(caught.value, OpeningError) or "OpeningError" in str(caught.value)
    # What the total is would be told to a coordinator that may not see it.
    assert HIDING[name].opens == "coordinator" or "times as large" not in str(caught.value)
