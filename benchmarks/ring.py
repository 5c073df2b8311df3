"""The ring protocol: an epoch of scenario 1 of its paper, ours beside the same protocol on `phe`.

Five clients with 650 gradients each: encode, encrypt, add what came from the hop before, seal for the next;
the server opens the total and averages. Computing the gradients is the same for both and left out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks._harness import Row, cpu
from tacit.checkout import load_file

protected_epoch = load_file("reproductions", "ring-mlp").protected_epoch
CLIENTS, PARAMETERS = 5, 650
PHE_CIPHERTEXT = 256  # bytes of a ciphertext at 1024 bits; phe sends one for each parameter, and an exponent


def theirs(gradients: np.ndarray) -> Callable[[], np.ndarray] | None:
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
    short, long = protected_epoch(1024, gradients), protected_epoch(3072, gradients)
    baseline = theirs(gradients)
    (short_mean, short_hops), (long_mean, long_hops) = short(), long()
    for mean in (short_mean, long_mean, *([baseline()] if baseline else [])):
        assert np.abs(mean - gradients.mean(axis=0)).max() < 1e-7, "another mean than that of plain sums"
    times = cpu(short, long, repeats=5)
    before = cpu(baseline, repeats=2)[0] if baseline else None
    note = f"{CLIENTS} clients, {PARAMETERS} parameters; " + (
        "baseline phe with gmpy2 at 1024 bits" if baseline else "phe, the baseline, is not installed"
    )
    once = "; filling the table of a key's powers once is left out"
    epochs = [
        Row(name, ours, "CPU s", baseline=before, target=target if baseline else None, note=note + once)
        for name, ours, target in (("epoch-1024", times[0], 15.0), ("epoch-3072", times[1], 1.0))
    ]
    theirs_bytes = PHE_CIPHERTEXT * PARAMETERS
    text = "sealed; baseline: one ciphertext a parameter, without its exponent"
    return [
        *epochs,
        Row("bytes-1024", max(short_hops), "bytes/hop", baseline=theirs_bytes, target=20.0, note=text),
        Row("bytes-3072", max(long_hops), "bytes/hop", note="sealed"),
    ]
