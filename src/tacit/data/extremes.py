"""The order-preserving integer image of float32, on which extremes are found digit by digit."""

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

DIGITS = 8  # hexadecimal digits of a 32-bit image


def image_of(values: Matrix, towards: float) -> NDArray[np.int64]:
    """Image of float32 in 0 … 2³²-1 that keeps the order; rounds outwards to the next float32."""
    with np.errstate(over="ignore"):  # beyond float32 the neighbour is infinite, and refused later
        single = values.astype(np.float32)
        inside = single < values if towards > 0 else single > values
        single = np.where(inside, np.nextafter(single, np.float32(towards)), single)
    bits = single.view(np.uint32).astype(np.int64)
    return np.where(bits >> 31, 0xFFFFFFFF - bits, bits + 0x80000000)


def value_of(image: NDArray[np.int64]) -> Matrix:
    """Inverse of :func:`image_of`."""
    bits = np.where(image >> 31, image - 0x80000000, 0xFFFFFFFF - image)
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)
