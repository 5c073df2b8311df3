"""A row from the total of the closed form, for an attacker that knows all other rows.

The attacker opens totals and has every row but one: a coordinator with all clients but one on its side, or
with a leaked copy of a register from before a patient came. A Gram matrix is a sum, and what is left when the
known rows are taken off *is* the row. Noise on the sum stands against that, and it is accounted: with epsilon
nobody can tell better than e^ε / (1 + e^ε) whether a row was there at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit import Federation, FedHEONN, Table
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.core.shared import Shared
from tacit.data.preparation import Preparation
from tacit.data.schema import Schema
from tacit.methods.heonn.exchange import Units
from tacit.methods.heonn.exchanges import Sealed
from tacit.methods.heonn.noisy import NoisySums
from tacit.models.leastsquares import symmetric
from tacit.protections.noised import Noised

RAW = Preparation(scale="none")
CLIENTS, VICTIM = 4, 23
TRIALS = 100
EPSILON = 1.0
METHOD = FedHEONN(row_norm=1.0)


def patients() -> Table:
    """Age, weight, blood pressure in public units, and whether they were readmitted."""
    rng = np.random.default_rng(8)
    values = rng.uniform(-1, 1, size=(48, 3))
    values[VICTIM] = (0.9, -0.7, 0.8)  # not shortened by much, so that it shows as well as a row can
    return Table.of(values, np.array(["no", "yes"])[np.arange(48) % 2])


def federation_of(table: Table) -> Federation:
    tables = {f"site-{index}": table.take(slice(index, None, CLIENTS)) for index in range(CLIENTS)}
    return Federation.of(tables, declared={"classes": ["no", "yes"]})


def without(table: Table, row: int) -> Table:
    return table.take(np.delete(np.arange(table.rows), row))


def party_of(table: Table) -> Party:
    return Party("attacker", lambda: table, Secret(b"a" * 32))


def opened_by(federation: Federation, protect: Any) -> tuple[Any, ...]:
    """What whoever opens the total of the training sees."""
    seen: list[tuple[Any, ...]] = []
    exchange = NoisySums if isinstance(protect, Noised) else Sealed
    with pytest.MonkeyPatch.context() as patch:

        def spy(self: Any, *given: Any) -> dict[str, Any]:
            seen.append(given)
            return {"weights": np.zeros((4, 2))}  # the attacker needs no model

        patch.setattr(exchange, "solve", spy)
        federation.train(METHOD, protect=protect, preparation=RAW, min_clients=3, min_count=1)
    return seen[0]


def direction_from(gram: np.ndarray) -> np.ndarray:
    """The direction of the row behind xxᵀ: its largest eigenvector, with the sign of the first value."""
    row = np.linalg.eigh(gram)[1][:, -1]
    return np.asarray(row * np.sign(row[0]))


def left_over(federation: Federation, known: Table, protection: Noised) -> np.ndarray:
    """What is left of a noisy total once the known rows are taken off, as one vector."""
    total, shared = opened_by(federation, protection)
    terms = METHOD.noisy_terms(party_of(known), shared)
    return np.concatenate([(total[name] - terms[name]).ravel() for name in ("gram", "sums", "counts")])


class TestRow:
    @pytest.mark.parametrize("protect", ["masked", "ckks"])
    def test_control_without_noise_the_row_is_what_is_left(self, protect: str) -> None:
        table = patients()
        total, shared, units = opened_by(federation_of(table), protect)
        assert isinstance(units, Units)
        known = METHOD.terms(party_of(without(table, VICTIM)), shared)
        G = symmetric(np.asarray(total["gram"] - known["gram"]).reshape(-1), 4)
        G *= np.outer(units.lengths, units.lengths)
        row = G[0, 1:] / G[0, 0]  # the line of the bias
        assert row == pytest.approx(table.values[VICTIM], abs=1e-4)

    def test_with_noise_it_is_lost(self) -> None:
        table = patients()
        protection = Noised(epsilon=EPSILON, unit="row", where="distributed", colluding=0)
        errors = []
        for _ in range(20):
            rest = left_over(federation_of(table), without(table, VICTIM), protection)
            found = direction_from(symmetric(rest[:6] / np.sqrt([1, 2, 2, 1, 2, 1]), 3))
            errors.append(np.linalg.norm(found - self.direction(table)))
        # A direction drawn at random, with the same first sign, is this far from it on average.
        rng = np.random.default_rng(0)
        guesses = rng.normal(size=(2000, 3))
        guesses *= np.sign(guesses[:, :1]) / np.linalg.norm(guesses, axis=1, keepdims=True)
        blind = np.linalg.norm(guesses - self.direction(table), axis=1).mean()
        assert np.mean(errors) > 0.6 * blind

    @staticmethod
    def direction(table: Table) -> np.ndarray:
        return np.asarray(table.values[VICTIM] / np.linalg.norm(table.values[VICTIM]))


class TestMembership:
    """The best test there is: how much of the row's own statistics is in what is left."""

    def test_control_with_hardly_any_noise_it_is_always_told(self) -> None:
        assert self.accuracy(Noised(epsilon=1e4, unit="row"), trials=5) == 1.0

    def test_with_noise_it_is_told_no_better_than_epsilon_allows(self) -> None:
        bound = np.exp(EPSILON) / (1 + np.exp(EPSILON))
        assert self.accuracy(Noised(epsilon=EPSILON, unit="row"), TRIALS) < bound

    @staticmethod
    def accuracy(protection: Noised, trials: int) -> float:
        """How often the attacker is right, if the row is there in half of the runs."""
        table = patients()
        known = without(table, VICTIM)
        shared = Shared(Schema(table.columns, "classification", ("no", "yes"), table.target_names), {})
        own = METHOD.noisy_terms(party_of(table.take(np.array([VICTIM]))), shared)
        row = np.concatenate([own[name].ravel() for name in ("gram", "sums", "counts")])
        assert 0.99 < np.linalg.norm(row) <= 1 + 1e-12  # nobody shows better
        right = 0
        for present, rows in ((True, table), (False, known)):
            federation = federation_of(rows)
            for _ in range(trials):
                said = left_over(federation, known, protection) @ row > np.vdot(row, row) / 2
                right += said == present
        return right / (2 * trials)
