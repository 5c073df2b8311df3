"""Parts of boosted trees: buckets, derivatives, histograms and splits, each beside a plain reference."""

from itertools import combinations

import numpy as np
import pytest

from tacit.core.errors import DataError
from tacit.crypto.fixedpoint import FixedPoint
from tacit.data.schema import Schema
from tacit.data.table import Column
from tacit.methods.boosting import cuts, histograms, losses
from tacit.methods.boosting.cuts import Buckets
from tacit.methods.boosting.splits import Rules, find_splits
from tacit.methods.federboost import FederBoost


def find_cuts(values, buckets, least=1, clients=3):
    """Cuts of one column whose values are divided among clients."""
    state = cuts.begin(1, buckets - 1)
    parts = [cuts.images(part.astype(np.float32)) for part in np.array_split(values, clients)]
    for _ in range(cuts.SUMS):
        counts = sum(cuts.count([part], state, least) for part in parts)
        state = cuts.narrow(state, counts, least)
    found = cuts.finish(state, least)[0]
    return found[found < cuts.LARGEST]


class TestCuts:
    @pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
    def test_they_are_quantiles_whatever_the_unit(self, scale):
        values = np.random.default_rng(0).standard_t(1, 5000) * scale  # heavy tails, both signs
        found = find_cuts(values, 17)
        shares = np.searchsorted(np.sort(values.astype(np.float32)), found) / 5000
        assert np.allclose(shares, np.arange(1, 16) / 16, atol=1e-3)

    def test_a_discrete_column_has_a_bucket_for_each_value(self):
        values = np.repeat([-2.5, 0.0, 1.0, 7.0, 1e6], [3, 1000, 1, 5, 20])
        assert find_cuts(values, 6).tolist() == [0.0, 1.0, 7.0, 1e6]

    def test_a_value_that_most_rows_have_takes_one_bucket_and_leaves_the_rest_to_others(self):
        values = np.append(np.zeros(900), np.random.default_rng(0).normal(10, 1, 100))
        found = find_cuts(values, 21)
        assert (found > 0).all()
        assert len(found) >= 17
        sizes = np.bincount(np.searchsorted(found, values, side="right"))
        assert sizes[0] == 900
        assert sizes[1:].max() <= 20

    @pytest.mark.parametrize("values", [np.full(50, 3.0), np.zeros(0), np.full(50, np.nan)])
    def test_constants_and_columns_without_values_have_none(self, values):
        assert len(find_cuts(values, 32)) == 0

    def test_a_hundred_values_in_two_buckets_are_cut_in_the_middle(self):
        assert find_cuts(np.arange(100.0), 3).tolist() == [50.0]

    def test_no_bucket_has_fewer_rows_than_the_least_count(self):
        values = np.repeat([0.0, 1.0, 2.0, 3.0, 4.0], [20, 3, 30, 4, 2])
        found = find_cuts(values, 32, least=5)
        sizes = np.bincount(np.searchsorted(found, values, side="right"))
        assert sizes.tolist() == [20, 33, 6]

    def test_with_a_least_count_no_single_value_is_looked_for(self):
        """A column of different values: each cut is the beginning of an interval, and nobody's value."""
        values = np.random.default_rng(0).normal(size=500)
        found = find_cuts(values, 17, least=5)
        assert len(found) == 15
        assert not np.isin(found, values.astype(np.float32)).any()

    def test_minus_zero_is_zero(self):
        assert len(find_cuts(np.array([0.0, -0.0] * 20), 8)) == 0


def schema_of(*columns):
    return Schema(tuple(columns), "regression", (), ("y",))


NUMBERS = Column("n")
WORDS = Column("w", "category", categories=("a", "b", "c", "d"))


def test_missing_values_have_the_first_bucket():
    buckets = Buckets(schema_of(NUMBERS, WORDS), 4, np.array([[1.0, np.inf]], dtype=np.float32))
    X = np.array([[np.nan, 3], [0.5, np.nan], [1.0, 0], [9.0, 1]], dtype=np.float32)
    found = buckets.fill(X)
    assert found.tolist() == [[0, 4], [1, 0], [2, 1], [2, 2]]
    assert buckets.offsets.tolist() == [0, 3, 8]  # one bucket of numbers is left over
    assert Buckets(buckets.schema, 4).offsets.tolist() == [0, 4, 9]


