"""What a client remembers of the totals that it opened."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.core.claims import Claim
from tacit.core.differencing import ROWS, subjects_of
from tacit.core.errors import DifferencingError
from tacit.core.own_record import OPENED, check_own, remember_own
from tacit.core.party import Party
from tacit.core.secret import Secret

LEAST = 3


@pytest.fixture
def party():
    return Party("client-1", dict, Secret(bytes(32)))


def claim(inside, roll="abcdefgh"):
    counts = np.array([name in inside for name in roll], np.uint64)
    return Claim("method.terms", 1, list(roll), counts, (roll, inside))


def test_nobody_or_enough_differ_from_what_was_opened_here(party):
    remember_own(party, ROWS, claim("abcdefg"))
    check_own(party, "terms", ROWS, claim("abcdefg"), LEAST)
    check_own(party, "terms", ROWS, claim("abcd"), LEAST)
    with pytest.raises(DifferencingError, match=r"terms: .* by 1 client .*\(missing: g\)"):
        check_own(party, "terms", ROWS, claim("abcdef"), LEAST)
    check_own(party, "terms", ROWS, claim("abcdef"), 1)


def test_the_roll_may_have_grown_since(party):
    remember_own(party, ROWS, claim("abc", "abcdefgh"))
    longer = "abcdefghijklmnopqrstuvwxyz"
    check_own(party, "terms", ROWS, claim("abc", longer), LEAST)
    with pytest.raises(DifferencingError, match=r"\(new: z\)"):
        check_own(party, "terms", ROWS, claim("abcz", longer), LEAST)


def test_sums_and_differences_of_several(party):
    for inside in ("abc", "abcdef"):
        remember_own(party, ROWS, claim(inside))
    with pytest.raises(DifferencingError, match="would show g"):
        check_own(party, "terms", ROWS, claim("defg"), LEAST)


def test_what_followed_from_other_values_is_forgotten_and_a_total_is_kept_once(party):
    remember_own(party, ROWS, claim("abcdefg"))
    remember_own(party, ROWS, claim("abcdefg"))
    for state in ("1", "2"):
        remember_own(party, subjects_of(None, "update", state), claim("abcdefg"))
    check_own(party, "update", subjects_of(None, "update", "1"), claim("abcdef"), LEAST)
    with pytest.raises(DifferencingError, match="update: "):
        check_own(party, "update", subjects_of(None, "update", "2"), claim("abcdef"), LEAST)
    assert sum(name.startswith(OPENED) for name in party.state) == 2
