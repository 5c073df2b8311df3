"""What the coordinator does where clients share a key: it adds ciphertexts that it cannot open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.core.errors import ProtectionError
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.pending_sum import PendingSum
from tacit.core.values import Blob
from tacit.crypto.seal.adder import Adder
from tacit.crypto.seal.blob import Header, read
from tacit.protections.blobs import cipher_of
from tacit.protections.keys.authenticated import AuthenticatedCoordinator
from tacit.protections.keys.key_relay import KeyRelay
from tacit.protections.keys.proved_totals import TAG, add_tags

if TYPE_CHECKING:
    from tacit.protections.encrypted import Encrypted


class EncryptedCoordinator(AuthenticatedCoordinator):
    """Adds ciphertexts that it cannot open."""

    def __init__(self, settings: Encrypted, link: Link) -> None:
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
        """Let one party make the key."""
        self.relay.prepare({})

    def admit(self, names: Sequence[str]) -> None:
        """Let a client hand on the key."""
        self.relay.admit(names)

    # -- the sum -------------------------------------------------------------------------------------

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        """Add ciphertexts and their tags as they come."""
        adder: Adder | None = None
        tags: dict[str, Any] = {}
        for party, protected in self.accepted(pending, len(pending.parties)):
            blob = protected["cipher"].data
            if adder is None:  # by now it is settled under which key
                adder = self.adder(pending.layout, blob)
            try:
                adder.add(blob)
            except ProtectionError as error:
                pending.refuse(party, str(error))
                continue
            if TAG in protected:
                tags = {TAG: add_tags(*filter(None, [tags, protected]), moduli=adder.primes)}
        pending.check()
        assert adder is not None
        return {"cipher": Blob("cipher", adder.total()), **tags}

    def accepted(self, pending: PendingSum, summands: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Return ciphertexts on the agreed terms."""
        # Refuses values that cannot be encrypted before anybody is asked for them.
        read_header, shape, bound = self.terms(pending.layout, summands)
        common, tickets = self.relay.tickets(pending)
        common["summands"] = summands
        agreed = (shape, 1, summands, bound)
        proves, scheme = self._settings.proves(pending.layout), self._settings.scheme
        moduli = scheme.ring(scheme.slots(pending.layout, summands)).primes if proves else ()
        for party, message in pending.contributions(tickets, common):
            try:
                blob = cipher_of(message)
                tag = {TAG: add_tags(message, moduli=moduli)} if proves else {}
                found = read_header(blob)
                # Or the first client would set the terms for all others.
                if ((found.rows, found.outputs), found.count, found.summands, found.bound) != agreed:
                    raise ProtectionError(
                        f"{_size(found.rows, found.outputs)} values as {found.count} of {found.summands} "
                        f"contributions of up to {found.bound:g}, agreed were {_size(*shape)} as one of "
                        f"{summands} of up to {bound:g}"
                    )
            except ProtectionError as error:
                pending.refuse(party, str(error))
                continue
            self.relay.mark_delivered(party)
            yield party, {"cipher": Blob("cipher", blob), **tag}

    def terms(
        self, layout: Layout, summands: int
    ) -> tuple[Callable[[bytes], Header], tuple[int, int], float]:
        """Return what reads the header of a contribution to a sum, and its agreed shape and bound."""
        scheme = self._settings.scheme
        slots = scheme.slots(layout, summands)
        return (
            # Who adds a blob checks its checksum.
            lambda blob: read(scheme.ring(slots), self.key_id, blob, scheme.form, whole=False),
            (slots.count, 1),
            scheme.bound(slots),
        )

    @property
    def key_id(self) -> bytes:
        """The id of the key under which sums are encrypted."""
        return self.relay.current_key.public["public"]

    def adder(self, layout: Layout, blob: bytes) -> Adder:
        """Return what adds ciphertexts like this one."""
        return self._settings.scheme.adder(self.key_id, blob)

    def add(self, total: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
        """Add ciphertexts under the same key that were made for as many summands, and their tags."""
        pieces = ([] if total is None else [total]) + [more]
        adder = self._settings.scheme.adder(self.key_id, cipher_of(more))
        for piece in pieces:
            adder.add(cipher_of(piece))
        return {"cipher": Blob("cipher", adder.total()), TAG: add_tags(*pieces, moduli=adder.primes)}

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
