"""Every partition, on any class counts: all rows once, no client empty, sizes and shares as promised."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.partition import partition
from tacit.data.skew import skew
from tacit.data.table import Table
from tests.quick import examples

EVEN = ("iid", "label-sorted", "majority-even", "pick-two")
MAJORITY = {"majority-even": 1, "majority": 1, "pick-two": 2}


@st.composite
def cases(draw: st.DrawFn) -> tuple[Table, str, int, dict[str, Any], int]:
    counts = draw(st.lists(st.integers(1, 60), min_size=1, max_size=7))
    name = draw(st.sampled_from([*EVEN, "majority", "random", "dirichlet"]))
    rows = sum(counts)
    clients = draw(st.integers(-(-len(counts) // MAJORITY[name]) if name in MAJORITY else 1, min(rows, 40)))
    options: dict[str, Any] = {}
    if name in MAJORITY:
        options["share"] = draw(st.floats(0.01, 1.0))
    if name == "dirichlet":
        options["alpha"] = draw(st.floats(0.01, 100.0))
    seed = draw(st.integers(0, 2**32))
    codes = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    return Table.of(np.zeros((rows, 1)), codes), name, clients, options, seed


@settings(max_examples=examples(400), deadline=None)
@given(cases())
def test_every_partition(case: tuple[Table, str, int, dict[str, Any], int]) -> None:
    table, name, clients, options, seed = case
    owner = partition(table, name, clients, seed=seed, **options)
    assert owner.shape == (table.rows,) and owner.dtype == np.int32
    assert 0 <= owner.min() and owner.max() < clients
    found = skew(table.target, owner, clients, len(table.classes))
    assert found.rows.min() >= 1 and found.rows.sum() == table.rows
    if name in EVEN:
        assert found.rows.max() - found.rows.min() <= 1
    np.testing.assert_array_equal(owner, partition(table, name, clients, seed=seed, **options))
    generator = np.random.default_rng(seed)
    np.testing.assert_array_equal(owner, partition(table, name, clients, seed=generator, **options))
    if name in MAJORITY:
        _shares_are_reached(found.counts, options["share"], MAJORITY[name])


def _shares_are_reached(counts: np.ndarray, share: float, each: int) -> None:
    totals = counts.sum(axis=0)
    for client in range(-(-len(totals) // each)):
        own = slice(client * each, client * each + each)
        promised = min(np.ceil(share * counts[client].sum() - 1e-9), totals[own].sum())
        assert counts[client, own].sum() >= promised


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(2, 6), st.integers(1, 6), st.integers(0, 4), st.sampled_from([0.5, 0.75, 1.0]))
def test_equal_classes_are_shared_out_exactly(classes: int, unit: int, more: int, share: float) -> None:
    """Where whole numbers allow it, nothing is left to rounding."""
    clients = classes + more
    size = 4 * classes * (classes - 1) * unit
    table = Table.of(np.zeros((clients * size, 1)), np.arange(clients * size) % classes)
    counts = skew(
        table.target, partition(table, "majority-even", clients, share=share), clients, classes
    ).counts
    np.testing.assert_array_equal(np.diag(counts[:classes]), share * size)
    others = counts[:classes][~np.eye(classes, dtype=bool)]
    np.testing.assert_array_equal(others, (1 - share) * size / (classes - 1))
    np.testing.assert_array_equal(counts[classes:], size // classes)
