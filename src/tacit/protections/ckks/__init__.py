"""CKKS sums: clients hold the key, the coordinator adds and multiplies ciphertexts and never sees a total.

Fontenla-Romero et al. ("FedHEONN") encrypt their moments this way; here any contribution can be. The
encryption is Microsoft SEAL's (:mod:`tacit.crypto.ckks`). A total that its method wants multiplied by a
matrix which the coordinator knows travels as *columns*, under parameters with room for one product; the
coordinator multiplies what it cannot read, and the clients open the product. For sums alone
:mod:`tacit.protections.bfv` takes fewer bytes, less time, and is exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Literal

from tacit.core.client import check_opening
from tacit.core.errors import ProtectionError
from tacit.core.fields import MOST_SUMMANDS, SHAPES, Kind, read_integer
from tacit.core.layout import Field, Layout
from tacit.core.link import Link
from tacit.core.marks import layouts_of
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.pending_sum import PendingSum
from tacit.core.promises import Promises
from tacit.core.protection import Vector
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.ckks.parameters import parameter_set, ring_of
from tacit.crypto.seal.adder import Adder
from tacit.crypto.seal.blob import Header, key_of
from tacit.protections.blobs import cipher_of
from tacit.protections.ckks.schemes import Columns, Slotted, columns_scheme, read_columns
from tacit.protections.encrypted import Encrypted, EncryptedClient, EncryptedCoordinator

# Upload for one value with a bound, as seeded ciphertexts take it.
SLOT_BYTES = {"sum": 18.1, "sum-compact": 13.6, "product": 25.1, "product-small": 17.4}


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

    @property
    def promises(self) -> Promises:
        """What is promised."""
        return self.promised(
            self.scheme.parameters.rounding_unit(1.0, 20_000),
            SLOT_BYTES[self.scheme.parameters.name],
            "; products of totals, as in mode paper, prove nothing",
        )

    @property
    def scheme(self) -> Slotted:
        """How vectors are encrypted."""
        return Slotted(parameter_set("sum" if self.parameters == "auto" else self.parameters))

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
            given = total or {}
            blob, multiplied = cipher_of(given), bool(given.get("multiplied"))
            return found[1].unit(read_columns(found[1], key_of(blob), blob, multiplied)) / sqrt(12)
        return super().error(layout, contributions, total)

    def at_coordinator(self, link: Link) -> CKKSCoordinator:
        """Return the coordinator half, which adds and multiplies ciphertexts."""
        return CKKSCoordinator(self, link)

    def at_client(self, party: Party) -> CKKSClient:
        """Return the client half, which encrypts and opens totals."""
        return CKKSClient(self, party)


class CKKSCoordinator(EncryptedCoordinator):
    """Adds and multiplies ciphertexts that it cannot open."""

    def __init__(self, settings: CKKS, link: Link) -> None:
        super().__init__(settings, link)
        self._columns = settings.columns

    def prepare(self, sums: int) -> None:
        """Let one party make the key; rotation keys are read now, so that bad ones stop the run early."""
        layouts = layouts_of(self.link.components.method, self.link.schema)
        found = [columns for columns in map(self._columns, layouts) if columns]
        shapes = sorted({(*(field.shape or ()), int(field.columns)) for field, _ in found})
        self.relay.prepare({"columns": [list(shape) for shape in shapes]} if shapes else {})
        if "evaluation" in self.relay.current_key.public:
            for _, used in found:
                used.multiplier(self.relay.current_key.public)

    def terms(
        self, layout: Layout, summands: int
    ) -> tuple[Callable[[bytes], Header], tuple[int, int], float]:
        """Return what reads the header of a contribution to a sum, and its agreed shape and bound."""
        if not (found := self._columns(layout)):
            return super().terms(layout, summands)
        field, used = found
        rows, outputs = field.shape or ()
        return (
            lambda blob: read_columns(used, self.relay.current_key.public[used.key], blob, False),
            (rows, outputs),
            layout.reach(summands) / summands,
        )

    def adder(self, layout: Layout, blob: bytes) -> Adder:
        """Return what adds ciphertexts like this one."""
        if not (found := self._columns(layout)):
            return super().adder(layout, blob)
        used, public = found[1], self.relay.current_key.public
        return Adder(ring_of(used.parameters), public[used.key], used.forms["columns"])

    def multiply(
        self, pending: PendingSum, total: Mapping[str, Any], operator: Callable[[], Any]
    ) -> Mapping[str, Any] | None:
        """Multiply the encrypted columns by a matrix, without opening them."""
        if (found := self._columns(pending.layout)) is None or (matrix := operator()) is None:
            return None
        product = found[1].multiplier(self.relay.current_key.public).apply(matrix, cipher_of(total))
        return {"cipher": Blob("cipher", product), "multiplied": True}


class CKKSClient(EncryptedClient):
    """Encrypts, and opens totals and their products."""

    def __init__(self, settings: CKKS, party: Party) -> None:
        super().__init__(settings, party)
        self._columns = settings.columns

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Encrypt this party's vector, and tag it; columns that will be multiplied have no tag."""
        if not (found := self._columns(layout)):
            return super().protect(ticket, vector, layout)
        field, used = found
        summands = read_integer(ticket, "summands", 1, MOST_SUMMANDS)
        matrix = vector.reshape(field.shape or ()) / (field.bound or 1.0)
        blob = self.key.cached(used.key, used.cipher).encrypt_columns(
            matrix, bound=1.0, summands=summands, total=layout.reach(summands)
        )
        return Message(cipher=Blob("cipher", blob))

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Decrypt, and check whose contributions it is of."""
        found = self._columns(layout)
        return self._open_columns(total, *found) if found else super().open(total, layout)

    def _open_columns(self, total: Mapping[str, Any], field: Field, used: Columns) -> Vector:
        """Decrypt what the coordinator has multiplied, rounded to the digits that mean something."""
        blob, multiplied = cipher_of(total), bool(total.get("multiplied"))
        age, header = self.key.find_key(
            used.key, used.cipher, lambda key: read_columns(used, key.key_id, blob, multiplied)
        )
        check_opening(self.party, self._settings, header.count)
        if (header.rows, header.outputs) != field.shape:
            raise ProtectionError(f"total of {header.rows} × {header.outputs}, agreed was {field.shape}")
        matrix = self.key.cached(used.key, used.cipher, age).decrypt_columns(blob)
        opened: Vector = matrix.reshape(-1) * (field.bound or 1.0)
        return opened
