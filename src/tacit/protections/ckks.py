"""CKKS sums: clients hold the key, the coordinator adds ciphertexts and never sees a total.

Fontenla-Romero et al. ("FedHEONN") encrypt their moments this way; here any contribution can be
(:mod:`tacit.protections.ckks_slots` says how values become slots). A total that its method wants multiplied by a matrix
which the coordinator knows travels as *columns*, under parameters with room for one product; the
coordinator multiplies what it cannot read, and the clients open the product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Literal

from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.layout import Field, Layout
from tacit.core.marks import layouts_of
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import FINE, Place, Promises, Sum, Vector
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.protections.ckks_schemes import Columns, Kind, Scheme, columns_scheme, scheme
from tacit.protections.ckks_slots import Slots
from tacit.protections.keys.authenticated import SHARED_KEY
from tacit.protections.keys.preshared_keys import EarlyKeys
from tacit.protections.paillier import cipher_of

# Upload for one value with a bound, as seeded ciphertexts take it.
SLOT_BYTES = {"sum": 18.1, "sum-compact": 13.6, "product": 25.1, "product-small": 17.4}


@dataclass(frozen=True)
class CKKS(EarlyKeys):
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
    joins: ClassVar[bool] = True
    field_names: ClassVar[Mapping[str, str]] = {
        **EarlyKeys.field_names,
        **dict.fromkeys(("columns", "slots"), "public key"),
        "evaluation": "rotation keys",
    }

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

    # -- keys ----------------------------------------------------------------------------------------

    @property
    def chosen_maker(self) -> str:
        """As the federation's settings say."""
        return self.maker

    @property
    def rotates_keys(self) -> bool:
        """As the federation's settings say."""
        return self.rotate_every > 0

    @property
    def lifetime(self) -> int:
        """As the federation's settings say."""
        return self.rotate_every

    def wishes(self, coordinator: Any) -> Mapping[str, Any]:
        """Shapes of the columns that the method will want multiplied, and by how many matrices."""
        found = (
            self._columns(layout) for layout in layouts_of(coordinator.components.method, coordinator.schema)
        )
        columns = sorted({(*field.shape, int(field.columns)) for field, _ in filter(None, found)})  # type: ignore[misc]
        return {"columns": [list(each) for each in columns]} if columns else {}

    def generate(self, wishes: Mapping[str, Any]) -> tuple[Secret, Mapping[str, bytes]]:
        """Make a key; the coordinator gets its id, and what it needs to multiply columns."""
        secret, key_id = self._scheme.make_keys()
        public: dict[str, bytes] = {"public": key_id}
        features: defaultdict[Columns | None, set[int]] = defaultdict(set)
        for shape in wishes.get("columns", []):
            features[columns_scheme(self.parameters, *shape)].add(shape[0])
        for used, sizes in features.items():
            public |= used.public(secret, sizes) if used else {}
        return secret, public

    def prepare(self, coordinator: Any, sums: int) -> None:
        """Let one party make the key; rotation keys are read now, so that bad ones stop the run early."""
        super().prepare(coordinator, sums)
        if "evaluation" in coordinator.memory:
            for layout in layouts_of(coordinator.components.method, coordinator.schema):
                if found := self._columns(layout):
                    found[1].multiplier(coordinator.memory)

    def _cipher(self, secret: Secret) -> Any:
        return self._scheme.cipher(secret)

    # -- the sum -------------------------------------------------------------------------------------

    def protect(self, party: Party, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Encrypt this party's vector."""
        summands = ticket["summands"]
        if found := self._columns(layout):
            field, used = found
            matrix = vector.reshape(field.shape or ()) / (field.bound or 1.0)
            cipher, reach = self.cached(party, used.cipher), layout.reach(summands)
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
                used, key = self._used(pending.layout, pending.memory)
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
        columns, (used, key) = self._columns(pending.layout), self._used(pending.layout, pending.memory)
        if columns:
            field = columns[0]
            shape, reach = field.shape or (), pending.layout.reach(summands)
        else:
            slots = self._slots(pending.layout, summands)
            shape, reach = (slots.count, 1), slots.reach
        agreed = (shape, 1, summands, reach / summands)
        for party, message in pending.contributions(tickets, common):
            try:
                blob = cipher_of(message)
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

    def _used(self, layout: Layout, memory: Mapping[str, Any]) -> tuple[Scheme | Columns, bytes]:
        """Scheme of a layout's sums, and the id of its key."""
        if found := self._columns(layout):
            return found[1], memory[found[1].key]
        return self._scheme, memory["public"]

    def map(
        self, pending: Sum, total: Mapping[str, Any], operator: Callable[[], Any]
    ) -> Mapping[str, Any] | None:
        """Multiply the encrypted columns by a matrix, without opening them."""
        if (found := self._columns(pending.layout)) is None or (matrix := operator()) is None:
            return None
        product = found[1].multiplier(pending.memory).apply(matrix, cipher_of(total))
        return {"cipher": Blob("cipher", product), "mapped": True}

    def open(self, holder: Any, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Decrypt at a client, rounded to the digits that mean something."""
        blob, columns = cipher_of(total), self._columns(layout)
        if columns is None:
            cipher, header = self.fitting(
                holder, self._cipher, lambda key: self._scheme.header(key.key_id, blob)
            )
            self.check_opening(holder, header.count)
            return self._slots(layout, header.summands).decode(cipher.decrypt(blob))
        field, used = columns
        cipher, header = self.fitting(
            holder, used.cipher, lambda key: used.header(key.key_id, blob, _kind(total))
        )
        self.check_opening(holder, header.count)
        if (header.rows, header.outputs) != field.shape:
            raise ProtectionError(f"total of {header.rows} × {header.outputs}, agreed was {field.shape}")
        opened: Vector = cipher.decrypt_columns(blob).reshape(-1) * field.bound
        return opened

    def error(self, layout: Layout, contributions: int, total: Mapping[str, Any] | None = None) -> float:
        """Half a rounding unit at the most, so a third of one on average."""
        if found := self._columns(layout):
            return found[1].unit(cipher_of(total or {}), _kind(total or {})) / sqrt(12)
        slots = self._slots(layout, contributions)
        return slots.unit / sqrt(12) if not slots.fine.any() else FINE

    def _columns(self, layout: Layout) -> tuple[Field, Columns] | None:
        """The field that the coordinator can multiply, if there is one and nothing else is summed."""
        if len(layout.fields) != 1:
            return None
        (field,) = layout.fields
        if not field.columns or field.bound is None or field.shape is None or len(field.shape) != 2:
            return None
        used = columns_scheme(self.parameters, *field.shape, int(field.columns))
        return (field, used) if used else None

    def _slots(self, layout: Layout, summands: int) -> Slots:
        return Slots.of(layout, summands, self._scheme)


def _kind(total: Mapping[str, Any]) -> Kind:
    """What a blob of columns has to hold."""
    return "product" if total.get("mapped") else "columns"


def _size(rows: int, outputs: int) -> str:
    return str(rows) if outputs == 1 else f"{rows} × {outputs}"
