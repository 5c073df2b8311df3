"""Linear tags: exact products, tags that add up, pads, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.core.errors import ConfigError, DataError, ProtectionError
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.field import PRIME
from tacit.crypto.linear_tag import TagKey, add_pads, copies, label_digests
from tacit.protections.keys.proved_totals import add_tags, check_room, read_tag

KEY = TagKey(Secret(bytes(range(32))))
LABELS = [f"client-{number}".encode() for number in range(5)]


def weights_of(size, place=b"place"):
    """Every weight by itself: what a vector with a single one gives."""
    made, one = KEY.weights(place, size), np.eye(size, dtype=np.int64)
    return [made.product(row) for row in one]


@pytest.mark.parametrize("size", [1, 3, 256, 257, 700])
def test_the_product_is_that_of_whole_numbers(size):
    values = np.random.default_rng(size).integers(-(1 << 60) + 1, 1 << 60, size)
    expected = (
        sum(weight * int(value) for weight, value in zip(weights_of(size), values, strict=True)) % PRIME
    )
    assert KEY.weights(b"place", size).product(values) == expected


@pytest.mark.parametrize("modulus", [(1 << 60) - 93, (1 << 36) - 5, 65_537])
@pytest.mark.parametrize("size", [3, 64 * 256 + 300])
def test_residues_are_tagged_modulo_their_prime(modulus, size):
    rng = np.random.default_rng(size)
    made = KEY.weights(b"place", size, modulus)
    vectors = rng.integers(0, modulus, (3, size)).astype(np.uint64)
    total = (vectors.astype(object).sum(axis=0) % modulus).astype(np.uint64)
    assert made.product(total) == sum(map(made.product, vectors)) % modulus
    total[-1] = (int(total[-1]) + modulus // 2) % modulus
    assert made.product(total) != sum(map(made.product, vectors)) % modulus


@pytest.mark.parametrize("value", [0, -1, (1 << 60) - 1, 1 - (1 << 60)])
def test_of_the_largest_vectors(value):
    """More than one block of rows, and the last of them not full."""
    values = np.full(64 * 256 + 300, value)
    made = KEY.weights(b"place", len(values))
    ones = made.product(np.ones_like(values))
    assert made.product(values) == ones * value % PRIME
    single = np.zeros_like(values)
    single[-1] = 1
    assert made.product(values + single - single) == made.product(values)
    assert made.product(single) != 0


def test_values_beyond_the_field_are_refused():
    made = KEY.weights(b"place", 2)
    for values in ([1 << 60, 0], [0, -(1 << 60)]):
        with pytest.raises(DataError, match="more than 60 bits"):
            made.product(np.array(values))
    with pytest.raises(DataError, match="3 values to tag, agreed were 2"):
        made.product(np.zeros(3, np.int64))
    with pytest.raises(ConfigError, match="use at most 49 bits"):
        check_room(50, 12, 4096)
    check_room(49, 12, 4096)


@pytest.mark.parametrize("size", [4, 600])
def test_tags_add_up_as_vectors_do_and_no_other_total_fits(size):
    vectors = np.random.default_rng(0).integers(-1000, 1000, (5, size))
    made, pads = KEY.weights(b"place", size), KEY.pads(b"place", label_digests(LABELS))
    total = sum(made.product(x) + add_pads(pad[None]) for x, pad in zip(vectors, pads, strict=True)) % PRIME

    def proved(place, labels, vector):
        product = KEY.weights(place, size).product(vector)
        return (product + add_pads(KEY.pads(place, label_digests(labels)))) % PRIME

    whole = vectors.sum(axis=0)
    assert proved(b"place", LABELS, whole) == total
    assert proved(b"other", LABELS, whole) != total
    assert proved(b"place", LABELS[:4], whole) != total
    assert proved(b"place", [*LABELS, LABELS[0]], whole) != total
    assert proved(b"place", LABELS, whole + np.eye(1, size, size - 1, dtype=np.int64)[0]) != total


def test_pads_differ_and_count_as_often_as_said():
    pads = KEY.pads(b"place", label_digests(LABELS))
    others = [TagKey(Secret(bytes(32))).pads(b"place", label_digests(LABELS))]
    others += [KEY.pads(b"other", label_digests(LABELS))]
    assert len({pad.tobytes() for found in (pads, *others) for pad in found}) == 15
    one, _, three, *_ = (int.from_bytes(pad.tobytes(), "little") for pad in pads)
    counts = np.array([2, 0, 1, 0, 0], np.uint64)
    for modulus in (PRIME, 65_537):
        assert add_pads(pads, counts, modulus) == (2 * one + three) % modulus


def test_pads_that_would_not_add_up_exactly_are_refused():
    """Or 2^63 times a pad, whatever it is, would be one of two numbers."""
    pads = KEY.pads(b"place", label_digests(LABELS))
    for often in (1 << 32, 1 << 63):
        with pytest.raises(ProtectionError, match="count billions of times"):
            add_pads(pads, np.array([1, often, 1, 1, 1], np.uint64))
    assert add_pads(pads, np.array([0, (1 << 32) - 1, 0, 0, 0], np.uint64), 7) < 7


def test_weights_of_two_places_and_all_values_differ():
    found = weights_of(300) + weights_of(300, b"other")
    assert len(set(found)) == 600


def test_what_is_no_tag_is_refused():
    for odd in ({}, {"tag": 7}, {"tag": Blob("public", b"short")}, {"tag": Blob("cipher", bytes(8))}):
        with pytest.raises(ProtectionError, match="no tag of the contribution"):
            read_tag(odd)
    with pytest.raises(ProtectionError, match="no element of the field"):
        read_tag({"tag": Blob("public", PRIME.to_bytes(8, "little"))})
    largest = {"tag": Blob("public", (PRIME - 1).to_bytes(8, "little"))}
    assert read_tag({"tag": add_tags(largest, largest)}) == [PRIME - 2]


def test_a_tag_of_residues_has_numbers_modulo_each_prime():
    moduli = (65_537, 97)  # three numbers modulo the first, eight modulo the second
    numbers = [copies(modulus) for modulus in moduli]
    assert all((2 / modulus) ** count <= 2.0**-40 for modulus, count in zip(moduli, numbers, strict=True))
    largest = np.repeat(np.array(moduli, "<u8") - 1, numbers)
    parts = [{"tag": Blob("public", largest.tobytes())}] * 3
    expected = np.repeat(np.array(moduli) - 3, numbers).tolist()
    assert read_tag({"tag": add_tags(*parts, moduli=moduli)}, moduli) == expected
    with pytest.raises(ProtectionError, match="no element of the field"):
        read_tag({"tag": Blob("public", (largest + 1).tobytes())}, moduli)
    with pytest.raises(ProtectionError, match="no tag of the contribution"):
        read_tag(parts[0])


def test_a_prime_of_42_bits_takes_one_tag_and_a_smaller_one_two():
    assert (copies((1 << 42) - 11), copies((1 << 41) - 21)) == (1, 2)
