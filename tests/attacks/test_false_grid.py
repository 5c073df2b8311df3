"""A coordinator that says of a total with noise that the noise was sized for other numbers.

Clients that open it round to the grid that follows, and learn with a penalty that follows from the noise. And
if they find more noise than rows they say so: asked often enough, that tells the coordinator, which is to see
no total, how many rows there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import Federation, FedHEONN, Table
from tacit.core.coordinator import Coordinator
from tacit.core.errors import QuorumError
from tacit.protections.noised import Noised
from tests.attacks.malicious import REFUSED, unchecked

INNER = {"masked": {"opens": "clients"}, "ckks": {}}


def train(inner: str, **changes: int) -> Any:
    """Train where the last total is said to have been sized for other numbers."""
    rows = np.random.default_rng(0).normal(size=(600, 2))
    table = Table.of(rows, np.where(rows.sum(axis=1) > 0, "yes", "no"))
    tables = {f"site-{index}": table.take(slice(index, None, 3)) for index in range(3)}
    gather = Coordinator.gather

    def lie(self: Any, pending: Any) -> Any:
        entry = gather(self, pending)
        told = {f"total/{name}": value for name, value in changes.items()}
        return {**entry, **told} if entry["contribution"] == "noisy_terms" else entry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Coordinator, "gather", lie)
        protection = Noised(
            unit="row", epsilon=20.0, where="distributed", inner=inner, inner_options=INNER[inner]
        )
        federation = Federation.of(tables, declared={"classes": ["no", "yes"]})
        return federation.train(FedHEONN(), protect=protection, min_clients=3, min_count=1)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("change", [{"noise_asked": 4}, {"noise_asked": 1 << 50}, {"noise_sums": 4000}])
def test_it_does_not_open(inner: str, change: dict[str, int]) -> None:
    with pytest.raises(QuorumError, match=REFUSED):
        train(inner, **change)


def test_control_true_numbers_open() -> None:
    assert np.isfinite(train("masked", noise_asked=3, noise_sums=10).model.weights).all()


def test_control_without_the_tag_clients_say_whether_there_are_more_rows_than_noise() -> None:
    with unchecked():
        assert np.isfinite(train("ckks", noise_sums=20).model.weights).all()
        with pytest.raises(QuorumError, match="the noise is larger than what all clients bring"):
            train("ckks", noise_sums=10**6)
