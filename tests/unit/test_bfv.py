"""BFV: exact totals, the worst noise, which rings are taken, and everything that is refused."""

from __future__ import annotations

import struct
from itertools import product
from math import sqrt

import numpy as np
import pytest

from tacit.core.errors import ConfigError, MessageError, ProtectionError
from tacit.core.layout import Field, Layout
from tacit.core.protection import FINE
from tacit.core.secret import Secret
from tacit.crypto.bfv import (
    INTEGERS,
    MOST_PLAIN_BITS,
    NOISE,
    PRIMES,
    Cipher,
    Parameters,
    read,
    ring_of,
)
from tacit.crypto.seal.adder import Adder
from tacit.crypto.seal.blob import (
    CHECKSUM_BYTES,
    Header,
    all_residues,
    checksum,
    ciphertexts_of,
    set_of,
    write,
)
from tacit.crypto.seal.residues import from_seal
from tacit.crypto.seal.ring import new_secret
from tacit.protections.bfv import BFV
from tacit.protections.encrypted.slots import largest_total
from tests.attacks.lattice import negacyclic

HEADER = 96
KEY = new_secret()


@pytest.fixture(scope="module")
def cipher():
    return Cipher(KEY)


def total_of(cipher, vectors, chosen, summands):
    adder = Adder(ring_of(chosen), cipher.key_id, INTEGERS)
    for vector in vectors:
        adder.add(cipher.encrypt(vector, chosen, summands))
    return adder.total()


class TestSums:
    @pytest.mark.parametrize("plain_bits", [4, 35, MOST_PLAIN_BITS])
    @pytest.mark.parametrize(
        ("size", "summands"), [(1, 1), (7, 3), (2048, 100), (2049, 2), (4096, 20_000), (9_001, 5)]
    )
    def test_totals_are_exact(self, cipher, size, summands, plain_bits):
        chosen = Parameters.holding(size, plain_bits, summands)
        top, rng = (1 << (plain_bits - 1)) // 3, np.random.default_rng(size)
        vectors = rng.integers(-top, top, (min(summands, 3), size), endpoint=True)
        found = cipher.decrypt(total_of(cipher, vectors, chosen, summands), chosen)
        assert (found == vectors.sum(axis=0)).all()

    def test_the_largest_and_smallest_totals(self, cipher):
        chosen = Parameters.holding(3, 20, 4)
        vectors = np.array([[(1 << 19) - 1, -(1 << 19), -1], [0, 0, 1]])
        found = cipher.decrypt(total_of(cipher, vectors, chosen, 4), chosen)
        assert found.tolist() == [(1 << 19) - 1, -(1 << 19), 0]

    @pytest.mark.parametrize("summands", [100, 20_000])
    def test_totals_of_totals_by_doubling_to_all_summands(self, cipher, summands):
        """Each summand's noise is the same: worse than that of as many clients."""
        chosen = Parameters.holding(500, 32 + summands.bit_length(), summands)
        vector = np.random.default_rng(1).integers(-(1 << 31), 1 << 31, 500)
        one = power = cipher.encrypt(vector, chosen, summands)
        for digit in f"{summands:b}"[1:]:
            adder = Adder(ring_of(chosen), cipher.key_id, INTEGERS)
            for blob in (power, power, *([one] if digit == "1" else [])):
                adder.add(blob)
            power = adder.total()
        assert read(chosen, cipher.key_id, power).count == summands
        assert (cipher.decrypt(power, chosen) == summands * vector).all()

    @pytest.mark.slow
    def test_ten_million_values(self, cipher):
        chosen = Parameters.holding(10_000_000, 40, 3)
        vectors = np.random.default_rng(2).integers(-(1 << 36), 1 << 36, (3, 10_000_000))
        assert (cipher.decrypt(total_of(cipher, vectors, chosen, 3), chosen) == vectors.sum(axis=0)).all()


