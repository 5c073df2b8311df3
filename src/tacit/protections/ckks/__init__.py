"""CKKS sums: clients hold the key, the coordinator adds and multiplies ciphertexts and never sees a total.

Fontenla-Romero et al. ("FedHEONN") encrypt their moments this way; here any contribution can be. The
encryption is Microsoft SEAL's (:mod:`tacit.crypto.ckks`). A total that its method wants multiplied by a
matrix which the coordinator knows travels as *columns*, under parameters with room for one product; the
coordinator multiplies what it cannot read, and the clients open the product. For sums alone
:mod:`tacit.protections.bfv` takes fewer bytes, less time, and is exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Literal, Self

from tacit.core.errors import ConfigError
from tacit.core.fields import SHAPES, Kind
from tacit.core.layout import Field, Layout
from tacit.core.link import Link
from tacit.core.party import Party
from tacit.core.promises import Promises
from tacit.core.secret import Secret
from tacit.protections.blobs import cipher_of
from tacit.protections.ckks.client import CKKSClient
from tacit.protections.ckks.coordinator import CKKSCoordinator
from tacit.protections.ckks.schemes import Columns, Slotted, columns_scheme, kind_of
from tacit.protections.encrypted import Encrypted

# Upload for one value with a bound, as seeded ciphertexts take it.
SLOT_BYTES = {"sum": 18.1, "sum-compact": 13.6, "product": 25.1, "product-small": 17.4}
REMOVED = "coefficients"  # a parameter set of earlier releases


@dataclass(frozen=True)
class CKKS(Encrypted):
    """CKKS ciphertexts, by SEAL, added and multiplied by a coordinator without a key; opened at the clients.

    Parameters
    ----------
    parameters : {"auto", "sum", "sum-compact", "product", "product-small"}
        Parameter set, all at 128-bit security. ``auto``: ``sum`` for sums; matrices that the coordinator
        multiplies lie in coefficients if they are small, else in the slots of ``product``.
    """

    name = "ckks"
    field_names: ClassVar[Mapping[str, str]] = {
        **Encrypted.field_names,
        **dict.fromkeys(("columns", "slots"), "public key"),
        "evaluation": "rotation keys",
    }
    field_kinds: ClassVar[Mapping[str, Kind]] = {**Encrypted.field_kinds, "columns": SHAPES}

    parameters: Literal["auto", "sum", "sum-compact", "product", "product-small"] = "auto"

    def __new__(cls, *values: Any, **settings: Any) -> Self:
        """Say what a parameter set that is no longer there has become."""
        _refuse_removed(settings)
        return super().__new__(cls, *values, **settings)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Build from plain settings."""
        _refuse_removed(config)
        return super().from_config(config)

    @property
    def promises(self) -> Promises:
        """What is promised."""
        return self.promised(
            self.scheme.parameters.rounding_unit(1.0, 20_000),
            SLOT_BYTES[self.parameter_set],
            "; products of totals, as in mode paper, prove nothing",
        )

    @property
    def parameter_set(self) -> str:
        """Parameters of sums."""
        return "sum" if self.parameters == "auto" else self.parameters

    @property
    def scheme(self) -> Slotted:
        """How vectors are encrypted."""
        return Slotted(self.parameter_set)

    def generate(self, key_request: Mapping[str, Any]) -> tuple[Secret, Mapping[str, bytes]]:
        """Make a key; the coordinator gets its id, and what it needs to multiply columns."""
        secret, public = super().generate(key_request)
        features: defaultdict[Columns | None, set[int]] = defaultdict(set)
        for shape in key_request.get("columns", []):
            features[columns_scheme(self.parameters, *shape)].add(shape[0])
        for used, sizes in features.items():
            public = {**public, **(used.public(secret, sizes) if used else {})}
        return secret, public

    def columns(self, layout: Layout) -> tuple[Field, Columns] | None:
        """Return the field that the coordinator can multiply, if there is one and nothing else is summed."""
        if len(layout.fields) != 1:
            return None
        (field,) = layout.fields
        if not field.columns or field.bound is None or field.shape is None or len(field.shape) != 2:
            return None
        used = columns_scheme(self.parameters, *field.shape, int(field.columns))
        return (field, used) if used else None

    def proves(self, layout: Layout) -> bool:
        """All totals but those that the coordinator multiplies: a product of a total has no tag."""
        return self.columns(layout) is None

    def error(self, layout: Layout, contributions: int, total: Mapping[str, Any] | None = None) -> float:
        """Return the typical error: each client rounds to a unit; of a product, half a unit in all."""
        if found := self.columns(layout):
            return found[1].unit(cipher_of(total or {}), kind_of(total or {})) / sqrt(12)
        return super().error(layout, contributions, total)

    def at_coordinator(self, link: Link) -> CKKSCoordinator:
        """Return the coordinator half, which adds and multiplies ciphertexts."""
        return CKKSCoordinator(self, link)

    def at_client(self, party: Party) -> CKKSClient:
        """Return the client half, which encrypts and opens totals."""
        return CKKSClient(self, party)


def _refuse_removed(settings: Mapping[str, Any]) -> None:
    if settings.get("parameters") == REMOVED:
        raise ConfigError(
            f"ckks: option parameters = '{REMOVED}' is no longer there: sums with values in coefficients are "
            "protection bfv now; products take coefficients by themselves, with parameters = 'auto'"
        )
