"""The sums of min-max scaling count clients beyond each probe, and so place the extreme of every client.

The attacker is whoever opens totals, here the coordinator under ``masked``. It keeps to the protocol.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import Federation, FedHEONN, Preparation, Table
from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, OpeningError
from tacit.core.shared import Shared, Total
from tacit.data import preparation
from tacit.data.preparation import DIGITS, value_of
from tacit.data.schema import Schema

OLDEST = (91.0, 84.0, 79.0, 71.0, 66.0)  # of each client
MINMAX = Preparation(scale="minmax")


def federation_of(oldest: Any) -> Federation:
    rng = np.random.default_rng(2)
    tables = {}
    for index, age in enumerate(oldest):
        ages = np.append(rng.integers(20, 60, 11).astype(float), age)
        tables[f"site-{index}"] = Table.of(ages[:, None], np.arange(12) % 2)
    return Federation.of(tables)


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The opened totals of the probes, largest values."""
    seen: list[np.ndarray] = []
    opening = Coordinator._open

    def spying(coordinator: Coordinator, pending: Any, entry: Any) -> Total:
        total = opening(coordinator, pending, entry)
        if pending.contribution == "probe":
            seen.append(np.rint(total["reached"][0, 0]).astype(int))
        return total

    monkeypatch.setattr(Coordinator, "_open", spying)
    return seen


def placed(probes: list[np.ndarray], clients: int) -> list[tuple[float, float]]:
    """Between which values the largest value of each client lies, the largest of all first."""
    found, known, inside = [], 0, clients
    for level, counts in enumerate(probes):
        unit = 16 ** (DIGITS - 1 - level)
        reached = [inside, *counts.tolist()]
        digit = int(np.count_nonzero(counts))
        for place in range(digit):
            edges = value_of(np.array([known + place * unit, known + (place + 1) * unit]))
            found += [(float(edges[0]), float(edges[1]))] * (reached[place] - reached[place + 1])
        known, inside = known + digit * unit, reached[digit]
    top = float(value_of(np.array([known]))[0])
    return [(top, top)] * inside + sorted(found, reverse=True)


def test_with_few_clients_the_extreme_of_each_is_placed(probes, monkeypatch):
    monkeypatch.setattr(preparation, "LEAST_FOR_EXTREMES", 2)
    federation_of(OLDEST).train(FedHEONN(), protect="masked", preparation=MINMAX)
    intervals = placed(probes, len(OLDEST))
    assert len(intervals) == len(OLDEST)
    for (low, high), age in zip(intervals, OLDEST, strict=True):
        assert low <= age <= high and high - low <= 8


@pytest.mark.parametrize("protect", ["masked", "ckks"])
def test_with_few_clients_it_is_refused_before_anything_is_asked(probes, protect):
    with pytest.raises(ConfigError, match=r"'minmax' needs at least 20 clients under .*, there are 5"):
        federation_of(OLDEST).train(FedHEONN(), protect=protect, preparation=MINMAX)
    assert not probes


def test_if_fewer_come_than_were_invited_no_probe_is_opened(probes):
    federation = federation_of(np.linspace(60, 95, 20))
    federation.holdings.rows(0).values[0] = np.nan  # so that this client is refused at enrolment
    with pytest.raises(ConfigError, match=r"'minmax' needs at least 20 clients under masked, there are 19"):
        federation.train(FedHEONN(), protect="masked", preparation=MINMAX)
    assert not probes


def test_whoever_opens_such_a_total_refuses_it_too():
    schema = Schema(federation_of(OLDEST).holdings.rows(0).columns, "classification", (0, 1), ("target",))
    total = Total({"reached": np.zeros((2, 1, 15))}, 5)
    with pytest.raises(OpeningError, match="over 5 clients, agreed are at least 20"):
        MINMAX.narrow(total, Shared(schema, {}))


def test_with_enough_clients_the_scale_is_that_of_the_pooled_rows():
    federation = federation_of(np.linspace(60, 95, 20))
    hidden = federation.train(FedHEONN(), protect="masked", preparation=MINMAX).model
    shown = federation.train(FedHEONN(), protect="plain", preparation=MINMAX).model
    np.testing.assert_array_equal(hidden.inputs.values["centre"], shown.inputs.values["centre"])
    np.testing.assert_array_equal(hidden.inputs.values["spread"], shown.inputs.values["spread"])
