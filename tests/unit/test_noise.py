"""Noise has the variance that is accounted, exactly the distribution that is promised, and its price."""

from __future__ import annotations

import builtins
import math
import time
from fractions import Fraction
from functools import partial

import dp_accounting
import numpy as np
import pytest

import tacit.crypto.noise as noise
from tacit.core.errors import ConfigError, DataError, UnavailableError
from tacit.crypto.accounting import ORDERS, Accountant, Release, sigma_for
from tacit.crypto.noise import add_noise, clip_l2, discrete_gaussian, flip_coins, integer_sensitivity

MILLION = 1_000_000


def probabilities(variance: float, reach: int) -> np.ndarray:
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * variance))
    return weights / weights.sum()


def test_clipping_shortens_only_what_is_too_long():
    rng = np.random.default_rng(0)
    for scale in (1e-200, 1e-3, 1.0, 1e200):
        vector = rng.normal(size=50) * scale
        clipped = clip_l2(vector, 0.5 * scale)
        assert np.linalg.norm(clipped / scale) <= 0.5
        assert np.linalg.norm(clipped / scale) == pytest.approx(0.5)
        assert np.allclose(clipped / clipped[0], vector / vector[0])
        assert np.array_equal(clip_l2(vector, 100 * scale), vector)
    assert clip_l2(np.zeros(3), 1.0).tolist() == [0, 0, 0]
    assert clip_l2(np.array([]), 1.0).size == 0


def test_rounding_stays_within_the_integer_sensitivity():
    rng = np.random.default_rng(0)
    for _ in range(50):
        clipped = clip_l2(rng.normal(size=400), 1.0)
        assert np.linalg.norm(np.rint(clipped * 64)) <= integer_sensitivity(1.0, 64, 400)


@pytest.mark.parametrize("variance", [Fraction(1, 3), 1, 7.5, 100])
def test_the_discrete_gaussian_is_the_one_promised(variance):
    draws = discrete_gaussian(variance, MILLION)
    reach = math.ceil(4 * math.sqrt(variance))
    expected = probabilities(float(variance), 10 * reach)
    # The ends are put together, so that every bin expects enough.
    inner = expected[9 * reach : 11 * reach + 1].copy()
    inner[[0, -1]] += (1 - inner.sum()) / 2
    counts = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)
    statistic = ((counts - MILLION * inner) ** 2 / (MILLION * inner)).sum()
    freedom = 2 * reach
    assert statistic < freedom + 6.5 * math.sqrt(2 * freedom) + 20  # about once in 10^8 runs


@pytest.mark.parametrize("variance", [4, 1234.5, 2.0**70])
def test_its_variance_is_the_accounted_one_and_a_million_take_a_moment(variance):
    started = time.process_time()
    draws = discrete_gaussian(variance, MILLION).astype(np.float64)
    assert time.process_time() - started < 3.0  # 0.15 s on a quiet machine
    assert draws.var() == pytest.approx(variance, rel=0.02)
    assert abs(draws.mean()) < 6 * math.sqrt(variance / MILLION)


