"""CKKS sums: clients hold the key, the coordinator adds ciphertexts and never sees a total.

Fontenla-Romero et al. ("FedHEONN") encrypt their moments this way; here any contribution can be
(:mod:`tacit.sums.slots` says how values become slots). A total that its method wants multiplied by a matrix
which the coordinator knows travels as *columns*, under a parameter set with room for one product; the
coordinator multiplies what it cannot read, and the clients open the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Literal

from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.layout import Field, Layout
from tacit.core.message import Blob, Message
from tacit.core.parts import layouts_of
from tacit.core.party import Party
from tacit.core.protection import FINE, Place, Promises, Sum, Vector
from tacit.core.secret import Secret
from tacit.sums.early import EarlyKeys
from tacit.sums.guarded import SHARED_KEY
from tacit.sums.paillier import cipher_of
from tacit.sums.schemes import Kind, Scheme, multiplier, scheme
from tacit.sums.slots import Slots

# Upload for one value with a bound, as seeded ciphertexts take it.
SLOT_BYTES = {"sum": 18.1, "sum-compact": 13.6, "product": 25.1, "product-small": 17.4}


@dataclass(frozen=True)
class CKKS(EarlyKeys):
    """CKKS ciphertexts added by a coordinator that holds no key; the total opens at the clients.

    Parameters
    ----------
    parameters : {"auto", "coefficients", "sum", "sum-compact", "product", "product-small"}
        Parameter set, all at 128-bit security. ``auto``: ``coefficients``, and ``product`` for what the
        coordinator multiplies; ``coefficients`` for additions alone, in few bytes and little time; the
        others put values into slots, by SEAL.
    maker : str
        Client that makes the keys; empty: the first that can.
    rotate_every : int
        Make a new key after so many sums; 0: one key for the run.
    """

    name = "ckks"
    joins: ClassVar[bool] = True

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
        """At the clients."""
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
            precision=self._scheme.rounding_unit(1.0, 20_000),
            bytes_per_value=SLOT_BYTES.get(self._sums, 8.1),
            warnings=(SHARED_KEY,),
        )

    @property
    def _sums(self) -> str:
        """Parameters of sums."""
        return "coefficients" if self.parameters == "auto" else self.parameters

    @property
    def _scheme(self) -> Scheme:
        return scheme(self._sums)

    @property
    def _product_set(self) -> Any:
        """Parameters of columns, if these can be multiplied."""
        from tacit.crypto.ckks import parameter_set

        if self.parameters == "coefficients":
            return None
        found = parameter_set("product" if self.parameters == "auto" else self.parameters)
        return found if found.multiplies else None

    # -- keys ----------------------------------------------------------------------------------------

    @property
    def chosen_maker(self) -> str:
        """As the federation's settings say."""
        return self.maker

    @property
    def lifetime(self) -> int:
        """As the federation's settings say."""
        return self.rotate_every

    def wishes(self, desk: Any) -> Mapping[str, Any]:
        """Rotation keys for the columns that the method will want multiplied."""
        found = (self._columns(layout) for layout in layouts_of(desk.parts.method, desk.schema))
        features = sorted({field.shape[0] for field in found if field})  # type: ignore[index]
        return {"features": features} if features else {}

    def generate(self, wishes: Mapping[str, Any]) -> tuple[Secret, Mapping[str, bytes]]:
        """Make a key; the coordinator gets its id, and rotation keys if there are columns to multiply."""
        from tacit.crypto.ckks import make_keys, rotations_for

        secret, key_id = self._scheme.make_keys()
        if not (features := wishes.get("features")) or self._product_set is None:
            return secret, {"public": key_id}
        steps = {step for size in features for step in rotations_for(self._product_set, size)}
        both = make_keys(self._product_set, steps, secret)
        return secret, {"public": key_id, "columns": both.key_id, "evaluation": both.evaluation}

    def prepare(self, desk: Any, sums: int) -> None:
        """Let one party make the key; rotation keys are read now, so that bad ones stop the run early."""
        super().prepare(desk, sums)
        if "evaluation" in desk.memory:
            self._product(desk.memory)

    def _product(self, memory: Mapping[str, Any]) -> Any:
        return multiplier(self._product_set, memory["evaluation"], memory["columns"])

    def _cipher(self, secret: Secret) -> Any:
        return self._scheme.cipher(secret)

    def _column_cipher(self, secret: Secret) -> Any:
        from tacit.crypto.ckks import Cipher

        return Cipher(self._product_set, secret)

    # -- the sum -------------------------------------------------------------------------------------

    def protect(self, party: Party, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Encrypt this party's vector."""
        summands = ticket["summands"]
        if field := self._columns(layout):
            matrix = vector.reshape(field.shape or ()) / (field.bound or 1.0)
            cipher, reach = self.cached(party, self._column_cipher), layout.reach(summands)
            blob = cipher.encrypt_columns(matrix, bound=1.0, summands=summands, total=reach)
        else:
            slots, cipher = self._slots(layout, summands), self.cached(party, self._cipher)
            blob = cipher.encrypt(slots.encode(vector), bound=1.0, summands=summands, total=slots.reach)
        return Message(cipher=Blob("cipher", blob))

    def gather(self, pending: Sum) -> dict[str, Any]:
        """Add ciphertexts as they come."""
        adder: Any = None
        for party, protected in self.arriving(pending, len(pending.parties)):
            if adder is None:  # by now it is settled under which key
                used, key = self._set(pending.layout, pending.memory)
                adder = used.adder(key)
            try:
                adder.add(protected["cipher"].data)
            except ProtectionError as error:
                pending.refuse(party, str(error))
        pending.check()
        return {"cipher": Blob("cipher", adder.total())}

    def arriving(self, pending: Sum, summands: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Ciphertexts on the agreed terms."""
        common, tickets = self.tickets(pending)
        common["summands"] = summands
        field, (used, key) = self._columns(pending.layout), self._set(pending.layout, pending.memory)
        if field:
            shape, reach = field.shape or (), pending.layout.reach(summands)
        else:
            slots = self._slots(pending.layout, summands)
            shape, reach = (slots.count, 1), slots.reach
        agreed = (shape, 1, summands, reach / summands)
        for party, message in pending.contributions(tickets, common):
            try:
                blob = cipher_of(message)
                found = used.header(key, blob, _kind(field, {}))
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
            self.delivered(pending, party)
            yield party, {"cipher": Blob("cipher", blob)}

    def joined(
        self, memory: Mapping[str, Any], total: Mapping[str, Any] | None, more: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Add ciphertexts under the same key that were made for as many summands."""
        adder = self._scheme.adder(memory["public"])
        for piece in ([] if total is None else [total]) + [more]:
            adder.add(cipher_of(piece))
        return {"cipher": Blob("cipher", adder.total())}

    def _set(self, layout: Layout, memory: Mapping[str, Any]) -> tuple[Scheme, bytes]:
        """Parameter set of a layout's sums, and the id of its key."""
        if self._columns(layout):
            return scheme(self._product_set.name), memory["columns"]
        return self._scheme, memory["public"]

    def map(
        self, pending: Sum, total: Mapping[str, Any], operator: Callable[[], Any]
    ) -> Mapping[str, Any] | None:
        """Multiply the encrypted columns by a matrix, without opening them."""
        if self._columns(pending.layout) is None or (matrix := operator()) is None:
            return None
        product = self._product(pending.memory)
        return {"cipher": Blob("cipher", product.apply(matrix, cipher_of(total))), "mapped": True}

    def open(self, holder: Any, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Decrypt at a client, rounded to the digits that mean something."""
        blob, field = cipher_of(total), self._columns(layout)
        used = scheme(self._product_set.name) if field else self._scheme
        make, kind = self._column_cipher if field else self._cipher, _kind(field, total)
        cipher, header = self.fitting(holder, make, lambda key: used.header(key.key_id, blob, kind))
        self.check_opening(holder, header.count)
        if field is None:
            return self._slots(layout, header.summands).decode(cipher.decrypt(blob))
        if (header.rows, header.outputs) != field.shape:
            raise ProtectionError(f"total of {header.rows} × {header.outputs}, agreed was {field.shape}")
        opened: Vector = cipher.decrypt_columns(blob).reshape(-1) * field.bound
        return opened

    def error(self, layout: Layout, contributions: int, total: Mapping[str, Any] | None = None) -> float:
        """Half a rounding unit at the most, so a third of one on average."""
        if field := self._columns(layout):
            from tacit.crypto.ckks import column_unit
            from tacit.crypto.ckks.blob import key_of

            blob = cipher_of(total or {})
            used = scheme(self._product_set.name)
            header = used.header(key_of(blob), blob, _kind(field, total or {}))
            return float(column_unit(self._product_set, header) / sqrt(12))
        slots = self._slots(layout, contributions)
        return slots.unit / sqrt(12) if not slots.fine.any() else FINE

    def _columns(self, layout: Layout) -> Field | None:
        """The field that the coordinator can multiply, if there is one and nothing else is summed."""
        if len(layout.fields) != 1 or self._product_set is None:
            return None
        (field,) = layout.fields
        known = field.columns and field.bound is not None and len(field.shape or ()) == 2
        return field if known and 0 < field.shape[0] <= self._product_set.slots else None  # type: ignore[index]

    def _slots(self, layout: Layout, summands: int) -> Slots:
        return Slots.of(layout, summands, self._scheme)


def _kind(field: Field | None, total: Mapping[str, Any]) -> Kind:
    """What a blob has to hold."""
    if field is None:
        return "sum"
    return "product" if total.get("mapped") else "columns"


def _size(rows: int, outputs: int) -> str:
    return str(rows) if outputs == 1 else f"{rows} × {outputs}"
