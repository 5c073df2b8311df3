"""What CKKS works in: its two rings, what their ciphertexts hold and how exact it is, and the transforms."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.crypto.seal.blob import Form, Header
from tacit.crypto.seal.residues import Residues, from_seal, plain_from_seal, plain_to_seal, to_seal
from tacit.crypto.seal.ring import Ring, RingParameters, ring_of

DEGREE = 4096
MATRIX_BITS = 43  # of the absolute values of a row of the matrix together
NOISE = 3.2  # standard deviation of SEAL's error distribution, per coefficient
CLEARANCE = 16.0  # rounding units are at least so many standard deviations of the noise
SWITCHED = math.sqrt((1 + 2 * DEGREE / 3) / 12)  # noise of rescaling a product
TOGETHER = 16  # polynomials that SEAL transforms at once

Integers = NDArray[np.int64]


# The last prime is SEAL's special one. The first has room for totals of as many bits as the name says, their
# sign apart; the second of columns makes room for a product.
SUMS = RingParameters("CKKS", "sum-57", DEGREE, (60, 49))
COLUMNS = RingParameters("CKKS", "columns-48", DEGREE, (50, 43, 16))
SUM_BITS, COLUMN_BITS = 57, 48


def together(rows: int, outputs: int) -> int:
    """Return how many rows of the matrix one polynomial holds."""
    return DEGREE // (rows * outputs)


def pieces(rows: int, outputs: int, matrices: int) -> int | None:
    """Count the polynomials of a product with so many matrices; None if the columns do not fit into one."""
    held = together(rows, outputs)
    return matrices * -(-rows // held) if held else None


def _fits_product(ring: Ring, header: Header) -> bool:
    fits = together(header.rows, header.outputs) > 0 and not header.seeded
    return fits and header.matrices > 0 and header.outputs % header.matrices == 0


SUM = Form(
    1,
    lambda ring, header: -(-header.rows // DEGREE),
    lambda ring, header: header.chunks(ring) * DEGREE,
    lambda ring, header: (header.outputs, header.factor) == (1, 1.0),
)
COLUMN = Form(
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


def rounding_unit(reach: float, summands: int) -> float:
    """Return the unit to which totals of up to ``reach`` of so many vectors are rounded."""
    return unit(Header(SUM, False, b"", 1, 1, 1, summands, reach / summands))


def unit(header: Header) -> float:
    """Return the rounding unit of what is opened; its error is at most one."""
    return math.ldexp(scale(header), noise_bits(header))


def value_bits(header: Header) -> int:
    """Return how large totals may get, their sign apart."""
    return SUM_BITS if header.form is SUM else COLUMN_BITS


def power(header: Header) -> int:
    """Return the power of two by which values are multiplied."""
    return value_bits(header) - math.ceil(math.log2(header.bound * header.summands))


def scale(header: Header) -> float:
    """Return what an opened integer is worth."""
    if header.form is PRODUCT:
        return math.ldexp(header.factor * ring_of(COLUMNS).primes[1], -MATRIX_BITS - power(header))
    return math.ldexp(1.0, -power(header))


def noise_bits(header: Header) -> int:
    """Return how many of an opened integer's lowest bits are noise, and rounded away."""
    noise = NOISE * math.sqrt(header.summands)
    if header.form is PRODUCT:
        lost = COLUMNS.prime_bits[1]
        # Rows of the matrix that meet the noise.
        held = min(header.rows, together(header.rows, header.outputs))
        carried = math.ldexp(noise * math.sqrt(held), MATRIX_BITS - lost)
        rounding = math.ldexp(math.sqrt(header.rows / 12), COLUMN_BITS - lost)  # of the matrix
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


def encode(ring: Ring, whole: Integers) -> Any:
    """Return the plaintext that has these coefficients, which SEAL transforms over the same primes."""
    helper = ring_of(RingParameters("BFV", "transform", DEGREE, ring.ring_parameters.prime_bits, 59))
    assert helper.primes == ring.primes
    plain = plain_to_seal(helper, (whole & ((1 << 59) - 1)).view(np.uint64))
    helper.evaluator.transform_to_ntt_inplace(plain, list(helper.parms_id(len(helper.primes))))
    return plain_to_seal(ring, plain_from_seal(plain).reshape(len(ring.primes), -1))


def coefficients(ring: Ring, transformed: Residues) -> Residues:
    """Return the coefficients of transformed polynomials (polynomials × degree) modulo the first prime."""
    # SEAL transforms back what a ciphertext holds, and a ciphertext holds two polynomials at least.
    padded = transformed if len(transformed) > 1 else np.repeat(transformed, 2, axis=0)
    joined = to_seal(ring, padded[:, None])
    ring.evaluator.transform_from_ntt_inplace(joined)
    found, _ = from_seal(ring, 1, joined, polynomials=len(padded), in_ntt_form=False)
    return found[: len(transformed), 0]