def test_parts_of_the_noise_add_up_to_the_accounted_variance():
    clients, survivors, variance = 12, 8, 500
    parts = [discrete_gaussian(Fraction(variance, survivors), MILLION // 4) for _ in range(clients)]
    total = np.sum(parts[:survivors], axis=0)
    assert total.var() == pytest.approx(variance, rel=0.02)
    assert np.sum(parts, axis=0).var() == pytest.approx(variance * clients / survivors, rel=0.02)
    counts = np.bincount(np.clip(total, -200, 200) + 200, minlength=401)
    assert np.abs(counts / len(total) - probabilities(variance, 200)).max() < 0.0018  # six deviations


def test_sums_of_floats_get_noise_on_a_grid():
    total = np.random.default_rng(0).normal(size=MILLION)
    noisy = add_noise(total, bound=2.0, multiplier=1.5)
    assert (noisy - total).var() == pytest.approx(9, rel=0.02)
    assert (np.abs(noisy - total) < 3).mean() == pytest.approx(0.682689, abs=0.004)
    # Every value is a whole number of units, of which a clipped vector has at least 4096 for each √d.
    unit = 2.0 ** math.floor(math.log2(2.0 / (4096 * math.sqrt(MILLION))))
    assert (noisy / unit == np.rint(noisy / unit)).all()
    assert add_noise(np.array([3.0]), 1.0, 1e-6).tolist() == pytest.approx([3.0], abs=1e-4)


def test_coins_fall_with_their_probability():
    assert flip_coins(0.1, MILLION).mean() == pytest.approx(0.1, abs=0.002)
    assert flip_coins(1.0, 1000).all()
    again = [flip_coins(0.5, 100, np.random.default_rng(1)).tolist() for _ in range(2)]
    assert again[0] == again[1] != flip_coins(0.5, 100).tolist()


def test_a_generator_repeats_and_the_system_does_not():
    same = [discrete_gaussian(25.0, 100, np.random.default_rng(7)).tolist() for _ in range(2)]
    assert same[0] == same[1]
    assert discrete_gaussian(25.0, 100).tolist() != discrete_gaussian(25.0, 100).tolist()


def test_close_decisions_go_on_exactly():
    chance = partial(noise._exp, Fraction(1, 3))
    nearest = int(math.exp(-1 / 3) * 2**64)

    def never(count):
        raise AssertionError("more bits than needed")

    # Only the word that holds exp(-1/3) itself is in doubt; the next words then decide.
    decided = {}
    for word in range(nearest - 3000, nearest + 3000):
        try:
            decided[word] = noise._count_above(word, chance, never) == 1
        except AssertionError:
            decided[word] = None
    doubtful = [word for word, below in decided.items() if below is None]
    assert len(doubtful) == 1
    assert all(below is (word < doubtful[0]) for word, below in decided.items() if below is not None)
    ones, zeros = np.full(1, 2**64 - 1, np.uint64), np.zeros(1, np.uint64)
    assert noise._count_above(doubtful[0], chance, lambda count: zeros) == 1
    assert noise._count_above(doubtful[0], chance, lambda count: ones) == 0


def test_close_digits_go_on_exactly():
    rate = Fraction(1, 2)
    weights = [math.exp(-k * k / 2) for k in range(20)]
    for k in (1, 2, 3):
        chance = sum(weights[k:]) / sum(weights)
        near = [int(chance * 2**64) + far for far in (-(2**14), 2**14)]  # beyond the error of this float
        assert [noise._count_above(word, partial(noise._tails, rate), None) for word in near] == [k, k - 1]
    # Nothing but zeros: the number is below ever more chances, until a bit of it says where it is.
    zeros = iter([0] * 5)
    assert noise._count_above(0, partial(noise._tails, rate), lambda count: [next(zeros, 2**64 - 1)]) > 20
    assert noise._count_above(2**64 - 1, partial(noise._tails, rate), None) == 0


def test_close_decisions_are_taken_exactly_by_the_sampler(monkeypatch):
    # With a margin of one every decision is exact: the draws must be the same.
    quick = discrete_gaussian(Fraction(50, 7), 200, np.random.default_rng(3))
    monkeypatch.setattr(noise, "_MARGIN", 2.0)
    assert discrete_gaussian(Fraction(50, 7), 200, np.random.default_rng(3)).tolist() == quick.tolist()


def test_the_narrowest_noise_is_nearly_always_zero():
    assert not discrete_gaussian(Fraction(1, 1 << 20), 1000).any()


def test_uniform_integers_leave_the_uneven_end_out():
    words = np.array([2**64 - 1, 2**64 - 2, 5], np.uint64)
    # 2^64 = 1 mod 3: the last word would make 0 more likely.
    assert noise._uniform_below(3, 3, lambda count: words).tolist() == [2, 2]


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_senseless_sizes_are_refused(value):
    for call in (
        lambda: clip_l2(np.ones(2), value),
        lambda: add_noise(np.ones(2), value, 1.0),
        lambda: add_noise(np.ones(2), 1.0, value),
        lambda: discrete_gaussian(value, 2),
        lambda: integer_sensitivity(value, 1.0, 2),
        lambda: Release(value),
        lambda: sigma_for(value, 1e-5, 1),
        lambda: Accountant(value),
        lambda: sigma_for(1.0, value, 1),
        lambda: Release(1.0, sampling=value),
    ):
        with pytest.raises(ConfigError, match=str(value)):
            call()


def test_other_refusals_say_what_to_do():
    for bad in (math.nan, math.inf):
        with pytest.raises(DataError, match="NaN or infinite"):
            clip_l2(np.array([1.0, bad]), 1.0)
    for call, said in (
        (lambda: discrete_gaussian(2.0**81, 2), "2\\^80"),
        (lambda: discrete_gaussian(1e-300, 2), "from 2\\^-20"),
        (lambda: Accountant(1.0), "delta is 1.0"),
        (lambda: Accountant(1e-5).add(Release(1.0), 0), "rounds is 0"),
        (lambda: sigma_for(1.0, 1e-5, 0), "rounds is 0"),
        (lambda: Release(1.0, "gauss"), "did you mean 'gaussian'"),  # type: ignore[arg-type]
        (lambda: Release(1.0, sampling=1.5), "sampling is 1.5"),
        (lambda: sigma_for(1e-6, 1e-12, 1), "raise one of them"),
    ):
        with pytest.raises(ConfigError, match=said):
            call()


# -- accounting ---------------------------------------------------------------------------------------


def theirs(accountant, *events):
    for event, rounds in events:
        accountant.compose(event, rounds)
    return accountant.get_epsilon(1e-5)


def test_costs_are_those_of_dp_accounting():
    ours = Accountant(1e-5)
    assert ours.epsilon() == 0
    ours.add(Release(5.0), 7)
    ours.add(Release(5.0), 3)
    ours.add(Release(2.0, sampling=0.05), 20)
    expected = theirs(
        dp_accounting.pld.PLDAccountant(),
        (dp_accounting.GaussianDpEvent(5.0), 10),
        (dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(2.0)), 20),
    )
    assert ours.epsilon() == pytest.approx(expected, rel=1e-9)


def test_the_discrete_gaussian_costs_what_is_proven():
    ours = Accountant(1e-5)
    ours.add(Release(4.0, "discrete"), 10)
    rho = 10 / (2 * 4.0**2)
    concentrated = theirs(dp_accounting.rdp.RdpAccountant(ORDERS), (dp_accounting.ZCDpEvent(rho), 1))
    assert ours.epsilon() == pytest.approx(concentrated, rel=1e-9)
    ours.add(Release(1.5, "discrete", sampling=0.1), 5)
    expected = theirs(
        dp_accounting.rdp.RdpAccountant(ORDERS),
        (dp_accounting.GaussianDpEvent(4.0), 10),
        (dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.5)), 5),
    )
    assert ours.epsilon() == pytest.approx(expected, rel=1e-9)


