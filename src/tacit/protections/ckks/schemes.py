"""How CKKS encrypts vectors for a sum, in slots, and matrices for a product, in coefficients or slots."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import floor, log2
from typing import Any, ClassVar, Literal

import numpy as np

from tacit.core.layout import Layout
from tacit.core.protection import FINE
from tacit.core.secret import Secret
from tacit.crypto import ckks
from tacit.crypto.ckks import columns, packing
from tacit.crypto.ckks.parameters import ParameterSet, parameter_set, ring_of
from tacit.crypto.fixedpoint import Integers
from tacit.crypto.seal import blob as blobs
from tacit.crypto.seal.adder import Adder
from tacit.crypto.seal.blob import Form, Header
from tacit.crypto.seal.residues import Residues
from tacit.crypto.seal.ring import Ring
from tacit.protections.encrypted.slots import Slots

Kind = Literal["columns", "product"]
ColumnCipher = ckks.Cipher | columns.Cipher  # what key holders encrypt and decrypt matrices with
MOST_PIECES = 32  # polynomials of a product by coefficients: 819 kB for each client


@dataclass(frozen=True)
class Slotted:
    """Values in slots: :mod:`tacit.crypto.ckks`.

    Slots hold whole numbers of the unit to which totals are rounded: a decrypted total is then exactly the
    sum of what clients encrypted, as long as its noise is below half a unit, which is at least 8 of its
    standard deviations.
    """

    form: ClassVar[Form] = packing.SUM  # of blobs

    parameters: ParameterSet

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

    def ring(self, slots: Slots) -> Ring:
        """Return the ring of ciphertexts."""
        return ring_of(self.parameters)

    def make_keys(self) -> tuple[Secret, bytes]:
        """Draw a key: the secret, and its id."""
        keys = ckks.make_keys(self.parameters)
        return keys.secret, keys.key_id

    def cipher(self, secret: Secret) -> Any:
        """Return what key holders encrypt and decrypt with."""
        return ckks.Cipher(self.parameters, secret)

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
        return ckks.Adder(self.parameters, key_id)

    def bound(self, slots: Slots) -> float:
        """Return the bound that blobs of such slots declare."""
        return slots.reach / slots.summands


@dataclass(frozen=True)
class CoefficientColumns:
    """Entries in coefficients: :mod:`tacit.crypto.ckks.columns`."""

    key: ClassVar[str] = "columns"  # under which name the coordinator keeps the id of the key
    forms: ClassVar[Mapping[Kind, Form]] = {"columns": columns.COLUMNS, "product": columns.PRODUCT}

    parameters: ClassVar[ParameterSet] = columns.PARAMETERS

    def public(self, secret: Secret, features: Iterable[int]) -> Mapping[str, bytes]:
        """Return the key's id."""
        return {self.key: columns.Cipher(secret).key_id}

    def cipher(self, secret: Secret) -> ColumnCipher:
        """Return what key holders encrypt and decrypt with."""
        return columns.Cipher(secret)

    def multiplier(self, public: Mapping[str, Any]) -> columns.Multiplier:
        """Return what multiplies ciphertexts without the key."""
        return columns.Multiplier(public[self.key])

    def unit(self, header: Header) -> float:
        """Return the rounding unit of what a blob opens to."""
        return columns.unit(header)


@dataclass(frozen=True)
class SlottedColumns:
    """Entries in slots, which SEAL rotates: the coordinator needs rotation keys."""

    key: ClassVar[str] = "slots"
    forms: ClassVar[Mapping[Kind, Form]] = {"columns": packing.COLUMNS, "product": packing.PRODUCT}

    parameters: ParameterSet

    def public(self, secret: Secret, features: Iterable[int]) -> Mapping[str, bytes]:
        """Return the key's id, and rotation keys for these numbers of features."""
        steps = {step for size in features for step in ckks.rotations_for(self.parameters, size)}
        made = ckks.make_keys(self.parameters, steps, secret)
        return {self.key: made.key_id, "evaluation": made.evaluation}

    def cipher(self, secret: Secret) -> ColumnCipher:
        """Return what key holders encrypt and decrypt with."""
        return ckks.Cipher(self.parameters, secret)

    def multiplier(self, public: Mapping[str, Any]) -> ckks.Product:
        """Return what multiplies ciphertexts without the key."""
        return _product(self.parameters, public["evaluation"], public[self.key])

    def unit(self, header: Header) -> float:
        """Return the rounding unit of what a blob opens to."""
        return ckks.column_unit(self.parameters, header)


Columns = CoefficientColumns | SlottedColumns  # how a matrix is encrypted that the coordinator multiplies


def columns_scheme(name: str, rows: int, outputs: int, matrices: int) -> Columns | None:
    """Return the scheme of a matrix that is to be multiplied, if the parameter set of that name has one.

    >>> columns_scheme("auto", 65, 10, 1), columns_scheme("auto", 500, 2, 1).parameters.name
    (CoefficientColumns(), 'product')
    """
    if name == "auto":
        if (columns.pieces(rows, outputs, matrices) or MOST_PIECES + 1) <= MOST_PIECES:
            return CoefficientColumns()
        name = "product"
    chosen = parameter_set(name)
    return SlottedColumns(chosen) if chosen.multiplies and 0 < rows <= chosen.slots else None


@lru_cache(maxsize=2)  # megabytes each, and 50 ms to read
def _product(parameters: ParameterSet, evaluation: bytes, key_id: bytes) -> ckks.Product:
    return ckks.Product(parameters, evaluation, key_id)


def read_columns(used: Columns, key_id: bytes, blob: bytes, multiplied: bool) -> Header:
    """Check a blob of columns, or of their product, and return its header."""
    form = used.forms["product" if multiplied else "columns"]
    return blobs.read(ring_of(used.parameters), key_id, blob, form)
