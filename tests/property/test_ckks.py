"""CKKS: laws that hold for whatever is drawn."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.ckks import Cipher, multiply
from tacit.crypto.ckks.rings import SUM, SUMS, rounding_unit
from tacit.crypto.seal.adder import Adder
from tacit.crypto.seal.residues import pack, packed_width, unpack
from tacit.crypto.seal.ring import ring_of
from tests.quick import examples

CIPHER = Cipher(Secret(os.urandom(32)))


@given(st.integers(1, 60), st.integers(1, 40), st.integers(0, 2**32), st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_packed_residues_come_back(bits, groups, seed, seeded):
    width = packed_width(bits, seeded)
    assert bits <= width <= 64
    residues = np.random.default_rng(seed).integers(0, 1 << bits, 8 * groups, dtype=np.uint64)
    packed = pack(residues, width)
    assert len(packed) == groups * width
    assert (unpack(b"xyz" * 8 + packed + b"\xff" * 7, 24, residues.size, width) == residues).all()


def whole(blob):
    """The same vector with both polynomials, as a total has them."""
    adder = Adder(ring_of(SUMS), CIPHER.key_id, SUM)
    adder.add(blob)
    return adder.total()


@given(
    st.integers(1, 60),
    st.integers(1, 6),
    st.floats(-60, 60).map(lambda power: 10.0**power),
    st.integers(0, 2**32),
)
@settings(max_examples=examples(40), deadline=None)
def test_sums_are_within_one_unit_whatever_the_bound(length, summands, bound, seed):
    vectors = np.random.default_rng(seed).uniform(-bound, bound, (summands, length))
    adder = Adder(ring_of(SUMS), CIPHER.key_id, SUM)
    for index, vector in enumerate(vectors):
        blob = CIPHER.encrypt(vector, bound=bound, summands=summands)
        adder.add(blob if (seed + index) % 2 == 0 else whole(blob))
    error = np.abs(CIPHER.decrypt(adder.total()) - vectors.sum(axis=0)).max()
    assert error <= rounding_unit(bound * summands, summands) <= 1e-13 * bound * summands


@given(st.integers(1, 32), st.integers(1, 80), st.booleans(), st.integers(0, 2**32))
@settings(max_examples=examples(12), deadline=None)
def test_products_equal_numpy_whatever_the_shape(features, outputs, shared, seed):
    rng = np.random.default_rng(seed)
    shape = (features, features) if shared else (outputs, features, features)
    matrix, sides = rng.normal(size=shape), rng.uniform(-1, 1, (features, outputs))
    blob = multiply(CIPHER.key_id, matrix, CIPHER.encrypt(sides, bound=1.0, summands=2))
    exact = matrix @ sides if shared else np.einsum("oij,jo->io", matrix, sides)
    scale = np.abs(matrix).sum(axis=-1).max()
    assert np.abs(CIPHER.decrypt(blob) - exact).max() <= 1e-8 * scale


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_no_damaged_blob_gets_through(data):
    blob = CIPHER.encrypt([1.0, 2.0], bound=2.0, summands=3)
    blob = blob if data.draw(st.booleans()) else whole(blob)
    start = data.draw(st.integers(0, len(blob) - 1))
    patch = data.draw(st.binary(min_size=0, max_size=40))
    stop = data.draw(st.integers(start, min(start + 40, len(blob))))
    damaged = blob[:start] + patch + blob[stop:]
    if damaged != blob:
        with pytest.raises(ProtectionError):
            CIPHER.decrypt(damaged)
