"""Sums under a key that all clients share and the coordinator has not: what BFV and CKKS have in common.

Clients encrypt and open totals (:mod:`~tacit.protections.encrypted.client`), the coordinator adds ciphertexts
(:mod:`~tacit.protections.encrypted.coordinator`); :mod:`~tacit.protections.encrypted.slots` says how values
become integers. How integers are encrypted is the business of a *scheme*, of BFV's or of CKKS' slots.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from tacit.core.errors import ConfigError
from tacit.core.fields import Kind
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.party import Party
from tacit.core.promises import Place, Promises
from tacit.core.protection import Protection
from tacit.core.secret import Secret
from tacit.crypto.seal.blob import summands_of
from tacit.protections.blobs import cipher_of
from tacit.protections.encrypted.client import EncryptedClient
from tacit.protections.encrypted.coordinator import EncryptedCoordinator
from tacit.protections.keys.proved_totals import PROVED, TAG_NAMES
from tacit.protections.keys.shared_key import FIELD_NAMES, KEY_FIELDS, SHARED_KEY, KeyTerms

if TYPE_CHECKING:
    from tacit.protections.bfv import ExactScheme
    from tacit.protections.ckks.schemes import Slotted


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
    def scheme(self) -> ExactScheme | Slotted:
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
        """Whether a new key is made after some sums."""
        return self.rotate_every > 0

    @property
    def terms(self) -> KeyTerms:
        """The terms on which the clients' shared key is made and renewed."""
        return KeyTerms(self.name, self.generate, self.maker, self.rotate_every, at_enrolment=True)

    def generate(self, key_request: Mapping[str, Any]) -> tuple[Secret, Mapping[str, bytes]]:
        """Make a key; the coordinator gets its id."""
        secret, key_id = self.scheme.make_keys()
        return secret, {"public": key_id}

    def proves(self, layout: Layout) -> bool:
        """Every total does."""
        return True

    def error(self, layout: Layout, contributions: int, total: Mapping[str, Any] | None = None) -> float:
        """Return the typical error: each client rounds, to a unit that follows from the summands."""
        summands = summands_of(cipher_of(total)) if total else contributions
        return self.scheme.slots(layout, summands).error(contributions)

    def at_coordinator(self, link: Link) -> EncryptedCoordinator:
        """Return the coordinator half, which adds ciphertexts."""
        return EncryptedCoordinator(self, link)

    def at_client(self, party: Party) -> EncryptedClient:
        """Return the client half, which encrypts and opens totals."""
        return EncryptedClient(self, party)