class TestLosses:
    @pytest.mark.parametrize("loss", ["logistic", "softmax", "squared", "poisson"])
    def test_derivatives_are_those_of_the_loss(self, loss):
        rng = np.random.default_rng(0)
        outputs = 1 if loss in ("logistic",) else 3
        margins = rng.normal(size=(outputs, 8))
        truth = (
            rng.integers(0, max(2, outputs), 8)
            if loss in ("logistic", "softmax")
            else rng.poisson(2.0, (8, outputs))
        )

        def value(m):
            if loss == "logistic":
                return np.log1p(np.exp(m[0])) - truth * m[0]
            if loss == "softmax":
                return np.log(np.exp(m).sum(axis=0)) - m[truth, np.arange(8)]
            return (m - truth.T) ** 2 / 2 if loss == "squared" else np.exp(m) - truth.T * m

        first, second = losses.derive(loss, margins, truth)
        for output in range(outputs):
            step = np.zeros((outputs, 1))
            step[output] = 1e-4
            up, here, down = (np.atleast_2d(value(margins + sign * step)) for sign in (1, 0, -1))
            row = output if len(here) > 1 else 0
            assert np.allclose(first[output], ((up - down) / 2e-4)[row], atol=1e-6)
            twice = 2 if loss == "softmax" else 1
            assert np.allclose(second[output], twice * ((up + down - 2 * here) / 1e-8)[row], atol=1e-5)

    def test_packed_sums_come_apart_again(self):
        rng = np.random.default_rng(0)
        g, h = rng.normal(size=(1, 1000)), rng.random((1, 1000))
        units = np.array([[2.0**18, 2.0**20]])
        found = losses.unpack(losses.pack(g, h, units).sum(axis=1))
        assert found[0].tolist() == [np.rint(g * 2**18).sum(), np.rint(h * 2**20).sum()]

    def test_derivatives_that_outgrow_their_sums_are_refused(self):
        with pytest.raises(DataError, match="training runs away, lower the rate"):
            losses.pack(np.full((1, 3), 1.0), np.full((1, 3), 1.0), np.array([[2.0**30, 1.0]]))

    @pytest.mark.parametrize(("task", "classes"), [("regression", ()), ("classification", (0, 1))])
    def test_totals_that_may_outgrow_a_word_get_more_bits(self, task, classes):
        """Two clients' sums may each fit and their total not, unless derivatives have a bound."""
        schema = Schema((Column("a", "number"),), task, classes, ("y",))
        layout = FederBoost(buckets=2).histogram_layout(schema)
        code = FixedPoint.of(layout, 32, 2, tight=True)
        assert code.guard_bits == (task == "regression")
        if task == "regression":
            large = np.full(layout.size, 0.9 * losses.WHOLE)
            assert np.allclose(code.decode(2 * code.encode(large)), 1.8 * losses.WHOLE)


def test_compiled_loops_give_what_numpy_gives():
    numba = pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    bins = rng.integers(0, 8, (500, 3)).astype(np.uint8)
    packed = losses.pack(rng.normal(size=(1, 500)), rng.random((1, 500)), np.array([[2.0**10] * 2]))[0]
    nodes = (
        np.array([1, -1, 2, -1, -1], np.int32),
        np.array([1, -1, 3, -1, -1], np.int32),
        rng.integers(0, 2, (5, 8)).astype(np.uint8),
    )
    found = []
    for step in (histograms.add_rows, numba.njit(histograms._loop)):
        at, sums = np.zeros(500, np.int32), np.zeros((2, 16), np.int64)
        for _ in range(2):
            slots = np.array([-1, 0, -1, 1, -1], np.int32)
            step(bins, bins[:, [0, 2]].copy(), np.array([0, 8]), at, packed, nodes, slots, sums)
        found.append((at, sums))
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])
    assert np.unique(found[0][0]).tolist() == [1, 3, 4]


