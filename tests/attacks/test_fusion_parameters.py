"""Parameters that Fusion Learning sends single out rows: a uniform distribution is its two extremes.

The attacker is the coordinator, or whoever else opens totals. It keeps to the protocol and reads the
parameters: a location, or a location with its scale, that is a value of one row only tells that row's value.
"""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tacit import Table
from tacit.core.coordinator import Coordinator
from tacit.data.files import load
from tacit.methods.fusion import Columns, Fusion
from tacit.models.marginals import FAMILIES, LEVELS
from tacit.testing import divide, train

QUICK = ("norm", "expon", "uniform")


def count_singled_out(table: Table, told: list[Columns], offsets: np.ndarray) -> tuple[int, int]:
    """Return how many values of single rows are among the parameters, and how many parameters there are."""
    found = parameters = 0
    for columns, first, last in zip(told, offsets[:-1], offsets[1:], strict=True):
        for place, marginal in enumerate(columns.marginals):
            values, counts = np.unique(table.values[first:last, place], return_counts=True)
            single = values[counts == 1]
            shown = np.array(marginal.parameters)
            parameters += len(shown)
            if marginal.family == LEVELS:
                guesses = np.split(shown, 2)[0]
            else:
                guesses = np.array([shown[-2], shown[-2] + shown[-1]])
            near = np.abs(guesses[:, None] - single) <= 1e-9 * np.maximum(np.abs(single), 1e-9)
            found += int(near.any(axis=1).sum())
    return found, parameters


def told_by(method: Fusion, held, monkeypatch) -> list[Columns]:
    """What the coordinator of a training has read of all clients."""
    read: list[Columns] = []
    opening = Coordinator._open

    def spying(coordinator, pending, entry):
        total = opening(coordinator, pending, entry)
        if pending.contribution == "description":
            pieces = msgspec.msgpack.decode(total["distributions"].tobytes(), type=list[bytes])
            read.extend(msgspec.msgpack.decode(piece, type=Columns) for piece in pieces)
        return total

    monkeypatch.setattr(Coordinator, "_open", spying)
    train(method, held)
    return read


def attack(rows: Table, clients: int, monkeypatch, **settings) -> tuple[int, int]:
    held = divide(rows, clients=clients)
    told = told_by(Fusion("GaussianNB", samples=20, **settings), held, monkeypatch)
    return count_singled_out(held.table, told, held.offsets)


def test_exact_parameters_single_out_rows_and_rounded_ones_do_not(monkeypatch):
    rng = np.random.default_rng(1)
    rows = Table.of(
        np.c_[rng.uniform(20, 90, (300, 2)), rng.exponential(4000, (300, 2))], rng.integers(0, 2, 300)
    )
    exact, parameters = attack(rows, 5, monkeypatch, digits=0, families=QUICK)
    # The least of an exponential column, both ends of a uniform one: 30 at most.
    assert (exact, parameters) == (23, 40)
    rounded, same = attack(rows, 5, monkeypatch, families=QUICK)
    assert rounded == 0 and same == parameters


def test_levels_of_single_rows_are_not_told(monkeypatch):
    rng = np.random.default_rng(2)
    values = np.append(rng.integers(0, 4, 199), 17.0)[:, None]  # one row has a value of its own
    found, _ = attack(Table.of(values, np.arange(200) % 2), 1, monkeypatch, digits=0, families=QUICK)
    assert found == 0


@pytest.mark.slow
@pytest.mark.parametrize(("digits", "most"), [(0, 0), (3, 2)])  # values of few digits are met by chance
def test_distributions_of_tumours_seldom_show_a_row(digits, most, monkeypatch):
    tumours = load("breast_cancer")
    rows = replace(tumours, values=tumours.values[:, :4], columns=tumours.columns[:4])
    found, parameters = attack(rows, 3, monkeypatch, digits=digits, families=FAMILIES)
    assert found <= most and parameters >= 24
