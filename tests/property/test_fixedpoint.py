"""Fixed point: sums of integers are sums of values, to the last promised bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import ConfigError, DataError
from tacit.crypto.fixedpoint import WIDE_FRACTION, FixedPoint, from_wide_digits, wide_digits

reals = st.floats(-1e12, 1e12, allow_nan=False)


@given(st.lists(reals, min_size=1, max_size=8), st.integers(8, 50))
@settings(max_examples=80, deadline=None)
def test_wide_values_come_back_to_2_to_the_minus_60(values, bits):
    array = np.array(values)
    back = from_wide_digits(wide_digits(array, bits - 1), bits - 1)
    np.testing.assert_allclose(back, array, rtol=0, atol=2.0 ** -(WIDE_FRACTION + 1))


@given(st.data(), st.integers(16, 40), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_sums_equal_plain_sums_within_half_a_step_per_summand(data, bits, summands):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    bounds = np.array([1.0, 250.0, np.inf, 1e-6, np.inf])
    code = FixedPoint(bounds, bits, summands)
    finite = np.where(np.isfinite(bounds), bounds, 1e9)
    vectors = rng.uniform(-1, 1, size=(summands, 5)) * finite
    total = sum(code.encode(vector) for vector in vectors)
    step = np.where(np.isfinite(bounds), bounds / ((1 << (bits - 1)) - 1), 2.0**-WIDE_FRACTION)
    error = np.abs(code.decode(total) - vectors.sum(axis=0))
    assert (error <= summands * step / 2 + 1e-9 * np.abs(vectors).sum(axis=0)).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_ten_thousand_summands_at_the_extremes_are_exact(sign):
    code = FixedPoint(np.array([3.0, np.inf]), bits=24, summands=10_000)
    one = code.encode(np.array([sign * 3.0, sign * (2.0**59 + 2.0**10)]))
    total = one * 10_000
    assert np.abs(total).max() < 2 ** (code.bits - 1 + code.guard_bits)
    np.testing.assert_array_equal(code.decode(total), [sign * 30_000.0, sign * 10_000 * (2.0**59 + 2.0**10)])


def test_values_beyond_their_bound_are_refused_or_clipped():
    bounds = np.array([1.0, 2.0])
    with pytest.raises(
        DataError, match=r"value 1 of the vector exceeds its bound of 2.*it is 2\.5"
    ) as caught:
        FixedPoint(bounds, 24, 10).encode(np.array([0.0, 2.5]))
    assert "2.5" not in caught.value.public
    clipped = FixedPoint(bounds, 24, 10, clip=True)
    np.testing.assert_allclose(clipped.decode(clipped.encode(np.array([-9.0, 2.5]))), [-1.0, 2.0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused_even_with_clip(bad):
    for clip in (False, True):
        with pytest.raises(DataError, match="NaN or infinite"):
            FixedPoint(np.array([np.inf]), 24, 10, clip).encode(np.array([bad]))


def test_a_wide_value_beyond_its_range_is_refused():
    with pytest.raises(DataError, match="exceeds 2\\^60"):
        FixedPoint(np.array([np.inf]), 24, 10).encode(np.array([2.0**61]))


@pytest.mark.parametrize(("bits", "summands"), [(7, 10), (51, 2), (50, 2**14), (24, 0)])
def test_impossible_settings_are_refused(bits, summands):
    with pytest.raises(ConfigError):
        FixedPoint(np.ones(1), bits, summands)


def test_a_bound_of_zero_means_zero():
    code = FixedPoint(np.array([0.0]), 24, 10)
    assert code.decode(code.encode(np.array([0.0]))).tolist() == [0.0]


def test_wrong_lengths_are_refused():
    code = FixedPoint(np.ones(3), 24, 10)
    with pytest.raises(DataError, match="2 values, agreed were 3"):
        code.encode(np.ones(2))
    with pytest.raises(DataError, match="total of 4 integers"):
        code.decode(np.ones(4, dtype=np.int64))


@given(
    st.integers(8, 50),
    st.lists(st.floats(-1, 1), min_size=1, max_size=6),
    st.integers(1, 40),
    st.floats(1e-6, 1e6),
)
def test_fine_values_come_back_to_the_last_digits_with_any_number_of_bits(bits, shares, summands, bound):
    values = np.array(shares) * bound
    bounds = np.full(len(values), bound)
    code = FixedPoint(bounds, bits, summands, fine=np.ones(len(values), dtype=bool))
    total = np.sum([code.encode(values) for _ in range(summands)], axis=0)
    np.testing.assert_allclose(
        code.decode(total), summands * values, rtol=0, atol=summands * bound * 2.0**-49
    )
