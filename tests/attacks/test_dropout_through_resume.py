"""A round that opened before its run was stopped opens again without a client: the difference is its row."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from tacit import Federation
from tacit.core.differencing import OpenedTotals
from tacit.core.errors import DifferencingError
from tacit.core.events import TotalOpened
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.methods.averaging.aggregation import Change, Weighting
from tacit.methods.averaging.architecture import Architecture
from tacit.methods.averaging.local_training import LocalTraining
from tacit.methods.fedavg import FedAvg
from tacit.models.neural import PREFIX
from tacit.protections.bfv import BFV
from tacit.protections.masked import Masked
from tacit.protections.plain import Plain
from tacit.runs.checkpoint import read_checkpoint
from tacit.runs.job import execute
from tacit.runs.settings import Settings
from tests.conftest import Tap

CLIENTS = 7
HIDING = [Masked(), BFV()]
METHOD = FedAvg(
    rounds=4,
    architecture=Architecture(hidden=()),
    local=LocalTraining(epochs=1, batch=0, rate=0.1),
    weighting=Weighting("equal"),
    change=Change(limit=5.0),
)


class LossyFederation(Federation):
    """Loses what one client is asked to contribute."""

    lost = ""

    @contextmanager
    def _engine(self, manifest, components):
        with super()._engine(manifest, components) as engine:
            tap = Tap(engine)
            tap.lose = lambda step, party: (step, party) == ("client.contribute", self.lost)
            yield tap


class StoppedError(Exception):
    """The process was killed."""


@pytest.fixture
def federation(holdings):
    rng = np.random.default_rng(5)
    table = Table.of(rng.normal(size=(CLIENTS, 4)), np.array(["a", "b"])[np.arange(CLIENTS) % 2])
    return LossyFederation(holdings(table, CLIENTS))


def row_of_the_missing(before, over_all, over_others):
    """Return the row behind the one change that is in one mean and not in the other: x, by x ⊗ e and e."""

    def own(name):
        all_, others = (np.asarray(after[name]) - before[name] for after in (over_all, over_others))
        return CLIENTS * all_ - (CLIENTS - 1) * others

    (weights,) = (own(name) for name in before if name.startswith(PREFIX) and before[name].ndim == 2)
    (bias,) = (own(name) for name in before if name.startswith(PREFIX) and before[name].ndim == 1)
    outer = weights if weights.shape[1] == len(bias) else weights.T
    return outer[:, 0] / bias[0]


@pytest.fixture
def attack(federation, keys_once):
    """Stop a run once its second round has opened, go on without a client, and return what follows."""

    def attack(protection, least=3):
        kept, announced, later = [], [], []
        settings = {
            "protect": protection,
            "preparation": Preparation(scale="none"),
            "min_clients": least,
            "min_count": 1,
        }

        def keep(snapshot):
            kept.append(snapshot)
            if snapshot.progress["round"] == 2:
                raise StoppedError

        with keys_once():
            with pytest.raises(StoppedError):
                federation.train(METHOD, keep=keep, announce=announced.append, run="run", **settings)
            *_, first, second = kept
            federation.lost = f"client-{CLIENTS}"
            point = replace(first, opened=announced[-1])
            federation.train(METHOD, keep=later.append, resume=point, run="run", **settings)
        (again,) = [snapshot for snapshot in later if snapshot.progress["round"] == 2]
        return row_of_the_missing(first.shared, second.shared, again.shared)

    return attack


@pytest.fixture
def row(federation):
    return federation.holdings.table.values[-1]


@pytest.mark.parametrize("protection", HIDING, ids=lambda one: one.name)
def test_without_the_rule_the_difference_is_a_row(attack, row, protection, monkeypatch):
    monkeypatch.setattr(OpenedTotals, "check", lambda *_: None)
    assert np.allclose(attack(protection), row, atol=1e-3)


def test_plain_hides_nothing_and_the_difference_is_a_row(attack, row):
    assert np.allclose(attack(Plain(), least=1), row)


@pytest.mark.parametrize("protection", HIDING, ids=lambda one: one.name)
def test_the_round_stays_shut(attack, protection):
    with pytest.raises(DifferencingError, match=r"update: .* by 1 client .*\(missing: client-7\)"):
        attack(protection)


def test_what_was_opened_is_in_the_folder_of_the_run(federation, tmp_path):
    settings = Settings.from_tables(
        {
            "run": {"out": str(tmp_path), "min_clients": 3, "min_count": 1, "baselines": False},
            "method": {"name": "fedavg", "rounds": 3, "hidden": []},
            "protect": {"name": "masked"},
        }
    )
    opened = []

    def stop(_, event):
        if isinstance(event, TotalOpened) and event.contribution == "update":
            opened.append(event)
            if len(opened) == 2:
                raise StoppedError

    with pytest.raises(StoppedError):
        execute(settings, stop, federation=federation)
    point = read_checkpoint("latest", str(tmp_path))
    federation.lost = f"client-{CLIENTS}"
    with pytest.raises(DifferencingError, match=r"update: .* by 1 client .*\(missing: client-7\)"):
        execute(settings, federation=federation, resume=point)
    federation.lost = ""  # whoever goes on a second time knows as much
    finished = execute(settings, federation=federation, resume=read_checkpoint("latest", str(tmp_path)))
    assert [entry["round"] for entry in finished.result["rounds"]] == [1, 2, 3]
    assert not list(tmp_path.glob("*/*.bin"))
