"""CKKS sums: clients hold the key, the coordinator adds and multiplies ciphertexts and never sees a total.

Fontenla-Romero et al. ("FedHEONN") encrypt their moments this way; here any contribution can be. A total that
its method wants multiplied by a matrix travels as *columns*, in a ring with room for one product, and the
clients open the product. For sums alone :mod:`tacit.protections.bfv` takes less, and is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor, log2, sqrt
from typing import Any, ClassVar

import numpy as np

from tacit.core.client import check_opening
from tacit.core.errors import ProtectionError
from tacit.core.fields import MOST_SUMMANDS, read_integer
from tacit.core.layout import Field, Layout
from tacit.core.link import Link
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.pending_sum import PendingSum
from tacit.core.promises import Promises
from tacit.core.protection import FINE, Vector
from tacit.core.values import Blob
from tacit.crypto import ckks
from tacit.crypto.ckks.rings import COLUMN, COLUMNS, PRODUCT, SUM, SUMS, pieces, rounding_unit, unit
from tacit.crypto.fixedpoint import Integers
from tacit.crypto.seal.adder import Adder
from tacit.crypto.seal.blob import Form, Header, key_of, read
from tacit.crypto.seal.residues import Residues
from tacit.crypto.seal.ring import Ring, ring_of
from tacit.protections.encrypted import CIPHER, Encrypted, EncryptedClient, EncryptedCoordinator
from tacit.protections.encrypted.slots import Slots
from tacit.protections.keys.authenticated import cipher_of

MOST_PIECES = 256  # polynomials of a product: 6.6 MB for each client


@dataclass(frozen=True)
class CKKS(Encrypted):
    """CKKS ciphertexts, by SEAL, added and multiplied by a coordinator without a key; clients open totals."""

    name = "ckks"

    @property
    def promises(self) -> Promises:
        proof = "; products of totals, as in mode paper, prove nothing"
        return self.promised(rounding_unit(20_000, 20_000), 7.6, proof)

    @property
    def scheme(self) -> Approximate:
        return Approximate()

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
            return unit(read_columns(key_of(blob), blob, bool(given.get("multiplied")))) / sqrt(12)
        return super().error(layout, contributions, total)

    def at_coordinator(self, link: Link) -> CKKSCoordinator:
        return CKKSCoordinator(self, link)

    def at_client(self, party: Party) -> CKKSClient:
        return CKKSClient(self, party)


@dataclass(frozen=True)
class Approximate:
    """How vectors are encrypted for a sum, in coefficients of :mod:`tacit.crypto.ckks`.

    They hold whole numbers of the unit to which totals are rounded: a decrypted total is then exactly the
    sum of what clients encrypted, as long as its noise is below half a unit, which is at least 8 of its
    standard deviations.
    """

    form: ClassVar[Form] = SUM  # of blobs
    cipher: ClassVar[type[ckks.Cipher]] = ckks.Cipher

    def slots(self, layout: Layout, summands: int) -> Slots:
        """Return how the values of a layout become slots; digits only for what one slot cannot hold."""
        digit_bits = min(24, floor(-log2(rounding_unit(summands, summands))) - 4)
        reach = max(layout.reach(summands), 1.0) if np.isfinite(layout.bounds).all() else float(summands)
        cut = layout.fine & (rounding_unit(reach, summands) > FINE)
        if cut.any():  # digits add up like any other values
            reach = float(summands)
        return Slots(layout.bounds, cut, reach, rounding_unit(reach, summands), digit_bits, summands)

    def ring(self, slots: Slots) -> Ring:
        """Return the ring of ciphertexts."""
        return ring_of(SUMS)

    def encrypt(self, cipher: ckks.Cipher, slots: Slots, integers: Integers) -> bytes:
        """Encrypt the integers of a vector."""
        values = np.ldexp(integers.astype(np.float64), slots.unit_bits)
        return cipher.encrypt(values, bound=1.0, summands=slots.summands, total=slots.reach)

    def decrypt(
        self, cipher: ckks.Cipher, slots: Slots, header: Header, residues: Mapping[int, Residues]
    ) -> Integers:
        """Decrypt the residues of a total that was read and checked; none has more than 2^52 units."""
        return np.rint(np.ldexp(cipher.open(header, residues), -slots.unit_bits)).astype(np.int64)

    def adder(self, key_id: bytes, blob: bytes) -> Adder:
        """Return what adds ciphertexts without the key."""
        return ckks.Adder(SUMS, key_id)

    def bound(self, slots: Slots) -> float:
        """Return the bound that blobs of such slots declare."""
        return slots.reach / slots.summands


class CKKSCoordinator(EncryptedCoordinator):
    """Adds and multiplies ciphertexts that it cannot open."""

    def __init__(self, settings: CKKS, link: Link) -> None:
        super().__init__(settings, link)
        self._columns = settings.columns

    def terms(
        self, layout: Layout, summands: int
    ) -> tuple[Callable[[bytes], Header], tuple[int, int], float]:
        if not (field := self._columns(layout)):
            return super().terms(layout, summands)
        rows, outputs = field.shape or ()
        bound = layout.reach(summands) / summands
        return lambda blob: read_columns(self.key_id, blob, False), (rows, outputs), bound

    def adder(self, layout: Layout, blob: bytes) -> Adder:
        return ckks.Adder(COLUMNS, self.key_id) if self._columns(layout) else super().adder(layout, blob)

    def multiply(
        self, pending: PendingSum, total: Mapping[str, Any], operator: Callable[[], Any]
    ) -> Mapping[str, Any] | None:
        if not self._columns(pending.layout) or (matrix := operator()) is None:
            return None
        product = ckks.Multiplier(self.key_id).apply(matrix, cipher_of(total))
        return {"cipher": Blob("cipher", product), "multiplied": True}


class CKKSClient(EncryptedClient):
    """Encrypts, and opens totals and their products."""

    def __init__(self, settings: CKKS, party: Party) -> None:
        super().__init__(settings, party)
        self._columns = settings.columns

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Encrypt this party's vector, and tag it; columns that will be multiplied have no tag."""
        if not (field := self._columns(layout)):
            return super().protect(ticket, vector, layout)
        summands = read_integer(ticket, "summands", 1, MOST_SUMMANDS)
        matrix = vector.reshape(field.shape or ()) / (field.bound or 1.0)
        cipher = self.key.cached(CIPHER, ckks.Cipher)
        blob = cipher.encrypt(matrix, bound=1.0, summands=summands, total=layout.reach(summands))
        return Message(cipher=Blob("cipher", blob))

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Decrypt, and check whose contributions it is of; of columns what the coordinator has multiplied."""
        if not (field := self._columns(layout)):
            return super().open(total, layout)
        blob, multiplied = cipher_of(total), bool(total.get("multiplied"))
        age, header = self.key.find_key(
            CIPHER, ckks.Cipher, lambda key: read_columns(key.key_id, blob, multiplied)
        )
        check_opening(self.party, self._settings, header.count)
        if (header.rows, header.outputs) != field.shape:
            raise ProtectionError(f"total of {header.rows} × {header.outputs}, agreed was {field.shape}")
        matrix = self.key.cached(CIPHER, ckks.Cipher, age).decrypt(blob)
        opened: Vector = matrix.reshape(-1) * (field.bound or 1.0)
        return opened


def read_columns(key_id: bytes, blob: bytes, multiplied: bool) -> Header:
    """Check a blob of columns, or of their product, and return its header."""
    return read(ring_of(COLUMNS), key_id, blob, PRODUCT if multiplied else COLUMN)
