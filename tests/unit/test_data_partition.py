"""Partitions: the shapes the papers draw, the refusals, and the time they take."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.core.errors import ConfigError, DataError
from tacit.data.files import load
from tacit.data.partition import BY_VALUE, PARTITIONERS, options_of, partition
from tacit.data.skew import skew
from tacit.data.table import Column, Table
from tacit.federation import Federation


def table_of(*counts: int) -> Table:
    codes = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    return Table.of(np.zeros((len(codes), 1)), codes)


def counts_of(table: Table, owner: np.ndarray, clients: int) -> np.ndarray:
    return skew(table.target, owner, clients, len(table.classes)).counts


def test_label_sorted_gives_each_client_a_run_of_classes() -> None:
    table = table_of(30, 30, 40)
    counts = counts_of(table, partition(table, "label-sorted", 10), 10)
    assert counts.tolist() == [[10, 0, 0]] * 3 + [[0, 10, 0]] * 3 + [[0, 0, 10]] * 4


def test_label_sorted_orders_regression_by_its_target() -> None:
    table = Table.of(np.zeros((4, 1)), [3.5, 0.5, 2.5, 1.5], task="regression")
    assert partition(table, "label-sorted", 2).tolist() == [1, 0, 1, 0]


def test_majority_even_on_the_activities_of_the_paper() -> None:
    if not Path(os.environ.get("TACIT_DATA", "nowhere"), "har_recomputed.parquet").is_file():
        pytest.skip("TACIT_DATA has no har_recomputed.parquet")
    table = load("har_recomputed")
    counts = counts_of(table, partition(table, "majority-even", 8), 8)
    rows = counts.sum(axis=1)
    assert set(rows.tolist()) == {1301, 1302}
    np.testing.assert_array_equal(np.diag(counts[:6]), np.ceil(rows[:6] / 2))
    overall = counts.sum(axis=0) / table.rows
    np.testing.assert_allclose(counts[6:] / rows[6:, None], [overall] * 2, atol=2 / 1301)


def test_majority_has_clients_of_unequal_size() -> None:
    table = table_of(500, 500, 500)
    counts = counts_of(table, partition(table, "majority", 6, share=0.6), 6)
    rows = counts.sum(axis=1)
    assert len(set(rows.tolist())) > 1 and rows.max() <= 3 * rows.min() + 3
    np.testing.assert_array_equal(np.diag(counts[:3]), np.ceil(0.6 * rows[:3] - 1e-9))


def test_pick_two_halves_the_share_between_two_classes() -> None:
    table = table_of(*[400] * 6)
    counts = counts_of(table, partition(table, "pick-two", 8, share=0.8), 8)
    assert counts[:3].tolist() == [
        [120, 120, 15, 15, 15, 15],
        [15, 15, 120, 120, 15, 15],
        [15, 15, 15, 15, 120, 120],
    ]
    np.testing.assert_array_equal(counts[3:], 50 + np.zeros((5, 6)))
    odd = counts_of(table_of(*[40] * 5), partition(table_of(*[40] * 5), "pick-two", 5), 5)
    assert (odd[0, :2].sum(), odd[2, 4]) == (20, 20)


def test_a_small_class_gives_what_it_has_and_the_margins_hold() -> None:
    table = table_of(1000, 10, 10)
    counts = counts_of(table, partition(table, "majority-even", 4), 4)
    assert counts.sum(axis=1).tolist() == [255] * 4 and counts.sum(axis=0).tolist() == [1000, 10, 10]
    assert (counts[1, 1], counts[2, 2]) == (10, 10)


def test_dirichlet_is_more_uneven_for_a_small_alpha() -> None:
    table = table_of(*[1000] * 5)
    gini = [
        skew(table.target, partition(table, "dirichlet", 20, alpha=alpha), 20, 5).gini.mean()
        for alpha in (0.05, 1.0, 1000.0)
    ]
    assert gini[0] > gini[1] > gini[2] and gini[2] < 0.05


def test_a_client_whose_rows_were_all_drawn_for_the_test_is_named() -> None:
    values = np.column_stack([np.arange(100.0), [0.0] * 60 + [1.0] * 39 + [2.0]])
    columns = (Column("a"), Column("ward", "category", categories=("north", "south", "tiny")))
    table = Table("t", columns, values, np.arange(100) % 2, "classification", (0, 1))
    found = [
        Federation.embedded(table, partition="by-column", column="ward", test=0.0).clients,
        *(raised(table, seed) for seed in range(20)),
    ]
    assert found[0] == 3
    assert {3, "tiny"} == set(found)
    gap = replace(table, values=np.where(np.arange(100)[:, None] == 99, [99.0, np.nan], values))
    said = {raised(gap, seed) for seed in range(20)}
    assert said == {"missing"}, "wherever the row without a ward is"


def raised(table: Table, seed: int) -> object:
    try:
        return Federation.embedded(table, partition="by-column", column="ward", test=0.3, seed=seed).clients
    except DataError as error:
        if "column 'ward' of t is missing in 1 rows" in str(error):
            return "missing"
        assert "were drawn for the central test" in str(error)
        return "tiny" if "ward 'tiny'" in str(error) else str(error)


def test_by_column_takes_groups_and_features() -> None:
    values = np.array([[0.0, 7], [1, 7], [0, 9], [2, 9]])
    table = Table(
        "t",
        (Column("ward", "category", categories=("a", "b", "c")), Column("x")),
        values,
        np.zeros(4, dtype=np.int64),
        classes=(0,),
        groups={"subject": np.array([30, 4, 4, 30])},
    )
    assert partition(table, "by-column", None, column="subject").tolist() == [1, 0, 0, 1]
    assert partition(table, "by-column", 3, column="ward").tolist() == [0, 1, 0, 2]
    with pytest.raises(ConfigError, match="clients is 2, but column 'ward' has 3 values"):
        partition(table, "by-column", 2, column="ward")
    with pytest.raises(DataError, match="did you mean 'subject'"):
        partition(table, "by-column", None, column="subjct")
    with pytest.raises(ConfigError, match="needs the option column"):
        partition(table, "by-column", None)
    values[1, 0] = np.nan
    with pytest.raises(DataError, match="missing in 1 rows"):
        partition(table, "by-column", None, column="ward")


@pytest.mark.parametrize(
    ("name", "clients", "options", "message"),
    [
        ("idd", 2, {}, "did you mean 'iid'"),
        ("dirichlet", 2, {"alfa": 1}, "did you mean 'alpha'"),
        ("iid", 2, {"alpha": 1}, "no option 'alpha': leave it out"),
        ("iid", 0, {}, "clients is 0: give a whole number"),
        ("iid", 2.0, {}, r"clients is 2\.0"),
        ("iid", True, {}, "clients is True"),
        ("iid", None, {}, "clients is None"),
        ("iid", 13, {}, "13 clients cannot share the 12 rows"),
        ("dirichlet", 2, {"alpha": 0}, "alpha is 0: give a number above 0"),
        ("dirichlet", 2, {"alpha": "much"}, "alpha is 'much'"),
        ("dirichlet", 2, {"alpha": float("nan")}, "alpha is nan"),
        ("majority", 4, {"share": 0}, "share is 0"),
        ("majority-even", 4, {"share": 1.1}, r"share is 1\.1"),
        ("majority-even", 2, {}, "2 clients cannot hold 3 classes as majorities of 1: give at least 3"),
        ("pick-two", 1, {}, "give at least 2"),
    ],
)
def test_refusals(name: str, clients: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        partition(table_of(4, 4, 4), name, clients, **options)


@pytest.mark.parametrize("name", ["dirichlet", "majority", "majority-even", "pick-two"])
def test_regression_has_no_classes_to_divide_by(name: str) -> None:
    table = Table.of(np.zeros((4, 1)), [0.1, 0.2, 0.3, 0.4], task="regression")
    with pytest.raises(ConfigError, match="needs classes"):
        partition(table, name, 2)


def test_options_have_defaults() -> None:
    assert {name: options_of(name) for name in PARTITIONERS} == {
        "iid": {},
        "label-sorted": {},
        "random": {},
        "majority-even": {"share": 0.5},
        "majority": {"share": 0.5},
        "pick-two": {"share": 0.5},
        "dirichlet": {"alpha": 0.5},
        "by-column": {"column": None},
        "by-file": {},
    }


@pytest.mark.parametrize("name", sorted(set(PARTITIONERS) - set(BY_VALUE)))
def test_a_million_rows_among_twenty_thousand_clients(name: str) -> None:
    codes = np.random.default_rng(0).integers(10, size=1_000_000)
    table = Table("t", (Column("x"),), np.zeros((len(codes), 1)), codes, classes=tuple(range(10)))
    start = time.perf_counter()
    owner = partition(table, name, 20_000)
    assert time.perf_counter() - start < 5
    assert np.bincount(owner, minlength=20_000).min() >= 1
