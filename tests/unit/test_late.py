"""Clients that are not there when a run begins, and come later."""

from contextlib import contextmanager

import numpy as np
import pytest

from tacit import Architecture, Weighting
from tacit.core.enrolment import MOST_INVITATIONS
from tacit.core.events import Events, Noted, TotalOpened, WaveStarted
from tacit.data.files import load
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.holdings import Holdings, SeparateHoldings
from tacit.federation import Federation
from tacit.methods import METHODS
from tacit.methods.fedavg import FedAvg
from tacit.protections import PROTECTIONS
from tacit.protections.noised import Noised
from tacit.protections.paillier import Paillier
from tacit.protections.plain import Plain
from tests.conftest import Tap
from tests.quick import representatives

UNSCALED, SMALL = Preparation(scale="none"), Architecture(hidden=4)
OTHERS = [
    Plain(opens="clients"),
    Paillier(holder="clients", key_bits=2048),
    PROTECTIONS.build("shares", {"opens": "coordinator"}),
    PROTECTIONS.build("committee", {"opens": "coordinator"}),
    Noised(inner="masked", epsilon=50.0),
]
CHOICES = [PROTECTIONS.build(name) for name in PROTECTIONS if name != "noised"] + OTHERS


@pytest.fixture(scope="module")
def digits():
    table = load("digits").take(np.arange(300))
    return Table.of(table.values / 16.0, table.target)


@pytest.fixture
def learnt(monkeypatch):
    """Train while some asks never reach their party; gives the training and all that was told."""
    whole = Federation._engine

    def train(holdings, method, lose, **settings):
        seen = []

        @contextmanager
        def engine(self, manifest, components):
            with whole(self, manifest, components) as inner:
                tap = Tap(inner)
                rounds = lambda: sum(1 for event in seen if updated(event))  # noqa: E731
                tap.lose = lambda step, party: lose(step, party, rounds())
                yield tap

        monkeypatch.setattr(Federation, "_engine", engine)
        events = Events(lambda number, event: seen.append(event))
        training = Federation(holdings, quorum=0.6).train(
            method, preparation=UNSCALED, events=events, **settings
        )
        return training, seen

    return train


def updated(event):
    return isinstance(event, TotalOpened) and event.contribution == "update"


def held(table):
    offsets = np.array([0, 80, 150, 210, 260, 300])
    return Holdings(table, offsets, [f"c{number}" for number in range(1, 6)])


@pytest.mark.parametrize("protect", CHOICES, ids=lambda chosen: f"{chosen.name}-{chosen.opens}")
@pytest.mark.parametrize("first", representatives([2, 4], 2))
def test_who_comes_late_takes_part_from_then_on(digits, learnt, protect, first, keys_once):
    method = FedAvg(rounds=4, architecture=SMALL, weighting=Weighting("equal"))
    with keys_once():
        training, seen = learnt(
            held(digits),
            method,
            lambda step, party, rounds: party == "c2" and rounds < first - 1,
            protect=protect,
        )
    opened = [event.contributors for event in seen if updated(event)]
    assert opened == [4] * (first - 1) + [5] * (5 - first)
    said = [event.text for event in seen if isinstance(event, Noted) and event.about == "c2"]
    assert f"joined late, in round {first}" in said
    assert len(training.outcome.holders) == 5


AVERAGING = [name for name in METHODS if issubclass(METHODS.get(name), FedAvg)]


@pytest.mark.parametrize("name", representatives(AVERAGING, "mime", "ring-mlp", "scaffold", "two-phase-mpc"))
def test_every_averaging_method_takes_who_comes_late_and_goes_on(digits, learnt, name):
    method, kept = METHODS.build(name, {"rounds": 4, "hidden": 4}), []
    whole, seen = learnt(
        held(digits),
        method,
        lambda step, party, rounds: party == "c2" and rounds < 1,
        protect="plain",
        keep=kept.append,
    )
    assert [event.contributors for event in seen if updated(event)] == [4, 5, 5, 5]
    again, seen = learnt(held(digits), method, lambda *_: False, protect="plain", resume=kept[1])
    assert [event.contributors for event in seen if updated(event)] == [5, 5]
    for array, value in whole.model.arrays.items():  # who came late was added last, and is no longer
        assert np.abs(again.model.arrays[array] - value).max() < 1e-9, array


def test_who_never_comes_costs_nothing(digits, learnt):
    _, seen = learnt(
        held(digits),
        FedAvg(rounds=4, architecture=SMALL),
        lambda step, party, rounds: party == "c2",
    )
    steps = [event.step for event in seen if isinstance(event, WaveStarted)]
    assert steps.count("client.enrol") == 1


def test_who_is_there_and_says_nothing_is_not_asked_for_ever(digits, learnt):
    def lose(step, party, rounds):
        return party == "c2" and step != "present"

    _, seen = learnt(held(digits), FedAvg(rounds=9, architecture=SMALL), lose, protect="plain")
    steps = [event.step for event in seen if isinstance(event, WaveStarted)]
    assert steps.count("client.enrol") == 1 + MOST_INVITATIONS


@pytest.mark.parametrize("protect", ["plain", "masked", "ckks"])
def test_who_comes_late_with_other_columns_does_not_take_part(digits, learnt, protect):
    tables = {f"c{n}": digits.take(np.arange(n * 60, n * 60 + 60)) for n in range(5)}
    tables["c2"] = Table.of(tables["c2"].values[:, :30], tables["c2"].target)
    training, seen = learnt(
        SeparateHoldings(tables),
        FedAvg(rounds=3, architecture=SMALL),
        lambda step, party, rounds: party == "c2" and rounds < 1,
        protect=protect,
    )
    assert [event.contributors for event in seen if updated(event)] == [4, 4, 4]
    told = [training.failures["c2"], *(event.text for event in seen if isinstance(event, Noted))]
    assert any("there is no column 'x30', which the others have" in text for text in told)
