"""How vectors are encrypted for a sum: by coefficients to add them, by slots to multiply them as well."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

from tacit.core.secret import Secret
from tacit.crypto import rlwe

Kind = Literal["sum", "columns", "product"]


class Scheme(Protocol):
    """What an encrypted sum needs of its encryption."""

    def rounding_unit(self, bound: float, summands: int) -> float:
        """Unit to which an opened total is rounded."""

    def make_keys(self) -> tuple[Secret, bytes]:
        """Draw a key: the secret, and its id."""

    def cipher(self, secret: Secret) -> Any:
        """What key holders encrypt and decrypt with."""

    def adder(self, key_id: bytes) -> Any:
        """What adds ciphertexts without the key."""

    def header(self, key_id: bytes, blob: bytes, kind: Kind = "sum") -> Any:
        """Check a blob, and give what it says of itself."""


@dataclass(frozen=True)
class Coefficients:
    """Values in coefficients: :mod:`tacit.crypto.rlwe`."""

    def rounding_unit(self, bound: float, summands: int) -> float:
        """Unit to which an opened total is rounded."""
        return rlwe.rounding_unit(bound, summands)

    def make_keys(self) -> tuple[Secret, bytes]:
        """Draw a key."""
        keys = rlwe.make_keys()
        return keys.secret, keys.key_id

    def cipher(self, secret: Secret) -> rlwe.Cipher:
        """For key holders."""
        return rlwe.Cipher(secret)

    def adder(self, key_id: bytes) -> rlwe.Adder:
        """For the coordinator."""
        return rlwe.Adder(key_id)

    def header(self, key_id: bytes, blob: bytes, kind: Kind = "sum") -> rlwe.Header:
        """Check what a blob says of itself: there are only sums. Who adds or opens it checks the rest."""
        assert kind == "sum"
        return rlwe.read(key_id, blob, whole=False)


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
        """Unit to which an opened total is rounded."""
        unit: float = self.parameters.rounding_unit(bound, summands)
        return unit

    def make_keys(self) -> tuple[Secret, bytes]:
        """Draw a key."""
        from tacit.crypto.ckks import make_keys

        keys = make_keys(self.parameters)
        return keys.secret, keys.key_id

    def cipher(self, secret: Secret) -> Any:
        """For key holders."""
        from tacit.crypto.ckks import Cipher

        return Cipher(self.parameters, secret)

    def adder(self, key_id: bytes) -> Any:
        """For the coordinator."""
        from tacit.crypto.ckks import Adder

        return Adder(self.parameters, key_id)

    def header(self, key_id: bytes, blob: bytes, kind: Kind = "sum") -> Any:
        """Check a blob."""
        from tacit.crypto.ckks import blob as blobs
        from tacit.crypto.ckks.parameters import ring_of

        return blobs.read(ring_of(self.parameters), key_id, blob, blobs.Kind[kind.upper()])


def scheme(name: str) -> Scheme:
    """Give the scheme of a parameter set's name."""
    return Coefficients() if name == "coefficients" else Slotted(name)


@lru_cache(maxsize=2)  # megabytes each, and 50 ms to read
def multiplier(parameters: Any, evaluation: bytes, key_id: bytes) -> Any:
    """What multiplies encrypted columns without the key."""
    from tacit.crypto.ckks import Product

    return Product(parameters, evaluation, key_id)
