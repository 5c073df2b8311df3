"""One total of SCAFFOLD over all clients in which only one client is left.

What is summed is c_i⁺ - c_i, the gradient less the one that the client remembers. From the same weights it is
nothing for whoever has remembered it. A coordinator that sends the model has all but the victim contribute
once, or has the victim take its variate back; the next total is the victim's gradient, whatever the
protection of the sum and however many clients are in it.
"""

from __future__ import annotations

import numpy as np
import pytest

from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.methods.averaging.local_training import compute_gradient
from tacit.methods.scaffold import Scaffold
from tacit.protections.masked import Masked
from tests.conftest import divide

CLIENTS, VICTIM = 6, "client-4"
METHOD = Scaffold.from_config({"hidden": (3,), "rounds": 4, "batch": 0, "rate": 0.1})


@pytest.fixture
def coordinator(coordinator_of):
    rng = np.random.default_rng(3)
    table = Table.of(rng.normal(size=(60, 4)), np.array(["no", "yes"])[np.arange(60) % 2])
    options = {"data": divide(table, CLIENTS), "preparation": Preparation(scale="none"), "min_clients": 3}
    made = coordinator_of(METHOD, Masked(), experiment=False, **options)
    made.enrol()
    made.protection.prepare(3)
    made.shared = made.shared | {"clients": CLIENTS}
    return made


def gradient_of(coordinator, name):
    party = coordinator.link.transport.engine.engine._sites.party(name)
    return compute_gradient(METHOD, party, coordinator.shared)[0]


def total(coordinator, number, parties=None):
    """The total of what clients add to their variates, from the same weights under another number."""
    coordinator.shared = coordinator.shared | {"round": number}
    return coordinator._open(*coordinator._form_total(METHOD.update, parties))["gradient"]


def test_control_the_first_total_is_that_of_all(coordinator):
    expected = sum(gradient_of(coordinator, name) for name in coordinator.parties)
    np.testing.assert_allclose(total(coordinator, 0), expected, atol=1e-6)


def test_not_covered_who_missed_a_round_is_alone_in_the_next_total(coordinator):
    total(coordinator, 0, tuple(name for name in coordinator.parties if name != VICTIM))
    np.testing.assert_allclose(total(coordinator, 1), gradient_of(coordinator, VICTIM), atol=1e-6)


def test_not_covered_who_takes_its_variate_back_is_alone_in_the_next_total(coordinator):
    total(coordinator, 0)
    list(coordinator.ask(METHOD.take_back_variate, jobs={VICTIM: {"round": 0}}))
    np.testing.assert_allclose(total(coordinator, 1), gradient_of(coordinator, VICTIM), atol=1e-6)


def test_a_run_says_so():
    assert any("about the gradient of one client" in text for text in METHOD.warnings_for(scaled=False))
