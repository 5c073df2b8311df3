"""Measures of label skew, against the worked example of Santos et al. and their own extremes."""

from __future__ import annotations

import numpy as np

from tacit.data.partition import partition
from tacit.data.skew import skew
from tacit.data.table import Table


def test_the_papers_example() -> None:
    """Six skewed and two balanced clients, half of a skewed client's rows of its own class."""
    table = Table.of(np.zeros((4800, 1)), np.repeat(np.arange(6), 800))
    found = skew(table.target, partition(table, "majority-even", 8, share=0.5), clients=8, classes=6)
    np.testing.assert_array_equal(found.rows, 600)
    np.testing.assert_array_equal(np.diag(found.counts[:6]), 300)
    np.testing.assert_array_equal(found.counts[:6][~np.eye(6, dtype=bool)], 60)
    np.testing.assert_array_equal(found.counts[6:], 100)
    homogeneous = found.rows / found.s
    np.testing.assert_allclose(homogeneous / homogeneous.sum(), [0.104] * 6 + [0.1875] * 2, atol=5e-4)
    heterogeneous = found.s / found.rows
    np.testing.assert_allclose(heterogeneous / heterogeneous.sum(), [0.141] * 6 + [0.078] * 2, atol=5e-4)


def test_even_and_single_class_clients() -> None:
    codes, owner = np.array([0, 1, 2, 3, 2, 2]), np.array([0, 0, 0, 0, 1, 1])
    found = skew(codes, owner, clients=3, classes=4)
    np.testing.assert_allclose(found.gini, [0, 3 / 4, 0], atol=1e-12)
    np.testing.assert_allclose(found.entropy, [2, 0, 0], atol=1e-12)
    np.testing.assert_allclose(found.s, [1 / 16, 3 / 6, 0])
    assert found.rows.tolist() == [4, 2, 0]


def test_gini_is_the_mean_difference_of_all_pairs() -> None:
    counts = np.random.default_rng(0).integers(0, 50, size=(20, 7))
    owner, codes = (np.repeat(index.ravel(), counts.ravel()) for index in np.indices(counts.shape))
    found = skew(codes, owner, clients=20, classes=7)
    shares = counts / counts.sum(axis=1, keepdims=True)
    pairs = np.abs(shares[:, :, None] - shares[:, None, :]).sum(axis=(1, 2)) / (2 * 7)
    np.testing.assert_allclose(found.gini, pairs)
    np.testing.assert_array_equal(found.counts, counts)
