"""What the Paillier star does at the coordinator: it adds ciphertexts that it cannot open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.core.errors import ProtectionError
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.pending_sum import PendingSum
from tacit.core.protection import Vector
from tacit.core.values import Blob
from tacit.crypto.channel import checked_key
from tacit.protections.blobs import cipher_of
from tacit.protections.keys.authenticated import AuthenticatedCoordinator
from tacit.protections.keys.key_relay import KeyRelay
from tacit.protections.paillier.client import KEY_SERVER, KeyServer

if TYPE_CHECKING:
    from tacit.protections.paillier import Paillier


class PaillierCoordinator(AuthenticatedCoordinator):
    """Adds ciphertexts that it cannot open; how clients get the key is a subclass's."""

    def __init__(self, settings: Paillier, link: Link) -> None:
        super().__init__(link)
        self._settings = settings
        self._read_key: tuple[bytes, Any] = b"", None  # a public key, and the bytes it was read from

    @property
    def public(self) -> bytes:
        """The public key."""
        raise TypeError(f"{type(self).__name__} must say where the public key comes from")

    def tickets(self, pending: PendingSum) -> tuple[dict[str, Any], Mapping[str, Mapping[str, Any]]]:
        """Return what clients need to encrypt: what rides on the ask for all, and for each."""
        raise TypeError(f"{type(self).__name__} must say how clients get the key")

    def delivered(self, party: str) -> None:
        """Note that a client has what it was sent."""

    def add_up(self, pending: PendingSum) -> dict[str, Any]:
        """Return the encrypted total of all that contribute."""
        from tacit.crypto.paillier import Adder, Packing, PublicKey

        summands = len(pending.parties)
        common, tickets = self.tickets(pending)
        if self._read_key[0] != self.public:
            self._read_key = self.public, PublicKey.from_bytes(self.public)
        key = self._read_key[1]
        code = self._settings.code(pending.layout, summands)
        packing = Packing(self._settings.bits, code.guard_bits)
        adder = Adder(key, packing=packing)
        for party, message in pending.contributions(tickets, {"summands": summands, **common}):
            try:
                adder.add(_check_single(key, cipher_of(message), packing, code.slots))
            except ProtectionError as error:
                pending.refuse(party, str(error))
                continue
            self.delivered(party)
        pending.check()
        return {"cipher": Blob("cipher", adder.total()), "summands": summands}


class ServedCoordinator(PaillierCoordinator):
    """The coordinator beside a key server, which opens totals for it."""

    def __init__(self, settings: Paillier, link: Link) -> None:
        super().__init__(settings, link)
        self.signed = b""  # the public key with the key server's signature
        self._public = b""

    @property
    def public(self) -> bytes:
        """The public key."""
        return self._public

    def prepare(self, sums: int) -> None:
        """Let the key server make the key."""
        for _, reply in self.link.ask(KeyServer.serve_key, parties=[KEY_SERVER]):
            self.signed = reply["public"].data
            pinned, run = self.link.pinned(KEY_SERVER), self.link.manifest.digest
            self._public = checked_key(self.signed, pinned, "paillier", KEY_SERVER, run)

    def tickets(self, pending: PendingSum) -> tuple[dict[str, Any], Mapping[str, Mapping[str, Any]]]:
        """Return the signed public key."""
        return {"signed": Blob("public", self.signed)}, {}

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        """Add ciphertexts, and let the key server open the total."""
        total = self.add_up(pending)
        opened = dict(self.link.ask(KeyServer.open_total, total, parties=[KEY_SERVER]))[KEY_SERVER]
        return {"integers": opened["integers"], "summands": total["summands"]}

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Decode what the key server has opened."""
        return self._settings.code(layout, total["summands"]).decode(total["integers"])


class SharedKeyCoordinator(PaillierCoordinator):
    """The coordinator of clients that share the secret key."""

    def __init__(self, settings: Paillier, link: Link) -> None:
        super().__init__(settings, link)
        self.relay = KeyRelay(settings.terms, link, self.channels)

    @property
    def public(self) -> bytes:
        """The public key."""
        return self.relay.made.public["public"]

    def prepare(self, sums: int) -> None:
        """Let one client make the key."""
        self.relay.prepare({})

    def admit(self, names: Sequence[str]) -> None:
        """Let a client hand on the key."""
        self.relay.admit(names)

    def tickets(self, pending: PendingSum) -> tuple[dict[str, Any], Mapping[str, Mapping[str, Any]]]:
        """Return the sealed key for those who lack it."""
        return self.relay.tickets(pending)

    def delivered(self, party: str) -> None:
        """Note that a client has the key."""
        self.relay.delivered(party)

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        """Add ciphertexts."""
        return self.add_up(pending)


def _check_single(key: Any, blob: bytes, packing: Any, slots: int) -> bytes:
    """Return a client's ciphertexts: as many values as agreed, and not more than one contribution."""
    from tacit.crypto.paillier import read_header

    header = read_header(key, blob, packing)
    if header.summands != 1 or header.count != slots:
        raise ProtectionError(
            f"{header.count} values as {header.summands} contributions, agreed were {slots} as one"
        )
    return blob
