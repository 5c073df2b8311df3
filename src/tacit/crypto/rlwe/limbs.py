"""Coefficients modulo 2⁹⁶: three words of 32 bits to be sent, four limbs of 24 bits to be multiplied."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.crypto.rlwe.blob import DEGREE
from tacit.crypto.rlwe.ring import Transformed, back

LIMB, DIGIT = 24, 12  # bits of a ciphertext's limbs (four), and of a matrix's digits (four)
WORDS = 3  # of 32 bits, of a coefficient
_LOW = np.int64((1 << LIMB) - 1)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Words = NDArray[np.uint32]


def cut(words: Words) -> Integers:
    """Cut three words of 32 bits into four limbs of 24."""
    low, middle, high = words.astype(np.int64)
    cut = [low, low >> 24 | middle << 8, middle >> 16 | high << 16, high >> 8]
    return np.stack(cut) & _LOW


def words_of(limbs: Integers) -> Words:
    """Join four limbs of 24 bits into three words of 32."""
    first, second, third, fourth = limbs
    return np.stack([first | second << 24, second >> 8 | third << 16, third >> 16 | fourth << 8]).astype(
        np.uint32
    )


def limbs_of(words: Words) -> Floats:
    """Return limbs around zero, as numbers to be transformed."""
    limbs = cut(words)
    for place in range(4):
        over = limbs[place] >> LIMB - 1
        limbs[place] -= over << LIMB
        if place < 3:
            limbs[place + 1] += over
    return limbs.astype(np.float64)


def carried(limbs: Integers) -> Integers:
    """Carry limbs over, so that each is from 0 to 2²⁴ - 1; what is beyond 2⁹⁶ vanishes."""
    for place in range(3):
        limbs[place + 1] += limbs[place] >> LIMB
    return limbs & _LOW


def rounded(limbs: Transformed, digits: Transformed) -> Integers:
    """Return the upper 48 bits of the products (piece × DEGREE) of a polynomial with each piece."""
    found = np.zeros((len(limbs), digits.shape[1], DEGREE), np.int64)
    for unit in range(2 * len(limbs)):  # of 2¹²; what is beyond 2⁹⁶ vanishes
        pairs = [((unit - place) // 2, place) for place in range(unit % 2, min(unit + 1, len(digits)), 2)]
        value = back(sum(limbs[limb] * digits[place] for limb, place in pairs))
        found[unit // 2] += value << (unit % 2 * DIGIT)
    found[1] += 1 << LIMB - 1
    found = carried(found)
    return np.asarray(found[2] | found[3] << LIMB)
