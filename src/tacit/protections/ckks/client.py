"""What CKKS does at a client: it encrypts, and opens totals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tacit.core.client import check_opening
from tacit.core.errors import ProtectionError
from tacit.core.layout import Layout
from tacit.core.message import Message
from tacit.core.numbers import MOST_SUMMANDS, read_integer
from tacit.core.party import Party
from tacit.core.protection import Vector
from tacit.core.values import Blob
from tacit.protections.blobs import cipher_of
from tacit.protections.ckks.schemes import kind_of
from tacit.protections.keys.proved_totals import ProvedTotals
from tacit.protections.keys.shared_key import SharedKeyClient

if TYPE_CHECKING:
    from tacit.protections.ckks import CKKS

SUMS = "sums"  # what encrypts vectors that are added, beside what encrypts columns


class CKKSClient(SharedKeyClient):
    """Encrypts, and opens totals."""

    def __init__(self, settings: CKKS, party: Party) -> None:
        super().__init__(settings.terms, party)
        self._settings = settings
        self._proved = ProvedTotals(party, self.key)

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Encrypt this party's vector, and tag it."""
        summands, settings = read_integer(ticket, "summands", 1, MOST_SUMMANDS), self._settings
        if found := settings.columns(layout):
            field, used = found
            matrix = vector.reshape(field.shape or ()) / (field.bound or 1.0)
            reach = layout.reach(summands)
            blob = self.key.cached(used.key, used.cipher).encrypt_columns(
                matrix, bound=1.0, summands=summands, total=reach
            )
            return Message(cipher=Blob("cipher", blob))
        slots, cipher = settings.slots(layout, summands), self.key.cached(SUMS, settings.scheme.cipher)
        integers = slots.encode(vector)
        seed = self._proved.seed(ticket, layout, integers)
        blob, noise = settings.scheme.encrypt(cipher, slots, integers, seed, summands)
        return Message(cipher=Blob("cipher", blob), tag=self._proved.tag(ticket, layout, integers, noise))

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Decrypt, rounded to the digits that mean something, and check whose contributions it is of."""
        blob, settings = cipher_of(total), self._settings
        if settings.columns(layout) is not None:
            return self._open_columns(total, layout)
        age, header = self.key.find_key(
            SUMS, settings.scheme.cipher, lambda key: settings.scheme.header(key.key_id, blob)
        )
        check_opening(self.party, settings, header.count)
        slots = settings.slots(layout, header.summands)
        if header.bound != slots.reach / header.summands:
            raise ProtectionError(f"a total of values up to {header.bound:g}, agreed was {slots.reach:g}")
        cipher = self.key.cached(SUMS, settings.scheme.cipher, age)
        integers, noise = settings.scheme.decrypt(cipher, slots, blob)
        self._proved.check(total, layout, header.summands, integers, age, noise)
        return slots.decode(integers)

    def _open_columns(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Decrypt what the coordinator has multiplied; it has no tag."""
        found, blob = self._settings.columns(layout), cipher_of(total)
        assert found is not None
        field, used = found
        age, header = self.key.find_key(
            used.key, used.cipher, lambda key: used.header(key.key_id, blob, kind_of(total))
        )
        check_opening(self.party, self._settings, header.count)
        if (header.rows, header.outputs) != field.shape:
            raise ProtectionError(f"total of {header.rows} × {header.outputs}, agreed was {field.shape}")
        opened: Vector = (
            self.key.cached(used.key, used.cipher, age).decrypt_columns(blob).reshape(-1) * field.bound
        )
        return opened
