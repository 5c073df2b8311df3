"""What CKKS does at the coordinator: it adds and multiplies ciphertexts that it cannot open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.core.errors import ProtectionError
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.marks import layouts_of
from tacit.core.pending_sum import PendingSum
from tacit.core.values import Blob
from tacit.protections.blobs import cipher_of
from tacit.protections.ckks.schemes import Columns, Scheme
from tacit.protections.keys.authenticated import AuthenticatedCoordinator
from tacit.protections.keys.key_relay import KeyRelay
from tacit.protections.keys.proved_totals import TAG, add_tags

if TYPE_CHECKING:
    from tacit.protections.ckks import CKKS


class CKKSCoordinator(AuthenticatedCoordinator):
    """Adds and multiplies ciphertexts that it cannot open."""

    def __init__(self, settings: CKKS, link: Link) -> None:
        super().__init__(link)
        self.relay = KeyRelay(settings.terms, link, self.channels)
        self._settings = settings

    # -- keys ----------------------------------------------------------------------------------------

    def greet(self) -> dict[str, Any]:
        """Show a signed exchange key; ask for the clients' key, if it can be made at enrolment."""
        return {**super().greet(), **self.relay.greet()}

    def welcome(self, party: str, fields: Mapping[str, Any]) -> None:
        """Open a channel to a client; keep the key that it made, if it made one."""
        super().welcome(party, fields)
        self.relay.welcome(party, fields)

    def prepare(self, sums: int) -> None:
        """Let one party make the key; rotation keys are read now, so that bad ones stop the run early."""
        layouts = layouts_of(self.link.components.method, self.link.schema)
        found = [columns for columns in map(self._settings.columns, layouts) if columns]
        shapes = sorted({(*(field.shape or ()), int(field.columns)) for field, _ in found})
        self.relay.prepare({"columns": [list(shape) for shape in shapes]} if shapes else {})
        if "evaluation" in self.relay.current_key.public:
            for _, used in found:
                used.multiplier(self.relay.current_key.public)

    def admit(self, names: Sequence[str]) -> None:
        """Let a client hand on the key."""
        self.relay.admit(names)

    # -- the sum -------------------------------------------------------------------------------------

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        """Add ciphertexts and their tags as they come."""
        adder: Any = None
        tags: dict[str, Any] = {}
        for party, protected in self.accepted(pending, len(pending.parties)):
            if adder is None:  # by now it is settled under which key
                used, key = self._used(pending.layout)
                adder = used.adder(key)
            try:
                adder.add(protected["cipher"].data)
            except ProtectionError as error:
                pending.refuse(party, str(error))
                continue
            if TAG in protected:
                tags = {TAG: add_tags(*filter(None, [tags, protected]))}
        pending.check()
        return {"cipher": Blob("cipher", adder.total()), **tags}

    def accepted(self, pending: PendingSum, summands: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Return ciphertexts on the agreed terms."""
        common, tickets = self.relay.tickets(pending)
        common["summands"] = summands
        columns, (used, key) = self._settings.columns(pending.layout), self._used(pending.layout)
        if columns:
            field = columns[0]
            shape, reach = field.shape or (), pending.layout.reach(summands)
        else:
            slots = self._settings.slots(pending.layout, summands)
            shape, reach = (slots.count, 1), slots.reach
        agreed = (shape, 1, summands, reach / summands)
        for party, message in pending.contributions(tickets, common):
            try:
                blob = cipher_of(message)
                tag = {} if columns else {TAG: add_tags(message)}
                found = used.header(key, blob, "columns" if columns else "sum")
                # Or the first client would set the terms for all others.
                if ((found.rows, found.outputs), found.count, found.summands, found.bound) != agreed:
                    raise ProtectionError(
                        f"{_size(found.rows, found.outputs)} values as {found.count} of {found.summands} "
                        f"contributions of up to {found.bound:g}, agreed were {_size(*shape)} as one of "
                        f"{summands} of up to {agreed[3]:g}"
                    )
            except ProtectionError as error:
                pending.refuse(party, str(error))
                continue
            self.relay.mark_delivered(party)
            yield party, {"cipher": Blob("cipher", blob), **tag}

    def add(self, total: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
        """Add ciphertexts under the same key that were made for as many summands, and their tags."""
        adder = self._settings.scheme.adder(self.relay.current_key.public["public"])
        pieces = ([] if total is None else [total]) + [more]
        for piece in pieces:
            adder.add(cipher_of(piece))
        return {"cipher": Blob("cipher", adder.total()), TAG: add_tags(*pieces)}

    def _used(self, layout: Layout) -> tuple[Scheme | Columns, bytes]:
        """Return the scheme of a layout's sums, and the id of its key."""
        public = self.relay.current_key.public
        if found := self._settings.columns(layout):
            return found[1], public[found[1].key]
        return self._settings.scheme, public["public"]

    def multiply(
        self, pending: PendingSum, total: Mapping[str, Any], operator: Callable[[], Any]
    ) -> Mapping[str, Any] | None:
        """Multiply the encrypted columns by a matrix, without opening them."""
        if (found := self._settings.columns(pending.layout)) is None or (matrix := operator()) is None:
            return None
        product = found[1].multiplier(self.relay.current_key.public).apply(matrix, cipher_of(total))
        return {"cipher": Blob("cipher", product), "multiplied": True}

    # -- another process goes on ---------------------------------------------------------------------

    def snapshot(self) -> Mapping[str, Any]:
        """Return what is kept of the key."""
        return self.relay.snapshot()

    def party_snapshot(self, party: str) -> Mapping[str, Any]:
        """Return a party's exchange key, and whether it has the clients' key."""
        return self.relay.party_snapshot(party)

    def restore(self, kept: Mapping[str, Any], parties: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on with the same keys."""
        self.relay.restore(kept, parties)

    def same_keys(self, kept: Mapping[str, Any]) -> bool:
        """Return whether another snapshot is of the same key."""
        return self.relay.same_keys(kept)


def _size(rows: int, outputs: int) -> str:
    return str(rows) if outputs == 1 else f"{rows} × {outputs}"
