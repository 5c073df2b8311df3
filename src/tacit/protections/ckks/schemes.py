"""How CKKS encrypts vectors for a sum, in slots, and matrices for a product, in coefficients or slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import floor, log2
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from tacit.core.layout import Layout
from tacit.core.protection import FINE, Vector
from tacit.core.secret import Secret
from tacit.crypto import ckks
from tacit.crypto.ckks import columns, forms
from tacit.crypto.ckks.parameters import ParameterSet, parameter_set, ring_of
from tacit.crypto.fixedpoint import Integers
from tacit.crypto.seal import blob as blobs
from tacit.crypto.seal.adder import Adder
from tacit.crypto.seal.blob import Header
from tacit.crypto.seal.residues import Residues
from tacit.protections.encrypted.slots import Slots

Kind = Literal["columns", "product"]
MOST_PIECES = 32  # polynomials of a product by coefficients: 819 kB for each client


@dataclass(frozen=True)
class Slotted:
    """Values in slots: :mod:`tacit.crypto.ckks`.

    Slots hold whole numbers of the unit to which totals are rounded: a decrypted total is then exactly the
    sum of what clients encrypted, as long as its noise is below half a unit, which is at least 8 of its
    standard deviations.
    """

    name: str

    @property
    def parameters(self) -> ParameterSet:
        """The set of that name."""
        return parameter_set(self.name)

    def slots(self, layout: Layout, summands: int) -> Slots:
        """Return how the values of a layout become slots; digits only for what one slot cannot hold."""
        parameters, bounds = self.parameters, layout.bounds
        digit_bits = min(24, floor(-log2(parameters.rounding_unit(1.0, summands))) - 4)
        reach = layout.reach(summands) if np.isfinite(bounds).all() else float(summands)
        unit = parameters.rounding_unit(reach / summands, summands)
        cut = layout.fine & (unit > FINE)
        if cut.any():  # digits add up like any other values
            reach = float(summands)
        unit = parameters.rounding_unit(reach / summands, summands)
        return Slots(bounds, cut, reach, unit, digit_bits, summands)

    def make_keys(self) -> tuple[Secret, bytes]:
        """Draw a key: the secret, and its id."""
        keys = ckks.make_keys(self.parameters)
        return keys.secret, keys.key_id

    def cipher(self, secret: Secret) -> ckks.Cipher:
        """Return what key holders encrypt and decrypt with."""
        return ckks.Cipher(self.parameters, secret)

    def encrypt(self, cipher: Any, slots: Slots, integers: Integers) -> bytes:
        """Encrypt the integers of a vector."""
        values = np.ldexp(integers.astype(np.float64), slots.unit_bits)
        encrypted: bytes = cipher.encrypt(values, bound=1.0, summands=slots.summands, total=slots.reach)
        return encrypted

    def decrypt(self, cipher: Any, slots: Slots, blob: bytes) -> Integers:
        """Decrypt a total; none has more than 2^52 units."""
        whole: Integers = np.rint(np.ldexp(cipher.decrypt(blob), -slots.unit_bits)).astype(np.int64)
        return whole

    def moduli(self, slots: Slots) -> tuple[int, ...]:
        """Return the primes modulo which ciphertexts are added."""
        return ring_of(self.parameters).primes

    def residues(self, slots: Slots, header: Header, blob: bytes) -> Mapping[int, Residues]:
        """Return all residues of a blob that was read, by prime: what a tag covers."""
        return blobs.all_residues(ring_of(self.parameters), header, blob)

    def adder(self, key_id: bytes, blob: bytes) -> Adder:
        """Return what adds ciphertexts without the key."""
        return ckks.Adder(self.parameters, key_id)

    def header(self, key_id: bytes, blob: bytes, slots: Slots, whole: bool = True) -> Header:
        """Check a blob, and return its header; ``whole``: its checksum, too, unless who adds it checks it."""
        return blobs.read(ring_of(self.parameters), key_id, blob, forms.SUM, whole=whole)

    def bound(self, slots: Slots) -> float:
        """Return the bound that blobs of such slots declare."""
        return slots.reach / slots.summands


class ColumnCipher(Protocol):
    """What key holders encrypt and decrypt matrices with."""

    key_id: bytes

    def encrypt_columns(
        self, matrix: ArrayLike, *, bound: float, summands: int, total: float | None = None
    ) -> bytes:
        """Encrypt a matrix (features × outputs) that will be added up and multiplied from the left."""
        ...

    def decrypt_columns(self, encrypted: bytes) -> Vector:
        """Decrypt a sum of columns, or its product with a matrix."""
        ...


@dataclass(frozen=True)
class CoefficientColumns:
    """Entries in coefficients: :mod:`tacit.crypto.ckks.columns`."""

    key: ClassVar[str] = "columns"  # under which name the coordinator keeps the id of the key

    def public(self, secret: Secret, features: Iterable[int]) -> Mapping[str, bytes]:
        """Return the key's id."""
        return {self.key: columns.Cipher(secret).key_id}

    def cipher(self, secret: Secret) -> ColumnCipher:
        """Return what key holders encrypt and decrypt with."""
        return columns.Cipher(secret)

    def adder(self, key_id: bytes) -> Adder:
        """Return what adds ciphertexts without the key."""
        return columns.Adder(key_id)

    def header(self, key_id: bytes, blob: bytes, kind: Kind) -> Header:
        """Check a blob, and return its header."""
        return columns.read(key_id, blob, columns.PRODUCT if kind == "product" else columns.COLUMNS)

    def multiplier(self, public: Mapping[str, Any]) -> columns.Multiplier:
        """Return what multiplies ciphertexts without the key."""
        return columns.Multiplier(public[self.key])

    def unit(self, blob: bytes, kind: Kind) -> float:
        """Return the rounding unit of what a blob opens to."""
        return columns.unit(self.header(blobs.key_of(blob), blob, kind))


