"""Sums under a key that all clients share and the coordinator has not: what BFV and CKKS have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from tacit.core.client import check_opening
from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.fields import MOST_SUMMANDS, Kind, read_integer
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.pending_sum import PendingSum
from tacit.core.promises import Place, Promises
from tacit.core.protection import Protection, Vector
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.seal.adder import Adder
from tacit.crypto.seal.blob import Header, all_residues, read, summands_of
from tacit.crypto.seal.residues import Residues
from tacit.crypto.seal.ring import new_secret
from tacit.protections.keys.authenticated import AuthenticatedCoordinator, cipher_of
from tacit.protections.keys.key_relay import KeyRelay
from tacit.protections.keys.proved_totals import PROVED, TAG, TAG_NAMES, ProvedTotals, add_tags
from tacit.protections.keys.shared_key import FIELD_NAMES, KEY_FIELDS, SHARED_KEY, KeyTerms, SharedKeyClient

if TYPE_CHECKING:
    from tacit.protections.bfv import ExactScheme
    from tacit.protections.ckks import Approximate


@dataclass(frozen=True)
class Encrypted(Protection):
    """Ciphertexts added by a coordinator that holds no key; totals open at the clients, who share one.

    Parameters
    ----------
    maker : str
        Client that makes the keys; empty: the first that can.
    rotate_every : int
        Make a new key after so many sums; 0: one key for the run.
    """

    opens: ClassVar[Place] = "clients"
    incremental: ClassVar[bool] = True
    authenticated: ClassVar[bool] = True
    key_fields: ClassVar[Collection[str]] = KEY_FIELDS
    field_names: ClassVar[Mapping[str, str]] = {**FIELD_NAMES, **TAG_NAMES}
    field_kinds: ClassVar[Mapping[str, Kind]] = KeyTerms.field_kinds

    maker: str = field(default="", kw_only=True)
    rotate_every: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if self.rotate_every < 0:
            raise ConfigError(
                f"rotate_every is {self.rotate_every}: give how many sums one key serves, or 0 for all"
            )

    @property
    def scheme(self) -> ExactScheme | Approximate:
        """How the integers of a sum are encrypted."""
        raise TypeError(f"{type(self).__name__} must say how it encrypts")

    def promised(self, precision: float, bytes_per_value: float, without_proof: str = "") -> Promises:
        """Return what is promised: all but precision and size is the same for every scheme."""
        return Promises(
            opens="clients",
            keys={"client": "one secret key, shared by all", "coordinator": "none"},
            sees={
                "coordinator": "ciphertexts it cannot open",
                "client": "the total, and what is made of it",
                "outsider": "nothing",
            },
            collusion="the coordinator and any one client together open every contribution",
            dropout="the sum goes on without the client, down to the quorum",
            precision=precision,
            bytes_per_value=bytes_per_value,
            warnings=(SHARED_KEY,),
            proof=f"{PROVED}{without_proof}",
        )

    @property
    def rotates_keys(self) -> bool:
        return self.rotate_every > 0

    @property
    def terms(self) -> KeyTerms:
        """The terms on which the clients' shared key is made and renewed."""
        return KeyTerms(self.name, self.generate, self.maker, self.rotate_every, at_enrolment=True)

    def generate(self) -> tuple[Secret, bytes]:
        """Make a key; the coordinator gets its id."""
        secret = new_secret()
        return secret, self.scheme.cipher(secret).key_id

    def proves(self, layout: Layout) -> bool:
        return True

    def error(self, layout: Layout, contributions: int, total: Mapping[str, Any] | None = None) -> float:
        """Return the typical error: each client rounds, to a unit that follows from the summands."""
        summands = summands_of(cipher_of(total)) if total else contributions
        return self.scheme.slots(layout, summands).error(contributions)

    def at_coordinator(self, link: Link) -> EncryptedCoordinator:
        return EncryptedCoordinator(self, link)

    def at_client(self, party: Party) -> EncryptedClient:
        return EncryptedClient(self, party)


class EncryptedCoordinator(AuthenticatedCoordinator):
    """Adds ciphertexts that it cannot open."""

    def __init__(self, settings: Encrypted, link: Link) -> None:
        super().__init__(link)
        self.relay = KeyRelay(settings.terms, link, self.directory)
        self._settings = settings

    def greet(self) -> dict[str, Any]:
        return {**super().greet(), **self.relay.greet()}

    def welcome(self, party: str, fields: Mapping[str, Any]) -> None:
        super().welcome(party, fields)
        self.relay.welcome(party, fields)

    def prepare(self, sums: int) -> None:
        self.relay.prepare()

    def admit(self, names: Sequence[str]) -> None:
        self.relay.admit(names)

    def gather(self, pending: PendingSum) -> dict[str, Any]:
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
        return self.relay.current_key.public

    def adder(self, layout: Layout, blob: bytes) -> Adder:
        """Return what adds ciphertexts like this one."""
        return self._settings.scheme.adder(self.key_id, blob)

    def add(self, total: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
        pieces = ([] if total is None else [total]) + [more]
        adder = self._settings.scheme.adder(self.key_id, cipher_of(more))
        for piece in pieces:
            adder.add(cipher_of(piece))
        return {"cipher": Blob("cipher", adder.total()), TAG: add_tags(*pieces, moduli=adder.primes)}

    def snapshot(self) -> Mapping[str, Any]:
        return self.relay.snapshot()

    def party_snapshot(self, party: str) -> Mapping[str, Any]:
        return self.relay.party_snapshot(party)

    def restore(self, kept: Mapping[str, Any], parties: Mapping[str, Mapping[str, Any]]) -> None:
        self.relay.restore(kept, parties)

    def same_keys(self, kept: Mapping[str, Any]) -> bool:
        return self.relay.same_keys(kept)


def _size(rows: int, outputs: int) -> str:
    return str(rows) if outputs == 1 else f"{rows} × {outputs}"


CIPHER = "cipher"  # what encrypts and decrypts, in the cache of what follows from a key


class EncryptedClient(SharedKeyClient):
    """Encrypts, and opens totals."""

    def __init__(self, settings: Encrypted, party: Party) -> None:
        super().__init__(settings.terms, party)
        self._settings = settings
        self._proved = ProvedTotals(party, self.key)

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        scheme = self._settings.scheme
        slots = scheme.slots(layout, read_integer(ticket, "summands", 1, MOST_SUMMANDS))
        ring, integers = scheme.ring(slots), slots.encode(vector)

        def encrypt() -> tuple[bytes, Mapping[int, Residues]]:
            cipher: Any = self.key.cached(CIPHER, scheme.cipher)
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
            CIPHER, scheme.cipher, lambda key: read(ring, key.key_id, blob, scheme.form)
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
        cipher: Any = self.key.cached(CIPHER, scheme.cipher, age)
        return slots.decode(scheme.decrypt(cipher, slots, header, residues))
