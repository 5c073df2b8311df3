"""CKKS sums: clients hold the key, the coordinator adds ciphertexts and never sees a total.

Fontenla-Romero et al. ("FedHEONN") encrypt their moments this way; here any contribution can be
(:mod:`tacit.protections.ckks.slots` says how values become slots). A total that its method wants multiplied
by a matrix which the coordinator knows travels as *columns*, under parameters with room for one product; the
coordinator multiplies what it cannot read, and the clients open the product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Literal

from tacit.core.errors import ConfigError
from tacit.core.fields import SHAPES, Kind
from tacit.core.layout import Field, Layout
from tacit.core.link import Link
from tacit.core.party import Party
from tacit.core.promises import Place, Promises
from tacit.core.protection import FINE, Protection
from tacit.core.secret import Secret
from tacit.protections.blobs import cipher_of
from tacit.protections.ckks.client import CKKSClient
from tacit.protections.ckks.coordinator import CKKSCoordinator
from tacit.protections.ckks.schemes import Columns, Scheme, columns_scheme, kind_of, scheme
from tacit.protections.ckks.slots import Slots
from tacit.protections.keys.proved_totals import PROVED, TAG_NAMES
from tacit.protections.keys.shared_key import FIELD_NAMES, KEY_FIELDS, SHARED_KEY, KeyTerms

# Upload for one value with a bound, as seeded ciphertexts take it.
SLOT_BYTES = {"sum": 18.1, "sum-compact": 13.6, "product": 25.1, "product-small": 17.4}


@dataclass(frozen=True)
class CKKS(Protection):
    """CKKS ciphertexts added by a coordinator that holds no key; the total opens at the clients.

    Parameters
    ----------
    parameters : {"auto", "coefficients", "sum", "sum-compact", "product", "product-small"}
        Parameter set, all at 128-bit security. ``coefficients``: few bytes and little time; the others put
        values into slots, by SEAL. ``auto``: ``coefficients``, and ``product`` where the coordinator
        multiplies by matrices so large that slots take fewer bytes.
    maker : str
        Client that makes the keys; empty: the first that can.
    rotate_every : int
        Make a new key after so many sums; 0: one key for the run.
    """

    name = "ckks"
    incremental: ClassVar[bool] = True
    authenticated: ClassVar[bool] = True
    key_fields: ClassVar[Collection[str]] = KEY_FIELDS
    field_names: ClassVar[Mapping[str, str]] = {
        **FIELD_NAMES,
        **TAG_NAMES,
        **dict.fromkeys(("columns", "slots"), "public key"),
        "evaluation": "rotation keys",
    }
    field_kinds: ClassVar[Mapping[str, Kind]] = {**KeyTerms.field_kinds, "columns": SHAPES}

    parameters: Literal["auto", "coefficients", "sum", "sum-compact", "product", "product-small"] = "auto"
    maker: str = ""
    rotate_every: int = 0

    def __post_init__(self) -> None:
        if self.rotate_every < 0:
            raise ConfigError(
                f"rotate_every is {self.rotate_every}: give how many sums one key serves, or 0 for all"
            )

    @property
    def opens(self) -> Place:
        """Where totals open: always at the clients."""
        return "clients"

    @property
    def promises(self) -> Promises:
        """What is promised."""
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
            precision=self.scheme.rounding_unit(1.0, 20_000),
            bytes_per_value=SLOT_BYTES.get(self.parameter_set, 8.1),
            warnings=(SHARED_KEY,),
            proof=PROVED
            + (
                ""
                if self.parameter_set == "coefficients"
                else "; not of the noise in it, which tells of the key"
            )
            + "; products of totals, as in mode paper, prove nothing",
        )

    @property
    def rotates_keys(self) -> bool:
        """Whether a new key is made after some sums."""
        return self.rotate_every > 0

    @property
    def parameter_set(self) -> str:
        """Parameters of sums."""
        return "coefficients" if self.parameters == "auto" else self.parameters

    @property
    def scheme(self) -> Scheme:
        """How vectors are encrypted."""
        return scheme(self.parameter_set)

    @property
    def terms(self) -> KeyTerms:
        """The terms on which the clients' shared key is made and renewed."""
        return KeyTerms(self.name, self.generate, self.maker, self.rotate_every, at_enrolment=True)

    def generate(self, key_request: Mapping[str, Any]) -> tuple[Secret, Mapping[str, bytes]]:
        """Make a key; the coordinator gets its id, and what it needs to multiply columns."""
        secret, key_id = self.scheme.make_keys()
        public: dict[str, bytes] = {"public": key_id}
        features: defaultdict[Columns | None, set[int]] = defaultdict(set)
        for shape in key_request.get("columns", []):
            features[columns_scheme(self.parameters, *shape)].add(shape[0])
        for used, sizes in features.items():
            public |= used.public(secret, sizes) if used else {}
        return secret, public

    def columns(self, layout: Layout) -> tuple[Field, Columns] | None:
        """Return the field that the coordinator can multiply, if there is one and nothing else is summed."""
        if len(layout.fields) != 1:
            return None
        (field,) = layout.fields
        if not field.columns or field.bound is None or field.shape is None or len(field.shape) != 2:
            return None
        used = columns_scheme(self.parameters, *field.shape, int(field.columns))
        return (field, used) if used else None

    def proves(self, layout: Layout) -> bool:
        """All totals but those that the coordinator multiplies: a product of a total has no tag."""
        return self.columns(layout) is None

    def slots(self, layout: Layout, summands: int) -> Slots:
        """Return how the values of a layout become slots, with room for the sum of that many."""
        return Slots.of(layout, summands, self.scheme)

    def error(self, layout: Layout, contributions: int, total: Mapping[str, Any] | None = None) -> float:
        """Return the typical error: each client rounds to a unit; of a product, half a unit in all."""
        if found := self.columns(layout):
            return found[1].unit(cipher_of(total or {}), kind_of(total or {})) / sqrt(12)
        # The unit follows from how many could be in it.
        summands = self.scheme.summands(cipher_of(total)) if total else contributions
        slots = self.slots(layout, summands)
        return slots.unit * sqrt(contributions / 12) if not slots.fine.any() else FINE

    def at_coordinator(self, link: Link) -> CKKSCoordinator:
        """Return the coordinator half, which adds and multiplies ciphertexts."""
        return CKKSCoordinator(self, link)

    def at_client(self, party: Party) -> CKKSClient:
        """Return the client half, which encrypts and opens totals."""
        return CKKSClient(self, party)
