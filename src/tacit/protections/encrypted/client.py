"""What a client does where clients share a key: it encrypts, and opens totals."""

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
from tacit.crypto.seal.blob import all_residues, read, summands_of
from tacit.crypto.seal.residues import Residues
from tacit.protections.blobs import cipher_of
from tacit.protections.keys.proved_totals import ProvedTotals
from tacit.protections.keys.shared_key import SharedKeyClient

if TYPE_CHECKING:
    from tacit.protections.encrypted import Encrypted

SUMS = "sums"  # what encrypts vectors that are added, beside what encrypts columns


class EncryptedClient(SharedKeyClient):
    """Encrypts, and opens totals."""

    def __init__(self, settings: Encrypted, party: Party) -> None:
        super().__init__(settings.terms, party)
        self._settings = settings
        self._proved = ProvedTotals(party, self.key)

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Encrypt this party's vector, and tag the ciphertext."""
        scheme = self._settings.scheme
        slots = scheme.slots(layout, read_integer(ticket, "summands", 1, MOST_SUMMANDS))
        ring, integers = scheme.ring(slots), slots.encode(vector)

        def encrypt() -> tuple[bytes, Mapping[int, Residues]]:
            cipher = self.key.cached(SUMS, scheme.cipher)
            blob = scheme.encrypt(cipher, slots, integers)
            header = read(ring, cipher.key_id, blob, scheme.form, whole=False)
            return blob, all_residues(ring, header, blob)

        return self._proved.tag_ciphertext(ticket, layout, integers, encrypt)

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Check whose contributions it is the sum of, and only then decrypt."""
        blob, scheme = cipher_of(total), self._settings.scheme
        slots = scheme.slots(layout, summands_of(blob))
        ring = scheme.ring(slots)
        age, header = self.key.find_key(
            SUMS, scheme.cipher, lambda key: read(ring, key.key_id, blob, scheme.form)
        )
        check_opening(self.party, self._settings, header.count)
        agreed = (slots.count, slots.summands, scheme.bound(slots))
        if (header.rows, header.summands, header.bound) != agreed:
            raise ProtectionError(
                f"a total of {header.rows} values up to {header.bound:g}, agreed were {slots.count} up to "
                f"{agreed[2]:g}"
            )
        # Whether a made-up ciphertext decrypts to what was tagged would tell of the key.
        residues = all_residues(ring, header, blob)
        self._proved.check(total, layout, header.summands, residues, age)
        cipher = self.key.cached(SUMS, scheme.cipher, age)
        return slots.decode(scheme.decrypt(cipher, slots, header, residues))
