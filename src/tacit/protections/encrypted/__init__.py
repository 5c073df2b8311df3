"""Sums under a key that all clients share and the coordinator has not: what BFV and CKKS have in common."""

from collections.abc import Collection, Iterator, Mapping
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
from tacit.core.protection import Protection, Vector, hands_on
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.seal.adder import Adder
from tacit.crypto.seal.blob import all_residues, read, summands_of
from tacit.crypto.seal.residues import Residues
from tacit.crypto.seal.ring import new_secret
from tacit.protections.keys import shared_key
from tacit.protections.keys.authenticated import AuthenticatedCoordinator, cipher_of
from tacit.protections.keys.key_relay import KeyRelay
from tacit.protections.keys.proved_totals import PROVED, TAG, TAG_NAMES, ProvedTotals, add_tags
from tacit.protections.keys.shared_key import KeyTerms, SharedKeyClient

if TYPE_CHECKING:
    from tacit.protections.bfv import ExactSlots
    from tacit.protections.ckks import Columns, RoundedSlots


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
    key_fields: ClassVar[Collection[str]] = shared_key.KEY_FIELDS
    field_names: ClassVar[Mapping[str, str]] = {**shared_key.FIELD_NAMES, **TAG_NAMES}
    field_kinds: ClassVar[Mapping[str, Kind]] = shared_key.FIELD_KINDS
    cipher: ClassVar[type[Any]]  # what encrypts and decrypts with a secret

    maker: str = field(default="", kw_only=True)
    rotate_every: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if self.rotate_every < 0:
            raise ConfigError(
                f"rotate_every is {self.rotate_every}: give how many sums one key serves, or 0 for all"
            )

    def slots(self, layout: Layout, summands: int) -> "ExactSlots | RoundedSlots | Columns":
        """Return how the values of a layout are encrypted; refuses what no ring has room for."""
        raise TypeError(f"{type(self).__name__} must say how it encrypts")

    def adder(self, key_id: bytes, blob: bytes) -> Adder:
        """Return what adds ciphertexts like this one without the key."""
        raise TypeError(f"{type(self).__name__} must say how ciphertexts are added")

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
            warnings=(shared_key.SHARED_KEY,),
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
        return secret, self.cipher(secret).key_id

    def proves(self, layout: Layout) -> bool:
        return True

    def error(self, layout: Layout, contributions: int, total: Mapping[str, Any] | None = None) -> float:
        """Return the typical error: each client rounds, to a unit that follows from the summands."""
        summands = summands_of(cipher_of(total)) if total else contributions
        slots: Any = self.slots(layout, summands)
        return float(slots.error(contributions))

    def at_coordinator(self, link: Link) -> "EncryptedCoordinator":
        return EncryptedCoordinator(self, link)

    def at_client(self, party: Party) -> "EncryptedClient":
        return EncryptedClient(self, party)


@hands_on("relay", "admit", "snapshot", "party_snapshot", "restore", "same_keys")
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

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        adder: Adder | None = None
        tags: dict[str, Any] = {}
        for party, protected in self.accepted(pending, len(pending.parties)):
            if adder is None:  # by now it is settled under which key
                adder = self._settings.adder(self.key_id, cipher_of(protected))
            try:
                adder.add(cipher_of(protected))
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
        slots, proves = self._settings.slots(pending.layout, summands), self._settings.proves(pending.layout)
        common, tickets = self.relay.tickets(pending)
        common["summands"] = summands
        agreed = (*slots.shape, 1, summands, slots.bound)
        for party, message in pending.contributions(tickets, common):
            try:
                blob = cipher_of(message)
                tag = {TAG: add_tags(message, moduli=slots.ring.primes)} if proves else {}
                # Who adds a blob checks its checksum.
                found = read(slots.ring, self.key_id, blob, slots.form, whole=False)
                # Or the first client would set the terms for all others.
                if (found.rows, found.outputs, found.count, found.summands, found.bound) != agreed:
                    raise ProtectionError(
                        f"{_size(found.rows, found.outputs)} values as {found.count} of {found.summands} "
                        f"contributions of up to {found.bound:g}, agreed were {_size(*slots.shape)} as one "
                        f"of {summands} of up to {slots.bound:g}"
                    )
            except ProtectionError as error:
                pending.refuse(party, str(error))
                continue
            self.relay.mark_delivered(party)
            yield party, {"cipher": Blob("cipher", blob), **tag}

    @property
    def key_id(self) -> bytes:
        """The id of the key under which sums are encrypted."""
        return self.relay.current_key.public

    def add(self, total: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
        pieces = ([] if total is None else [total]) + [more]
        adder = self._settings.adder(self.key_id, cipher_of(more))
        for piece in pieces:
            adder.add(cipher_of(piece))
        return {"cipher": Blob("cipher", adder.total()), TAG: add_tags(*pieces, moduli=adder.primes)}


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
        """Encrypt this party's vector, and tag it; a matrix that will be multiplied has no tag."""
        slots = self._settings.slots(layout, read_integer(ticket, "summands", 1, MOST_SUMMANDS))
        values: Any = slots.encode(vector)
        cipher: Any = self.key.cached(CIPHER, self._settings.cipher)
        if not self._settings.proves(layout):
            return Message(cipher=Blob("cipher", slots.encrypt(cipher, values)))

        def encrypt() -> tuple[bytes, Mapping[int, Residues]]:
            blob = slots.encrypt(cipher, values)
            header = read(slots.ring, cipher.key_id, blob, slots.form, whole=False)
            return blob, all_residues(slots.ring, header, blob)

        return self._proved.tag_ciphertext(ticket, layout, values, encrypt)

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Check whose contributions it is the sum of, and only then decrypt; a product proves nothing."""
        blob, settings = cipher_of(total), self._settings
        slots = settings.slots(layout, summands_of(blob))
        ring, form = slots.ring, slots.product if total.get("multiplied") else slots.form
        age, header = self.key.find_key(
            CIPHER, settings.cipher, lambda key: read(ring, key.key_id, blob, form)
        )
        check_opening(self.party, settings, header.count)
        agreed = (*slots.shape, slots.summands, slots.bound)
        if (header.rows, header.outputs, header.summands, header.bound) != agreed:
            raise ProtectionError(
                f"a total of {_size(header.rows, header.outputs)} values up to {header.bound:g}, agreed were "
                f"{_size(*slots.shape)} up to {slots.bound:g}"
            )
        # Whether a made-up ciphertext decrypts to what was tagged would tell of the key.
        residues = all_residues(ring, header, blob)
        if settings.proves(layout):
            self._proved.check(total, layout, header.summands, residues, age)
        opened: Any = slots.decrypt(self.key.cached(CIPHER, settings.cipher, age), header, residues)
        return slots.decode(opened)
