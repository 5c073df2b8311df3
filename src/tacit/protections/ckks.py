"""CKKS sums: clients hold the key, the coordinator adds and multiplies ciphertexts and never sees a total.

Fontenla-Romero et al. ("FedHEONN") encrypt their moments this way; here any contribution can be. A total that
its method wants multiplied by a matrix travels as *columns*, in a ring with room for one product, and the
clients open the product. For sums alone :mod:`tacit.protections.bfv` takes less, and is exact.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import floor, log2, sqrt
from typing import Any, ClassVar

import numpy as np

from tacit.core.layout import Field, Layout
from tacit.core.link import Link
from tacit.core.pending_sum import PendingSum
from tacit.core.promises import Promises
from tacit.core.protection import FINE, Vector
from tacit.core.values import Blob
from tacit.crypto.ckks import Cipher, multiply
from tacit.crypto.ckks.rings import COLUMN, COLUMNS, PRODUCT, SUM, SUMS, pieces, rounding_unit, unit
from tacit.crypto.fixedpoint import Integers
from tacit.crypto.seal.adder import Adder
from tacit.crypto.seal.blob import Form, Header, key_of, read, set_of
from tacit.crypto.seal.residues import Residues
from tacit.crypto.seal.ring import Ring, ring_of
from tacit.protections.encrypted import Encrypted, EncryptedCoordinator
from tacit.protections.encrypted.slots import Slots
from tacit.protections.keys.authenticated import cipher_of

MOST_PIECES = 256  # polynomials of a product: 6.6 MB for each client


@dataclass(frozen=True)
class CKKS(Encrypted):
    """CKKS ciphertexts, by SEAL, added and multiplied by a coordinator without a key; clients open totals."""

    name = "ckks"
    cipher: ClassVar[type[Cipher]] = Cipher

    @property
    def promises(self) -> Promises:
        proof = "; products of totals, as in mode paper, prove nothing"
        return self.promised(rounding_unit(20_000, 20_000), 7.6, proof)

    def slots(self, layout: Layout, summands: int) -> "RoundedSlots | Columns":
        return _slots(self.columns(layout), layout, summands)

    def adder(self, key_id: bytes, blob: bytes) -> Adder:
        used, form = (COLUMNS, COLUMN) if set_of(blob) == COLUMNS.name else (SUMS, SUM)
        return Adder(ring_of(used), key_id, form)

    def columns(self, layout: Layout) -> Field | None:
        """Return the field that the coordinator can multiply, if there is one and nothing else is summed."""
        field = layout.fields[0]
        if len(layout.fields) != 1 or not field.columns or field.bound is None or len(field.shape or ()) != 2:
            return None
        rows, outputs = field.shape or ()
        count = pieces(rows, outputs, field.columns) if rows and outputs else None
        return field if count and count <= MOST_PIECES else None

    def proves(self, layout: Layout) -> bool:
        """All totals but those that the coordinator multiplies: a product of a total has no tag."""
        return self.columns(layout) is None

    def error(self, layout: Layout, contributions: int, total: Mapping[str, Any] | None = None) -> float:
        """Return the typical error: each client rounds to a unit; of a product, half a unit in all."""
        if self.columns(layout):
            given = total or {}
            blob = cipher_of(given)
            form = PRODUCT if given.get("multiplied") else COLUMN
            return unit(read(ring_of(COLUMNS), key_of(blob), blob, form)) / sqrt(12)
        return super().error(layout, contributions, total)

    def at_coordinator(self, link: Link) -> "CKKSCoordinator":
        return CKKSCoordinator(self, link)


@dataclass(frozen=True, eq=False)
class RoundedSlots(Slots):
    """Slots in the coefficients of :mod:`tacit.crypto.ckks`.

    They hold whole numbers of the unit to which totals are rounded: a decrypted total is then exactly the
    sum of what clients encrypted, as long as its noise is below half a unit, which is at least 8 of its
    standard deviations.
    """

    form = product = SUM

    @property
    def ring(self) -> Ring:
        """The ring of ciphertexts."""
        return ring_of(SUMS)

    @property
    def bound(self) -> float:
        """The bound that blobs declare."""
        return self.reach / self.summands

    def encrypt(self, cipher: Cipher, integers: Integers) -> bytes:
        """Encrypt the integers of a vector."""
        values = np.ldexp(integers.astype(np.float64), self.unit_bits)
        return cipher.encrypt(values, bound=1.0, summands=self.summands, total=self.reach)

    def decrypt(self, cipher: Cipher, header: Header, residues: Mapping[int, Residues]) -> Integers:
        """Decrypt the residues of a total that was read and checked; none has more than 2^52 units."""
        return np.rint(np.ldexp(cipher.open(header, residues), -self.unit_bits)).astype(np.int64)


@dataclass(frozen=True)
class Columns:
    """In place of slots: a matrix that the coordinator will multiply, as shares of its bound."""

    field: Field
    reach: float  # the largest total, in units of the bound
    summands: int

    form: ClassVar[Form] = COLUMN
    product: ClassVar[Form] = PRODUCT

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and outputs."""
        return self.field.shape or ()

    @property
    def ring(self) -> Ring:
        """The ring of ciphertexts, with room for one product."""
        return ring_of(COLUMNS)

    @property
    def bound(self) -> float:
        """The bound that blobs declare."""
        return self.reach / self.summands

    def encode(self, vector: Vector) -> Vector:
        """Return the matrix in a vector."""
        return np.asarray(vector.reshape(self.shape) / (self.field.bound or 1.0))

    def encrypt(self, cipher: Cipher, matrix: Vector) -> bytes:
        """Encrypt a matrix."""
        return cipher.encrypt(matrix, bound=1.0, summands=self.summands, total=self.reach)

    def decrypt(self, cipher: Cipher, header: Header, residues: Mapping[int, Residues]) -> Vector:
        """Decrypt the residues of a total, or of a product of one, that was read and checked."""
        return cipher.open(header, residues)

    def decode(self, matrix: Vector) -> Vector:
        """Return the values of an opened total."""
        return np.asarray(matrix.reshape(-1) * (self.field.bound or 1.0))


class CKKSCoordinator(EncryptedCoordinator):
    """Adds and multiplies ciphertexts that it cannot open."""

    def multiply(
        self, pending: PendingSum, total: Mapping[str, Any], operator: Callable[[], Any]
    ) -> Mapping[str, Any] | None:
        slots = self._settings.slots(pending.layout, len(pending.parties))
        if not isinstance(slots, Columns) or (matrix := operator()) is None:
            return None
        return {"cipher": Blob("cipher", multiply(self.key_id, matrix, cipher_of(total))), "multiplied": True}


@lru_cache(maxsize=8)  # clients of one process share layouts
def _slots(columns: Field | None, layout: Layout, summands: int) -> RoundedSlots | Columns:
    if columns:
        return Columns(columns, layout.reach(summands), summands)
    # Digits only for what one slot cannot hold.
    digit_bits = min(24, floor(-log2(rounding_unit(summands, summands))) - 4)
    reach = max(layout.reach(summands), 1.0) if np.isfinite(layout.bounds).all() else float(summands)
    cut = layout.fine & (rounding_unit(reach, summands) > FINE)
    if cut.any():  # digits add up like any other values
        reach = float(summands)
    return RoundedSlots(layout.bounds, cut, reach, rounding_unit(reach, summands), digit_bits, summands)
