"""Where the entries of encrypted columns and their products lie among coefficients; how exact they are."""

import math

import numpy as np
from numpy.typing import NDArray

from tacit.crypto.ckks.parameters import CLEARANCE, NOISE, ParameterSet, ring_of
from tacit.crypto.seal.blob import Form, Header
from tacit.crypto.seal.ring import Ring

PARAMETERS = ParameterSet("coefficients", 4096, (50, 43, 16), 30)
DEGREE = PARAMETERS.degree
VALUE_BITS, MATRIX_BITS = 48, 43  # of totals, and of the absolute values of a row of the matrix together
SWITCHED = math.sqrt((1 + 2 * DEGREE / 3) / 12)  # noise of rescaling a product

Integers = NDArray[np.int64]


def together(rows: int, outputs: int) -> int:
    """Return how many rows of the matrix one polynomial holds.

    >>> together(65, 10), together(500, 10)
    (6, 0)
    """
    return DEGREE // (rows * outputs)


def pieces(rows: int, outputs: int, matrices: int) -> int | None:
    """Count the polynomials of a product with so many matrices; None if the columns do not fit into one.

    >>> pieces(65, 10, 1), pieces(65, 10, 10), pieces(500, 10, 1)
    (11, 110, None)
    """
    held = together(rows, outputs)
    return matrices * -(-rows // held) if held else None


def _fits_product(ring: Ring, header: Header) -> bool:
    fits = together(header.rows, header.outputs) > 0 and not header.seeded
    return fits and header.matrices > 0 and header.outputs % header.matrices == 0


COLUMNS = Form(
    5,
    lambda *_: 1,
    lambda *_: DEGREE,
    lambda ring, header: together(header.rows, header.outputs) > 0 and header.factor == 1,
)
PRODUCT = Form(
    6,
    lambda ring, header: pieces(header.rows, header.outputs, header.matrices) or 0,
    lambda ring, header: -(-header.rows * header.outputs // 8) * 8,
    _fits_product,
    spent=1,
    many=True,
)


def unit(header: Header) -> float:
    """Return the rounding unit of what is opened; its error is at most one."""
    return math.ldexp(scale(header), noise_bits(header))


def power(header: Header) -> int:
    """Return the power of two by which columns are multiplied."""
    return VALUE_BITS - math.ceil(math.log2(header.bound * header.summands))


def scale(header: Header) -> float:
    """Return what an opened integer is worth."""
    if header.form is COLUMNS:
        return math.ldexp(1.0, -power(header))
    return math.ldexp(header.factor * ring_of(PARAMETERS).primes[1], -MATRIX_BITS - power(header))


def noise_bits(header: Header) -> int:
    """Return how many of an opened integer's lowest bits are noise, and rounded away."""
    noise = NOISE * math.sqrt(header.summands)
    if header.form is PRODUCT:
        lost = PARAMETERS.prime_bits[1]
        # Rows of the matrix that meet the noise.
        held = min(header.rows, together(header.rows, header.outputs))
        carried = math.ldexp(noise * math.sqrt(held), MATRIX_BITS - lost)
        rounding = math.ldexp(math.sqrt(header.rows / 12), VALUE_BITS - lost)  # of the matrix
        noise = math.hypot(carried, SWITCHED, rounding)
    return math.ceil(math.log2(CLEARANCE * noise))


def polynomials(stack: Integers, outputs: int) -> Integers:
    """Return the polynomials (piece × DEGREE) of the matrices' rows."""
    rows = stack.shape[-1]
    held = together(rows, outputs)
    count = -(-rows // held)
    padded = np.zeros((len(stack), count * held, rows * outputs), np.int64)
    padded[:, :rows, :rows] = stack[..., ::-1]  # a_j is the coefficient of X^(R-1-j)
    whole = np.zeros((len(stack) * count, DEGREE), np.int64)
    whole[:, : held * rows * outputs] = padded.reshape(len(whole), -1)
    return whole


def entries(header: Header) -> NDArray[np.intp]:
    """Return which coefficients of all pieces hold an entry of the product, output by output."""
    rows, outputs, matrices = header.rows, header.outputs, header.matrices
    held, count = together(rows, outputs), pieces(rows, outputs, matrices) or 0
    places = np.arange(count * DEGREE).reshape(matrices, -1, DEGREE)[..., : held * rows * outputs]
    each = places.reshape(matrices, -1, outputs, rows)[:, :rows, :, rows - 1]
    output = np.arange(outputs)
    return each[output // (outputs // matrices), :, output].reshape(-1)