class TestNoise:
    """What the bound of :mod:`tacit.crypto.bfv` rests on."""

    def test_fresh_noise_is_below_its_bound(self, cipher):
        chosen = Parameters(4096, 60, 20)
        noise = np.concatenate([noise_of(cipher, chosen, np.zeros(4096, np.int64)) for _ in range(2)])
        assert 3.0 < noise.std() < 3.4
        assert np.abs(noise).max() <= 21
        assert NOISE == 22

    @pytest.mark.parametrize("bits", [24, 44, 60, 72, 88])
    def test_totals_are_exact_at_the_worst_noise_and_wrong_beyond_the_modulus(self, cipher, bits):
        """Noise of all summands at its bound and of one sign, which SEAL would hardly ever draw."""
        chosen = Parameters(4096, bits, min(bits - 12, MOST_PLAIN_BITS))
        summands = (modulus_of(chosen) - 1) // (2 * NOISE << chosen.plain_bits)
        assert summands > 40
        for sign in (1, -1):
            assert shifted(cipher, chosen, summands, sign * (summands * NOISE - NOISE)) == 7
            assert (
                shifted(cipher, chosen, summands, sign * (modulus_of(chosen) >> chosen.plain_bits))
                == 7 + sign
            )

    def test_a_ring_takes_no_more_summands_than_its_noise_allows(self, cipher):
        chosen = Parameters(4096, 60, 40)
        room = (modulus_of(chosen) - 1) // (2 * NOISE << 40)
        chosen.check(room)
        with pytest.raises(ConfigError, match=rf"the noise of {room + 1:,} summands may exceed .* {room:,}"):
            cipher.encrypt(np.zeros(3, np.int64), chosen, room + 1)
        blob = write(ring_of(chosen), Header(INTEGERS, False, cipher.key_id, 8, 1, 1, room + 1), full(chosen))
        with pytest.raises(ConfigError, match="may exceed the budget"):
            cipher.decrypt(blob, chosen)

    @pytest.mark.parametrize(("plain_bits", "summands"), list(product((2, 20, 40, 59), (1, 8, 100, 20_000))))
    def test_every_ring_that_is_chosen_has_room(self, plain_bits, summands):
        Parameters.holding(3, plain_bits, summands).check(summands)

    @pytest.mark.parametrize(
        ("plain_bits", "summands", "most"), [(60, 2, 58), (59, 1 << 24, 34), (64, 20_000, 44)]
    )
    def test_what_no_ring_holds_is_refused_before_anything_is_encrypted(self, plain_bits, summands, most):
        with pytest.raises(ConfigError, match=f"do not fit: .* so use at most {most} bits a value"):
            Parameters.holding(10, plain_bits, summands)


def modulus_of(chosen):
    return int(np.prod([int(prime) for prime in ring_of(chosen).primes], dtype=object))


def full(chosen):
    ring = ring_of(chosen)
    return [np.zeros(8 + ring.degree, np.uint64) for _ in ring.primes]


