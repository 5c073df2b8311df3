"""Every protected sum is the sum: over any vectors, any clients, in any order, whoever vanishes."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tacit.core.errors import QuorumError
from tacit.core.shared import Total
from tacit.core.values import Blob
from tacit.protections.bfv import BFV
from tacit.protections.ckks import CKKS
from tacit.protections.keys.proved_totals import ProvedTotals
from tacit.protections.plain import Plain
from tacit.protections.ring import Ring
from tests.quick import examples, representatives

QUORUM = 0.5
BOUND = 7.5


def named(rows):
    return {f"client-{index + 1}": row for index, row in enumerate(rows)}


@st.composite
def federations(draw, most=10):
    """Vectors of some clients, with and without a bound, and who vanishes, down to the quorum."""
    clients = draw(st.integers(2, most))
    narrow = draw(npst.arrays(np.float64, (clients, draw(st.integers(0, 12))), elements=_floats(BOUND)))
    wide = draw(npst.arrays(np.float64, (clients, draw(st.integers(1, 5))), elements=_floats(1e12)))
    spare = min(clients - 2, int(clients * (1 - QUORUM)))
    lost = draw(st.sets(st.integers(0, clients - 1), max_size=spare))
    return narrow, wide, sorted(lost)


def _floats(bound):
    return st.one_of(st.floats(-bound, bound), st.sampled_from([0.0, -0.0, bound, -bound, 5e-324, 2.0**-60]))


def assert_sums(protection, total, narrow, wide):
    """As exact as promised: a share of bound × clients, or 2⁻⁶⁰ for what has no bound."""
    clients, rounding = len(narrow), np.finfo(float).eps
    assert total.contributors == clients
    allowed = (protection.promises.precision + clients * rounding) * BOUND * clients
    assert np.abs(total["narrow"] - narrow.sum(axis=0)).max(initial=0.0) <= allowed
    allowed = clients * (2.0**-60 + rounding * np.abs(wide).sum(axis=0))
    assert (np.abs(total["wide"] - wide.sum(axis=0)) <= allowed).all()


def summed_without(summed, protection, narrow, wide, lost):
    rows = named([{"narrow": one, "wide": two} for one, two in zip(narrow, wide, strict=True)])
    names = tuple(f"client-{index + 1}" for index in lost)
    total = summed(protection, rows, bound={"narrow": BOUND, "wide": None}, lost=names, quorum=QUORUM)
    left = np.setdiff1d(np.arange(len(rows)), lost)
    assert_sums(protection, total, narrow[left], wide[left])


@given(drawn=federations())
@settings(max_examples=examples(12), deadline=None)
def test_the_sum_is_that_of_the_clients_that_are_left(protection, summed, drawn):
    summed_without(summed, protection, *drawn)


@pytest.mark.parametrize("clients", representatives([2, 12, 200], 2, 12))
def test_from_two_to_two_hundred_clients(protection, summed, clients):
    rng = np.random.default_rng(clients)
    if protection.name == "shares" and clients > 12:
        clients = 30  # everybody to everybody
    if protection.name == "masked" and clients > 12:
        clients = 80  # no longer everybody with everybody
    narrow, wide = rng.uniform(-BOUND, BOUND, (clients, 5)), rng.normal(size=(clients, 2)) * 1e6
    lost = rng.choice(clients, size=clients // 10, replace=False)
    summed_without(summed, protection, narrow, wide, lost)


@given(lost=st.dictionaries(st.integers(1, 10), st.integers(1, 4), max_size=5))
@settings(max_examples=examples(15), deadline=None)
def test_a_ring_re_forms_whichever_hop_vanishes_in_whichever_lap(scene_of, lost):
    rows = named(np.random.default_rng(len(lost)).uniform(-1, 1, (10, 4)))
    scene = scene_of(Ring(key_bits=2048), rows, quorum=QUORUM).begin()
    asked = dict.fromkeys(rows, 0)
    gone = {f"client-{index}": lap for index, lap in lost.items()}

    def lose(step, party):
        asked[party] += 1
        return asked[party] >= gone.get(party, 99)

    scene.tap.lose = lose
    # Who begins the ring and vanishes later takes the sum with it: nobody else may hand over a total.
    closer = next(name for name in rows if gone.get(name, 99) > 1)
    try:
        names = scene.round()
    except QuorumError as error:
        assert f"{closer} began the ring" in str(error)
        assert closer in gone and asked[closer] >= gone[closer]
        return
    assert set(names) == {name for name in rows if asked[name] < gone.get(name, 99)}
    error = scene.coordinator.shared["vector"] - np.sum([rows[name] for name in names], axis=0)
    assert np.abs(error).max() <= len(names) * 2.0**-31


@pytest.mark.parametrize("chosen", ["bounded", "wide"])
@given(values=st.data())
@settings(max_examples=examples(10), deadline=None)
def test_order_makes_no_difference_to_the_last_bit(protection, summed, chosen, values):
    """Where sums are exact; plain floats and CKKS round."""
    bound = BOUND if chosen == "bounded" else None
    rows = values.draw(npst.arrays(np.float64, (4, 3), elements=_floats(bound or 1e12)))
    order = values.draw(st.permutations(range(4)))
    one = summed(protection, named(rows), bound=bound)["vector"]
    other = summed(protection, named(rows[order]), bound=bound)["vector"]
    if protection.name not in ("plain", "ckks"):
        assert one.tobytes() == other.tobytes()
    else:
        spread = 4 * protection.promises.precision * (bound or 2.0**-60)
        assert (np.abs(one - other) <= 2 * spread + 4 * 2.0**-52 * np.abs(rows).sum(axis=0)).all()


@given(rows=npst.arrays(np.float64, (5, 4), elements=st.floats(-1e9, 1e9)))
@settings(max_examples=examples(25), deadline=None)
def test_the_plain_sum_is_that_of_numpy_to_the_last_bit(summed, rows):
    total = np.zeros(rows.shape[1])
    for row in rows:
        total += row
    for place in ("coordinator", "clients"):
        assert summed(Plain(opens=place), named(rows))["vector"].tobytes() == total.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("protection", [BFV(), CKKS()], ids=str)
def test_encryption_keeps_its_promise_with_twenty_thousand_summands(scene_of, protection):
    """Two thousand vectors, each added ten times: more noise than as many clients would bring."""
    rng = np.random.default_rng(1)
    bounds = {"narrow": BOUND, "wide": None}
    narrow, wide = rng.uniform(-BOUND, BOUND, (2000, 40)), rng.normal(size=(2000, 40)) * 1e6
    rows = named([{"narrow": one, "wide": two} for one, two in zip(narrow[:3], wide[:3], strict=True)])
    scene = scene_of(protection, rows, bound=bounds).begin()
    layout, client = scene.components.method._layout(None), protection.at_client(scene.site("client-1"))
    cipher = client.key.cached("cipher", protection.cipher)
    slots, adder = protection.slots(layout, 20_000), None
    for one, two in zip(narrow, wide, strict=True):
        blob = slots.encrypt(cipher, slots.encode(np.concatenate([one, two])))
        adder = adder or protection.adder(cipher.key_id, blob)
        for _ in range(10):
            adder.add(blob)
    with mock.patch.object(ProvedTotals, "check"):  # it is about digits here, not about who contributed
        vector = client.open({"cipher": Blob("cipher", adder.total())}, layout)
    total = Total(layout.unpack(vector), 20_000)
    assert_sums(protection, total, narrow.repeat(10, axis=0), wide.repeat(10, axis=0))
