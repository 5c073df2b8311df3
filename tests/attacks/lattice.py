"""What it would take to break ring learning with errors: the primal attack, as standards estimate it.

Whoever knows what was encrypted has b = e - a·s modulo q, so that (e, s, 1) is a short vector of a lattice
of dimension d = m + n + 1 and volume qᵐ, for m coefficients of b and n of the secret s. With s stretched by ν
until it is as wide as the noise e, of deviation σ, lattice reduction with blocks of β finds it (Alkim, Ducas,
Pöppelmann, Schwabe, "Post-quantum key exchange: a new hope", 2016) as soon as

    σ √β  ≤  δ^(2β - d - 1) · (qᵐ νⁿ)^(1/d)      with  δ = ((πβ)^(1/β) · β / 2πe)^(1/(2β - 2)).

One block takes 2^(0.292 β) steps or more (Becker, Ducas, Gama, Laarhoven, "New directions in nearest neighbor
searching with applications to lattice sieving", 2016): that is ``core``, the cautious count. The table of the
Homomorphic Encryption Standard (Albrecht et al., 2018) counts 8d blocks, and 2^16.4 operations for each step:
``standard``.
"""

from __future__ import annotations

from math import log, log2, sqrt
from typing import Any, NamedTuple

import numpy as np

from tacit.core.errors import ConfigError

TERNARY = sqrt(2 / 3)  # deviation of a secret that is -1, 0 or 1, each as often
SIEVE = 0.292
STEP_BITS = 16.4
LEAST_BLOCK = 50  # the formula for δ is for blocks from here on; what smaller ones break is broken


class Cost(NamedTuple):
    """Size of a block, coefficients used, and log₂ of the steps: of one block, and as the standard counts."""

    block: int
    samples: int
    core: float
    standard: float


def primal(degree: int, modulus_bits: float, deviation: float, secret: float = TERNARY) -> Cost:
    """Least cost of the primal attack, whatever number of coefficients the attacker takes.

    Parameters
    ----------
    degree : int
        Coefficients n of the secret.
    modulus_bits : float
        log₂ q.
    deviation : float
        Standard deviation σ of the noise.
    secret : float
        Standard deviation of the secret's coefficients.

    Examples
    --------
    The standard allows a modulus of 109 bits at degree 4096, for 128 bits of security:

    >>> round(primal(4096, 109, 3.2).standard)
    128
    """
    if degree < 1 or modulus_bits <= 0 or deviation <= 0 or secret <= 0:
        raise ConfigError("degree, modulus and deviations of a ring are numbers above 0")
    samples = np.arange(1, 4 * degree + 1)
    dimension = samples + degree + 1
    volume = (samples * modulus_bits * log(2) + degree * log(deviation / secret)) / dimension
    found, taken, refused = 4 * degree + LEAST_BLOCK, 1, LEAST_BLOCK - 1
    while found - refused > 1:  # larger blocks find all that smaller ones do
        block = (found + refused) // 2
        grows = (log(np.pi * block) / block + log(block / (2 * np.pi * np.e))) / (2 * block - 2)
        short = (2 * block - dimension - 1) * grows + volume >= log(block) / 2 + log(deviation)
        if short.any():
            found, taken = block, int(samples[short][0])
        else:
            refused = block
    return Cost(found, taken, SIEVE * found, SIEVE * found + STEP_BITS + log2(8 * (taken + degree + 1)))


def negacyclic(one: Any, ternary: Any, prime: int) -> Any:
    """Return the product of a polynomial and a ternary one modulo X^N + 1 and a prime below 2⁶¹."""
    degree, found = len(one), np.zeros(len(one), object)
    for place in (0, 31):  # halves of 31 bits: their products with up to 2¹² signs are exact in 64 bits
        half = (np.asarray(one, np.uint64) >> np.uint64(place)) & np.uint64((1 << 31) - 1)
        whole = np.convolve(half.astype(np.int64), np.asarray(ternary, np.int64))
        whole = np.concatenate([whole, np.zeros(2 * degree - len(whole), np.int64)])
        found = found + (whole[:degree] - whole[degree:]).astype(object) * (1 << place)
    return found % prime
