"""CKKS sums: clients hold the key, the coordinator adds ciphertexts and never sees a total.

Fontenla-Romero et al. ("FedHEONN") encrypt their moments this way; here any contribution can be. Each
value is divided by its bound and takes one slot; a value without a known bound, or one that is needed more
finely than one slot is at so many clients, is cut into digits that take several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, log2, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError, ProtectionError
from tacit.core.layout import Layout
from tacit.core.message import Blob, Message
from tacit.core.party import Party
from tacit.core.protection import FINE, Place, Promises, Sum, Vector
from tacit.core.secret import Secret
from tacit.crypto.fixedpoint import (
    FINE_BITS,
    WIDE_BITS,
    fine_digits,
    from_fine_digits,
    from_wide_digits,
    wide_digits,
)
from tacit.sums.early import EarlyKeys
from tacit.sums.guarded import SHARED_KEY
from tacit.sums.paillier import cipher_of
from tacit.sums.schemes import Scheme, scheme


@dataclass(frozen=True)
class CKKS(EarlyKeys):
    """CKKS ciphertexts added by a coordinator that holds no key; the total opens at the clients.

    Parameters
    ----------
    parameters : {"coefficients", "sum", "sum-compact", "product", "product-small"}
        Parameter set, all at 128-bit security: ``coefficients`` for additions, in few bytes and little time;
        the others put values into slots, by SEAL.
    """

    name = "ckks"

    parameters: Literal["coefficients", "sum", "sum-compact", "product", "product-small"] = "coefficients"

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
            precision=scheme(self.parameters).rounding_unit(1.0, 20_000),
            bytes_per_value=_bytes_per_value(self.parameters),
            warnings=(SHARED_KEY,),
        )

    def generate(self) -> tuple[Secret, bytes]:
        """Make a key; the coordinator gets only its id."""
        return scheme(self.parameters).make_keys()

    def protect(self, party: Party, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Encrypt this party's vector."""
        summands = ticket["summands"]
        slots = self._slots(layout, summands)
        cipher = self.cached(party, self._cipher)
        blob = cipher.encrypt(slots.encode(vector), bound=1.0, summands=summands, total=slots.reach)
        return Message(cipher=Blob("cipher", blob))

    def gather(self, pending: Sum) -> dict[str, Any]:
        """Add ciphertexts as they come."""
        common, tickets = self.tickets(pending)
        summands = common["summands"] = len(pending.parties)
        slots = self._slots(pending.layout, summands)
        share = slots.reach / summands
        used = scheme(self.parameters)
        adder = used.adder(pending.memory["public"])
        for party, message in pending.contributions(tickets, common):
            try:
                blob = cipher_of(message)
                found = used.header(pending.memory["public"], blob)
                # Or the first client would set the terms for all others.
                if (found.rows, found.count, found.summands, found.bound) != (
                    slots.count,
                    1,
                    summands,
                    share,
                ):
                    raise ProtectionError(
                        f"{found.rows} values as {found.count} of {found.summands} contributions of up to "
                        f"{found.bound:g}, agreed were {slots.count} as one of {summands} of up to {share:g}"
                    )
                adder.add(blob)
            except ProtectionError as error:
                pending.refuse(party, str(error))
                continue
            self.delivered(pending, party)
        pending.check()
        return {"cipher": Blob("cipher", adder.total())}

    def open(self, holder: Any, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Decrypt at a client, rounded to the digits that mean something."""
        cipher, blob = self.cached(holder, self._cipher), cipher_of(total)
        header = scheme(self.parameters).header(cipher.key_id, blob)
        self.check_opening(holder, header.count)
        return self._slots(layout, header.summands).decode(cipher.decrypt(blob))

    def error(self, layout: Layout, contributions: int) -> float:
        """Half a rounding unit at the most, so a third of one on average."""
        slots = self._slots(layout, contributions)
        return slots.unit / sqrt(12) if not slots.fine.any() else FINE

    def _cipher(self, secret: Secret) -> Any:
        return scheme(self.parameters).cipher(secret)

    def _slots(self, layout: Layout, summands: int) -> Slots:
        return Slots.of(layout, summands, scheme(self.parameters))


@dataclass(frozen=True, eq=False)
class Slots:
    """How a layout's values become slots in [-1, 1]: by their bound, or as digits.

    ``reach`` is the largest total of a slot, ``unit`` what totals are rounded to.
    """

    bounds: Vector
    fine: NDArray[np.bool_]
    reach: float
    unit: float
    digit_bits: int

    @classmethod
    def of(cls, layout: Layout, summands: int, used: Scheme) -> Slots:
        """Choose digits only for what one slot cannot hold."""
        bounds = layout.bounds
        digit_bits = min(24, floor(-log2(used.rounding_unit(1.0, summands))) - 4)
        reach = layout.reach(summands) if np.isfinite(bounds).all() else float(summands)
        unit = used.rounding_unit(reach / summands, summands)
        fine = layout.fine & (unit > FINE)
        if fine.any():  # digits add up like any other values
            reach = float(summands)
        return cls(bounds, fine, reach, used.rounding_unit(reach / summands, summands), digit_bits)

    @property
    def _groups(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        known = np.isfinite(self.bounds)
        return known & ~self.fine, ~known

    @property
    def _cuts(self) -> list[int]:
        """Where narrow, fine and wide slots end."""
        narrow, wide = (int(group.sum()) for group in self._groups)
        fine = -(-FINE_BITS // self.digit_bits) * int(self.fine.sum())
        return [narrow, narrow + fine, narrow + fine + -(-WIDE_BITS // self.digit_bits) * wide]

    @property
    def count(self) -> int:
        """Slots that a vector takes."""
        return self._cuts[-1]

    def encode(self, vector: Vector) -> Vector:
        """Slots of a client's vector."""
        if not np.isfinite(vector).all():
            raise DataError("NaN or infinite values cannot be encrypted: look for them in the data")
        narrow, wide = self._groups
        bounds = self.bounds[narrow]
        slots = np.divide(vector[narrow], bounds, out=np.zeros(bounds.shape), where=bounds > 0)
        if narrow.all():
            return slots
        digits = [
            fine_digits(vector[self.fine], self.bounds[self.fine], self.digit_bits).reshape(-1),
            wide_digits(vector[wide], self.digit_bits).reshape(-1),
        ]
        return np.concatenate([slots, np.ldexp(np.concatenate(digits).astype(np.float64), -self.digit_bits)])

    def decode(self, slots: Vector) -> Vector:
        """Values of an opened total."""
        if slots.size != self.count:
            raise ProtectionError(f"total of {slots.size} slots does not belong to {self.bounds.size} values")
        narrow, wide = self._groups
        vector = np.empty(self.bounds.shape)
        small, fine, large = np.split(slots, self._cuts[:2])
        vector[narrow] = small * self.bounds[narrow]
        if len(fine):
            bounds = self.bounds[self.fine]
            vector[self.fine] = from_fine_digits(self._whole(fine, len(bounds)), bounds, self.digit_bits)
        if len(large):
            vector[wide] = from_wide_digits(self._whole(large, int(wide.sum())), self.digit_bits)
        return vector

    def _whole(self, slots: Vector, values: int) -> NDArray[np.int64]:
        return np.rint(np.ldexp(slots, self.digit_bits)).astype(np.int64).reshape(-1, values)


def _bytes_per_value(name: str) -> float:
    """Upload for one value with a bound, as seeded ciphertexts take it."""
    return {"coefficients": 8.1, "sum": 18.1, "sum-compact": 13.6, "product": 25.1, "product-small": 17.4}[
        name
    ]
