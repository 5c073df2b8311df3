"""A standing federation opens its founders' moments: a total without one of them differs by its row."""

from __future__ import annotations

import numpy as np
import pytest

from tacit import Federation
from tacit.core.errors import OpeningError
from tacit.data.preparation import Preparation
from tacit.protections.bfv import BFV
from tacit.protections.ckks import CKKS
from tacit.protections.masked import Masked
from tacit.protections.plain import Plain
from tacit.standing import Standing, standing
from tacit.standing.book import Book
from tests.attacks.missing_row import row_of_the_missing

CLIENTS = 6
NAMES = [f"client-{index + 1}" for index in range(CLIENTS)]
VICTIM = NAMES[-1]


@pytest.fixture
def attack(table, holdings, tmp_path, monkeypatch, keys_once):
    """Found a federation of clients with a row each, let some join and leave, and return what totals show."""
    rows, learnt = table.take(slice(CLIENTS)), []
    federation = Federation(holdings(rows, CLIENTS), declared={"classes": ["blue", "green", "red"]})
    solve = standing.solution

    def attack(protection, change, **settings):
        monkeypatch.setattr(standing, "solution", lambda *given: learnt.append(solve(*given)) or learnt[-1])
        with (
            keys_once(),
            Standing.start(
                tmp_path / "state", federation, protect=protection, min_count=1, **settings
            ) as opened,
        ):
            change(opened)
            opened.weights()
        return row_of_the_missing(learnt[-1], learnt[-1]), rows.values[-1]

    return attack


def without_one(federation):
    federation.add(NAMES[:-1])


def withdrawn(federation):
    federation.add(NAMES)
    federation.withdraw([VICTIM])


CASES = pytest.mark.parametrize(
    ("protection", "change"),
    [(Masked(), without_one), (BFV(), without_one), (BFV(), withdrawn), (CKKS(), withdrawn)],
    ids=["masked", "bfv", "bfv-withdrawn", "ckks-withdrawn"],
)


@CASES
def test_without_the_rule_the_difference_is_a_row(attack, protection, change, monkeypatch):
    monkeypatch.setattr(Book, "opened", lambda self: [])
    found, row = attack(protection, change)
    assert np.allclose(found, row, rtol=1e-3)


def test_plain_hides_nothing_and_the_difference_is_a_row(attack):
    found, row = attack(Plain(), withdrawn)
    assert np.allclose(found, row)


@CASES
def test_the_total_stays_shut(attack, protection, change):
    with pytest.raises(
        OpeningError, match=r"differ by 1 client .* The scale that the founders settled counts"
    ):
        attack(protection, change)


@pytest.mark.parametrize("protection", [Masked(), BFV(), CKKS()], ids=lambda one: one.name)
@pytest.mark.parametrize("members", [NAMES, NAMES[:3]], ids=["all", "half"])
def test_the_founders_or_enough_fewer_can_be_learnt_from(attack, protection, members):
    attack(protection, lambda federation: federation.add(members))


def test_a_start_that_was_interrupted_counts(attack, monkeypatch):
    """Nobody learnt anything, but the moments of six clients were opened: those of five must not be."""
    with monkeypatch.context() as patch:
        patch.setattr(Preparation, "apply_moments", _power_cut, raising=True)
        with pytest.raises(KeyboardInterrupt):
            attack(Masked(), without_one)
    with pytest.raises(OpeningError, match="differ by 1 client "):
        attack(Masked(), without_one, founders=CLIENTS - 1)


def _power_cut(*_):
    raise KeyboardInterrupt
