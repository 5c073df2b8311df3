"""Rows rebuilt from smashed data: what SplitFed's main server can do with the help of one client.

The helper hands over its own rows. The main server has the smashed data of all, fits a linear map from these
to rows on the helper's, and applies it to a victim's. How good the copies are is told by the peak
signal-to-noise ratio (PSNR): a copy that is the mean of all rows has about 11 dB here. The reproduction of
SplitFed shows the same for a convolutional network.
"""

import numpy as np
import pytest

from tacit.data.files import load
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.holdings import holdings_of
from tacit.federation import Federation
from tacit.methods.splitfed import SplitFed
from tacit.protections.plain import Plain

HELPER, VICTIM = "client-1", "client-2"


def copies(pairs, victim):
    """Rows as a ridge regression from smashed data to rows gives them."""
    smashed, rows = pairs
    centre, mean = smashed.mean(axis=0), rows.mean(axis=0)
    inner = (smashed - centre).T @ (smashed - centre)
    weight = np.linalg.solve(
        inner + 1e-2 * np.trace(inner) / len(inner) * np.eye(len(inner)),
        (smashed - centre).T @ (rows - mean),
    )
    return (victim - centre) @ weight + mean


def psnr(found, rows):
    return -10 * np.log10(np.mean((found - rows) ** 2))


@pytest.fixture
def attack(monkeypatch):
    """A function that trains, and returns the PSNR of the victim's rows, and that of the mean row."""

    def run(**settings):
        sent, own = {}, {}
        answer, begin = SplitFed._answer, SplitFed._begin

        def listening(self, party, name, kind, content, *more):
            if kind == "smashed":
                sent[name] = np.array(content["values"])
            return answer(self, party, name, kind, content, *more)

        def knowing(self, party, message, shared):
            found = begin(self, party, message, shared)
            own[party.id] = found[0][found[3][0]]
            return found

        monkeypatch.setattr(SplitFed, "_answer", listening)
        monkeypatch.setattr(SplitFed, "_begin", knowing)
        digits = load("digits").take(np.arange(400))
        table = Table.of(digits.values / 16, np.array(digits.classes)[digits.target])
        held = holdings_of(table, np.arange(400) % 2, holdout=0.0, seed=0)
        method = SplitFed.from_config({"hidden": "48,24", "rounds": 1, "batch": 0, **settings})
        options = {"protect": Plain(), "preparation": Preparation(scale="none")}
        Federation(held, seed=1).train(method, **options)
        found = copies((sent[HELPER], own[HELPER]), sent[VICTIM])
        return psnr(found, own[VICTIM]), psnr(own[HELPER].mean(axis=0), own[VICTIM])

    return run


def test_rows_are_rebuilt_from_smashed_data_the_better_the_earlier_the_cut(attack):
    (first, mean), (second, _), (last, _) = (attack(cut=f"layer{n}") for n in (1, 2, 3))
    assert first > second > last > mean
    assert first > mean + 4


def test_a_tail_keeps_labels_but_shows_rows_as_well(attack):
    with_tail, _ = attack(cut="layer1", tail="layer3")
    without, mean = attack(cut="layer1")
    assert with_tail == pytest.approx(without)
    assert with_tail > mean + 4


def test_noise_that_costs_a_small_epsilon_leaves_the_mean_row(attack):
    clear, mean = attack(cut="layer1")
    hidden, _ = attack(cut="layer1", smashed_noise=4.0, smashed_clip=3.0)
    assert hidden < clear - 3
    assert hidden < mean + 1
