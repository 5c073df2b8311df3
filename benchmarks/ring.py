"""The ring protocol: an epoch of scenario 1 of its paper, ours beside the same protocol on `phe`.

Five clients with 650 gradients each: encode, encrypt, add what came from the hop before, seal for the next;
the server opens the total and averages. Computing the gradients is the same for both and left out.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

import numpy as np

from tacit.bench import Row, cpu
from tacit.core.layout import Field, Layout
from tacit.core.secret import Secret
from tacit.crypto.channel import seal, unseal
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.paillier import Packing, add_blobs, blind, make_keys, unblind

CLIENTS, PARAMETERS, LIMIT, BITS = 5, 650, 16.0, 32
PHE_CIPHERTEXT = 256  # bytes of a ciphertext at 1024 bits; phe sends one for each parameter, and an exponent

Epoch = Callable[[], np.ndarray]


def ours(bits: int, gradients: np.ndarray, hops: list[int]) -> Epoch:
    """An epoch as the protection `ring` does it; the size of each hop goes into ``hops``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 1024 bits are for this comparison only
        key = make_keys(bits, allow_short=bits < 2048)
    key.public.prepare()
    code = FixedPoint.of(Layout(Field("gradients", (PARAMETERS,), bound=LIMIT)), BITS, CLIENTS)
    packing = Packing(BITS, code.guard_bits)
    channels = [Secret(os.urandom(32)) for _ in range(CLIENTS)]

    def epoch() -> np.ndarray:
        hops.clear()
        sealed = b""
        for client, own in enumerate(gradients):
            running = key.public.encrypt(code.encode(own), packing)
            if client:
                running = add_blobs(key.public, unseal(channels[client - 1], sealed, b"hop"), running)
            else:
                running, blinding = blind(key.public, running)
            sealed = seal(channels[client], running, b"hop")
            hops.append(len(sealed))
        total = unblind(key.public, unseal(channels[-1], sealed, b"hop"), blinding)
        return code.decode(key.decrypt(total)) / CLIENTS

    return epoch


def theirs(gradients: np.ndarray) -> Epoch | None:
    """The same epoch on `phe` with gmpy2 at 1024 bits, as published; None where it is not installed."""
    try:
        from phe import paillier
        from phe.util import HAVE_GMP
    except ImportError:
        return None
    assert HAVE_GMP, "phe found no gmpy2, the comparison would flatter us"
    public, private = paillier.generate_paillier_keypair(n_length=1024)

    def epoch() -> np.ndarray:
        running = [public.encrypt(float(value)) for value in gradients[0]]
        for own in gradients[1:]:
            running = [a + public.encrypt(float(value)) for a, value in zip(running, own, strict=True)]
        return np.array([private.decrypt(value) for value in running]) / CLIENTS

    return epoch


def rows() -> list[Row]:
    gradients = np.random.default_rng(0).normal(scale=0.05, size=(CLIENTS, PARAMETERS))
    short_hops, long_hops = list[int](), list[int]()
    short, long = ours(1024, gradients, short_hops), ours(3072, gradients, long_hops)
    baseline = theirs(gradients)
    for epoch in filter(None, (short, long, baseline)):
        assert np.abs(epoch() - gradients.mean(axis=0)).max() < 1e-7, "another mean than that of plain sums"
    times = cpu(short, long, repeats=5)
    before = cpu(baseline, repeats=2)[0] if baseline else None
    note = f"{CLIENTS} clients, {PARAMETERS} parameters; " + (
        "baseline phe with gmpy2 at 1024 bits" if baseline else "phe, the baseline, is not installed"
    )
    once = "; filling the table of a key's powers once is left out"
    return [
        Row(
            "epoch-1024",
            times[0],
            "CPU s",
            baseline=before,
            target=15.0 if baseline else None,
            note=note + once,
        ),
        Row(
            "epoch-3072",
            times[1],
            "CPU s",
            baseline=before,
            target=1.0 if baseline else None,
            note=note + once,
        ),
        Row(
            "bytes-1024",
            max(short_hops),
            "bytes/hop",
            baseline=PHE_CIPHERTEXT * PARAMETERS,
            target=20.0,
            note="sealed; baseline: one ciphertext a parameter, without its exponent",
        ),
        Row("bytes-3072", max(long_hops), "bytes/hop", note="sealed"),
    ]
