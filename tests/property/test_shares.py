"""Sums by secret sharing: exact over those whose shares arrived, whoever vanishes when; or nothing at all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tacit.core.errors import FederationError, OpeningError
from tacit.crypto.field import PRIME
from tacit.crypto.fixedpoint import FixedPoint
from tacit.protections.secret_sharing.committee import Committee
from tacit.protections.secret_sharing.share_round import ShareRound, recover_total
from tacit.protections.secret_sharing.shares import Shares
from tacit.protections.secret_sharing.wire import OVERHEAD, words_from_bytes
from tests.quick import examples

SCHEMES = ("shamir", "additive")
PLACES = ("clients", "coordinator")
VARIANTS = [kind(scheme=s, opens=o) for kind in (Shares, Committee) for s in SCHEMES for o in PLACES]
CLIENTS = tuple(f"client-{index}" for index in range(1, 7))
STEPS = ("client.contribute", "protection.hold", "protection.reveal")

silent = st.fixed_dictionaries({step: st.sets(st.sampled_from(CLIENTS), max_size=5) for step in STEPS})


def ids(protection):
    return f"{protection.name}-{protection.scheme}-{protection.opens}"


def exact(rows, names):
    code = FixedPoint(np.ones(3), 32, len(rows))
    return code.decode(np.sum([code.encode(rows[name]) for name in names], axis=0)).tolist()


@pytest.mark.parametrize("protection", VARIANTS, ids=ids)
@given(silent=silent)
@settings(max_examples=examples(25), deadline=None)
def test_whoever_vanishes_at_whatever_step(protection, scene_of, silent):
    rows = dict(zip(CLIENTS, np.random.default_rng(1).uniform(-1, 1, (6, 3)), strict=True))
    scene = scene_of(protection, rows, quorum=0.3, min_clients=2)
    scene.begin()
    scene.tap.lose = lambda step, party: party in silent.get(step, ())
    dealt = [name for name in CLIENTS if name not in silent["client.contribute"]]
    held = [name for name in dealt if name not in silent["protection.hold"]]
    try:
        total = scene.coordinator.reveal(scene.components.method.vector)
    except (FederationError, OpeningError):
        # Nothing was opened that could have been, and nobody has what it takes to open it.
        assert all(told < 3 - (protection.scheme == "shamir") for told in partials(scene, protection))
        if protection.name == "shares" and len(dealt) >= 2:
            holders = len(CLIENTS) if len(dealt) >= protection.min_holders(6) else len(dealt)
            assert len(held) < protection.min_holders(holders)
        return
    names = dealt
    if protection.name == "committee":
        # With a new committee, those are left out as well that vanished from the old one.
        names = [reply.party for step, reply in laps(scene)[-1] if step == "client.contribute"]
    assert set(names) <= set(dealt)
    assert total.contributors == len(names)
    assert total["vector"].tolist() == exact(rows, names)


def laps(scene):
    """Replies since each election."""
    found = [[]]
    for step, reply in scene.tap.replies:
        if step == "protection.reveal" and found[-1] and found[-1][-1][0] != step:
            found.append([])
        found[-1].append((step, reply))
    return found


def partials(scene, protection):
    if protection.name == "shares":
        return []
    return [sum("partial" in reply.message for _, reply in lap) for lap in laps(scene)]


@pytest.mark.parametrize("scheme", SCHEMES)
@given(
    vectors=st.tuples(st.integers(1, 5), st.integers(0, 9)).flatmap(
        lambda shape: npst.arrays(np.int64, shape, elements=st.integers(-(2**50), 2**50))
    ),
    holders=st.integers(2, 7),
    data=st.data(),
)
@settings(max_examples=examples(60), deadline=None)
def test_shares_of_any_dealers_add_up(scheme, vectors, holders, data):
    names = tuple(f"client-{index}" for index in range(holders))
    threshold = data.draw(st.integers(holders // 2 + 1, holders)) if scheme == "shamir" else holders
    share_round = ShareRound(scheme, 1, 1, names, threshold)
    dealers = [f"client-{index + data.draw(st.integers(0, 3))}" for index in range(len(vectors))]
    tags = data.draw(st.lists(st.integers(0, PRIME - 1), min_size=len(vectors), max_size=len(vectors)))
    cut = [share_round.cut(*each) for each in zip(dealers, vectors, tags, strict=True)]
    for dealer, pieces in zip(dealers, cut, strict=True):
        assert [len(piece) + OVERHEAD for piece in pieces] == [
            share_round.sealed_size(dealer, index, vectors.shape[1] + 1) for index in range(holders)
        ]
    chosen = data.draw(st.permutations(range(holders)))[: data.draw(st.integers(threshold, holders))]
    rows = [
        share_round.add(
            index, np.zeros(vectors.shape[1] + 1, np.uint64), dealers, [pieces[index] for pieces in cut]
        )
        for index in chosen
    ]
    found, tag = recover_total(scheme, [index + 1 for index in chosen], rows, threshold)
    assert found.tolist() == vectors.sum(axis=0).tolist()
    assert tag == sum(tags) % PRIME


@given(vector=npst.arrays(np.int64, 4, elements=st.integers(-(2**40), 2**40)), wrong=st.integers(0, 4))
@settings(max_examples=examples(40), deadline=None)
def test_a_wrong_partial_sum_is_noticed_if_there_is_one_to_spare(vector, wrong):
    share_round = ShareRound("shamir", 1, 1, tuple("abcde"), 4)
    rows = [words_from_bytes(piece) for piece in share_round.cut("a", vector, 5)]
    rows[wrong] = rows[wrong] ^ np.array([0, 0, 0, 1, 0], np.uint64)
    with pytest.raises(Exception, match="does not fit"):
        recover_total("shamir", [1, 2, 3, 4, 5], rows, 4)
