"""What the count of small cells does not cover: each of these reads a row, as docs/preparation.md says.

The attacker is whoever opens totals: a client under ``ckks``. It keeps to the protocol.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import Federation, FedHEONN, Table
from tacit.data.table import Column
from tacit.methods.compatibility import PARTS_SUMMED, warnings_for_pair
from tacit.methods.ensemble import FedHEONNEnsemble
from tacit.methods.heonn.exchange import Units
from tacit.methods.heonn.exchanges import Sealed
from tacit.models.leastsquares import symmetric
from tacit.protections.ckks import CKKS
from tacit.protections.plain import Plain

CLIENTS = 6
WEST = [3, 17, 35, 52, 77, 100]  # patients of the west ward: more than min_count
ALICE = 41  # the only one who changed wards


def patients() -> Table:
    """Age and income of 120 patients, their ward, and the one from which they were discharged."""
    rng = np.random.default_rng(5)
    ward = np.arange(120) % 2
    ward[WEST] = 2
    last = ward.copy()
    last[ALICE] = 1 - last[ALICE]
    wards = {"kind": "category", "categories": ("east", "south", "west")}
    columns = (Column("age"), Column("income"), Column("ward", **wards), Column("discharged", **wards))
    values = np.column_stack([rng.integers(20, 90, 120), rng.integers(10, 200, 120), ward, last])
    return Table("patients", columns, values.astype(float), np.arange(120) // 2 % 2, classes=("no", "yes"))


@pytest.fixture
def lines(monkeypatch):
    """Train, and return for each part the lines of XᵀX of a feature, in the units of the rows."""
    seen: list[tuple[Any, Any, Units]] = []
    solve = Sealed.solve

    def spying(exchange: Sealed, total: Any, shared: Any, units: Units) -> Any:
        seen.append((total, shared, units))
        return solve(exchange, total, shared, units)

    monkeypatch.setattr(Sealed, "solve", spying)
    scale = {}
    build = FedHEONNEnsemble.model
    monkeypatch.setattr(
        FedHEONNEnsemble, "model", lambda self, shared: scale.update(shared) or build(self, shared)
    )

    def train(method: Any, feature: str) -> list[np.ndarray]:
        table = patients()
        tables = {f"site-{index}": table.take(slice(index, None, CLIENTS)) for index in range(CLIENTS)}
        training = Federation.of(tables).train(method, protect="ckks")
        place, found = 1 + training.schema.feature_names.index(feature), []
        for total, shared, units in seen:
            known = scale or shared
            back = np.diag(np.append(1.0, known["spread"]))
            back[0, 1:] = known["centre"]
            unit = np.outer(units.lengths, units.lengths)
            for part in total["gram"]:
                found.append((back.T @ (symmetric(part[0, 0], len(unit)) * unit) @ back)[place])
        return found

    return train


@pytest.mark.parametrize(
    "method",
    [FedHEONN(folds=10, lams=(0.01, 1.0)), FedHEONNEnsemble(features=1.0)],
    ids=["folds", "networks"],
)
def test_a_part_of_the_rows_may_hold_one_of_a_ward(lines, method):
    found = [line[:3] for line in lines(method, "ward=west")]
    alone = [line for line in found if round(line[0]) == 1]
    assert alone
    for line in alone:
        assert np.abs(patients().values[WEST, :2] - line[1:]).sum(axis=1).min() < 0.1


def test_the_run_warns_of_parts():
    for method in (FedHEONN(folds=2), FedHEONN(hidden=8), FedHEONNEnsemble()):
        assert PARTS_SUMMED in warnings_for_pair(method, CKKS())
        assert not warnings_for_pair(method, Plain())
    for method in (FedHEONN(), FedHEONNEnsemble(samples=1.0)):
        assert not warnings_for_pair(method, CKKS())


def test_columns_that_are_equal_but_for_one_row_show_it(lines):
    (first,), (second,) = (lines(FedHEONN(), name)[-1:] for name in ("ward=south", "discharged=south"))
    sign = np.sign((first - second)[0])
    np.testing.assert_allclose(sign * (first - second)[:3], [1, *patients().values[ALICE, :2]], atol=0.05)