def noise_of(cipher, chosen, values):
    """c0 + c1·s of an encryption of zeros, by the coefficients of s: SEAL decrypts q/4 to t/4 of them."""
    ring = ring_of(chosen)
    (prime,) = ring.primes
    header = Header(INTEGERS, False, cipher.key_id, ring.degree, 1, 1, 1)
    unit = np.zeros(ring.degree, np.uint64)
    unit[0] = prime // 4
    asked = write(ring, header, [np.concatenate([np.zeros(ring.degree, np.uint64), unit])])
    secret = np.rint(cipher.decrypt(asked, chosen) / (1 << (chosen.plain_bits - 2))).astype(int)
    blob = cipher.encrypt(values, chosen, 1)
    header = read(chosen, cipher.key_id, blob)
    (ciphertext,) = ciphertexts_of(ring, header, all_residues(ring, header, blob))
    first, second = from_seal(ring, 1, ciphertext)[0][:, 0]
    found = (first.astype(object) + negacyclic(second, secret, prime)) % prime
    return np.where(found > prime // 2, found - prime, found).astype(np.int64)


def shifted(cipher, chosen, summands, by):
    """What a total of one value, 7, opens to if its noise is larger by so much."""
    ring = ring_of(chosen)
    blob = cipher.encrypt(np.array([7]), chosen, summands)
    header = read(chosen, cipher.key_id, blob)
    (ciphertext,) = ciphertexts_of(ring, header, all_residues(ring, header, blob))
    residues = from_seal(ring, len(ring.primes), ciphertext)[0]
    parts = []
    for index, prime in enumerate(ring.primes):
        first = residues[0, index, :8].copy()
        first[0] = (int(first[0]) + by) % prime
        parts.append(np.concatenate([first, residues[1, index]]))
    header = Header(INTEGERS, False, cipher.key_id, 1, 1, 1, summands)
    return int(cipher.decrypt(write(ring, header, parts), chosen)[0])


class TestRings:
    @pytest.mark.parametrize(
        ("values", "bits", "summands", "name", "size"),
        [
            (384_138, 36, 8, "4096-48-36", 6.0),
            (4_096, 40, 100, "4096-56-40", 7.0),
            (4_096, 48, 20_000, "4096-72-48", 9.0),
            (100, 31, 20_000, "2048-52-31", 6.5),
        ],
    )
    def test_small_where_few_bits_are_summed(self, values, bits, summands, name, size):
        chosen = Parameters.holding(values, bits, summands)
        assert (chosen.name, chosen.bytes_per_value) == (name, size)
        assert Parameters.named(name) == chosen

    @pytest.mark.parametrize("bits", PRIMES)
    def test_seal_accepts_every_ring_and_gives_it_all_its_primes(self, bits):
        ring = ring_of(Parameters(4096, bits, 16))
        assert sum(prime.bit_length() for prime in ring.primes) == bits

    @pytest.mark.parametrize(
        "name", ["", "sum", "4096-52", "8192-52-39", "4096-53-39", "4096-52-60", "4096-052-39"]
    )
    def test_a_name_from_outside_that_is_none(self, name):
        with pytest.raises(ProtectionError, match="which are none of BFV's"):
            Parameters.named(name)

    def test_blobs_have_the_bytes_of_their_values_and_one_seed(self, cipher):
        chosen = Parameters.holding(1000, 36, 8)
        blob = cipher.encrypt(np.zeros(1000, np.int64), chosen, 8)
        assert len(blob) == HEADER + 1000 * 48 // 8 + 64 + CHECKSUM_BYTES
        assert set_of(blob) == "2048-48-36"


class TestSecrecy:
    def test_the_same_values_never_look_the_same(self, cipher):
        chosen = Parameters.holding(4096, 20, 2)
        blobs = [cipher.encrypt(np.zeros(4096, np.int64), chosen, 2) for _ in range(2)]
        bodies = [np.frombuffer(blob[HEADER:-80], np.uint8) for blob in blobs]
        assert (bodies[0] == bodies[1]).mean() < 0.01
        assert blobs[0][-80:-16] != blobs[1][-80:-16]

    def test_key_holders_expand_the_same_key_and_others_another(self, cipher):
        chosen = Parameters.holding(3, 20, 2)
        blob = cipher.encrypt(np.array([1, 2, 3]), chosen, 2)
        assert Cipher(KEY).decrypt(blob, chosen).tolist() == [1, 2, 3]
        stranger = Cipher(Secret(bytes(32)))
        assert stranger.key_id != cipher.key_id
        with pytest.raises(ProtectionError, match="blob under key"):
            stranger.decrypt(blob, chosen)
        renamed = blob[:40] + stranger.key_id + blob[56:-CHECKSUM_BYTES]
        found = stranger.decrypt(renamed + checksum(renamed, HEADER), chosen)
        assert found.tolist() != [1, 2, 3]

    def test_an_id_is_pinned(self):
        """If another release of SEAL expands a secret otherwise, old keys are foreign and not garbage."""
        assert Cipher(Secret(bytes(range(32)))).key_id.hex() == "8f8bd27d7eab9eec37ba2407a7372477"

    def test_neither_key_nor_values_are_printed(self, cipher):
        assert repr(cipher) == "Cipher(hidden)"

    def test_a_secret_of_another_length(self):
        with pytest.raises(ProtectionError, match="a BFV secret has 32 bytes"):
            Cipher(Secret(bytes(31)))


CHOSEN = Parameters.holding(10, 20, 4)


@pytest.fixture(scope="module")
def blob(cipher):
    return cipher.encrypt(np.arange(10), CHOSEN, 4)


class TestRefusals:
    @pytest.mark.parametrize("place", range(0, HEADER + 60, 7))
    def test_a_flipped_bit(self, cipher, blob, place):
        damaged = bytearray(blob)
        damaged[place] ^= 4
        with pytest.raises((MessageError, ProtectionError)):
            Adder(ring_of(CHOSEN), cipher.key_id, INTEGERS).add(bytes(damaged))

    @pytest.mark.parametrize("size", [0, 20, HEADER, -1])
    def test_a_truncated_blob(self, cipher, blob, size):
        with pytest.raises(MessageError, match=r"shorter than its header|its header asks for"):
            read(CHOSEN, cipher.key_id, blob[:size])

    def test_a_longer_blob(self, cipher, blob):
        with pytest.raises(MessageError, match="its header asks for"):
            read(CHOSEN, cipher.key_id, blob + b"\0")

    def test_another_ring(self, cipher, blob):
        with pytest.raises(ProtectionError, match="'2048-28-20' where '4096-60-20' is in use"):
            read(Parameters(4096, 60, 20), cipher.key_id, blob)

    @pytest.mark.parametrize(
        ("place", "code", "value", "words"),
        [
            (0, "<4s", b"TCK1", "first bytes are wrong"),
            (4, "<B", 1, "blob of kind sum, expected was integers"),
            (4, "<B", 9, "blob of kind 9, expected was integers"),
            (5, "<B", 2, "first bytes are wrong"),
            (6, "<B", 2, "contradict"),
            (56, "<I", 0, "contradict"),
            (56, "<I", 1 << 31, "contradict"),
            (60, "<I", 2, "contradict"),
            (64, "<I", 2, "contradict"),
            (68, "<I", 0, "contradict"),
            (68, "<I", 2, "contradict"),
            (72, "<I", 1 << 25, "contradict"),
            (76, "<I", 2, "contradict"),
            (80, "<d", 2.0, "contradict"),
            (88, "<d", float("nan"), "contradict"),
        ],
    )
    def test_headers_that_contradict_themselves(self, cipher, blob, place, code, value, words):
        content = bytearray(blob[:-CHECKSUM_BYTES])
        struct.pack_into(code, content, place, value)
        with pytest.raises((MessageError, ProtectionError), match=words):
            read(CHOSEN, cipher.key_id, bytes(content) + checksum(bytes(content), HEADER))

    def test_a_vector_too_long_for_one_blob(self, cipher):
        chosen = Parameters(4096, 60, 20)
        claimed = Header(INTEGERS, True, cipher.key_id, 1 << 30, 1, 1, 4)
        with pytest.raises(MessageError, match="the limit is 2,147,483,648: encrypt in parts"):
            claimed.length(ring_of(chosen))

    def test_residues_beyond_the_prime(self, cipher, blob):
        content = bytearray(blob[:-CHECKSUM_BYTES])
        content[HEADER : HEADER + 9] = b"\xff" * 9
        with pytest.raises(MessageError, match="residues beyond its modulus"):
            Adder(ring_of(CHOSEN), cipher.key_id, INTEGERS).add(
                bytes(content) + checksum(bytes(content), HEADER)
            )

    def test_too_many_and_unlike_summands_leave_the_total_as_it_was(self, cipher, blob):
        adder = Adder(ring_of(CHOSEN), cipher.key_id, INTEGERS)
        with pytest.raises(ConfigError, match="nothing was added"):
            adder.total()
        for _ in range(4):
            adder.add(blob)
        with pytest.raises(ProtectionError, match="5 encrypted vectors, but 4 were declared"):
            adder.add(blob)
        with pytest.raises(ProtectionError, match="encrypt alike"):
            adder.add(cipher.encrypt(np.arange(9), CHOSEN, 4))
        assert cipher.decrypt(adder.total(), CHOSEN).tolist() == [4 * value for value in range(10)]

    @pytest.mark.parametrize("value", [1 << 19, -(1 << 19) - 1])
    def test_integers_beyond_the_plain_modulus(self, cipher, value):
        with pytest.raises(MessageError, match="needs more than the 20 bits"):
            cipher.encrypt(np.array([value]), CHOSEN, 4)

    @pytest.mark.parametrize("values", [np.zeros(3), np.zeros((2, 2), np.int64), np.zeros(0, np.int64)])
    def test_what_is_no_vector_of_integers(self, cipher, values):
        with pytest.raises(ConfigError, match="give int64s in one dimension"):
            cipher.encrypt(values, CHOSEN, 4)


class TestSlots:
    """Which rings a protection takes for what it sums."""

    @staticmethod
    def ring(layout, summands, **settings):
        protection = BFV(**settings)
        slots = protection.slots(layout, summands)
        return slots, slots.ring.ring_parameters.name

    def test_ordinary_values_take_their_bits_and_the_summands(self):
        slots, name = self.ring(Layout(Field("w", (5000,), bound=2.0)), 8)
        assert (slots.count, slots.unit, name) == (5000, 2.0**-31, "4096-48-36")

    def test_more_values_than_a_ring_holds_take_several_ciphertexts(self):
        ring = Parameters.holding(5000, 20, 3)
        assert [ring.chunks(values) for values in (1, 4096, 4097, 8193)] == [1, 1, 2, 3]

    def test_fine_values_take_one_slot_where_their_total_is_known(self):
        gram = Layout(Field("gram", (2795,), bound=1.0, total=1.0, fine=True))
        slots, name = self.ring(gram, 100)
        assert (slots.count, slots.unit, name) == (2795, 2.0**-45, "4096-60-47")

    def test_fine_values_take_the_bits_of_ordinary_ones_beside_them(self):
        fields = Field("w", (5000,), bound=1.0), Field("gram", (100,), bound=1.0, fine=True)
        slots, _ = self.ring(Layout(*fields, Field("free", (3,))), 8, bits=44)
        assert (slots.cut.any(), slots.unit) == (False, 2.0**-43)

    @pytest.mark.parametrize("summands", [1, 3, 8, 12, 100, 200, 2_000, 20_000, 1 << 24])
    @pytest.mark.parametrize("values", [272, 2795])
    def test_fine_totals_are_as_exact_as_promised_by_however_many(self, values, summands):
        gram = Layout(Field("gram", (values,), bound=1.0, total=1.0, fine=True))
        slots, _ = self.ring(gram, summands)
        vectors = np.random.default_rng(1).uniform(-1, 1, (50, values)) / summands
        lost = [slots.decode(slots.encode(vector)) - vector for vector in vectors]
        # Errors of so many clients add up as their root; the error that is told is a typical one.
        assert np.std(lost) * sqrt(summands) < 1.2 * slots.error(summands)
        assert slots.error(summands) <= FINE

    def test_values_without_a_bound_are_digits_in_a_small_ring(self):
        slots, name = self.ring(Layout(Field("moments", (100,))), 20_000)
        assert name.startswith("2048-")
        assert slots.count <= 2048
        vector = np.random.default_rng(1).normal(size=100) * 1e9
        assert slots.decode(slots.encode(vector)) == pytest.approx(vector, rel=1e-15)

    @pytest.mark.parametrize("summands", [1, 2, 3, 100, 20_000, 1 << 24])
    def test_no_total_leaves_the_plain_modulus(self, summands):
        layout = Layout(
            Field("a", (3,), bound=2.0),
            Field("b", (2,), bound=1.0, total=1.0, fine=True),
            Field("c", (2,)),
        )
        slots, name = self.ring(layout, summands, bits=24)
        extreme = slots.encode(np.array([2.0, -2.0, 2.0, 1.0, -1.0, 2.0**59, -(2.0**59)]))
        top = 1 << (Parameters.named(name).plain_bits - 1)
        rounded = slots.count - (extreme.size - 5) if not slots.cut.any() else 0
        assert all(abs(int(value)) * summands < top for value in extreme[:3])
        assert slots.largest_total < top
        assert rounded >= 0

    def test_more_bits_than_a_ring_holds_are_cut_into_digits(self):
        layout = Layout(Field("w", (100,), bound=1.0))
        slots, _ = self.ring(layout, 20_000, bits=50)
        assert slots.cut.all()
        vector = np.random.default_rng(3).uniform(-1, 1, 100)
        total = slots.encode(vector) * 20_000
        assert np.abs(total).max() <= slots.largest_total
        assert slots.decode(total) == pytest.approx(20_000 * vector, rel=1e-14, abs=1e-10)

    @pytest.mark.parametrize("bits", [7, 51])
    def test_bits_that_fixed_point_does_not_have(self, bits):
        with pytest.raises(ConfigError, match=f"bits is {bits}: fixed point works with 8 to 50"):
            BFV(bits=bits)


def test_a_slot_has_room_for_what_clients_round_up() -> None:
    """Five of them, of whom each rounds 0.6 to 1: their total may be 5, where all bounds reach 3."""
    assert largest_total(True, False, reach=3.0, unit_bits=0, digit_bits=0, summands=5) >= 5
