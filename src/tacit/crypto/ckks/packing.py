"""Where the elements of encrypted columns lie: element i of output o in slot ``i * columns + place(o)``.

A rotation by ``k * columns`` is then cyclic in i for every output. Places are not simply 0, 1, 2, …: noise of
rotations gathers in the few slots whose root of unity lies near 1 (see :func:`gathering`), and there are
mostly more places than outputs, so those are taken first where it gathers least.

At the end: what blobs of slots hold, which are sums, columns that can be multiplied, and their products.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit.crypto.ckks.parameters import CKKSRing
from tacit.crypto.seal.blob import Form, Header

Floats = NDArray[np.float64]


def padded(rows: int) -> int:
    """Round up to a power of two, the period of rotations.

    >>> padded(1), padded(51), padded(64)
    (1, 64, 64)
    """
    return 1 << (rows - 1).bit_length()


def columns(slots: int, rows: int) -> int:
    """Return how many outputs fit into one ciphertext.

    >>> columns(4096, 51), columns(4096, 500), columns(4096, 562)
    (64, 8, 4)
    """
    return slots // padded(rows)


@lru_cache(maxsize=8)
def _roots(slots: int) -> Floats:
    """Return the angle between each slot's root and 1; slot j belongs to the root's power 3**j."""
    degree = 2 * slots
    powers = np.ones(slots, np.int64)
    for slot in range(1, slots):
        powers[slot] = powers[slot - 1] * 3 % (2 * degree)
    return np.minimum(powers, 2 * degree - powers) * (np.pi / degree)


@lru_cache(maxsize=64)
def places(slots: int, rows: int) -> tuple[NDArray[np.int64], Floats]:
    """Return places in the order outputs take them, and how much a constant gathers in each, at worst.

    A polynomial with all coefficients 1 takes the value 2 / (1 - ζ) at the root ζ: with N = 8192 about 5,200
    in the worst slot, and 1 in the best.

    >>> order, worst = places(4096, 51)
    >>> len(order), int(worst[0]), int(worst[-1])
    (64, 41, 5215)
    """
    gathered = 1 / np.sin(_roots(slots) / 2)
    worst = gathered.reshape(padded(rows), -1).max(axis=0)
    order = np.argsort(worst, kind="stable")
    return order, worst[order]


def share(slots: int, rows: int, outputs: int) -> int:
    """Return the outputs in each ciphertext: as few ciphertexts as can be, filled evenly.

    >>> share(4096, 51, 10), share(4096, 562, 6)
    (10, 3)
    """
    chunks = -(-outputs // columns(slots, rows))
    return -(-outputs // chunks)


def gathering(slots: int, rows: int, outputs: int) -> float:
    """Return how much a constant gathers in the worst slot that so many outputs use."""
    return float(places(slots, rows)[1][share(slots, rows, outputs) - 1])


def pack_columns(matrix: Floats, slots: int) -> list[Floats]:
    """Lay a matrix (features × outputs) out over the slots of one or more ciphertexts.

    >>> [len(slots) for slots in pack_columns(np.ones((3, 5)), 16)]
    [16, 16]
    """
    rows, outputs = matrix.shape
    order, _ = places(slots, rows)
    each = share(slots, rows, outputs)
    chunks = []
    for first in range(0, outputs, each):
        part = matrix[:, first : first + each]
        packed = np.zeros((padded(rows), order.size))
        packed[:rows, order[: part.shape[1]]] = part
        chunks.append(packed.reshape(-1))
    return chunks


def unpack_columns(chunks: Floats, rows: int, outputs: int) -> Floats:
    """Undo :func:`pack_columns`, given the slots of each ciphertext.

    >>> matrix = np.arange(15.0).reshape(3, 5)
    >>> bool((unpack_columns(np.stack(pack_columns(matrix, 16)), 3, 5) == matrix).all())
    True
    """
    order, _ = places(chunks.shape[1], rows)
    used = order[: share(chunks.shape[1], rows, outputs)]
    table = chunks.reshape(len(chunks), padded(rows), order.size)[:, :rows, used]
    return np.concatenate(list(table), axis=1)[:, :outputs]


def _matrices(ring: CKKSRing, header: Header) -> int:
    return -(-header.outputs // columns(ring.parameters.slots, header.rows))


def _all(ring: CKKSRing, header: Header) -> int:
    """Every slot depends on every coefficient: all of them travel."""
    return header.chunks(ring) * ring.degree


def _sound_sum(ring: CKKSRing, header: Header) -> bool:
    fits = header.bound * header.summands <= ring.parameters.headroom
    return header.outputs == 1 and header.factor == 1 and fits


def _sound_matrix(ring: CKKSRing, header: Header) -> bool:
    parameters = ring.parameters
    fits = parameters.multiplies and header.rows <= parameters.slots
    return fits and header.summands <= parameters.product_headroom


SUM = Form(1, lambda ring, header: -(-header.rows // ring.parameters.slots), _all, _sound_sum)
COLUMNS = Form(2, _matrices, _all, lambda ring, header: _sound_matrix(ring, header) and header.factor == 1)
PRODUCT = Form(
    3, _matrices, _all, lambda ring, header: _sound_matrix(ring, header) and not header.seeded, spent=1
)
