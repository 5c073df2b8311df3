"""Masks cancel, look uniform and are fresh for each sum; neighbourhoods are as large as they must be."""

from __future__ import annotations

import os
from itertools import combinations, permutations
from math import comb, log2

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tacit.core.errors import ConfigError
from tacit.core.secret import Secret
from tacit.crypto.field import random_elements
from tacit.crypto.masking import (
    CHUNK,
    GIVEN,
    add_masks,
    advance_chains,
    bind_seeds,
    cover,
    expand,
    new_seed,
    sign_for,
)
from tacit.crypto.neighbours import neighbours_for, security_bits_of
from tacit.crypto.sharing import share_rows
from tacit.protections.masked.neighbours import assign_holders, find_place
from tacit.protections.masked.wire import key_of, recover_secret

SEED = Secret(bytes(range(32)))


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("count", [0, 1, 5, CHUNK // 8 - 1, CHUNK // 4 + 3])
def test_masks_are_the_key_stream_of_aes(dtype, count):
    size, stream = count * np.dtype(dtype).itemsize, b""
    for number in range(-(-size // CHUNK)):  # GCM counts from 2 on, after the nonce
        start = number.to_bytes(12, "little") + (2).to_bytes(4, "big")
        encryptor = Cipher(algorithms.AES(SEED.reveal()), modes.CTR(start)).encryptor()
        stream += encryptor.update(bytes(min(CHUNK, size - len(stream))))
    expected = np.frombuffer(stream, np.dtype(dtype).newbyteorder("<"))
    assert np.array_equal(expand(SEED, count, dtype), expected)
    vector = np.arange(count, dtype=dtype)
    add_masks(vector, [(SEED, 1)])
    assert np.array_equal(vector, np.arange(count, dtype=dtype) + expected)
    add_masks(vector, [(SEED, -1)])
    assert np.array_equal(vector, np.arange(count, dtype=dtype))


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_masks_are_uniform_at_both_ends_of_a_word(dtype):
    words = expand(new_seed(), 400_000, dtype)
    bits = np.dtype(dtype).itemsize * 8
    for shift in (0, bits - 6):
        counts = np.bincount(((words >> shift) & 63).astype(np.int64), minlength=64)
        expected = len(words) / 64
        assert ((counts - expected) ** 2 / expected).sum() < 150  # 63 degrees: once in 10^8 runs


def masked_sum(dtype, vanished=()):
    """Bonawitz's sum in one room: five clients, one key each, a self-mask each."""
    names = [f"client-{number}" for number in range(5)]
    drawn, selves = {name: random_elements(3) for name in names}, {name: new_seed() for name in names}
    keys = {name: key_of(elements) for name, elements in drawn.items()}
    links = {frozenset(pair): os.urandom(32) for pair in combinations(names, 2)}
    shares = {name: share_rows(drawn[name], 5, 3) for name in names}
    given = {pair: advance_chains(link)[1] for pair, link in links.items()}
    deposits = {
        (name, other): cover(keys[name], given[frozenset({name, other})])
        for name, other in permutations(names, 2)
    }

    def seed(own, other):
        return bind_seeds(given[frozenset({own, other})], b"asked")[0]

    inputs = {name: np.arange(100_000, dtype=dtype) * (place + 1) for place, name in enumerate(names)}
    total = np.zeros(100_000, dtype)
    for own in names:
        vector = inputs[own].copy()
        pairs = [(seed(own, other), sign_for(own, other)) for other in names if other != own]
        add_masks(vector, [(selves[own], 1), *pairs])
        assert (vector == inputs[own]).mean() < 0.001
        if own not in vanished:
            total += vector
    arrived = [name for name in names if name not in vanished]
    add_masks(total, [(selves[name], -1) for name in arrived])
    for gone in vanished:
        key = recover_secret(np.array([3, 4, 5]), shares[gone][2:], 3, keys[gone].__eq__, gone)
        for other in arrived:
            (found,) = bind_seeds(cover(key, deposits[gone, other]), b"asked")
            add_masks(total, [(found, sign_for(gone, other))])
    return total, sum(inputs[name] for name in arrived)


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("vanished", [(), ("client-1", "client-4")])
def test_pairwise_masks_cancel_and_the_vanished_are_made_up_for(dtype, vanished):
    total, expected = masked_sum(dtype, vanished)
    assert np.array_equal(total, expected)


def test_each_sum_pair_and_ask_has_its_own_seed_and_no_link_leads_back():
    first = SEED.reveal() + bytes(32)  # with two neighbours
    second, given = advance_chains(first)
    third, later = advance_chains(second)
    pieces = [raw[at : at + 32] for raw in (first, second, third) for at in (0, 32)]
    pieces += [raw[at : at + GIVEN] for raw in (given, later) for at in (0, GIVEN)]
    assert len({*pieces}) == 10
    assert advance_chains(first) == (second, given)
    seeds = [
        seed for call in (b"asked", b"otherwise") for raw in (given, later) for seed in bind_seeds(raw, call)
    ]
    assert len({seed.reveal() for seed in seeds} | {*pieces}) == 18
    assert bind_seeds(given, b"asked") == seeds[:2]


def test_what_cannot_be_masked_is_refused():
    frozen = np.zeros(4, np.uint64)
    frozen.flags.writeable = False
    for bad, said in (
        (np.zeros(4), "float64"),
        (np.zeros((2, 2), np.uint32), "2 dimensions"),
        (np.zeros(8, np.uint32)[::2], "not contiguous"),
        (frozen, "read-only"),
    ):
        with pytest.raises(ConfigError, match=said):
            add_masks(bad, [(SEED, 1)])
    with pytest.raises(ConfigError, match="sign is 0"):
        add_masks(np.zeros(4, np.uint32), [(SEED, 0)])
    with pytest.raises(ConfigError, match="seed of 5 bytes"):
        expand(Secret(b"short"), 4)
    with pytest.raises(ConfigError, match="uint32 or uint64"):
        expand(SEED, 4, np.int64)
    with pytest.raises(ConfigError, match="paired with itself"):
        sign_for("a", "a")


def drawn(names, count, rng):
    """Neighbours of each client, if all commit to random numbers."""
    places = {name: find_place(bytes(32), rng.bytes(32)) for name in names}
    return {name: {*around} - {name} for name, around in assign_holders(places, count).items()}


def test_everyone_is_as_likely_a_neighbour():
    names = [f"client-{number:02}" for number in range(40)]
    one, two = (drawn(names, 6, np.random.default_rng(seed)) for seed in (1, 2))
    assert one != two
    draws = [drawn(names, 6, np.random.default_rng(seed))[names[0]] for seed in range(1000)]
    counts = np.array([sum(name in found for found in draws) for name in names[1:]])
    assert abs(counts - 1000 * 6 / 39).max() < 60  # five deviations


def tail(total, marked, drawn, least):
    """P[at least so many marked among the drawn], in whole numbers."""
    ways = sum(comb(marked, x) * comb(total - marked, drawn - x) for x in range(least, drawn + 1))
    return ways / comb(total, drawn)


@pytest.mark.parametrize(
    ("corrupt", "dropout", "neighbours", "threshold"),
    # What Google's federated-compute finds for 1,000 clients where both ask for the same.
    [(330, 50, 78, 60)],
)
def test_sizes_agree_with_those_published(corrupt, dropout, neighbours, threshold):
    """They count failures of each client; that begin at one that vanished they are fewer."""

    def fits(count, vanished, marked, more):
        least = next(least for least in range(count) if 1000 * tail(999, corrupt, count, least) <= 2.0**-41)
        gone = tail(999, marked, count, count + 1 + more - least)
        return least if vanished * gone <= 2.0**-20 else None

    published = next(count for count in range(40, 100, 2) if fits(count, 1000, dropout, 1))
    assert abs(published - neighbours) <= 2 and abs(fits(published, 1000, dropout, 1) - threshold) <= 2
    found = neighbours_for(1000, corrupt / 1000, dropout / 1000)
    ours = next(count for count in range(40, 100, 2) if fits(count, dropout, dropout - 1, 0))
    assert (found.neighbours, found.threshold) == (ours, fits(ours, dropout, dropout - 1, 0)) == (74, 58)


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("clients", [64, 100, 500])
def test_bounds_hold_in_whole_numbers(clients, active):
    found = neighbours_for(clients, 0.2, 0.1, active=active)
    corrupt, gone, count = -(-clients // 5), -(-clients // 10), found.neighbours
    # Held by the corrupt: as many as the threshold; or so many that both secrets of a client open.
    least = 2 * found.threshold - count - 1 if active else found.threshold
    assert clients * tail(clients - 1, corrupt, count, least) <= 2.0**-41
    assert gone * tail(clients - 1, gone - 1, count, count + 1 - found.threshold) <= 2.0**-20
    assert 2 * found.threshold > count + 1
    assert security_bits_of(clients, count, least - 1, 0.2, 0.1, active=active) >= 40


@pytest.mark.parametrize("count", [2, 4, 6])
def test_a_crowded_stretch_is_no_likelier_than_one_that_begins_at_a_marked_client(count):
    """All ways in which 4 of 12 on a circle vanish, or are corrupt: how often do so many sit side by side?"""
    worst = [
        max(sum((start + step) % 12 in marked for step in range(count + 1)) for start in range(12))
        for marked in map(set, combinations(range(12), 4))
    ]
    for least in (1, 2, 3, 4):
        exact = sum(found >= least for found in worst) / len(worst)
        assert exact <= 4 * tail(11, 3, count, least - 1)


def test_neighbours_grow_like_the_logarithm():
    counts = [neighbours_for(10**power).neighbours for power in (3, 4, 5, 6)]
    assert counts == sorted(counts) and counts[-1] < 1.5 * counts[0] < 10 * log2(1000)


def test_small_federations_use_the_complete_graph():
    for clients in (3, 5, 10, 63):
        found = neighbours_for(clients)
        assert (found.neighbours, found.threshold) == (clients - 1, clients // 2 + 1)
    assert neighbours_for(9, 0.3, 0.1, active=True).threshold == 7  # above two thirds
    assert neighbours_for(2, 0.0, 0.0).threshold == 2


def test_honest_survivors_stay_together():
    # A tenth corrupt, a fifth gone: removing them never isolates anyone at the size that is asked for.
    names = [f"{number:03}" for number in range(100)]
    count = neighbours_for(100, 0.1, 0.2).neighbours
    for seed in range(50):
        rng = np.random.default_rng(seed)
        graph = drawn(names, count, rng)
        alive = set(rng.choice(names, 70, replace=False).tolist())
        seen, frontier = set(), [min(alive)]
        while frontier:
            name = frontier.pop()
            if name not in seen:
                seen.add(name)
                frontier += [friend for friend in graph[name] if friend in alive]
        assert seen == alive


def test_hopeless_sizes_are_refused():
    for arguments, said in (
        ((100, 1.0, 0.1), "corrupt_share is 1.0"),
        ((100, 0.1, -0.1), "dropout_share is -0.1"),
        ((100, float("nan"), 0.1), "corrupt_share is nan"),
        ((1,), "1 clients"),
        ((10, 0.1, 0.6), "6 may vanish"),
        ((200, 0.6, 0.5), "too few stay"),
    ):
        with pytest.raises(ConfigError, match=said):
            neighbours_for(*arguments)
