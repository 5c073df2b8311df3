"""FederBoost with noise: what one row brings to each sum, what a run costs, what is learnt and refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit.core.errors import ConfigError, DataError
from tacit.core.events import BudgetSpent, Events
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.data.preparation import Preparation
from tacit.data.table import Column, Table
from tacit.federation import Federation
from tacit.methods.boosting import noisy
from tacit.methods.boosting.cuts import Buckets
from tacit.methods.federboost import FederBoost
from tacit.protections.noised import Noised
from tests.conftest import divide

KEEP = Preparation(missing="keep")
METHOD = FederBoost(trees=3, depth=2, buckets=9)
ROWS = Noised(epsilon=8.0, unit="row")


def make_table(classes: int = 2, rows: int = 4000) -> Table:
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.normal(size=rows), rng.lognormal(0, 3, rows), rng.integers(0, 3, rows)])
    signal = values[:, 0] + 0.3 * np.log(values[:, 1]) - (values[:, 2] == 1)
    codes = np.digitize(signal, np.quantile(signal, np.arange(1, classes) / classes))
    columns = Column("a"), Column("b"), Column("c", "category", categories=("x", "y", "z"))
    return Table("t", columns, values, codes, "classification", tuple(range(classes)))


def train(table: Table, method: FederBoost = METHOD, protect: Noised = ROWS, **settings):
    return Federation(divide(table, 5), seed=3, quorum=1.0).train(
        method, protect=protect, preparation=KEEP, **settings
    )


@pytest.mark.parametrize("classes", [2, 4])
def test_no_row_brings_more_than_its_share_to_any_sum(classes):
    table = make_table(classes)
    shared = train(table).outcome.shared
    # Whoever lies about the model cannot make a row bring more: here margins are as wrong as they get.
    shared |= {"base": shared["base"] + np.array([40.0, -40.0, 3.0, 0.0])[: len(shared["base"])]}
    longest = 0.0
    for row in range(20):
        one = table.take(slice(row, row + 1))
        for name in ("noisy_start", "noisy_roots"):
            party = Party("client-1", lambda one=one: one, Secret(b"s" * 32))
            sent = getattr(METHOD, name)(party, shared)
            norm = np.sqrt(sum((np.asarray(value) ** 2).sum() for value in sent.values()))
            assert norm <= 1 + 1e-12, name
            longest = max(longest, norm)
    assert longest > 0.9  # and the bound is not loose


@pytest.mark.parametrize("classes", [2, 4])
def test_weights_that_nobody_agreed_to_weigh_no_row(classes):
    """Of weights below 0 h would be, too: what is added to g in one number, and read back as another."""
    table = make_table(classes)
    shared = train(table).outcome.shared | {"round": 0, "class_weights": np.full(classes, -1.0)}
    order, found = np.argsort(table.values[:, 0]), []
    for chosen in (order[[0]], order[[0, -1]]):  # the second is alone in its bucket
        rows = table.take(chosen)
        found.append(METHOD.noisy_roots(Party("client-1", lambda rows=rows: rows, Secret(b"s" * 32)), shared))
    change = found[1]["sums"] - found[0]["sums"]
    assert 0.1 < np.sqrt((change**2).sum()) <= 1 + 1e-12


def test_a_run_costs_what_was_announced():
    told: list[BudgetSpent] = []

    def keep(number, event):
        if isinstance(event, BudgetSpent):
            told.append(event)

    train(make_table(), events=Events(keep))
    assert len(told) == METHOD.budget_parts == 1 + 3 * 2
    assert told[-1].epsilon == pytest.approx(8.0, rel=1e-3)
    assert told[-1].left == 0


@pytest.mark.parametrize("classes", [2, 3])
def test_enough_rows_are_learnt_from(classes, keys_once):
    table = make_table(classes)
    central = train(table)
    assert central.model.scores(table)["accuracy"] > 0.9 / np.sqrt(classes)
    inside = Noised(epsilon=8.0, unit="row", where="distributed", inner="masked")
    with keys_once():
        hidden = train(table, protect=inside, min_clients=5)
    assert hidden.model.scores(table)["accuracy"] > 0.9 / np.sqrt(classes)
    assert not np.array_equal(central.model.arrays["value"], hidden.model.arrays["value"])


def test_more_noise_gives_a_larger_penalty_and_no_trees_at_all_from_noise_alone():
    few = make_table(rows=60)
    with pytest.raises(DataError, match="the noise is larger than what all clients bring together"):
        train(few, protect=replace(ROWS, epsilon=0.01))
    buckets = Buckets(train(make_table()).outcome.shared.schema, 9)
    assert (
        noisy.find_floors(2.0, "logistic", buckets)[0] == 2 * noisy.find_floors(1.0, "logistic", buckets)[0]
    )


def test_columns_agree_on_the_sums_of_a_node():
    schema = train(make_table()).outcome.shared.schema
    buckets, rng = Buckets(schema, 9), np.random.default_rng(0)
    noise = rng.normal(size=(2, int(buckets.offsets[-1]), 2))
    found = noisy.read_sums(noise, "logistic", buckets)
    wholes = np.add.reduceat(found, buckets.offsets[:-1], axis=1)
    np.testing.assert_allclose(wholes, np.broadcast_to(wholes[:, :1], wholes.shape), atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "protect", "text"),
    [
        ({}, Noised(epsilon=8.0), "hide single rows with unit = 'row'"),
        ({"patience": 2}, ROWS, "patience needs scores without noise: set it to 0"),
        ({"class_weight": "balanced"}, ROWS, "class_weight needs counts without noise: leave it out"),
        ({"depth": 7}, ROWS, "depth is 7, and each level costs budget: set at most 6"),
    ],
)
def test_settings_that_do_not_bear_noise_are_refused(settings, protect, text):
    with pytest.raises(ConfigError, match=text):
        train(make_table(), replace(METHOD, **settings), protect)


def test_a_regression_is_refused():
    table = make_table()
    targets = Table("t", table.columns, table.values, table.target[:, None].astype(float), "regression")
    with pytest.raises(ConfigError, match="nothing bounds what a row brings to a regression"):
        train(targets)
