"""One honest dropout between two sums of the same rows: their difference is that client's row."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.core import client
from tacit.core.differencing import OpenedTotals
from tacit.core.errors import DifferencingError, FederationError
from tacit.core.events import Noted
from tacit.protections.bfv import BFV
from tacit.protections.masked import Masked
from tacit.protections.plain import Plain
from tests.attacks.missing_row import row_of_the_missing

CLIENTS = 7
VICTIM = "client-7"
HIDING = [Masked(), BFV()]


@pytest.fixture
def attack(coordinator_of, table, holdings, keys_once):
    """Lose the last of some clients, with a row each, once the scale is agreed; return what totals show."""

    def attack(protection, clients=CLIENTS, lost=None, told=None, **settings):
        rows, left = table.take(slice(clients)), {"asks": lost}
        coordinator = coordinator_of(
            protection=protection,
            data=holdings(rows, clients),
            subscriber=None if told is None else lambda _, event: told.append(event),
            **{"min_clients": 3, "quorum": 0.5, **settings},
        )
        method = coordinator.components.method

        def lose(step, party):
            if party != f"client-{clients}" or step != "client.contribute":
                return False
            if left["asks"] is not None:
                left["asks"] -= 1
            return left["asks"] is None or left["asks"] >= 0

        with keys_once():
            coordinator.enrol()
            coordinator.protection.prepare(2)
            coordinator.parties = coordinator.components.preparation.train(coordinator)
            settled = coordinator.peek()
            coordinator.link.transport.engine.lose = lose
            contributors = coordinator.round(method.terms, method.solve)
            found = row_of_the_missing(settled, coordinator.peek())
        return found, rows.values[-1], contributors

    return attack


@pytest.mark.parametrize("protection", HIDING, ids=lambda one: one.name)
def test_without_the_rule_the_difference_is_a_row(attack, protection, monkeypatch):
    monkeypatch.setattr(OpenedTotals, "check", lambda *_: None)
    monkeypatch.setattr(client, "check_own", lambda *_: None)
    found, row, contributors = attack(protection)
    assert len(contributors) == CLIENTS - 1
    assert np.allclose(found, row, rtol=1e-3)


def test_plain_hides_nothing_and_the_difference_is_a_row(attack):
    found, row, _ = attack(Plain(), min_clients=1)
    assert np.allclose(found, row)


@pytest.mark.parametrize("protection", HIDING, ids=lambda one: one.name)
def test_the_second_statistic_stays_shut(attack, protection):
    expected = r"terms: this total would differ by 1 client .* at least 3 must differ \(missing: client-7\)"
    with pytest.raises(DifferencingError, match=expected):
        attack(protection, quorum=0.8)


def test_clients_compare_the_totals_that_they_open(attack, monkeypatch):
    """A coordinator that skips its check gets no further: nobody opens the second total, or reads it out."""
    monkeypatch.setattr(OpenedTotals, "check", lambda *_: None)
    with pytest.raises(FederationError, match=r"DifferencingError: terms: .*\(missing: client-7\)"):
        attack(BFV())


@pytest.mark.parametrize("protection", HIDING, ids=lambda one: one.name)
def test_a_client_that_answers_when_asked_again_is_in_it(attack, protection):
    told = []
    _, _, contributors = attack(protection, lost=1, told=told, quorum=0.8)
    assert len(contributors) == CLIENTS
    (note,) = [event.text for event in told if isinstance(event, Noted) and event.about == "differencing"]
    assert note == "terms: without client-7 the total must not open: asked once more"


@pytest.mark.parametrize("protection", HIDING, ids=lambda one: one.name)
def test_where_many_take_part_others_are_left_out_as_well(attack, protection):
    told = []
    found, row, contributors = attack(protection, clients=15, told=told, quorum=0.8)
    assert len(contributors) == 12  # two more than the one that vanished are missing
    assert not np.allclose(found, row, rtol=0.1)
    assert any("are left out, so that the total hides who is missing" in getattr(e, "text", "") for e in told)
