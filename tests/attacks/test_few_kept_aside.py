"""One row in all hold-outs together: its target is the sum of all targets, which the coordinator sees."""

from __future__ import annotations

import numpy as np
import pytest

from tacit import Federation, FedHEONN, Table
from tacit.core.coordinator import Coordinator
from tacit.core.errors import DataError, QuorumError
from tacit.engines.holdings import Holdings

CLIENTS = 6


def federation_of(kept: tuple[int, ...]) -> tuple[Federation, float]:
    """Ten rows each, of which some clients keep some aside; and the last target of all."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(10 * CLIENTS, 3))
    table = Table.of(X, X @ [0.1, 0.2, 0.3], task="regression")
    names = [f"site-{index}" for index in range(CLIENTS)]
    holdings = Holdings(table, np.arange(0, 10 * CLIENTS + 1, 10), names, np.array(kept))
    return Federation(holdings), float(table.target[-1, 0])


@pytest.fixture
def revealed(monkeypatch):
    """Return the totals that the coordinator is told."""
    found, reveal = [], Coordinator.reveal
    monkeypatch.setattr(Coordinator, "reveal", lambda *args: found.append(reveal(*args)) or found[-1])
    return found


def test_without_a_least_count_the_sum_of_targets_is_one_target(revealed):
    federation, target = federation_of((0, 0, 0, 0, 0, 1))
    model = federation.train(FedHEONN(activation="linear"), protect="masked", min_count=1).model
    centre = model.outputs(model.inputs.values["centre"][None])[0, 0]  # from which targets are measured
    assert float(revealed[0]["count"]) == pytest.approx(1.0)
    assert float(revealed[0]["sum"][0]) + centre == pytest.approx(target, abs=1e-6)


@pytest.mark.parametrize("kept", [(0, 0, 0, 0, 0, 1), (1, 1, 1, 1, 0, 0)], ids=["one", "four"])
@pytest.mark.parametrize(("protect", "refusal"), [("ckks", QuorumError), ("masked", DataError)])
def test_few_rows_kept_aside_stop_the_run_before_anything_else_opens(revealed, protect, refusal, kept):
    federation, _ = federation_of(kept)
    with pytest.raises(refusal, match="all clients together keep fewer than min_count = 5 rows aside"):
        federation.train(FedHEONN(activation="linear"), protect=protect)
    assert not revealed


def test_enough_of_them_are_scored(revealed):
    federation, _ = federation_of((1, 1, 1, 1, 1, 0))
    assert federation.train(FedHEONN(activation="linear"), protect="masked").holdout
    assert float(revealed[0]["count"]) == pytest.approx(5.0)


def test_not_covered_a_client_that_vanishes_after_the_count_leaves_few(revealed, monkeypatch):
    """As SECURITY.md says: rows kept aside are counted once, over those that are there at the beginning."""
    federation, target = federation_of((6, 0, 0, 0, 0, 1))
    federation.quorum = 0.8
    begin = Coordinator.begin_sum

    def without_the_first(self, contribution, *given, **more):
        if contribution.__name__ == "evaluation":
            self.parties = self.parties[1:]
        return begin(self, contribution, *given, **more)

    monkeypatch.setattr(Coordinator, "begin_sum", without_the_first)
    model = federation.train(FedHEONN(activation="linear"), protect="masked").model
    centre = model.outputs(model.inputs.values["centre"][None])[0, 0]
    assert float(revealed[0]["count"]) == pytest.approx(1.0)
    assert float(revealed[0]["sum"][0]) + centre == pytest.approx(target, abs=1e-6)
