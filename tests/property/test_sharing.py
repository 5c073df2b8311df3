"""Sharing holds for whatever values, parties and thresholds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tacit.crypto.field import PRIME, from_field, multiply, to_field
from tacit.crypto.sharing import add_shares
from tacit.protections.secret_sharing.share_round import ShareRound, recover_total
from tests.helpers.shares import Share, recover_vector, share_vector

elements = st.integers(0, PRIME - 1)
edges = st.sampled_from([0, 1, 2, 2**29, 2**32 - 1, 2**32, 2**60, PRIME - 2, PRIME - 1])


@given(st.lists(st.tuples(elements | edges, elements | edges), min_size=1, max_size=50))
def test_products_are_those_of_whole_numbers(pairs):
    a, b = (np.array(side, np.uint64) for side in zip(*pairs, strict=True))
    assert multiply(a, b).tolist() == [x * y % PRIME for x, y in pairs]


@given(st.data(), st.lists(elements | edges, max_size=20), st.integers(1, 12))
def test_any_threshold_of_shares_recovers(data, values, parties):
    threshold = data.draw(st.integers(1, parties))
    vector = np.array(values, np.uint64)
    shares = share_vector(vector, parties, threshold)
    chosen = data.draw(st.permutations(shares))[: data.draw(st.integers(threshold, parties))]
    assert recover_vector(chosen, threshold).tolist() == values


signed = st.integers(-(2**50), 2**50)


@given(st.data(), st.integers(1, 8), st.integers(1, 5), st.integers(1, 4))
def test_shares_of_several_dealers_add_up(data, parties, dealers, length):
    threshold = data.draw(st.integers(1, parties))
    rows = st.lists(signed, min_size=length, max_size=length)
    vectors = np.array(data.draw(st.lists(rows, min_size=dealers, max_size=dealers)))
    dealt = [share_vector(to_field(vector), parties, threshold) for vector in vectors]
    held = [
        Share(own[0].point, add_shares([share.values for share in own])) for own in zip(*dealt, strict=True)
    ]
    total = from_field(recover_vector(held[-threshold:], threshold))
    assert total.tolist() == vectors.sum(axis=0).tolist()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30), st.integers(1, 9))
def test_additive_shares_add_up(values, parties):
    shares = ShareRound("additive", 1, 1, tuple(f"client-{i}" for i in range(parties)), parties)
    pieces = shares.cut("client-0", np.array(values, np.int64), 3)
    zeros = np.zeros(len(values) + 1, np.uint64)
    rows = [shares.add(i, zeros.copy(), ["client-0"], [piece]) for i, piece in enumerate(pieces)]
    total, tag = recover_total("additive", range(1, parties + 1), rows, parties)
    assert (total.tolist(), tag) == (values, 3)
