"""What CKKS does at the coordinator beside sums: it multiplies ciphertexts that it cannot open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.marks import layouts_of
from tacit.core.pending_sum import PendingSum
from tacit.core.values import Blob
from tacit.crypto.seal.adder import Adder
from tacit.crypto.seal.blob import Header
from tacit.protections.blobs import cipher_of
from tacit.protections.encrypted.coordinator import EncryptedCoordinator

if TYPE_CHECKING:
    from tacit.protections.ckks import CKKS


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
            lambda blob: used.header(self.relay.current_key.public[used.key], blob, "columns"),
            (rows, outputs),
            layout.reach(summands) / summands,
        )

    def adder(self, layout: Layout, blob: bytes) -> Adder:
        """Return what adds ciphertexts like this one."""
        if not (found := self._columns(layout)):
            return super().adder(layout, blob)
        return found[1].adder(self.relay.current_key.public[found[1].key])

    def multiply(
        self, pending: PendingSum, total: Mapping[str, Any], operator: Callable[[], Any]
    ) -> Mapping[str, Any] | None:
        """Multiply the encrypted columns by a matrix, without opening them."""
        if (found := self._columns(pending.layout)) is None or (matrix := operator()) is None:
            return None
        product = found[1].multiplier(self.relay.current_key.public).apply(matrix, cipher_of(total))
        return {"cipher": Blob("cipher", product), "multiplied": True}
