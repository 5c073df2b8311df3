"""Columns of CKKS in coefficients: exact products, what is sent of them, and what is refused."""

from __future__ import annotations

import os
import struct

import numpy as np
import pytest

from tacit.core.errors import ConfigError, MessageError, ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.ckks.columns import (
    COLUMNS,
    DEGREE,
    PARAMETERS,
    PRODUCT,
    Cipher,
    Multiplier,
    pieces,
    together,
    unit,
)
from tacit.crypto.ckks.parameters import ring_of
from tacit.crypto.seal import blob as blobs
from tacit.crypto.seal.adder import Adder
from tacit.crypto.seal.blob import CHECKSUM_BYTES, checksum

HEADER = 96
KEY = Secret(os.urandom(32))


def read(key_id, blob, *forms):
    return blobs.read(ring_of(PARAMETERS), key_id, blob, *forms)


@pytest.fixture(scope="module")
def cipher():
    return Cipher(KEY)


def total_of(cipher, matrices, **declared):
    adder = Adder(ring_of(PARAMETERS), cipher.key_id, COLUMNS)
    for matrix in matrices:
        adder.add(cipher.encrypt_columns(matrix, **declared))
    return adder.total()


class TestArithmetic:
    @pytest.mark.parametrize(
        ("rows", "outputs", "matrices", "summands"),
        [
            (65, 10, 1, 100),
            (17, 7, 1, 20_000),
            (64, 64, 1, 3),
            (1, 1, 1, 2),
            (12, 6, 6, 9),
            (12, 6, 2, 9),
            (1, 3, 3, 2),
        ],
    )
    def test_products_of_totals_are_as_exact_as_they_say(self, cipher, rows, outputs, matrices, summands):
        rng = np.random.default_rng(rows)
        stack = rng.normal(size=(matrices, rows, rows)) * rng.lognormal(sigma=3, size=(matrices, rows, 1))
        given = [rng.uniform(-1, 1, (rows, outputs)) / summands for _ in range(min(summands, 20))]
        total = total_of(cipher, given, bound=1.0, summands=summands, total=1.0)
        blob = Multiplier(cipher.key_id).apply(stack if matrices > 1 else stack[0], total)
        header = read(cipher.key_id, blob, PRODUCT)
        each = np.repeat(stack, outputs // matrices, axis=0)
        exact = np.einsum("oij,jo->io", each, sum(given))
        assert np.abs(cipher.decrypt_columns(blob) - exact).max() <= unit(header)
        assert unit(header) <= 1e-9 * np.abs(stack).sum(axis=-1).max()
        opened = cipher.decrypt_columns(total)
        assert np.abs(opened - sum(given)).max() <= unit(read(cipher.key_id, total, COLUMNS)) < 1e-9

    def test_the_largest_totals_and_rows_do_not_overflow(self, cipher):
        ones = np.ones((16, 4))
        total = total_of(cipher, [ones, -ones, ones], bound=1.0, summands=3, total=1.0)
        for sign in (1, -1):
            blob = Multiplier(cipher.key_id).apply(sign * np.ones((16, 16)), total)
            assert np.allclose(cipher.decrypt_columns(blob), sign * 16, atol=1e-8)

    def test_totals_of_totals(self, cipher):
        one = np.arange(6.0).reshape(3, 2) / 8
        parts = [total_of(cipher, [one] * n, bound=1.0, summands=10) for n in (2, 3)]
        adder = Adder(ring_of(PARAMETERS), cipher.key_id, COLUMNS)
        for part in parts:
            adder.add(part)
        assert np.allclose(cipher.decrypt_columns(adder.total()), 5 * one, atol=1e-9)
        assert read(cipher.key_id, adder.total(), COLUMNS).count == 5

    def test_rows_of_zeros_give_zeros(self, cipher):
        """SEAL refuses to hold a product with nothing, which would be no ciphertext."""
        matrix = np.zeros((64, 64))
        matrix[63, 0] = 3.0
        total = total_of(cipher, [np.full((64, 64), 0.5)], bound=1.0, summands=1)
        found = cipher.decrypt_columns(Multiplier(cipher.key_id).apply(matrix, total))
        assert not found[:63].any()
        assert np.allclose(found[63], 1.5, atol=1e-8)

    def test_what_seal_multiplies_is_the_product_modulo_its_primes(self, cipher):
        """The largest entries there are: nothing wraps, and the scale is that of the prime."""
        rows = 32
        signs = np.where(np.arange(rows) % 3, 1.0, -1.0)
        total = total_of(cipher, [np.tile(signs[:, None], (1, 4))], bound=1.0, summands=1)
        blob = Multiplier(cipher.key_id).apply(np.tile(signs, (rows, 1)), total)
        assert np.allclose(cipher.decrypt_columns(blob), rows, atol=unit(read(cipher.key_id, blob, PRODUCT)))

    def test_the_ring_is_checked_by_seal_at_128_bits(self):
        assert sum(PARAMETERS.prime_bits) <= 109
        assert [prime.bit_length() for prime in ring_of(PARAMETERS).primes] == [50, 43]


class TestSecrecy:
    def test_the_same_matrix_never_looks_the_same(self, cipher):
        blobs = [cipher.encrypt_columns(np.zeros((3, 2)), bound=1.0, summands=2) for _ in range(2)]
        bodies = [np.frombuffer(blob[HEADER : HEADER + 11 * DEGREE], np.uint8) for blob in blobs]
        assert (bodies[0] == bodies[1]).mean() < 0.01
        counts = np.bincount(bodies[0], minlength=256)
        assert np.abs(counts - counts.mean()).max() < 6 * np.sqrt(counts.mean())

    def test_another_key_reads_nonsense(self, cipher):
        blob = bytearray(cipher.encrypt_columns(np.full((8, 4), 0.5), bound=1.0, summands=2))
        stranger = Cipher(Secret(os.urandom(32)))
        with pytest.raises(ProtectionError, match="blob under key"):
            stranger.decrypt_columns(bytes(blob))
        blob[40:56] = stranger.key_id
        content = bytes(blob[:-CHECKSUM_BYTES])
        with pytest.raises(ProtectionError, match="beyond what 2 summands"):
            stranger.decrypt_columns(content + checksum(content, HEADER))

    def test_only_entries_of_the_product_travel(self, cipher):
        """The other coefficients hold parts of the total, which nobody asked for."""
        total = total_of(cipher, [np.full((5, 2), 0.1)] * 2, bound=1.0, summands=2)
        blob = Multiplier(cipher.key_id).apply(np.eye(5), total)
        body = len(blob) - HEADER - CHECKSUM_BYTES
        assert 8 * body == 50 * (
            5 * 2 + 6 + DEGREE * pieces(5, 2, 1)
        )  # the entries' number is rounded up to 16

    def test_neither_key_nor_values_are_printed(self, cipher):
        assert repr(cipher) == "Cipher(coefficients)"


class TestRefusals:
    def test_every_damage_is_noticed(self, cipher):
        blob = cipher.encrypt_columns(np.ones((3, 2)), bound=1.0, summands=4)
        for place in (0, 5, 30, 60, 5000, len(blob) - 40, len(blob) - 1):
            damaged = bytearray(blob)
            damaged[place] ^= 1
            with pytest.raises((MessageError, ProtectionError)):
                Adder(ring_of(PARAMETERS), cipher.key_id, COLUMNS).add(bytes(damaged))
        for size in (0, 10, 60, len(blob) - 1):
            with pytest.raises(MessageError):
                read(cipher.key_id, blob[:size], COLUMNS)

    @pytest.mark.parametrize(
        ("place", "code", "value"),
        [
            *[(4, "<B", 7), (5, "<B", 3), (6, "<B", 1), (56, "<I", 0), (56, "<I", 5000), (60, "<I", 0)],
            *[(64, "<I", 2), (68, "<I", 0), (68, "<I", 5), (76, "<I", 2), (80, "<d", float("nan"))],
            *[(88, "<d", 2.0)],
        ],
    )
    def test_headers_that_contradict_themselves(self, cipher, place, code, value):
        content = bytearray(cipher.encrypt_columns(np.ones((3, 2)), bound=1.0, summands=4)[:-CHECKSUM_BYTES])
        struct.pack_into(code, content, place, value)
        forged = bytes(content) + checksum(bytes(content), HEADER)
        with pytest.raises((MessageError, ProtectionError)):
            read(cipher.key_id, forged, COLUMNS, PRODUCT)

    @pytest.mark.parametrize("value", [np.nan, np.inf, 1.5])
    def test_values_beyond_the_bound(self, cipher, value):
        with pytest.raises(MessageError, match="not finite or beyond"):
            cipher.encrypt_columns(np.array([[value]]), bound=1.0, summands=2)

    @pytest.mark.parametrize("shape", [(3,), (0, 2), (65, 64)])
    def test_shapes_that_do_not_fit(self, cipher, shape):
        with pytest.raises(ConfigError, match="columns of shape"):
            cipher.encrypt_columns(np.zeros(shape), bound=1.0, summands=2)
        assert shape != (65, 64) or together(*shape) == 0

    def test_more_summands_than_declared_and_other_terms(self, cipher):
        adder = Adder(ring_of(PARAMETERS), cipher.key_id, COLUMNS)
        with pytest.raises(ConfigError, match="nothing was added"):
            adder.total()
        one = np.ones((2, 2)) / 4
        adder.add(cipher.encrypt_columns(one, bound=1.0, summands=1))
        before = adder.total()
        with pytest.raises(ProtectionError, match="2 encrypted vectors, but 1"):
            adder.add(cipher.encrypt_columns(one, bound=1.0, summands=1))
        with pytest.raises(ProtectionError, match="differ in kind, size, bound"):
            adder.add(cipher.encrypt_columns(one, bound=1.0, summands=2))
        assert adder.total() == before

    @pytest.mark.parametrize(
        "matrix", [np.zeros((2, 2)), np.full((2, 2), np.nan), np.eye(3), np.ones((3, 2, 2)), np.ones(2)]
    )
    def test_matrices_that_do_not_fit(self, cipher, matrix):
        blob = cipher.encrypt_columns(np.ones((2, 2)), bound=1.0, summands=1)
        with pytest.raises(ConfigError, match="matrix"):
            Multiplier(cipher.key_id).apply(matrix, blob)

    def test_a_product_is_not_added_or_multiplied_again(self, cipher):
        blob = cipher.encrypt_columns(np.ones((2, 2)), bound=1.0, summands=1)
        product = Multiplier(cipher.key_id).apply(np.eye(2), blob)
        for use in (
            Adder(ring_of(PARAMETERS), cipher.key_id, COLUMNS).add,
            lambda b: Multiplier(cipher.key_id).apply(np.eye(2), b),
        ):
            with pytest.raises(ProtectionError, match="kind product, expected was columns"):
                use(product)
