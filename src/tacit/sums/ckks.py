"""CKKS sums: clients hold the key, the coordinator adds ciphertexts and never sees a total.

Fontenla-Romero et al. ("FedHEONN") encrypt their moments this way; here any contribution can be. Each
value is divided by its bound and takes one slot; a value without a known bound is cut into digits that
take several, so that it comes back exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, log2
from typing import Any, Literal

import numpy as np

from tacit.core.errors import DataError, ProtectionError
from tacit.core.layout import Layout
from tacit.core.message import Blob, Message
from tacit.core.party import Party
from tacit.core.protection import Place, Promises, Sum, Vector
from tacit.core.secret import Secret
from tacit.crypto.fixedpoint import WIDE_BITS, from_wide_digits, wide_digits
from tacit.sums.guarded import SHARED_KEY, ClientKeys
from tacit.sums.paillier import cipher_of


@dataclass(frozen=True)
class CKKS(ClientKeys):
    """CKKS ciphertexts added by a coordinator that holds no key; the total opens at the clients.

    Parameters
    ----------
    parameters : {"sum", "sum-compact", "product", "product-small"}
        Parameter set, all at 128-bit security: ``sum`` for additions, ``sum-compact`` for fewer bytes at
        six digits.
    """

    name = "ckks"

    parameters: Literal["sum", "sum-compact", "product", "product-small"] = "sum"

    @property
    def opens(self) -> Place:
        """At the clients."""
        return "clients"

    @property
    def promises(self) -> Promises:
        """What is promised."""
        from tacit.crypto.ckks import parameter_set

        found = parameter_set(self.parameters)
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
            precision=found.precision,
            bytes_per_value=_bytes_per_value(self.parameters),
            warnings=(SHARED_KEY,),
        )

    def generate(self) -> tuple[Secret, bytes]:
        """Make a key; the coordinator gets only its id."""
        from tacit.crypto.ckks import make_keys, parameter_set

        keys = make_keys(parameter_set(self.parameters))
        return keys.secret, keys.key_id

    def protect(self, party: Party, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Encrypt this party's vector."""
        slots = self._slots(vector, layout)
        cipher = self.cached(party, self._cipher)
        return Message(cipher=Blob("cipher", cipher.encrypt(slots, bound=1.0, summands=ticket["summands"])))

    def gather(self, pending: Sum) -> dict[str, Any]:
        """Add ciphertexts as they come."""
        from tacit.crypto.ckks import Adder, parameter_set

        common, tickets = self.tickets(pending)
        summands = common["summands"] = len(pending.parties)
        narrow = int(np.isfinite(pending.layout.bounds).sum())
        slots = narrow + self._digits * (pending.layout.size - narrow)
        adder = Adder(parameter_set(self.parameters), pending.memory["public"])
        for party, message in pending.contributions(tickets, common):
            try:
                blob = cipher_of(message)
                found = self._header(blob, pending.memory["public"])
                # Or the first client would set the terms for all others.
                if (found.rows, found.count, found.summands, found.bound) != (slots, 1, summands, 1.0):
                    raise ProtectionError(
                        f"{found.rows} values as {found.count} of {found.summands} contributions of up to "
                        f"{found.bound:g}, agreed were {slots} as one of {summands} of up to 1"
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
        self.check_opening(holder, self._header(blob, cipher.key_id).count)
        slots = cipher.decrypt(blob)
        narrow = np.isfinite(layout.bounds)
        split, digits = int(narrow.sum()), self._digits
        if slots.size != split + digits * (layout.size - split):
            raise ProtectionError(f"total of {slots.size} slots does not belong to {layout.size} values")
        vector = np.empty(layout.size)
        vector[narrow] = slots[:split] * layout.bounds[narrow]
        if split < layout.size:
            whole = np.rint(np.ldexp(slots[split:], self._digit_bits)).astype(np.int64)
            vector[~narrow] = from_wide_digits(whole.reshape(digits, -1), self._digit_bits)
        return vector

    def _cipher(self, secret: Secret) -> Any:
        from tacit.crypto.ckks import Cipher, parameter_set

        return Cipher(parameter_set(self.parameters), secret)

    def _header(self, blob: bytes, key_id: bytes) -> Any:
        from tacit.crypto.ckks import parameter_set
        from tacit.crypto.ckks.blob import Kind, read
        from tacit.crypto.ckks.parameters import ring_of

        return read(ring_of(parameter_set(self.parameters)), key_id, blob, Kind.SUM)

    @property
    def _digits(self) -> int:
        """Slots that a value without a bound takes."""
        return -(-WIDE_BITS // self._digit_bits)

    @property
    def _digit_bits(self) -> int:
        """Bits of a digit that comes back exactly: its unit is well above the promised error."""
        from tacit.crypto.ckks import parameter_set

        return min(24, floor(-log2(parameter_set(self.parameters).precision)) - 4)

    def _slots(self, vector: Vector, layout: Layout) -> Vector:
        """Values in [-1, 1]: bounded ones by their bound, digits of the others by their size."""
        if not np.isfinite(vector).all():
            raise DataError("NaN or infinite values cannot be encrypted: look for them in the data")
        narrow = np.isfinite(layout.bounds)
        bounds = layout.bounds[narrow]
        slots = np.divide(vector[narrow], bounds, out=np.zeros(bounds.shape), where=bounds > 0)
        if narrow.all():
            return slots
        digits = wide_digits(vector[~narrow], self._digit_bits)
        return np.concatenate([slots, np.ldexp(digits.reshape(-1).astype(np.float64), -self._digit_bits)])


def _bytes_per_value(name: str) -> float:
    """Upload for one value with a bound, as seeded ciphertexts take it."""
    return {"sum": 18.1, "sum-compact": 13.6, "product": 25.1, "product-small": 17.4}[name]
