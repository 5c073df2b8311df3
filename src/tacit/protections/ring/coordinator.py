"""What the ring does at the coordinator: it holds the secret key, and relays hops that it cannot read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.core.errors import ProtectionError, QuorumError
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.pending_sum import PendingSum
from tacit.core.protection import Vector
from tacit.core.values import Blob
from tacit.crypto.fixedpoint import FixedPoint
from tacit.protections.blobs import cipher_of
from tacit.protections.keys.authenticated import AuthenticatedCoordinator
from tacit.protections.ring.client import RingClient

if TYPE_CHECKING:
    from tacit.protections.ring import Ring


class RingCoordinator(AuthenticatedCoordinator):
    """The protocol's server: holds the secret key, and relays what it cannot read."""

    def __init__(self, settings: Ring, link: Link) -> None:
        super().__init__(link)
        self.public = b""  # the public key
        self._settings = settings

    def prepare(self, sums: int) -> None:
        """Make the server's key."""
        from tacit.crypto.paillier import make_keys

        private = make_keys(self._settings.key_bits)
        self.link.vault["paillier"] = private.to_secret()
        self.public = private.public.to_bytes()

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        """Send the sum around until it comes back whole."""
        lap, closer, heard_of = 0, "", False
        while True:
            lap += 1
            ring = [party for party in pending.parties if party not in pending.failures]
            pending.check(ring)  # no lap whose total could not be opened; names those that failed
            pending.restart()
            if heard_of and closer != ring[0]:
                raise self._lost(pending, closer)
            closer = ring[0]
            common = {"public": self.public, "summands": len(pending.parties), "lap": lap, "closer": closer}
            last = self._send_around(pending, ring, common)
            if last is not None:
                total = self._hand_over(pending, ring, common, last)
                return {"cipher": Blob("cipher", total), "summands": len(pending.parties)}
            # If not even the closer answered, nobody else was told who it is.
            heard_of = heard_of or closer not in pending.failures

    def _send_around(
        self, pending: PendingSum, ring: Sequence[str], common: Mapping[str, Any]
    ) -> Blob | None:
        """Go around once; return what the last client sealed for the first, or None if one vanished."""
        incoming: Blob | None = None
        for position, party in enumerate(ring):
            after = ring[(position + 1) % len(ring)]
            ticket = self._ticket(ring[position - 1], incoming)
            ticket |= {"next": after, "next_exchange": self.channels.directory[after]}
            reply = dict(pending.contributions({party: ticket}, common, [party])).get(party)
            if reply is None:
                return None
            incoming = reply.get("hop")
            if not isinstance(incoming, Blob) or incoming.kind != "sealed":
                pending.refuse(party, "no sealed hop where one was agreed")
                return None
            self.link.record_relay(party, after, len(incoming.data))
        return incoming

    def _ticket(self, before: str, incoming: Blob | None) -> dict[str, Any]:
        if incoming is None:
            return {}
        exchange = self.channels.directory[before]
        return {"incoming": incoming, "previous": before, "previous_exchange": exchange}

    def _hand_over(
        self, pending: PendingSum, ring: Sequence[str], common: Mapping[str, Any], last: Blob
    ) -> bytes:
        """Have the closer hand over the total; what is none is as if the closer had vanished."""
        from tacit.crypto.paillier import PublicKey, read_header

        closer = ring[0]
        fields = {**common, "sum": pending.number, **self._ticket(ring[-1], last)}
        for reply in dict(pending.ask(RingClient.hand_over, fields, parties=[closer])).values():
            try:
                blob = cipher_of(reply)
                found = read_header(PublicKey.from_bytes(self.public), blob).summands
                if found == len(ring):
                    return blob
                reason = f"a total of {found} contributions after {len(ring)} hops"
            except ProtectionError as error:
                reason = str(error)
            pending.refuse(closer, reason)
        raise self._lost(pending, closer)

    def _lost(self, pending: PendingSum, closer: str) -> QuorumError:
        """Say that a sum cannot be had because the client that was to hand it over did not."""
        reason = pending.failures.get(closer) or pending.lost.get(closer, "it vanished")
        return QuorumError(
            f"{pending.contribution}: {closer} began the ring and did not hand over its total ({reason}). "
            "Nobody else may, or there could be two of them: run again without it"
        )

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Open the total with the server's key."""
        from tacit.crypto.paillier import PrivateKey

        used = self._settings
        code = FixedPoint.of(layout, used.bits, total["summands"], used.clip)
        return code.decode(PrivateKey.from_secret(self.link.vault["paillier"]).decrypt(cipher_of(total)))
