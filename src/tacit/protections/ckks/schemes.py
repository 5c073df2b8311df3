"""How vectors are encrypted for a sum, and matrices for a product: by coefficients, or by slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tacit.core.secret import Secret
from tacit.crypto import rlwe
from tacit.crypto.fixedpoint import Integers
from tacit.crypto.rlwe import columns

if TYPE_CHECKING:
    from tacit.protections.ckks.slots import Slots

Kind = Literal["sum", "columns", "product"]
MOST_PIECES = 32  # polynomials of a product by coefficients: 786 kB for each client


@dataclass(frozen=True)
class Coefficients:
    """Values in coefficients: :mod:`tacit.crypto.rlwe`."""

    def rounding_unit(self, bound: float, summands: int) -> float:
        """Return the unit to which an opened total is rounded."""
        return rlwe.rounding_unit(bound, summands)

    def make_keys(self) -> tuple[Secret, bytes]:
        """Draw a key: the secret, and its id."""
        return rlwe.make_key()

    def cipher(self, secret: Secret) -> rlwe.Cipher:
        """Return what key holders encrypt and decrypt with."""
        return rlwe.Cipher(secret)

    def encrypt(
        self, cipher: rlwe.Cipher, slots: Slots, integers: Integers, seed: Secret, summands: int
    ) -> tuple[bytes, Integers]:
        """Encrypt slots; return the noise, too."""
        values = slots.to_values(integers)
        return cipher.encrypt_noisily(values, seed, bound=1.0, summands=summands, total=slots.reach)

    def decrypt(self, cipher: rlwe.Cipher, slots: Slots, blob: bytes) -> tuple[Integers, Integers]:
        """Decrypt slots, in units, and the noise beside them."""
        return cipher.decrypt_noisily(blob, slots.unit_bits)

    def adder(self, key_id: bytes) -> rlwe.Adder:
        """Return what adds ciphertexts without the key."""
        return rlwe.Adder(key_id)

    def header(self, key_id: bytes, blob: bytes, kind: Kind = "sum") -> rlwe.Header:
        """Check what a blob says of itself: there are only sums. Who adds or opens it checks the rest."""
        assert kind == "sum"
        return rlwe.read(key_id, blob, whole=False)

    def summands(self, blob: bytes) -> int:
        """Return for how many summands a blob was made."""
        return self.header(rlwe.key_of(blob), blob).summands


@dataclass(frozen=True)
class Slotted:
    """Values in slots, by SEAL: :mod:`tacit.crypto.ckks`."""

    name: str

    @property
    def parameters(self) -> Any:
        """The set of that name."""
        from tacit.crypto.ckks import parameter_set

        return parameter_set(self.name)

    def rounding_unit(self, bound: float, summands: int) -> float:
        """Return the unit to which an opened total is rounded."""
        unit: float = self.parameters.rounding_unit(bound, summands)
        return unit

    def make_keys(self) -> tuple[Secret, bytes]:
        """Draw a key: the secret, and its id."""
        from tacit.crypto.ckks import make_keys

        keys = make_keys(self.parameters)
        return keys.secret, keys.key_id

    def cipher(self, secret: Secret) -> Any:
        """Return what key holders encrypt and decrypt with."""
        from tacit.crypto.ckks import Cipher

        return Cipher(self.parameters, secret)

    def encrypt(
        self, cipher: Any, slots: Slots, integers: Integers, seed: Secret, summands: int
    ) -> tuple[bytes, None]:
        """Encrypt slots; SEAL keeps the noise to itself, and draws its own randomness."""
        blob = cipher.encrypt(slots.to_values(integers), bound=1.0, summands=summands, total=slots.reach)
        return blob, None

    def decrypt(self, cipher: Any, slots: Slots, blob: bytes) -> tuple[Integers, None]:
        """Decrypt slots, in units."""
        return slots.to_integers(cipher.decrypt(blob)), None

    def adder(self, key_id: bytes) -> Any:
        """Return what adds ciphertexts without the key."""
        from tacit.crypto.ckks import Adder

        return Adder(self.parameters, key_id)

    def header(self, key_id: bytes, blob: bytes, kind: Kind = "sum") -> Any:
        """Check a blob, and return its header."""
        from tacit.crypto.ckks import blob as blobs
        from tacit.crypto.ckks.parameters import ring_of

        return blobs.read(ring_of(self.parameters), key_id, blob, blobs.Kind[kind.upper()])

    def summands(self, blob: bytes) -> int:
        """Return for how many summands a blob was made."""
        from tacit.crypto.ckks.blob import key_of

        found: int = self.header(key_of(blob), blob).summands
        return found


@dataclass(frozen=True)
class CoefficientColumns:
    """Entries in coefficients: :mod:`tacit.crypto.rlwe.columns`."""

    key: ClassVar[str] = "columns"  # under which name the coordinator keeps the id of the key

    def public(self, secret: Secret, features: Iterable[int]) -> Mapping[str, bytes]:
        """Return the key's id."""
        return {self.key: columns.key_id_of(secret)}

    def cipher(self, secret: Secret) -> columns.Cipher:
        """Return what key holders encrypt and decrypt with."""
        return columns.Cipher(secret)

    def adder(self, key_id: bytes) -> columns.Adder:
        """Return what adds ciphertexts without the key."""
        return columns.Adder(key_id)

    def header(self, key_id: bytes, blob: bytes, kind: Kind) -> columns.Header:
        """Check what a blob says of itself. Who adds or opens it checks the rest."""
        return columns.read(key_id, blob, kind, whole=False)

    def multiplier(self, public: Mapping[str, Any]) -> columns.Multiplier:
        """Return what multiplies ciphertexts without the key."""
        return columns.Multiplier(public[self.key])

    def unit(self, blob: bytes, kind: Kind) -> float:
        """Return the rounding unit of what a blob opens to."""
        return columns.read(columns.key_of(blob), blob, kind, whole=False).unit


