"""Vectors encrypted by coefficients: exact products, noise, sums, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.core.errors import ConfigError, MessageError, ProtectionError
from tacit.core.secret import Secret
from tacit.crypto.masking import expand
from tacit.crypto.rlwe import Adder, Cipher, make_key, read, rounding_unit
from tacit.crypto.rlwe.blob import DEGREE, NOISE_BITS, noise_bits
from tacit.crypto.rlwe.ring import noise


@pytest.fixture(scope="module")
def cipher():
    secret, key_id = make_key()
    made = Cipher(secret)
    assert made.key_id == key_id
    return made


def secret_of(cipher):
    """Coefficients of s: what a one at the lowest place gives."""
    one = np.zeros(DEGREE, np.uint64)
    one[0] = 1
    return cipher._times_secret(one).view(np.int64)


def schoolbook(a, s, place):
    """One coefficient of a·s modulo X^DEGREE + 1, in whole numbers of any size."""
    rolled = np.concatenate([a[place::-1], a[:place:-1]]).astype(object)
    signs = np.where(np.arange(DEGREE) <= place, 1, -1).astype(object)
    return int(np.sum(rolled * signs * s.astype(object))) % (1 << 64)


class TestArithmetic:
    def test_the_product_is_that_of_whole_numbers(self, cipher):
        s = secret_of(cipher)
        assert set(s.tolist()) == {-1, 0, 1}
        for a in (
            expand(Secret(bytes(32)), DEGREE, np.uint64),
            np.full(DEGREE, (1 << 64) - 1, np.uint64),
            np.full(DEGREE, 1 << 31, np.uint64),
            np.full(DEGREE, (1 << 63) - 1, np.uint64),
        ):
            product = cipher._times_secret(a)
            for place in (0, 1, 2047, 2048, 4095):
                assert int(product[place]) == schoolbook(a, s, place)

    def test_the_secret_is_balanced(self, cipher):
        counts = np.bincount(secret_of(cipher) + 1, minlength=3)
        assert np.abs(counts - DEGREE / 3).max() < 5 * np.sqrt(DEGREE * 2 / 9)

    def test_the_noise_is_centred_and_as_wide_as_promised(self):
        found = noise(400_000)
        assert abs(found.mean()) < 5 * np.sqrt(NOISE_BITS / 2 / found.size)
        assert found.var() == pytest.approx(NOISE_BITS / 2, rel=0.02)
        assert np.abs(found).max() <= NOISE_BITS

    def test_a_ciphertext_holds_noise_and_no_two_are_alike(self, cipher):
        one, two = (cipher.encrypt(np.zeros(100), bound=1.0, summands=2) for _ in range(2))
        assert one[44:844] != two[44:844]
        # Without noise, b + a·s would be the values themselves, and a few equations would give s.
        words = np.frombuffer(one, "<u8", 100, 44)
        seed = one[844:876]
        raw = (words + cipher._times_secret(expand(Secret(seed), DEGREE, np.uint64))[:100]).view(np.int64)
        assert 0 < np.abs(raw).max() <= NOISE_BITS


class TestSums:
    @pytest.mark.parametrize("size", [1, 100, DEGREE, DEGREE + 1, 3 * DEGREE - 5])
    def test_totals_are_right_to_their_unit(self, cipher, size):
        rows = np.random.default_rng(size).uniform(-1, 1, (9, size))
        adder = Adder(cipher.key_id)
        for row in rows:
            adder.add(cipher.encrypt(row, bound=1.0, summands=9))
        found = cipher.decrypt(adder.total())
        assert np.abs(found - rows.sum(axis=0)).max() <= rounding_unit(1.0, 9)

    def test_values_at_their_bound_fill_the_room_and_do_not_overrun(self, cipher):
        for bound, summands in ((1.0, 4), (3.0, 5), (2.0**-20, 8), (1e30, 3)):
            adder = Adder(cipher.key_id)
            for _ in range(summands):
                adder.add(cipher.encrypt([bound, -bound], bound=bound, summands=summands))
            total = bound * summands
            assert cipher.decrypt(adder.total()) == pytest.approx([total, -total], rel=1e-12)

    def test_totals_of_groups_add_up_like_their_members(self, cipher):
        blobs = [cipher.encrypt([0.25 * i], bound=1.0, summands=4) for i in range(4)]
        halves = []
        for pair in (blobs[:2], blobs[2:]):
            adder = Adder(cipher.key_id)
            for blob in pair:
                adder.add(blob)
            halves.append(adder.total())
        whole = Adder(cipher.key_id)
        for half in halves:
            whole.add(half)
        assert cipher.decrypt(whole.total()).tolist() == [1.5]

    def test_a_known_total_gives_digits(self, cipher):
        assert rounding_unit(1.0, 20_000) / rounding_unit(1 / 20_000, 20_000) > 2**14
        blob = cipher.encrypt([1 / 3], bound=1.0, summands=20_000, total=1.0)
        assert abs(cipher.decrypt(blob)[0] - 1 / 3) <= rounding_unit(1 / 20_000, 20_000) < 2.0**-47

    def test_what_is_opened_is_rounded_above_the_noise(self, cipher):
        blob = cipher.encrypt(np.zeros(500), bound=1.0, summands=100)
        assert not cipher.decrypt(blob).any()
        assert 2 ** noise_bits(100) >= 16 * np.sqrt(100 * NOISE_BITS / 2)


class TestRefusals:
    def test_another_key(self, cipher):
        blob = cipher.encrypt([1.0], bound=1.0, summands=2)
        other, other_id = make_key()
        for refuse in (Cipher(other).decrypt, Adder(other_id).add):
            with pytest.raises(ProtectionError, match="under key"):
                refuse(blob)

    @pytest.mark.parametrize("place", range(0, 44 + 8 + 32 + 16, 3))
    def test_a_flipped_bit(self, cipher, place):
        blob = bytearray(cipher.encrypt([1.0], bound=1.0, summands=2))
        blob[place] ^= 4
        with pytest.raises((MessageError, ProtectionError)):
            read(cipher.key_id, bytes(blob))

    def test_too_many_and_unlike_summands_leave_the_total_as_it_was(self, cipher):
        adder = Adder(cipher.key_id)
        for _ in range(2):
            adder.add(cipher.encrypt([1.0], bound=1.0, summands=2))
        with pytest.raises(ProtectionError, match="declared at encryption"):
            adder.add(cipher.encrypt([1.0], bound=1.0, summands=2))
        with pytest.raises(ProtectionError, match="encrypt alike"):
            adder.add(cipher.encrypt([1.0, 2.0], bound=2.0, summands=2))
        assert cipher.decrypt(adder.total()).tolist() == [2.0]

    @pytest.mark.parametrize("value", [np.nan, np.inf, 1.5])
    def test_values_that_cannot_be_encrypted(self, cipher, value):
        with pytest.raises(MessageError, match="not finite or beyond"):
            cipher.encrypt([value], bound=1.0, summands=2)

    def test_settings_that_mean_nothing(self, cipher):
        for settings in ({"bound": 0.0, "summands": 2}, {"bound": 1.0, "summands": 0}):
            with pytest.raises(ConfigError):
                cipher.encrypt([0.0], **settings)
        with pytest.raises(ConfigError, match="nothing was added"):
            Adder(cipher.key_id).total()

    def test_an_overrun_total_is_not_shown(self, cipher):
        adder = Adder(cipher.key_id)
        for _ in range(4):  # each within its bound, all beyond the promised total
            adder.add(cipher.encrypt([1.0], bound=1.0, summands=4, total=2.0))
        with pytest.raises(ProtectionError, match="overran its bound"):
            cipher.decrypt(adder.total())
