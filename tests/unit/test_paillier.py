"""Paillier: exact totals or a refusal, keys whose conditions hold, bytes that are what they say."""

import copy
import hashlib
import pickle
import struct
import warnings

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

from tacit.core.errors import ConfigError, MessageError, ProtectionError, SecretError
from tacit.core.secret import Secret
from tacit.crypto.paillier import (
    Adder,
    Packing,
    PrivateKey,
    PublicKey,
    ShortKeyWarning,
    add_blobs,
    make_keys,
)
from tacit.crypto.paillier import keys as paillier_keys
from tacit.crypto.paillier.blob import Header, check_invertible, read_ciphertexts, read_header, write_blob
from tacit.crypto.paillier.numbers import FixedBase, is_probably_prime, random_prime
from tests.helpers.weighted import multiply

PACKING = Packing(value_bits=24, guard_bits=16)
KINDS = {
    "djn": {},
    "plain": {"randomness": "plain"},
    "short-alpha": {"randomness": "short-alpha"},
}


def quiet(function, *arguments, **settings):
    """Call with 1024 bits allowed and its warning, which has a test of its own, not heard."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShortKeyWarning)
        return function(*arguments, allow_short=True, **settings)


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return quiet(make_keys, 1024)


@pytest.fixture(scope="module")
def other_key() -> PrivateKey:
    return quiet(make_keys, 1024)


@pytest.fixture(scope="module")
def long_key() -> PrivateKey:
    return make_keys(2048)


@pytest.fixture(scope="module", params=KINDS)
def any_key(request) -> PrivateKey:
    return quiet(make_keys, 1024, **KINDS[request.param])


def textbook(key: PrivateKey, ciphertext: mpz) -> mpz:
    """L(c^λ mod n²) · L(g^λ mod n²)^-1 mod n, as in 1999."""
    p, q = key._primes
    n, exponent = p * q, gmpy2.lcm(p - 1, q - 1)

    def quotient(number):
        return (gmpy2.powmod(number, exponent, n**2) - 1) // n

    return quotient(ciphertext) * gmpy2.invert(quotient(n + 1), n) % n


def forged(key: PrivateKey, numbers, *, count=3, summands=1, packing=PACKING) -> bytes:
    """A blob with a right checksum whose ciphertexts are whatever one likes."""
    return write_blob(key.public, Header(key.public.key_id, packing, count, summands), numbers)


# --- exactness ---


def test_ten_thousand_signed_summands_are_exact_at_both_extremes(key):
    largest = PACKING.largest
    values = np.array([largest, -largest, 0, 1, -1] * 11)  # three ciphertexts, neighbours at both ends
    blob = key.encrypt(values, PACKING)
    adder = Adder(key.public)
    for _ in range(10_000):
        adder.add(blob)
    assert adder._header.summands == 10_000
    total = key.decrypt(adder.total())
    assert total.dtype == np.int64
    np.testing.assert_array_equal(total, values * 10_000)


def test_the_last_summand_fits_and_one_more_is_refused(key):
    values = np.array([PACKING.largest, -PACKING.largest] * 13)
    blob = one = key.encrypt(values, PACKING)
    for _ in range(16):
        blob = add_blobs(key.public, blob, blob)
    np.testing.assert_array_equal(key.decrypt(blob), values << 16)
    with pytest.raises(ProtectionError, match=r"65,537 summands .* hold 65,536: raise guard_bits"):
        add_blobs(key.public, blob, one)
    with pytest.raises(ProtectionError, match="131,072 summands"):
        multiply(key.public, blob, -2)


def test_a_refused_blob_leaves_the_total_as_it_was(key):
    adder = Adder(key.public)
    adder.add(key.encrypt([1, 2], PACKING))
    before = adder.total()
    with pytest.raises(ProtectionError, match="vector of 3 values, the total has 2"):
        adder.add(key.encrypt([1, 2, 3], PACKING))
    with pytest.raises(ProtectionError, match=r"packed as 16\+16 bits, expected 24\+16"):
        adder.add(key.encrypt([1, 2], Packing(16, 16)))
    assert adder.total() == before and adder._header.summands == 1


def test_totals_wider_than_64_bits_are_python_integers(key):
    packing = Packing(value_bits=64, guard_bits=40)
    blob = multiply(key.public, key.encrypt([2**63 - 1, -(2**63 - 1), -1], packing), 2**40)
    total = key.decrypt(blob)
    assert total.tolist() == [(2**63 - 1) << 40, -((2**63 - 1) << 40), -(1 << 40)]


@pytest.mark.parametrize("scalar", [1, -1, 2, 1000, -65_536, np.int64(7)])
def test_weights_in_the_clear(key, scalar):
    values = np.array([PACKING.largest, -PACKING.largest, 5])
    product = multiply(key.public, key.encrypt(values, PACKING), scalar)
    np.testing.assert_array_equal(key.decrypt(product), values * scalar)
    assert read_header(key.public, product).summands == abs(scalar)


def test_a_weighted_mean_of_signed_vectors(any_key):
    vectors, weights = np.array([[5, -6, 7], [-50, 60, 70], [1, 1, -1]]), (3, 11, -2)
    adder = Adder(any_key.public, packing=PACKING)
    for vector, weight in zip(vectors, weights, strict=True):
        adder.add(multiply(any_key.public, any_key.public.encrypt(vector, PACKING), weight))
    np.testing.assert_array_equal(any_key.decrypt(adder.total()), weights @ vectors)
    assert adder._header.summands == 16


@pytest.mark.parametrize("count", [0, 1, 50, 51, 52, 400])
def test_any_length_at_2048_bits(long_key, count):
    values = np.arange(count) - 200
    for source in (long_key.public, long_key):
        blob = source.encrypt(values, PACKING)
        np.testing.assert_array_equal(long_key.decrypt(blob, packing=PACKING), values)
    assert len(blob) == 72 + 512 * -(-count // 51)


def test_ten_bytes_a_value(long_key):
    assert PACKING.slots(2048) == 51
    assert len(long_key.encrypt(np.zeros(5100, int), PACKING)) / 5100 <= 10.1


# --- the mathematics ---


def test_decryption_by_remainders_is_textbook_decryption(any_key):
    for source in (any_key.public, any_key):
        for number in read_ciphertexts(any_key.public, source.encrypt(np.arange(50) - 25, PACKING)):
            assert any_key.open(number) == textbook(any_key, number)


def test_the_key_holder_draws_from_the_same_group(any_key):
    n, square = any_key.public.modulus, any_key.public.modulus_squared
    order = any_key._orders[0] * any_key._orders[1]
    for source in (any_key.public, any_key):
        drawn = source.randomiser()
        assert 1 < drawn < square and any_key.open(drawn) == 0
        assert gmpy2.powmod(drawn, order, square) == 1  # an n-th residue, of the promised order
        assert source.randomiser() != drawn
    assert any_key.open((1 + 5 * n) * drawn % square) == 5


def test_powers_by_table_are_powers(key):
    square = key.public.modulus_squared
    table = FixedBase(key.public.base, square, 64)
    for exponent in (0, 1, 255, 256, 2**63 + 12_345, 2**64 - 1):
        assert table.power(exponent) == gmpy2.powmod(key.public.base, exponent, square)
    for exponent in (-1, 2**64):
        with pytest.raises(ConfigError, match="build a longer table"):
            table.power(exponent)


def test_encryption_is_randomised(any_key):
    values = np.arange(30)
    blob = any_key.public.encrypt(values, PACKING)
    for other in (any_key.public.encrypt(values, PACKING), any_key.encrypt(values, PACKING)):
        pairs = zip(
            read_ciphertexts(any_key.public, blob), read_ciphertexts(any_key.public, other), strict=True
        )
        assert all(first != second for first, second in pairs)
        np.testing.assert_array_equal(any_key.decrypt(other), values)


def test_every_ciphertext_of_a_vector_has_a_randomiser_of_its_own(any_key):
    """Of two that share one, the quotient is an encryption of their difference that anybody reads."""
    for encrypt in (any_key.encrypt, any_key.public.encrypt):
        numbers = read_ciphertexts(any_key.public, encrypt(np.zeros(200, int), PACKING))
        assert len({*numbers}) == len(numbers) > 2


def test_a_multiple_of_one_prime_is_not_decrypted(key):
    with pytest.raises(MessageError, match="not one that this key's public half makes"):
        key.decrypt(forged(key, [mpz(key._primes[0])] * 2, count=50))


# --- keys ---


@pytest.mark.parametrize("bits", [1024, 2048])
def test_new_keys_keep_the_conditions(bits, key, long_key):
    p, q = (key if bits == 1024 else long_key)._primes
    public = (key if bits == 1024 else long_key).public
    assert p * q == public.modulus and public.modulus.bit_length() == bits
    assert p.bit_length() == q.bit_length() == bits // 2
    assert p % 4 == q % 4 == 3 and gmpy2.gcd(p - 1, q - 1) == 2
    assert gmpy2.is_prime(p, 40) and gmpy2.is_prime(q, 40)
    assert abs(p - q) > mpz(1) << (bits // 2 - 100)
    assert gmpy2.gcd(public.modulus, (p - 1) * (q - 1)) == 1
    assert gmpy2.jacobi(public.base, p) == gmpy2.jacobi(public.base, q) == -1
    assert public.exponent_bits == bits // 2


def prime_one_mod_four(bits):
    candidate = random_prime(bits)
    while candidate % 4 != 1:
        candidate = gmpy2.next_prime(candidate)
    return candidate


def next_prime_three_mod_four(number):
    while True:
        number = gmpy2.next_prime(number)
        if number % 4 == 3:
            return number


def composite(bits):
    first = random_prime(bits // 2)
    while True:  # the product of 3 and 1 modulo 4, its top bits set as those of a prime would be
        product = first * prime_one_mod_four(bits // 2)
        if product >> (bits - 2) in (2, 3) and product.bit_length() == bits:
            return product


@pytest.mark.parametrize(
    ("why", "primes"),
    [
        (r"3 \(mod 4\)", lambda: (prime_one_mod_four(512), random_prime(512))),
        (r"gcd\(p - 1, q - 1\)", lambda: (random_prime(512, 1019), random_prime(512, 1019))),
        ("have 512 bits", lambda: (random_prime(504), random_prime(520))),
        ("far apart", lambda: close_primes()),
        ("are prime", lambda: (composite(512), random_prime(512))),
    ],
)
def test_primes_without_the_conditions_are_refused(why, primes):
    public = None
    while public is None:
        p, q = sorted(primes())
        if (p * q).bit_length() == 1024 and (gmpy2.gcd(p - 1, q - 1) == 2) != why.startswith("gcd"):
            public = quiet(PublicKey, p * q, 0, "plain")
    with pytest.raises(ConfigError, match=why):
        PrivateKey(public, (p, q))
    size = 64 if p.bit_length() <= 512 and q.bit_length() <= 512 else 65
    raw = public.to_bytes()
    stored = (
        struct.pack(">3sBI", b"TPS", 1, len(raw)) + raw + p.to_bytes(size, "big") + q.to_bytes(size, "big")
    )
    with pytest.raises((ConfigError, MessageError)):
        quiet(PrivateKey.from_secret, Secret(stored))


def close_primes():
    first = random_prime(512)
    return first, next_prime_three_mod_four(first)


def test_primes_of_another_key_in_the_wrong_order_or_without_their_orders(key, other_key):
    with pytest.raises(ConfigError, match=r"p·q is n"):
        PrivateKey(key.public, other_key._primes)
    with pytest.raises(ConfigError, match="p is smaller than q"):
        PrivateKey(key.public, key._primes[::-1])
    with pytest.raises(ConfigError, match="only such a key, has the two primes"):
        PrivateKey(key.public, key._primes, key._orders)


def test_a_base_of_the_wrong_form_is_refused(key):
    p, q = key._primes
    public = quiet(PublicKey, p * q, 4, "djn")  # a square: its Jacobi symbol alone is right
    with pytest.raises(ConfigError, match="not of the form -x²"):
        PrivateKey(public, (p, q))
    short = quiet(make_keys, 1024, randomness="short-alpha")
    public = quiet(PublicKey, short.public.modulus, 4, "short-alpha")
    with pytest.raises(ConfigError, match="does not have the order"):
        PrivateKey(public, short._primes, short._orders)
    with pytest.raises(ConfigError, match="no divisor of 160 bits"):
        PrivateKey(short.public, short._primes, short._orders[::-1])


def test_short_alpha_is_short_prime_and_divides(key):
    short = quiet(make_keys, 1024, randomness="short-alpha")
    for prime, order in zip(short._primes, short._orders, strict=True):
        assert order.bit_length() == 160 and is_probably_prime(order) and (prime - 1) % order == 0
    with pytest.raises(MessageError, match="not one that this key's public half makes"):
        # Plain randomness leaves the subgroup: α does not remove it, and a wrong number must not come out.
        short.open(gmpy2.powmod(3, short.public.modulus, short.public.modulus_squared))


def test_1024_bits_are_refused_or_loud(key):
    with pytest.raises(ConfigError, match="needs allow_short=True"):
        make_keys(1024)
    with pytest.raises(ConfigError, match="needs allow_short=True"):
        PublicKey.from_bytes(key.public.to_bytes())
    with pytest.raises(ConfigError, match="needs allow_short=True"):
        PrivateKey.from_secret(key.to_secret())
    with pytest.warns(ShortKeyWarning, match="protects nothing today"):
        made = make_keys(1024, allow_short=True)
    with pytest.warns(ShortKeyWarning):
        PublicKey.from_bytes(made.public.to_bytes(), allow_short=True)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"bits": 512}, "key of 512 bits"),
        ({"bits": 2047}, "key of 2047 bits"),
        ({"randomness": "none"}, "randomness 'none' is unknown"),
    ],
)
def test_keys_that_cannot_be(settings, what, monkeypatch):
    monkeypatch.setattr("tacit.crypto.paillier.private.random_prime", None)  # refused before any work
    with pytest.raises(ConfigError, match=what):
        make_keys(**{"bits": 2048, **settings})


def test_public_keys_have_one_encoding(any_key):
    raw = any_key.public.to_bytes()
    again = quiet(PublicKey.from_bytes, raw)
    assert again == any_key.public and again.to_bytes() == raw and again.key_id == any_key.public.key_id
    assert any_key.decrypt(again.encrypt([4, -4], PACKING)).tolist() == [4, -4]
    for wrong in (b"", raw[:5], raw[:-1], raw + b"\0", b"XXX" + raw[3:], raw[:3] + b"\2" + raw[4:]):
        with pytest.raises(MessageError):
            quiet(PublicKey.from_bytes, wrong)
    with pytest.raises(MessageError):
        quiet(PublicKey.from_bytes, bytearray(raw))
    with pytest.raises(MessageError, match="announces exponents of 8 bits, its kind has"):
        quiet(PublicKey.from_bytes, raw[:7] + bytes([0, 8]) + raw[9:])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda n, h: (n + 1, h), "small prime factor"),
        (lambda n, h: ((n // 3 | 1) * 3, h), "small prime factor"),
        (lambda n, h: (gmpy2.next_prime(n), h), "prime or a power"),
        (lambda n, h: (random_prime(512) ** 2, h), "prime or a power"),
        (lambda n, h: (n, 0), "Jacobi"),
        (lambda n, h: (n, 1), "Jacobi"),
        (lambda n, h: (n, n - 1), "Jacobi"),
        (lambda n, h: (n, n + h), "Jacobi"),
        (lambda n, h: (n, next(x for x in range(2, 99) if gmpy2.jacobi(x, n) == -1)), "Jacobi"),
        (lambda n, h: (n >> 1, h), "key of 1023 bits"),
    ],
)
def test_public_numbers_that_cannot_be(key, change, what):
    modulus, base = change(key.public.modulus, key.public.base)
    with pytest.raises(ConfigError, match=what):
        quiet(PublicKey, modulus, base, "djn")


def test_an_announced_length_that_is_not_the_modulus(key):
    raw = bytearray(key.public.to_bytes())
    raw[9] = 0  # the top byte of n
    with pytest.raises(MessageError, match="announces 1024 bits"):
        quiet(PublicKey.from_bytes, bytes(raw))


def test_private_keys_to_secrets_and_back(any_key):
    secret = any_key.to_secret()
    assert isinstance(secret, Secret)
    again = quiet(PrivateKey.from_secret, secret)
    assert again.to_secret() == secret
    assert again.decrypt(any_key.public.encrypt([1, -2], PACKING)).tolist() == [1, -2]
    raw = secret.reveal()
    for wrong in (b"", raw[:-1], raw + b"\0", b"XXX" + raw[3:], raw[:-64], raw[:-1] + bytes([raw[-1] ^ 2])):
        with pytest.raises((MessageError, ConfigError)):
            quiet(PrivateKey.from_secret, Secret(wrong))


def test_secrets_do_not_show(key):
    shown = f"{key!r} {key} {key.to_secret()!r} {key.public!r}"
    for number in (*key._primes, *key._orders, key._inverse):
        for text in (str(number), f"{number:x}"):
            assert text[:12] not in shown
    assert "hidden" in repr(key) and key.public.key_id.hex() in repr(key)
    for leak in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(SecretError):
            leak(key)


# --- refusals of blobs ---


def test_every_flipped_byte_is_refused(key):
    blob = key.encrypt(np.arange(30), PACKING)
    for position in range(len(blob)):
        damaged = bytearray(blob)
        damaged[position] ^= 1 << (position % 8)
        for take in (key.decrypt, Adder(key.public).add):
            with pytest.raises(ProtectionError):
                take(bytes(damaged))


def test_truncated_and_lengthened_blobs(key):
    blob = key.encrypt(np.arange(30), PACKING)
    for length in [*range(0, 80), len(blob) - 32, len(blob) - 1]:
        with pytest.raises(MessageError, match=r"truncated|not an encrypted vector"):
            key.decrypt(blob[:length])
    with pytest.raises(MessageError, match="too long"):
        key.decrypt(blob + b"\0")
    with pytest.raises(MessageError, match="bytes, not bytearray"):
        key.decrypt(bytearray(blob))


def test_an_enormous_count_allocates_nothing(key):
    body = bytearray(key.encrypt([1], PACKING)[:-32])
    body[24:32] = struct.pack("<Q", 2**64 - 1)
    with pytest.raises(MessageError, match="truncated"):
        key.decrypt(bytes(body) + hashlib.sha256(body).digest())


@pytest.mark.parametrize(
    ("numbers", "what"),
    [
        (lambda n, p: 0, "ciphertext 0 is zero or a multiple of n"),
        (lambda n, p: 5 * n, "ciphertext 0 is zero or a multiple of n"),
        (lambda n, p: n**2, "ciphertext 0 is n² or more"),
        (lambda n, p: (mpz(1) << 2048) - 1, "ciphertext 0 is n² or more"),
        (lambda n, p: 7 * p, "not"),
    ],
)
def test_numbers_that_no_encryption_gives(key, numbers, what):
    blob = forged(key, [mpz(numbers(key.public.modulus, key._primes[0]))])
    good = key.encrypt([1, 2, 3], PACKING)

    def add():
        adder = Adder(key.public)
        adder.add(good)
        adder.add(blob)
        return adder.total()

    for take in (lambda: key.decrypt(blob), add):
        with pytest.raises(MessageError, match=what):
            take()
    check_invertible(key.public, read_ciphertexts(key.public, good))


def test_foreign_keys_and_other_packings(key, other_key, long_key):
    for foreign in (other_key, long_key):
        blob = foreign.encrypt([1, 2, 3], PACKING)
        for take in (key.decrypt, Adder(key.public).add):
            with pytest.raises(ProtectionError, match=foreign.public.key_id.hex()) as refusal:
                take(blob)
            assert not isinstance(refusal.value, MessageError)  # not damaged: foreign
    with pytest.raises(ProtectionError, match=r"expected 16\+8"):
        key.decrypt(key.encrypt([1], PACKING), packing=Packing(16, 8))
    with pytest.raises(ProtectionError, match=r"expected 16\+8"):
        Adder(key.public, packing=Packing(16, 8)).add(key.encrypt([1], PACKING))


@pytest.mark.parametrize(("summands", "packing"), [(0, PACKING), (2, Packing(24, 0)), (2**16 + 1, PACKING)])
def test_impossible_numbers_of_summands(key, summands, packing):
    with pytest.raises(MessageError, match="summands"):
        key.decrypt(forged(key, [mpz(1)], summands=summands, packing=packing))


def test_a_contribution_out_of_range_is_never_a_wrong_number(key):
    for plain in (
        1 << 23,  # larger than one value may be
        -(1 << 23),
        1 << (40 * 5),  # in a slot that no value has
        key.public.modulus // 2,  # beyond all slots
    ):
        number = (1 + plain * key.public.modulus) * key.public.randomiser() % key.public.modulus_squared
        with pytest.raises(ProtectionError, match="larger than its summands allow"):
            key.decrypt(forged(key, [number]))


def test_a_total_of_nothing(key):
    with pytest.raises(ProtectionError, match="nothing was added"):
        Adder(key.public).total()


@pytest.mark.parametrize("values", [[1 << 23], [-(1 << 23)], np.array([2**64 - 1], np.uint64)])
def test_values_out_of_range_stay_private(key, values):
    with pytest.raises(ProtectionError, match="raise value_bits") as refusal:
        key.public.encrypt(values, PACKING)
    assert str(f"{int(values[0]):,}") in str(refusal.value)
    assert str(f"{int(values[0]):,}") not in refusal.value.public


@pytest.mark.parametrize("values", [[0.5], [[1, 2]], 3, ["one"], [True]])
def test_values_that_are_no_vector_of_whole_numbers(key, values):
    with pytest.raises(ConfigError, match="pass whole numbers of one axis"):
        key.public.encrypt(values, PACKING)


@pytest.mark.parametrize(
    ("value_bits", "guard_bits"), [(1, 8), (65, 8), (8, -1), (8, 64), (8.0, 8), (8, True)]
)
def test_packings_that_cannot_be(value_bits, guard_bits):
    with pytest.raises(ConfigError, match="_bits is"):
        Packing(value_bits, guard_bits)


def test_tables_are_shared_by_equal_keys(key):
    table = paillier_keys._table(key.public)
    assert paillier_keys._table(quiet(PublicKey.from_bytes, key.public.to_bytes())) is table
