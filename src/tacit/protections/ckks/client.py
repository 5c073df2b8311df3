"""What CKKS does at a client beside sums: it encrypts columns, and opens products of their totals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tacit.core.client import check_opening
from tacit.core.errors import ProtectionError
from tacit.core.layout import Field, Layout
from tacit.core.message import Message
from tacit.core.numbers import MOST_SUMMANDS, read_integer
from tacit.core.party import Party
from tacit.core.protection import Vector
from tacit.core.values import Blob
from tacit.protections.blobs import cipher_of
from tacit.protections.ckks.schemes import Columns, kind_of
from tacit.protections.encrypted.client import EncryptedClient

if TYPE_CHECKING:
    from tacit.protections.ckks import CKKS


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
        blob = cipher_of(total)
        age, header = self.key.find_key(
            used.key, used.cipher, lambda key: used.header(key.key_id, blob, kind_of(total))
        )
        check_opening(self.party, self._settings, header.count)
        if (header.rows, header.outputs) != field.shape:
            raise ProtectionError(f"total of {header.rows} × {header.outputs}, agreed was {field.shape}")
        matrix = self.key.cached(used.key, used.cipher, age).decrypt_columns(blob)
        opened: Vector = matrix.reshape(-1) * (field.bound or 1.0)
        return opened