@dataclass(frozen=True)
class SlottedColumns(Slotted):
    """Entries in slots, by SEAL, which rotates them: the coordinator needs rotation keys."""

    key: ClassVar[str] = "slots"

    def public(self, secret: Secret, features: Iterable[int]) -> Mapping[str, bytes]:
        """Return the key's id, and rotation keys for these numbers of features."""
        from tacit.crypto.ckks import make_keys, rotations_for

        steps = {step for size in features for step in rotations_for(self.parameters, size)}
        made = make_keys(self.parameters, steps, secret)
        return {self.key: made.key_id, "evaluation": made.evaluation}

    def multiplier(self, public: Mapping[str, Any]) -> Any:
        """Return what multiplies ciphertexts without the key."""
        return _product(self.parameters, public["evaluation"], public[self.key])

    def unit(self, blob: bytes, kind: Kind) -> float:
        """Return the rounding unit of what a blob opens to."""
        from tacit.crypto.ckks import column_unit
        from tacit.crypto.ckks.blob import key_of

        return column_unit(self.parameters, self.header(key_of(blob), blob, kind))


Scheme = Coefficients | Slotted  # how vectors are encrypted for a sum
Columns = CoefficientColumns | SlottedColumns  # how a matrix that the coordinator multiplies unopened


def scheme(name: str) -> Scheme:
    """Return the scheme of a parameter set's name."""
    return Coefficients() if name == "coefficients" else Slotted(name)


def columns_scheme(name: str, rows: int, outputs: int, matrices: int) -> Columns | None:
    """Return the scheme of a matrix that is to be multiplied, if the parameter set of that name has one.

    >>> columns_scheme("auto", 65, 10, 1), columns_scheme("auto", 500, 2, 1)
    (CoefficientColumns(), SlottedColumns(name='product'))
    """
    if name in ("auto", "coefficients"):
        if (columns.pieces(rows, outputs, matrices) or MOST_PIECES + 1) <= MOST_PIECES:
            return CoefficientColumns()
        if name == "coefficients":
            return None
        name = "product"
    from tacit.crypto.ckks import parameter_set

    chosen = parameter_set(name)
    return SlottedColumns(name) if chosen.multiplies and 0 < rows <= chosen.slots else None


@lru_cache(maxsize=2)  # megabytes each, and 50 ms to read
def _product(parameters: Any, evaluation: bytes, key_id: bytes) -> Any:
    from tacit.crypto.ckks import Product

    return Product(parameters, evaluation, key_id)


def kind_of(total: Mapping[str, Any]) -> Kind:
    """Return what a blob of columns has to hold."""
    return "product" if total.get("multiplied") else "columns"
