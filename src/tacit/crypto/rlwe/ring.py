"""Polynomials modulo X⁴⁰⁹⁶ + 1, multiplied exactly by Fourier transforms in float64, and the noise on them.

Large coefficients are cut into limbs that lie around zero; products of limbs stay so far below 2⁵³ that
rounding gives them back exactly.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.secret import Secret
from tacit.crypto.masking import expand, new_seed
from tacit.crypto.rlwe.blob import DEGREE, NOISE_BITS

HALF = DEGREE // 2
# X → ζX with ζ^HALF = i turns polynomials modulo X^DEGREE + 1, folded to half their length, into cyclic ones.
_TWIST = np.exp(1j * np.pi * np.arange(HALF) / DEGREE)

Transformed = NDArray[np.complex128]


def transform(coefficients: NDArray[Any]) -> Transformed:
    """Compute the Fourier transform along the last axis, of DEGREE real coefficients each.

    Folded to polynomials modulo X^HALF - i first: real coefficients lose nothing by that.
    """
    folded = coefficients[..., :HALF] + 1j * coefficients[..., HALF:]
    found: Transformed = np.fft.fft(folded * _TWIST)
    return found


def back(transformed: Transformed) -> NDArray[np.int64]:
    """Return the integer coefficients of a product of transforms."""
    product = np.fft.ifft(transformed) * _TWIST.conj()
    found: NDArray[np.int64] = np.rint(np.concatenate([product.real, product.imag], axis=-1)).astype(np.int64)
    return found


def secret_polynomial(secret: Secret, label: bytes) -> Transformed:
    """Transform a key's polynomial with coefficients -1, 0, 1; each label has a polynomial of its own."""
    own = Secret(hashlib.sha256(label + secret.reveal()).digest())
    stream = expand(own, DEGREE // 2, np.uint64).view(np.uint8)  # four bytes a coefficient
    fair = stream[stream < 255][:DEGREE]  # 255 values fall into three equal parts
    assert len(fair) == DEGREE
    return transform((fair % 3).astype(np.float64) - 1.0)


def noise(count: int, seed: Secret | None = None) -> NDArray[np.int64]:
    """Draw centred binomial noise: fresh, or what follows from a seed."""
    words = expand(new_seed() if seed is None else seed, 2 * count, np.uint32)
    coins = np.bitwise_count(words & np.uint32((1 << NOISE_BITS) - 1)).astype(np.int64)
    found: NDArray[np.int64] = coins[:count] - coins[count:]
    return found
