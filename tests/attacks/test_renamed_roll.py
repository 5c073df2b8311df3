"""Another list of names for the same places: who was in the totals that a client opened before?

A total has one bit for each name on a list that clients are told. A client which keeps those bits and is told
another list compares the next total with clients that were never in the first.
"""

import numpy as np
import pytest

from tacit.core import own_record
from tacit.core.claims import Roll
from tacit.protections.ckks import CKKS


def renamed(attack, names):
    """A list on which nobody stands where it stood, and the bits of these names on it."""
    roll = Roll()
    roll.mark([f"client-0{i}" for i in range(len(attack.rows))])  # before all others
    return {"in_total": roll.mark(names), "contributors": len(names), **roll.write()}


@pytest.fixture
def attack(malicious):
    return malicious(CKKS())


def disclose_two(attack):
    """A total over five, and one of the same rows over four of them: both, or why the second is refused."""
    whole, _ = attack.gathered("scores")
    first = attack.disclosed(whole)
    again, sent = attack.gathered("scores")
    four = [name for name in attack.rows if name != "client-5"]
    less = {**again, **attack.added(*(sent[name] for name in four)), **renamed(attack, four)}
    return first, attack.disclosed(less)


def test_control_places_on_the_list(attack, monkeypatch):
    """The difference is the row of whoever is missing."""
    monkeypatch.setattr(own_record, "_names", lambda party, claim: places_of(claim))
    monkeypatch.setattr(own_record, "_read", lambda _, places: frozenset(places))
    first, second = disclose_two(attack)
    np.testing.assert_allclose(first - second, attack.rows["client-5"] / 2, atol=1e-8)


def places_of(claim):
    return bytes(place for place, count in enumerate(claim.counts) if count)


def test_names_are_the_same_on_any_list(attack):
    assert "would differ by 1 client from one that was opened" in disclose_two(attack)[1]
