"""Every protected sum is the sum: over any vectors, any clients, in any order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tacit.core.errors import ConfigError
from tacit.sums import PROTECTIONS
from tacit.sums.plain import Plain


def variants():
    """Every registered protection, at every place where it opens."""
    for name in PROTECTIONS:
        for place in ("coordinator", "clients"):
            try:
                protection = PROTECTIONS.build(name, {"opens": place})
            except ConfigError:
                continue
            if protection.promises.opens == place:
                yield pytest.param(protection, id=f"{name}-{place}")


VARIANTS = list(variants())


def named(rows):
    return {f"client-{index + 1}": row for index, row in enumerate(rows)}


def tolerance(rows, precision):
    """What is promised, relative to what was added up; rounding of floats is always allowed."""
    return (precision + len(rows) * np.finfo(float).eps) * np.abs(rows).sum(axis=0).max(initial=0.0)


bounded = st.tuples(st.integers(2, 12), st.integers(1, 20)).flatmap(
    lambda shape: npst.arrays(np.float64, shape, elements=st.floats(-1.0, 1.0))
)
wide = st.tuples(st.integers(2, 12), st.integers(1, 8)).flatmap(
    lambda shape: npst.arrays(np.float64, shape, elements=st.floats(-1e9, 1e9))
)


@pytest.mark.parametrize("protection", VARIANTS)
@given(rows=bounded)
@settings(max_examples=15, deadline=None)
def test_vectors_within_their_bound_sum_as_promised(protection, summed, rows):
    total = summed(protection, named(rows), bound=1.0)
    assert total.contributors == len(rows)
    error = np.abs(total["vector"] - rows.sum(axis=0)).max()
    assert error <= tolerance(np.ones_like(rows), protection.promises.precision)


@pytest.mark.parametrize("protection", VARIANTS)
@given(rows=wide)
@settings(max_examples=15, deadline=None)
def test_vectors_without_a_bound_sum_as_promised(protection, summed, rows):
    total = summed(protection, named(rows))
    error = np.abs(total["vector"] - rows.sum(axis=0)).max()
    assert error <= tolerance(rows, protection.promises.precision)


@pytest.mark.parametrize("protection", VARIANTS)
@pytest.mark.parametrize("clients", [2, 3, 17, 50])
def test_from_two_to_fifty_clients(protection, summed, clients):
    rows = np.random.default_rng(clients).uniform(-1, 1, size=(clients, 33))
    total = summed(protection, named(rows), bound=1.0)
    assert total.contributors == clients
    error = np.abs(total["vector"] - rows.sum(axis=0)).max()
    assert error <= tolerance(np.ones_like(rows), protection.promises.precision)


@given(rows=wide)
@settings(max_examples=25, deadline=None)
def test_the_plain_sum_is_that_of_numpy_to_the_last_bit(summed, rows):
    total = np.zeros(rows.shape[1])
    for row in rows:
        total += row
    for place in ("coordinator", "clients"):
        assert summed(Plain(opens=place), named(rows))["vector"].tobytes() == total.tobytes()
