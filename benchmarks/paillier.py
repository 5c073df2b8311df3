"""Paillier: packed vectors with DJN randomness beside one value per ciphertext as `phe` does it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._harness import Row, cpu
from tacit.crypto.paillier import Adder, Packing, PrivateKey, make_keys

BITS = 2048
PACKING = Packing(value_bits=24, guard_bits=16)
CIPHERTEXTS = 100  # of ours, per measurement: 5,100 values
SINGLES = 4  # of phe's, which are slow
REPEATS = 9

Work = Callable[[], Any]


def ours(key: PrivateKey, values: np.ndarray) -> dict[str, Work]:
    blob = key.public.encrypt(values, PACKING)
    adder = Adder(key.public)
    adder.add(blob)

    def add() -> None:
        for _ in range(5):
            adder.add(blob)

    return {
        "encrypt": lambda: key.public.encrypt(values, PACKING),
        "add": add,
        "decrypt": lambda: key.decrypt(blob),
        "holder": lambda: key.encrypt(values, PACKING),
    }


def theirs(values: list[int]) -> dict[str, Work] | None:
    try:
        from phe import paillier
        from phe.util import HAVE_GMP
    except ImportError:
        return None
    assert HAVE_GMP, "phe found no gmpy2, the comparison would flatter us"
    public, private = paillier.generate_paillier_keypair(n_length=BITS)
    encrypted = [public.encrypt(value) for value in values]

    def add() -> None:
        total = encrypted[0]
        for _ in range(100):
            for other in encrypted:
                total = total + other

    return {
        "encrypt": lambda: [public.encrypt(value) for value in values],
        "add": add,
        "decrypt": lambda: [private.decrypt(value) for value in encrypted],
    }


def seconds(work: Work) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def rows() -> list[Row]:
    key = make_keys(BITS)
    one = np.ones(1, np.int64)  # what is encrypted first fills a table
    tables = seconds(lambda: key.public.encrypt(one, PACKING)), seconds(lambda: key.encrypt(one, PACKING))
    count = CIPHERTEXTS * PACKING.slots(BITS)
    largest = PACKING.largest
    values = np.random.default_rng(0).integers(-largest, largest + 1, count)
    mine, other = ours(key, values), theirs([int(value) for value in values[:SINGLES]])
    per_value = {"encrypt": (count, SINGLES), "add": (5 * count, 100 * SINGLES), "decrypt": (count, SINGLES)}
    targets = {"encrypt": 300.0, "add": 50.0, "decrypt": 40.0}
    (holder,) = cpu(mine["holder"], repeats=3)
    notes = {
        "encrypt": f"public key, DJN randomness of {key.public.exponent_bits} bits; filling the table before "
        f"took {tables[0]:.2f} s (key holder {tables[1]:.2f} s); key holder {holder / count * 1e6:.1f} µs",
        "add": "reading and checking the blob included",
        "decrypt": "all totals checked against their bounds",
    }
    result = []
    for name, (own_count, other_count) in per_value.items():
        if other is None:
            (best,) = cpu(mine[name], repeats=REPEATS)
            note = f"{notes[name]}; target {targets[name]:g} times phe, which is not installed"
            result.append(Row(name, best / own_count * 1e6, "µs/value", note=note))
            continue
        best, baseline = cpu(mine[name], other[name], repeats=REPEATS)
        result.append(
            Row(
                name,
                best / own_count * 1e6,
                "µs/value",
                baseline=baseline / other_count * 1e6,
                target=targets[name],
                note=f"{notes[name]}; baseline phe with gmpy2",
            )
        )
    size = len(key.encrypt(values, PACKING)) / count
    result.append(
        Row(
            "bytes",
            size,
            "bytes/value",
            target=10.1,
            note=f"at most; {count:,} values, header included; phe 512",
        )
    )
    return result