def brute_force(sums, buckets, lam, least):
    """The largest gain over all thresholds, all sets of categories, and both sides for missing values."""

    def score(s):
        return s[0] ** 2 / (s[1] + lam)

    best, whole = -np.inf, sums[: buckets.widths[0]].sum(axis=0)
    for column, (first, width) in enumerate(zip(buckets.offsets[:-1], buckets.widths, strict=True)):
        places = range(1, width)
        if column in buckets.numbers:
            chosen = [range(1, end + 1) for end in places]
        else:
            chosen = [part for size in places for part in combinations(places, size)]
        for part in chosen:
            for gap in ([0], []):
                left = sums[[first + place for place in (*gap, *part)]].sum(axis=0)
                right = whole - left
                if min(left[1], right[1]) >= least:
                    best = max(best, score(left) + score(right) - score(whole))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_splits_are_the_best_there_are(seed):
    rng = np.random.default_rng(seed)
    buckets = Buckets(schema_of(NUMBERS, WORDS, Column("m")), 6, np.ones((2, 4), dtype=np.float32))
    sums = np.zeros((5, int(buckets.offsets[-1]), 2))
    for node in sums:
        for _ in range(40):  # rows
            g, h = rng.normal(), rng.random()
            for first, width in zip(buckets.offsets[:-1], buckets.widths, strict=True):
                node[first + rng.integers(width)] += g, h
    rules = Rules(0.0, 0.0, 1.0, 0.0, 1.0, np.inf, np.zeros(3, dtype=np.int64))
    bounds = np.tile([-np.inf, np.inf], (5, 1))
    found = find_splits(sums, bounds, buckets, rules)
    expected = [brute_force(node, buckets, 0.0, 1.0) for node in sums]
    assert found.gain == pytest.approx(expected, rel=1e-9)
    for node, split in enumerate(found.feature):
        first, width = buckets.offsets[split], buckets.widths[split]
        own = sums[node, first : first + width]
        goes_left = found.right[node, :width] == 0
        assert own[goes_left].sum(axis=0) == pytest.approx(found.left_sums[node])
        assert found.default_left[node] == goes_left[0]


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_sums_of_too_few_rows_never_suffice_and_those_of_sure_or_wrong_rows_do(loss, weight):
    rng, count = np.random.default_rng(0), 5
    rules = Rules(0.0, 0.0, 0.0, weight * (count - 1), losses.HIGHEST[loss], np.inf, np.zeros(1))
    margins = rng.normal(
        scale=4.0, size=(20_000, count - 1)
    )  # rows of the class 1 or 0: sure, doubtful or wrong
    truth = rng.integers(0, 2, margins.shape) * rng.integers(0, 2, (20_000, 1))  # some sets of one class only

    def derive(margins, truth):
        first, second = losses.derive("logistic", margins, truth)
        scale = losses.HIGHEST[loss] / 0.25
        return weight * first, weight * np.maximum(scale * second, losses.FLOOR)

    first, second = derive(margins, truth)
    assert not rules.suffice(first.sum(axis=1), second.sum(axis=1)).any()
    wrong = derive(np.full((1, count), 9.0), 0)  # as many as there must be
    assert rules.suffice(wrong[0].sum(axis=1), wrong[1].sum(axis=1)).all()
    sure = derive(np.full((1, 150), 9.0), 1)
    assert rules.suffice(sure[0].sum(axis=1), sure[1].sum(axis=1)).all()


def test_no_split_where_a_side_is_too_light():
    buckets = Buckets(schema_of(NUMBERS), 3, np.ones((1, 1), dtype=np.float32))
    sums = np.array([[[0.0, 0.0], [5.0, 0.9], [-5.0, 9.0]]])
    rules = Rules(1.0, 0.0, 1.0, 0.0, 1.0, np.inf, np.zeros(1, dtype=np.int64))
    found = find_splits(sums, np.array([[-np.inf, np.inf]]), buckets, rules)
    assert found.gain[0] == -np.inf