def test_divergences_of_the_sampled_discrete_gaussian_are_bounded():
    # The claim behind the line above, by summing over the integers: shift 2, variance 2.25, q = 0.1.
    x = np.arange(-200, 201)
    plain, shifted = (-((x - shift) ** 2) / (2 * 2.25) for shift in (0, 2))
    plain, shifted = (values - np.logaddexp.reduce(values) for values in (plain, shifted))
    mixed = np.logaddexp(np.log(0.9) + plain, np.log(0.1) + shifted)
    accountant = dp_accounting.rdp.RdpAccountant(ORDERS[:30])
    event = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.5 / 2))
    bounds = accountant.compose(event).rdp
    for order, bound in zip(ORDERS[:30], bounds, strict=True):
        for one, two in ((mixed, plain), (plain, mixed)):
            divergence = np.logaddexp.reduce(order * one - (order - 1) * two) / (order - 1)
            assert divergence <= bound * (1 + 1e-9)


def test_an_accountant_goes_on_from_its_releases():
    spent = Accountant(1e-5)
    spent.add(Release(4.0, "discrete"), 10)
    assert Accountant(1e-5, dict(spent.releases)).epsilon() == spent.epsilon()


def test_costs_in_the_hundreds_are_bounds_found_at_once():
    spent = Accountant(1e-5)
    spent.add(Release(0.02), 50)
    assert 1e4 < spent.epsilon() < 1e6


def test_sigma_is_the_least_that_fits():
    sigma = sigma_for(2.0, 1e-5, 20)
    for factor, fits in ((1.0, True), (0.99, False)):
        spent = Accountant(1e-5)
        spent.add(Release(sigma * factor, "discrete"), 20)
        assert (spent.epsilon() <= 2.0) is fits


def test_a_missing_library_is_said_so(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "dp_accounting":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    spent = Accountant(1e-5)
    spent.add(Release(1.0))
    with pytest.raises(UnavailableError, match="pip install dp-accounting"):
        spent.epsilon()
