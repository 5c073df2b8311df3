"""Whatever is packed, encrypted, weighted and added comes out as the same sum of whole numbers."""

import functools
import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import ProtectionError
from tacit.crypto.paillier import Adder, Packing, PrivateKey, ShortKeyWarning, make_keys
from tests.helpers.weighted import multiply
from tests.quick import examples

packings = st.builds(Packing, st.integers(2, 64), st.integers(0, 63))


@functools.cache
def key() -> PrivateKey:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortKeyWarning)
        return make_keys(1024, allow_short=True)


def vectors(packing: Packing, count: int):
    largest = packing.largest
    values = st.one_of(st.integers(-largest, largest), st.sampled_from([-largest, largest, 0, -1]))
    return st.lists(values, min_size=count, max_size=count)


@st.composite
def contributions(draw):
    """A packing, vectors of one length, and weights that its guard bits hold."""
    packing, count = draw(packings), draw(st.integers(0, 40))
    room, rows, weights = packing.max_summands, [], []
    for _ in range(draw(st.integers(1, 4))):
        if room == 0:
            break
        weight = draw(st.integers(1, room))
        rows.append(draw(vectors(packing, count)))
        weights.append(draw(st.sampled_from([-1, 1])) * weight)
        room -= weight
    return packing, rows, weights


def weighted(rows, weights) -> list[int]:
    columns = zip(*rows, strict=True)
    return [sum(w * v for w, v in zip(weights, column, strict=True)) for column in columns]


@given(contributions(), st.sampled_from([1024, 2048, 3072]))
@settings(deadline=None)
def test_packed_sums_unpack_to_the_sums(case, bits):
    packing, rows, weights = case
    modulus = (1 << bits) - 105  # its parity is all that packing minds: none
    plain = [packing.pack(np.array(row, np.int64), bits) for row in rows]
    totals = [total % modulus for total in weighted(plain, weights)]
    summands = sum(map(abs, weights))
    sums = packing.unpack(totals, len(rows[0]), modulus, summands)
    assert sums.tolist() == weighted(rows, weights)
    assert sums.dtype == (np.int64 if packing.width <= 64 else object)


@given(contributions())
@settings(deadline=None, max_examples=examples(60))
def test_encrypted_sums_decrypt_to_the_sums(case):
    packing, rows, weights = case
    adder = Adder(key().public)
    for row, weight in zip(rows, weights, strict=True):
        adder.add(multiply(key().public, key().public.encrypt(np.array(row, np.int64), packing), weight))
    assert key().decrypt(adder.total(), packing=packing).tolist() == weighted(rows, weights)
    assert adder._header.summands == sum(map(abs, weights))


@given(st.binary(max_size=400), st.integers(0, 400), st.integers(1, 255))
@settings(deadline=None, max_examples=examples(200))
def test_bytes_from_anywhere_are_refused(raw, position, flip):
    blob = bytearray(key().encrypt([1, 2, 3], Packing(16, 8)))
    blob[position % len(blob)] ^= flip
    for wrong in (raw, bytes(blob), bytes(blob[:position])):
        for take in (key().decrypt, Adder(key().public).add):
            try:
                take(wrong)
            except ProtectionError:
                continue
            raise AssertionError("bytes that nobody encrypted were taken")
