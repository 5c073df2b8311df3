"""Clients that are told different things: what each sends is right by itself, and the total is not.

With a schema of its own, one client's classes are counted in cells that no other client uses: the total is
over all of them, and a stretch of it is that client alone. The same goes for a model that one client alone
has. So tags are bound to the schema and to all totals that a client has applied.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.crypto.channel import bound
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.methods.base import Method
from tacit.protections.ckks import CKKS
from tacit.protections.keys.proved_totals import ProvedTotals
from tests.attacks.malicious import REFUSED, Malicious
from tests.conftest import divide

VICTIM = "client-5"
HONEST = ProvedTotals._place
each_rule = pytest.mark.parametrize("binds", [False, True], ids=["control", "bound"])


@dataclass(frozen=True)
class Classes(Method):
    """Counts the classes of each client; the coordinator gets their totals."""

    needs_norms = False

    @contribution(lambda self, schema: Layout(Field("vector", (schema.outputs,), bound=99.0)), revealed=True)
    def scores(self, party: Any, shared: Any) -> dict[str, Any]:
        counts = np.bincount(shared.schema.labels(party.data), minlength=shared.schema.outputs)
        return {"vector": counts * float(shared.get("factor", 1.0))}

    @apply
    def double(self, total: Any, shared: Any) -> Any:
        return shared | {"factor": 2.0}


@pytest.fixture
def attack(coordinator_of):
    """Five clients, each with four rows of the class no and two of yes; the manifest declares two more."""
    table = Table.of(np.zeros((30, 1)), np.array(["no", "yes"])[np.arange(30) % 3 // 2])
    options = {"preparation": Preparation(scale="none"), "min_clients": 3, "experiment": False}
    options |= {"declared": {"classes": ["no", "yes", "?", "!"]}}
    return Malicious(coordinator_of(Classes(), CKKS(), data=divide(table, 5), **options))


@contextmanager
def telling(attack, change, binds):
    """Tell each client what ``change`` makes of its news; tags as they are, or bound to layouts alone."""
    briefing = attack.coordinator.link.briefing
    news = briefing._news

    def to_layout(self, what, layout, summands, attempt=b""):
        return bound(str(what.number), str(summands), repr(layout.fields))

    with (
        mock.patch.object(briefing, "write", lambda *_: ({}, lambda party: change(party, news(party)))),
        mock.patch.object(ProvedTotals, "_place", HONEST if binds else to_layout),
    ):
        yield


@each_rule
def test_a_schema_of_its_own(attack, binds):
    turned = replace(attack.coordinator.schema, classes=("?", "!", "no", "yes")).to_message().encode()

    def own_schema(party, told):
        return {**told, "schema": turned} if party == VICTIM and "schema" in told else told

    with telling(attack, own_schema, binds):
        answer = attack.disclosed(attack.gathered("scores")[0])
    assert REFUSED in answer if binds else np.allclose(answer, [16, 8, 4, 2])


@each_rule
def test_totals_that_it_was_not_told(attack, binds):
    coordinator = attack.coordinator
    method = coordinator.components.method

    def no_log(party, told):
        return {name: told[name] for name in told if party != VICTIM or "log/" not in name}

    with telling(attack, no_log, binds):
        coordinator.round(method.scores, method.double)
        answer = attack.disclosed(attack.gathered("scores")[0])
    assert REFUSED in answer if binds else np.allclose(answer, [2 * 16 + 4, 2 * 8 + 2, 0, 0])


def test_another_schema_later(attack):
    attack.gathered("scores")
    schema = replace(attack.coordinator.schema, classes=("yes", "no")).to_message().encode()
    assert "client-1 was told another schema before" in attack.disclosed({"schema": schema})


def test_control_all_who_are_told_the_same(attack):
    method = attack.coordinator.components.method
    attack.coordinator.round(method.scores, method.double)
    assert np.allclose(attack.disclosed(attack.gathered("scores")[0]), [40, 20, 0, 0])
