"""What blobs of CKKS in slots hold: sums, columns that can be multiplied, and their products."""

from __future__ import annotations

from tacit.crypto.ckks.packing import columns
from tacit.crypto.ckks.parameters import CKKSRing
from tacit.crypto.seal.blob import Form, Header


def _vectors(ring: CKKSRing, header: Header) -> int:
    return -(-header.rows // ring.parameters.slots)


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


SUM = Form(1, _vectors, _all, _sound_sum)
COLUMNS = Form(2, _matrices, _all, lambda ring, header: _sound_matrix(ring, header) and header.factor == 1)
PRODUCT = Form(
    3, _matrices, _all, lambda ring, header: _sound_matrix(ring, header) and not header.seeded, spent=1
)
