"""Runs with noise from the front door to the run folder: what they spend, and where they stop."""

import json
import sys
from pathlib import Path

import dp_accounting
import numpy as np
import pytest

from tacit.core.errors import ProtectionError
from tacit.core.events import BudgetSpent, Events, TotalOpened
from tacit.crypto.accounting import LARGE_ORDERS, ORDERS
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.federation import Federation
from tacit.protections.noised import Noised
from tacit.protections.noised.grid import TAIL_SHARE
from tests.quick import representatives

HELPERS = Path(__file__).parents[1] / "helpers"
ROUNDS = 4
RAW = Preparation(scale="none")


@pytest.fixture
def descent(monkeypatch):
    monkeypatch.syspath_prepend(HELPERS)
    yield __import__("descent").Descent
    sys.modules.pop("descent", None)


@pytest.fixture(scope="module")
def federation():
    rng = np.random.default_rng(0)
    labels = np.arange(2400) % 2
    values = np.clip(rng.normal(size=(2400, 3)) * 0.3 + np.where(labels, 0.4, -0.4)[:, None], -1, 1)
    return Federation.embedded(Table.of(values, np.array(["no", "yes"])[labels]), clients=120, seed=3)


INNER = {
    "central-plain": Noised(epsilon=4.0, clip=1.5),
    "central-masked": Noised(epsilon=4.0, clip=1.5, inner="masked"),
    "distributed-masked": Noised(epsilon=4.0, clip=1.5, inner="masked", where="distributed"),
    "distributed-shares": Noised(
        epsilon=4.0, clip=1.5, inner="committee", where="distributed", inner_options={"members": 3}
    ),
}


def heard(kind):
    """Events of a kind, as they come."""
    found = []
    return found, Events(lambda number, event: found.append(event) if isinstance(event, kind) else None)


@pytest.mark.parametrize("name", representatives(INNER, "central-plain", "distributed-masked"))
def test_a_run_learns_and_its_rounds_compose_to_the_budget(federation, descent, name):
    protection, (told, events) = INNER[name], heard(BudgetSpent)
    training = federation.train(
        descent(rounds=ROUNDS), protect=protection, preparation=RAW, min_clients=60, events=events
    )
    sums = ROUNDS  # rows that stay as they are need no sum before them
    delta = 1e-5 * (1 - TAIL_SHARE if protection.where == "distributed" else 1)
    bill = dp_accounting.rdp.RdpAccountant(ORDERS + LARGE_ORDERS)
    assert len(told) == sums
    for event in told:
        bill.compose(dp_accounting.GaussianDpEvent(protection.multiplier(sums)))
        assert event.epsilon == bill.get_epsilon(delta)
    spent = training.ledger.summary()["privacy"]
    assert spent == {
        "epsilon": told[-1].epsilon,
        "delta": 1e-5,
        "budget": 4.0,
        "sums_left": 0,
        "unit": "client",
    }
    assert told[0].epsilon < 2 < 3.98 < spent["epsilon"] <= 4.0
    assert training.model.scores(federation.test)["accuracy"] > 0.8


def test_without_noise_nothing_is_said_of_epsilon(federation, descent):
    training = federation.train(descent(rounds=1), protect="plain", preparation=RAW)
    assert training.ledger.summary()["privacy"] is None


@pytest.mark.parametrize("where", ["central", "distributed"])
def test_a_spent_budget_stops_the_run(federation, descent, where):
    opened, events = heard(TotalOpened)
    sums = 2
    with pytest.raises(ProtectionError, match=f"the privacy budget is spent: {sums} sums cost epsilon"):
        federation.train(
            descent(rounds=2, unannounced=1),
            protect=Noised(epsilon=1.0, where=where),
            preparation=RAW,
            min_clients=60,
            events=events,
        )
    assert len(opened) == sums


@pytest.mark.parametrize("shown", [False, True])
def test_the_command_shows_epsilon_and_writes_it_down(tacit, descent, shown):
    words = ("run", "--data", "iris", "--clients", 30, "--method", "descent:Descent", "--rounds", 2)
    words += ("--scale", "none", "--protect", "noised", "--epsilon", 3, "--clip", 2.0)
    said = tacit(*words, *([] if shown else ["--json"]))
    assert said.code == 0, said.err
    (result,) = Path().glob("**/result.json")
    written = json.loads(result.read_text())
    assert 2.98 < written["privacy"]["epsilon"] <= 3
    assert written["privacy"] == written["ledger"]["privacy"]
    if shown:
        assert "at delta 1e-05" in said.out
    else:
        assert json.loads(said.out)["privacy"] == written["privacy"]
    (page,) = result.parent.glob("*.html")
    assert "at delta 1e-05" in page.read_text()


def test_the_command_hides_single_rows(tacit):
    words = (
        "run",
        "--data",
        "digits",
        "--clients",
        6,
        "--protect",
        "noised",
        "--unit",
        "row",
        "--epsilon",
        8,
    )
    words += (
        "--where",
        "distributed",
        "--inner",
        "masked",
        "--min-clients",
        6,
        "--no-baselines",
        "--json",
        "-q",
    )
    found = tacit(*words).json
    assert 7.9 < found["privacy"]["epsilon"] <= found["privacy"]["budget"] == 8.0
    assert found["accuracy"] > 0.8
    opened = {seen["what"] for seen in found["exposure"] if seen["class"] == "aggregate"}
    assert {what for what in opened if "total" in what} == {
        "magnitudes: total",
        "noisy_moments: total",
        "noisy_terms: total",
    }
