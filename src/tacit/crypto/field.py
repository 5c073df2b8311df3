"""The field of 2^61 - 1 elements, exact in machine words and for whole arrays.

2^61 ≡ 1, so the upper half of a product folds back by a shift. Fresh elements are AES-256-CTR under a key
from the operating system, drawn anew for every call.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.crypto.masking import expand, new_seed

PRIME = (1 << 61) - 1

Ring = NDArray[np.uint64]
Integers = NDArray[np.int64]

_P = np.uint64(PRIME)
_LOW20, _LOW29, _LOW32 = (np.uint64((1 << bits) - 1) for bits in (20, 29, 32))
_3, _20, _29, _32, _40, _61 = (np.uint64(bits) for bits in (3, 20, 29, 32, 40, 61))
_EXACT = 512  # products of digits whose sum is exact in floating point


def to_field(values: Integers) -> Ring:
    """Turn signed integers below 2^60 into field elements; negative ones are the upper half."""
    signed = np.asarray(values, np.int64)
    if signed.size and not (-(1 << 60) < signed.min() and signed.max() < 1 << 60):
        raise DataError("a value needs more than 60 bits and its sign: use fewer bits in fixed point")
    return np.where(signed < 0, signed + PRIME, signed).astype(np.uint64)


def from_field(elements: Ring) -> Integers:
    """Turn field elements into signed integers again."""
    signed = elements_of(elements).astype(np.int64)
    return np.where(signed >> 60 == 1, signed - PRIME, signed)


def multiply(a: Ring, b: Ring) -> Ring:
    """Multiply in the field, exactly, for whole arrays.

    With a = a₁2³² + a₀ and the same for b, a₁b₁2⁶⁴ ≡ 8a₁b₁, and the middle term m2³² ≡ ⌊m/2²⁹⌋ +
    (m mod 2²⁹)2³²; every part stays below 2⁶², and their sum below 2⁶³.
    """
    a1, a0, b1, b0 = a >> _32, a & _LOW32, b >> _32, b & _LOW32
    middle = a1 * b0 + a0 * b1
    low = a0 * b0
    total = ((a1 * b1) << _3) + (middle >> _29) + ((middle & _LOW29) << _32) + (low & _P) + (low >> _61)
    return _reduce(total)


def _reduce(values: Ring) -> Ring:
    folded = (values & _P) + (values >> _61)
    return np.where(folded >= _P, folded - _P, folded)


def add_rows(rows: Ring) -> Ring:
    """Add rows in the field: halves are added apart, so that up to 2^31 rows do not overflow."""
    high, low = (rows >> _32).sum(axis=0, dtype=np.uint64), (rows & _LOW32).sum(axis=0, dtype=np.uint64)
    return _reduce(_reduce(low) + (high >> _29) + ((high & _LOW29) << _32))


def digits_of(elements: Ring) -> NDArray[np.float64]:
    """Cut elements into digits of 20, 20 and 21 bits, the lowest first, on a new first axis."""
    return np.stack([elements & _LOW20, (elements >> _20) & _LOW20, elements >> _40]).astype(np.float64)


def product(digits: NDArray[np.float64], rows: Ring) -> Ring:
    """Multiply a matrix, given by its digits, with rows of field elements.

    Products of digits stay below 2^42, so that sums of 3 × 512 of them are exact in floating point: the work
    is left to BLAS. Then d·2^s ≡ ⌊d/2^(61-s)⌋ + (d mod 2^(61-s))·2^s, and five such terms fit a word.
    """
    _, height, inner = digits.shape
    total = np.zeros((height, rows.shape[1]), np.uint64)
    for start in range(0, inner, _EXACT):
        left = digits[:, :, start : start + _EXACT]
        right = digits_of(rows[start : start + _EXACT])
        terms = [
            sum(left[i] @ right[place - i] for i in range(max(0, place - 2), min(place, 2) + 1))
            for place in range(5)
        ]
        for place, term in enumerate(terms):
            shift = np.uint64(20 * place % 61)
            whole, rest = term.astype(np.uint64), _61 - shift
            total += (whole >> rest) + ((whole & (_P >> shift)) << shift)
        total = _reduce(total)
    return total


@lru_cache(maxsize=8)
def powers_of(parties: int, threshold: int) -> NDArray[np.float64]:
    """Return the digits of x^k for all parties' points x and k below the threshold: public, and made once."""
    powers = np.ones((parties, threshold), np.uint64)
    points = np.arange(1, parties + 1, dtype=np.uint64)
    for k in range(1, threshold):
        powers[:, k] = multiply(powers[:, k - 1], points)
    return digits_of(powers)


def elements_of(values: Ring) -> Ring:
    """Return the values as one row of field elements, or refuse them."""
    elements = np.asarray(values)
    if elements.dtype != np.uint64 or elements.ndim != 1:
        raise DataError(f"one row of uint64 is needed, not {elements.ndim} dimensions of {elements.dtype}")
    if elements.size and elements.max() >= _P:
        raise DataError("a value is not below 2^61 - 1: use fewer bits in fixed point, or to_field for signs")
    return elements


def elements_from(raw: bytes) -> Ring:
    """Return the elements that follow from random bytes, eight for each: uniform, but for 2^-61."""
    return _reduce(np.frombuffer(raw, "<u8").astype(np.uint64) >> _3)


def random_elements(count: int) -> Ring:
    """Draw uniform field elements: 61 bits each, and 2^61 - 1 itself is drawn again, not folded to zero."""
    elements = expand(new_seed(), count) >> _3
    while (beyond := np.flatnonzero(elements == _P)).size:
        elements[beyond] = expand(new_seed(), beyond.size) >> _3
    return elements