@dataclass(frozen=True)
class SlottedColumns:
    """Entries in slots, which SEAL rotates: the coordinator needs rotation keys."""

    name: str
    key: ClassVar[str] = "slots"

    @property
    def parameters(self) -> ParameterSet:
        """The set of that name."""
        return parameter_set(self.name)

    def public(self, secret: Secret, features: Iterable[int]) -> Mapping[str, bytes]:
        """Return the key's id, and rotation keys for these numbers of features."""
        steps = {step for size in features for step in ckks.rotations_for(self.parameters, size)}
        made = ckks.make_keys(self.parameters, steps, secret)
        return {self.key: made.key_id, "evaluation": made.evaluation}

    def cipher(self, secret: Secret) -> ColumnCipher:
        """Return what key holders encrypt and decrypt with."""
        return ckks.Cipher(self.parameters, secret)

    def adder(self, key_id: bytes) -> Adder:
        """Return what adds ciphertexts without the key."""
        return ckks.Adder(self.parameters, key_id)

    def header(self, key_id: bytes, blob: bytes, kind: Kind) -> Header:
        """Check a blob, and return its header."""
        form = forms.PRODUCT if kind == "product" else forms.COLUMNS
        return blobs.read(ring_of(self.parameters), key_id, blob, form)

    def multiplier(self, public: Mapping[str, Any]) -> ckks.Product:
        """Return what multiplies ciphertexts without the key."""
        return _product(self.parameters, public["evaluation"], public[self.key])

    def unit(self, blob: bytes, kind: Kind) -> float:
        """Return the rounding unit of what a blob opens to."""
        return ckks.column_unit(self.parameters, self.header(blobs.key_of(blob), blob, kind))


Columns = CoefficientColumns | SlottedColumns  # how a matrix that the coordinator multiplies unopened


def columns_scheme(name: str, rows: int, outputs: int, matrices: int) -> Columns | None:
    """Return the scheme of a matrix that is to be multiplied, if the parameter set of that name has one.

    >>> columns_scheme("auto", 65, 10, 1), columns_scheme("auto", 500, 2, 1)
    (CoefficientColumns(), SlottedColumns(name='product'))
    """
    if name == "auto":
        if (columns.pieces(rows, outputs, matrices) or MOST_PIECES + 1) <= MOST_PIECES:
            return CoefficientColumns()
        name = "product"
    chosen = parameter_set(name)
    return SlottedColumns(name) if chosen.multiplies and 0 < rows <= chosen.slots else None


@lru_cache(maxsize=2)  # megabytes each, and 50 ms to read
def _product(parameters: ParameterSet, evaluation: bytes, key_id: bytes) -> ckks.Product:
    return ckks.Product(parameters, evaluation, key_id)


def kind_of(total: Mapping[str, Any]) -> Kind:
    """Return what a blob of columns has to hold."""
    return "product" if total.get("multiplied") else "columns"
