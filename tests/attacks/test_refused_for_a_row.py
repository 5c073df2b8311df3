"""A coordinator that sends scales and bounds of its choice, and sees which contributions a client refuses.

A refusal bears no noise and is not charged: if it depends on the rows, each ask tells one comparison. Without
noise, that shows sums of a single client (SECURITY.md says so); with noise, nothing of the kind may be left.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tacit import FedHEONN, Table
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.core.shared import Shared
from tacit.data.preparation import Preparation
from tacit.data.schema import Schema
from tacit.methods import METHODS
from tacit.methods.averaging.aggregation import Change
from tacit.methods.heonn.exchange import HEADROOM
from tacit.protections.masked import Masked
from tacit.protections.noised import Noised
from tests.conftest import divide

VICTIM, OWN = "client-2", slice(10, 20)
BEYOND = 5.0  # only the row that is looked for has a value beyond that
LARGEST = np.finfo(np.float64).max


def rows_of(task: str = "classification") -> Table:
    values = np.random.default_rng(3).uniform(-4, 4, size=(40, 3)).round(3)
    values[17] = (7.5, 1.0, 0.5)
    answers = np.arange(40.0) if task == "regression" else np.array(["no", "yes"])[np.arange(40) % 2]
    return Table.of(values, answers, task=task)


def scale(**changes: Any) -> dict[str, Any]:
    known = {"centre": np.zeros(3), "spread": np.ones(3), "constant": np.zeros(3, dtype=bool)}
    return {**known, **changes}


class TestBounds:
    """Bounds of a Gram matrix follow from ``norms``, which come with the shared values."""

    def answer(self, coordinator: Any, length: float) -> str:
        """What a client says if its first column may be no longer than that."""
        norms = np.array([1e9, length, 1e9, 1e9])
        coordinator.shared = Shared(coordinator.schema, scale(norms=norms))
        pending = coordinator.begin_sum(coordinator.components.method.terms, (VICTIM,))
        assert not list(pending.contributions({}, {"slot": 1}))
        return str(pending.failures[VICTIM])

    def begin(self, coordinator_of: Any, protection: Any) -> Any:
        settings = {"min_clients": 3, "min_count": 1, "declared": {"classes": ["no", "yes"]}}
        coordinator = coordinator_of(FedHEONN(), protection, data=divide(rows_of(), 4), **settings)
        coordinator.enrol()
        return coordinator

    def test_control_without_noise_a_search_finds_a_sum_of_one_client(self, coordinator_of: Any) -> None:
        coordinator, low, high = self.begin(coordinator_of, Masked()), 1e-3, 1e6
        while high / low > 1 + 1e-6:
            middle = float(np.sqrt(low * high))
            refused = "exceeds its bound" in self.answer(coordinator, middle)
            low, high = (middle, high) if refused else (low, middle)
        assert high * HEADROOM == pytest.approx((rows_of().values[OWN, 0] ** 2).sum(), rel=1e-5)

    def test_with_noise_the_answer_is_the_same(self, coordinator_of: Any) -> None:
        protection = Noised(unit="row", where="distributed", inner="masked")
        coordinator = self.begin(coordinator_of, protection)
        answers = {self.answer(coordinator, length) for length in (1e-3, 1e6)}
        assert len(answers) == 1
        assert "noise of any epsilon is far above that" in answers.pop()


class TestScale:
    """A spread so small that one row overflows, a centre that one target has, and what fills gaps."""

    OVERFLOWS = scale(spread=np.array([BEYOND / LARGEST, 1.0, 1.0]))

    def brought(self, table: Table, crafted: dict[str, Any]) -> np.ndarray:
        """What a row of a client brings under a crafted scale."""
        method = FedHEONN(activation="linear" if table.task == "regression" else "logistic")
        schema = Schema(table.columns, table.task, table.classes, table.target_names)
        found = [
            method.noisy_terms(
                Party("client", lambda held=held: held, Secret(b"a" * 32)), Shared(schema, crafted)
            )
            for held in (table, table.take(np.delete(np.arange(table.rows), 17)))
        ]
        with_row, without = (np.concatenate([part.ravel() for part in terms.values()]) for terms in found)
        assert np.isfinite(with_row).all()
        return np.asarray(with_row - without)

    def test_control_a_row_overflows(self) -> None:
        with np.errstate(over="ignore"):
            scaled = rows_of().values / self.OVERFLOWS["spread"]
        assert np.flatnonzero(~np.isfinite(scaled).all(axis=1)).tolist() == [17]

    def test_it_counts_as_zeros(self) -> None:
        assert np.linalg.norm(self.brought(rows_of(), self.OVERFLOWS)) <= 1

    def test_a_target_that_becomes_no_number_counts_as_the_mean(self) -> None:
        crafted = scale(target_centre=np.array([17.0]), target_spread=np.zeros(1))
        assert np.linalg.norm(self.brought(rows_of("regression"), crafted)) <= 1

    def test_a_gap_that_is_filled_with_infinity_counts_as_zeros(self) -> None:
        table = rows_of()
        table.values[17, 0] = np.nan
        assert np.linalg.norm(self.brought(table, scale(fill=np.array([np.inf, 0.0, 0.0])))) <= 1

    def test_bounds_of_columns_that_are_no_numbers(self) -> None:
        table = rows_of()
        schema = Schema(table.columns, table.task, table.classes, table.target_names)
        for low, high in ((-np.inf, np.inf), (np.nan, 1.0), (-LARGEST, LARGEST)):
            bounds = {"low": np.full(3, low), "high": np.full(3, high)}
            brought = Preparation().noisy_moments(SimpleNamespace(data=table), Shared(schema, bounds))
            assert np.isfinite(brought["moments"]).all()


class TestNotes:
    """That a client's change was scaled down is said in a note, which no noise covers."""

    @pytest.mark.parametrize(("protection", "told"), [(Masked(), True), (Noised(inner="masked"), False)])
    def test_they_stay_under_noise(self, coordinator_of: Any, protection: Any, told: bool) -> None:
        pack = Change.pack

        def noting(self: Change, delta: Any, share: float, network: Any, party: Any) -> dict[str, Any]:
            party.note("its change exceeded the limit")
            return pack(self, delta, share, network, party)

        heard: list[Any] = []
        method = METHODS.build("fedavg", {"rounds": 1, "hidden": (), "weighting": "equal"})
        settings = {"min_clients": 3, "min_count": 1, "subscriber": lambda _, event: heard.append(event)}
        coordinator = coordinator_of(method, protection, data=divide(rows_of(), 4), **settings)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Change, "pack", noting)
            coordinator.enrol()
            coordinator.protection.prepare(4)
            coordinator.components.preparation.train(coordinator)
            coordinator.components.method.train(coordinator)
        assert any("exceeded the limit" in str(event) for event in heard) == told
