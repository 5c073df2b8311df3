"""Shares: exact, uniform, silent below the threshold, and refused where they do not belong together."""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np
import pytest

from tacit.core.errors import ConfigError, DataError, ProtectionError
from tacit.core.secret import Secret
from tacit.crypto import field, sharing
from tacit.crypto.field import PRIME, from_field, multiply, to_field
from tacit.crypto.masking import expand
from tacit.crypto.sharing import add_shares, share_rows
from tacit.protections.masked.wire import key_of, recover_secret
from tacit.protections.secret_sharing.share_round import ShareRound
from tacit.protections.secret_sharing.wire import words_from_bytes
from tests.helpers.shares import Share, recover_vector, share_vector

DRAWS = 200_000
BINS = 64
# Chi-square of 63 degrees of freedom: beyond 150 once in 10^8 runs.
LIMIT = 150.0


def chi_square(values: np.ndarray, top: int) -> float:
    counts = np.bincount((values // np.uint64(-(-top // BINS))).astype(np.int64), minlength=BINS)
    expected = len(values) / BINS
    return float(((counts - expected) ** 2 / expected).sum())


def vector(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def test_a_million_products_are_exact():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, PRIME, (2, 1_000_000), dtype=np.uint64)
    product = multiply(a, b)
    assert product.max() < PRIME
    for index in range(0, len(a), 997):
        assert int(product[index]) == int(a[index]) * int(b[index]) % PRIME


@pytest.mark.parametrize("terms", [1, 511, 512, 1300])
def test_matrix_products_are_exact_at_the_largest_values(terms):
    rng = np.random.default_rng(terms)
    left = np.concatenate([np.full((1, terms), PRIME - 1), rng.integers(0, PRIME, (2, terms))]).astype(
        np.uint64
    )
    right = np.concatenate([np.full((terms, 1), PRIME - 1), rng.integers(0, PRIME, (terms, 2))], axis=1)
    exact = left.astype(object) @ right.astype(object) % PRIME
    assert field.product(field.digits_of(left), right.astype(np.uint64)).tolist() == exact.tolist()


def test_every_choice_of_t_holders_recovers():
    secret = vector(0, 1, PRIME - 1, 12345)
    shares = share_vector(secret, 6, 3)
    for chosen in combinations(shares, 3):
        assert recover_vector(chosen, 3).tolist() == secret.tolist()


def test_shares_equal_the_polynomial_in_whole_numbers(monkeypatch):
    higher = vector(7, 11, 5, PRIME - 1)  # two rows of coefficients: the lowest power first
    monkeypatch.setattr(field, "random_elements", lambda count: higher[:count])
    shares = share_vector(vector(3, PRIME - 2), 1000, 3)
    for share in shares[::111]:
        x = share.point
        assert share.values.tolist() == [
            (3 + 7 * x + 5 * x * x) % PRIME,
            (PRIME - 2 + 11 * x + (PRIME - 1) * x * x) % PRIME,
        ]


@pytest.mark.parametrize("secret", [0, PRIME - 1])
def test_fewer_than_t_shares_look_the_same_for_any_secret(secret):
    shares = share_vector(np.full(DRAWS, secret, np.uint64), 5, 3)
    for share in shares:
        assert chi_square(share.values, PRIME) < LIMIT
    # Two together: a sum and a difference would show what each alone hides.
    one, two = shares[1].values, shares[4].values
    for joined in (one + two, one + (PRIME - two), multiply(one, np.full(DRAWS, 3, np.uint64)) + two):
        assert chi_square(joined % np.uint64(PRIME), PRIME) < LIMIT


def test_two_shares_of_three_fit_every_candidate_secret():
    shares = share_vector(vector(42), 5, 3)[:2]
    seen = [(share.point, int(share.values[0])) for share in shares]
    for candidate in (0, 1, 42, PRIME - 1):
        # The only parabola through the candidate and both shares: it exists, so nothing is excluded.
        others = [Share(point, vector(value)) for point, value in seen]
        third = sharing.interpolate(
            np.stack([vector(candidate), *(share.values for share in others)]), (0, *dict(seen)), 5
        )
        assert recover_vector([*others, Share(5, third)], 3).tolist() == [candidate]


def test_additive_shares_are_uniform_whatever_is_shared():
    holders = ("ann", "bob", "eve")
    pieces = ShareRound("additive", 1, 1, holders, 3).cut("ann", np.zeros(DRAWS, np.int64), 0)
    assert [len(piece) for piece in pieces] == [8 * DRAWS + 8, 32, 32]
    seeded = [expand(Secret(piece), DRAWS) for piece in pieces[1:]]
    for row in (words_from_bytes(pieces[0])[:-1], *seeded):
        assert chi_square(row, 1 << 64) < LIMIT
        assert chi_square(row << np.uint64(58), 1 << 64) < LIMIT  # the lowest bits as well


def test_coefficients_are_drawn_again_at_the_prime_and_not_folded(monkeypatch):
    draws = iter([vector(2**64 - 1, 80), vector(2**64 - 5), vector(24)])
    monkeypatch.setattr(field, "expand", lambda seed, count: next(draws))
    assert field.random_elements(2).tolist() == [3, 10]


def test_surplus_shares_are_checked():
    shares = share_vector(vector(8), 5, 2)
    assert recover_vector(shares, 2).tolist() == [8]
    shares[4] = Share(5, vector(1))
    with pytest.raises(ProtectionError, match="point 5 does not fit"):
        recover_vector(shares, 2)


def test_the_sum_of_very_many_dealers_does_not_overflow():
    rows = [np.full(3, PRIME - 1, np.uint64)] * 5000
    assert add_shares(rows).tolist() == [(PRIME - 1) * 5000 % PRIME] * 3


def test_signed_values_keep_their_sign_at_the_edges():
    edges = np.array([-(2**60) + 1, -1, 0, 1, 2**60 - 1])
    assert from_field(to_field(edges)).tolist() == edges.tolist()
    for beyond in (2**60, -(2**60)):
        with pytest.raises(DataError, match="60 bits"):
            to_field(np.array([beyond]))


def test_a_million_values_take_a_moment():
    values = np.random.default_rng(0).integers(0, PRIME, 1_000_000, dtype=np.uint64)
    started = time.process_time()
    recovered = recover_vector(share_vector(values, 5, 3)[2:], 3)
    assert time.process_time() - started < 2.0  # 0.13 s on a quiet machine
    assert np.array_equal(recovered, values)


@pytest.mark.parametrize(
    ("parties", "threshold", "said"),
    [
        (3, 4, "threshold is 4"),
        (3, 0, "threshold is 0"),
        (0, 1, "0 parties"),
        (PRIME, 2, "parties: shares are for 1 to"),
    ],
)
def test_impossible_thresholds_are_refused(parties, threshold, said):
    with pytest.raises(ConfigError, match=said):
        share_vector(vector(1), parties, threshold)


def test_what_is_no_field_element_is_refused():
    with pytest.raises(DataError, match="not below"):
        share_vector(vector(PRIME), 3, 2)
    with pytest.raises(DataError, match="int64"):
        share_vector(np.array([1]), 3, 2)


def test_shares_that_do_not_belong_together_are_refused():
    shares = share_vector(vector(1, 2), 4, 3)
    other = share_vector(vector(1), 4, 3)
    cases = {
        "2 shares, 3 are needed": shares[:2],
        "two shares of one point": [*shares[:2], shares[0]],
        "different lengths": [*shares[:2], other[2]],
    }
    for said, given in cases.items():
        with pytest.raises(ProtectionError, match=said):
            recover_vector(given, 3)
    with pytest.raises(ConfigError, match="threshold is 0"):
        recover_vector(shares, 0)
    with pytest.raises(ProtectionError, match="not from 1 to"):
        recover_vector([Share(0, vector(1))], 1)
    for given in ([shares[0].values, other[0].values], []):
        with pytest.raises(ProtectionError, match="different lengths"):
            add_shares(given)


def test_too_low_a_threshold_gives_no_seed_but_an_error():
    drawn = field.random_elements(3)
    rows = share_rows(drawn, 5, 3)
    for chosen in map(list, combinations(range(5), 2)):
        with pytest.raises(ProtectionError, match="do not give"):
            recover_secret(np.array(chosen) + 1, rows[chosen], 2, key_of(drawn).__eq__, "ann")
    assert recover_secret(np.arange(1, 6), rows, 3, key_of(drawn).__eq__, "ann") == key_of(drawn)
