"""CKKS beside the published way of encrypted one-layer learning, and beside TenSEAL's own sums.

The published way (FedHEONN's code) encrypts one vector per output at N = 32768 with primes [60, 40, 40, 60],
and multiplies it by two plain matrices: ``w = (m U) (diag(1 / (s² + λ)) Uᵀ)``. Ours multiplies all outputs in
one ciphertext by several rows of one matrix at once. Making keys is not counted on either side, encoding
the matrix is on both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tenseal

from benchmarks._harness import Row, cpu
from tacit.crypto import bfv
from tacit.crypto.ckks import Cipher, multiply
from tacit.crypto.ckks.rings import DEGREE, SUM, SUMS, rounding_unit
from tacit.crypto.seal.adder import Adder
from tacit.crypto.seal.ring import new_secret, ring_of

PENALTY = 0.1
HAS_VECTORS = hasattr(tenseal, "ckks_vector")  # the high-level form; ours needs only tenseal.sealapi
POOL = 48  # different ciphertexts, added again and again: more than a processor's nearest caches hold


def problem(features: int, outputs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left singular vectors, singular values squared plus the penalty, right-hand sides."""
    rng = np.random.default_rng(features)
    samples = rng.normal(size=(features, 4 * features))
    left, singular, _ = np.linalg.svd(samples, full_matrices=False)
    return left, singular**2 + PENALTY, samples @ rng.uniform(-1, 1, size=(4 * features, outputs))


def published_context() -> Any:
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 32768, coeff_mod_bit_sizes=[60, 40, 40, 60])
    context.global_scale = 2**40
    context.generate_galois_keys()
    return context


def published(context: Any, features: int) -> tuple[float, int]:
    """CPU seconds and bytes of one output."""
    left, values, sides = problem(features, 1)
    encrypted = tenseal.ckks_vector(context, sides[:, 0].tolist())
    first, second = left.tolist(), (np.diag(1 / values) @ left.T).tolist()
    found: list[Any] = []
    seconds = cpu(
        lambda: found.append(encrypted.matmul(first).matmul(second)), repeats=1 if features > 100 else 2
    )[0]
    exact = (left / values) @ (left.T @ sides[:, 0])
    assert np.allclose(found[0].decrypt(), exact, rtol=1e-3, atol=1e-3 * np.abs(exact).max())
    return seconds, len(encrypted.serialize())


def ours(features: int, outputs: int) -> tuple[float, int, float]:
    """CPU seconds of a product, bytes per client, relative error."""
    left, values, sides = problem(features, outputs)
    matrix, cipher = (left / values) @ left.T, Cipher(new_secret())
    blob = cipher.encrypt(sides, bound=float(np.abs(sides).max()), summands=20)
    exact = matrix @ sides
    error = float(
        np.abs(cipher.decrypt(multiply(cipher.key_id, matrix, blob)) - exact).max() / np.abs(exact).max()
    )
    return cpu(lambda: multiply(cipher.key_id, matrix, blob), repeats=3)[0], len(blob), error


def beside_bfv(values: int = 4_000, clients: int = 20) -> tuple[float, float]:
    """CPU seconds to encrypt, add and open vectors of so many clients: by BFV, and by CKKS."""
    vectors = np.random.default_rng(1).uniform(-1, 1, size=(clients, values))
    whole, ring = np.rint(vectors * 2.0**40).astype(np.int64), bfv.Parameters.holding(values, 47, clients)
    exact, rounded = bfv.Cipher(new_secret()), Cipher(new_secret())

    def by_bfv() -> None:
        adder = Adder(bfv.ring_of(ring), exact.key_id, bfv.INTEGERS)
        for vector in whole:
            adder.add(exact.encrypt(vector, ring, clients))
        assert (exact.decrypt(adder.total(), ring) == whole.sum(axis=0)).all()

    def by_ckks() -> None:
        adder = Adder(ring_of(SUMS), rounded.key_id, SUM)
        for vector in vectors:
            adder.add(rounded.encrypt(vector, bound=1.0, summands=clients))
        assert np.allclose(rounded.decrypt(adder.total()), vectors.sum(axis=0), atol=1e-9)

    mine, theirs = cpu(by_bfv, by_ckks, repeats=3)
    return mine, theirs


def sums(summands: int = 20_000) -> tuple[float, float | None]:
    """CPU seconds to add so many full ciphertexts of 4,096 values, ours and TenSEAL's (at N = 8192)."""
    cipher = Cipher(new_secret())
    vectors = np.random.default_rng(0).uniform(-1, 1, size=(POOL, DEGREE))
    blobs = []
    for vector in vectors:
        alone = Adder(ring_of(SUMS), cipher.key_id, SUM)  # a total has both polynomials, and no seed
        alone.add(cipher.encrypt(vector, bound=1.0, summands=summands))
        blobs.append(alone.total())
    times = -(-summands // POOL)
    adders: list[Adder] = []

    def add() -> None:
        adder = Adder(ring_of(SUMS), cipher.key_id, SUM)
        for index in range(summands):
            adder.add(blobs[index % POOL])
        adder.total()
        adders.append(adder)

    if not HAS_VECTORS:
        return cpu(add, repeats=3)[0], None
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 60])
    context.global_scale = 2**40
    theirs = [tenseal.ckks_vector(context, vector.tolist()).serialize() for vector in vectors]

    def add_theirs() -> None:
        total = tenseal.ckks_vector_from(context, theirs[0])
        for index in range(1, 1_000):
            total += tenseal.ckks_vector_from(context, theirs[index % POOL])

    mine, baseline = cpu(add, add_theirs, repeats=4)
    weights = np.full(POOL, times) - (np.arange(POOL) >= summands - (times - 1) * POOL)
    error = np.abs(cipher.decrypt(adders[0].total()) - weights @ vectors).max()
    assert error <= summands * rounding_unit(summands, summands)
    return mine, baseline * summands / 1_000


def rows() -> list[Row]:
    made, errors = [], []
    context = published_context() if HAS_VECTORS else None
    known: dict[int, tuple[float, int]] = {}
    for features, outputs, target in ((51, 2, 50.0), (51, 10, 250.0), (500, 2, 100.0)):
        if HAS_VECTORS and features not in known:
            known[features] = published(context, features)
        spent, sent, error = ours(features, outputs)
        errors.append(error)
        name = f"{features}x{outputs}"
        note = f"published way at N=32768 measured for one output, times {outputs}"
        seconds, size = known.get(features, (None, None))
        made.append(beside(f"product-{name}", spent * 1e3, "ms", seconds, 1e3 * outputs, target, note))
        if name == "51x10":
            made.append(beside(f"bytes-{name}", sent, "bytes", size, outputs, 40.0, "sent by each client"))
    made.append(Row("error", max(errors), "relative", target=1e-7, note="at most; of the products above"))
    mine, baseline = beside_bfv()
    note = "20 clients encrypt 4,000 values, which are added and opened; baseline: the same by CKKS"
    made.append(Row("bfv-sum", mine * 1e3, "ms", baseline * 1e3, note=note))
    mine, baseline = sums()
    note = "full ciphertexts of 4,096 values, all checked; TenSEAL deserialises and adds 1,000, times 20"
    made.append(beside("sum-20000", mine, "s", baseline, 1, 5.0, note))
    return made


def beside(
    name: str, value: float, unit: str, baseline: float | None, times: float, target: float, note: str
) -> Row:
    if baseline is None:
        return Row(name, value, unit, note="no baseline: this tenseal has no vectors of its own")
    return Row(name, value, unit, baseline * times, target, note=note)


if __name__ == "__main__":
    for row in rows():
        print(row.as_dict())
