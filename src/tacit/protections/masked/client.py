"""The clients' half of masked sums while they run: mask, and let go of one kind of share.

A client masks once with each key, and answers one request to unmask: what it has used or given is deleted in
the same step, so that a repeated or altered ask finds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from tacit.core.client import agreed_minimum
from tacit.core.errors import OpeningError, ProtectionError
from tacit.core.layout import Layout
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import Vector
from tacit.core.secret import Secret
from tacit.core.shared import Shared
from tacit.core.values import Blob
from tacit.crypto.channel import NONCE, place, unseal
from tacit.crypto.masking import add_masks, sign_for
from tacit.protections.keys.authenticated import run_of
from tacit.protections.masked.dealer import MaskedDealer, forget, whole
from tacit.protections.masked.keys import Seat
from tacit.protections.masked.wire import (
    ELEMENTS,
    KEY,
    SHARE,
    TAG,
    Flags,
    from_flags,
    listed,
    mask_seeds,
)


@dataclass(frozen=True)
class MaskedClient(MaskedDealer):
    """A client in a sum; see :class:`tacit.protections.masked.coordinator.Masked`."""

    def protect(self, party: Party, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Mask this party's vector, once; its key and seed of this sum are gone afterwards."""
        state, run, slot = party.state, run_of(party), ticket["slot"]
        if f"mask/own/{slot}" not in party.vault or "mask/names" not in state:
            raise ProtectionError(
                f"{party.id} has no masks for sum {slot}: they are agreed on, and used once"
            )
        if whole(ticket, "sum") <= state.get("mask/opened", 0):
            raise OpeningError(f"{party.id} helped to open sum {ticket['sum']}: it gives nothing more to it")
        seat = Seat.of(party)
        order = seat.order(party.id)
        self._receive(party, ticket, seat, order)
        partners = from_flags(ticket["partners"], len(order))
        unknown = partners & ~from_flags(state["mask/dealt"], len(order))
        if unknown.any() or not partners[order.index(party.id)]:
            raise ProtectionError(f"{party.id} was told to mask with clients of whom it holds no shares")
        if (around := int(partners.sum())) < state["mask/threshold"]:
            raise OpeningError(
                f"{around} clients around {party.id}, agreed were {state['mask/threshold']}: it gives nothing"
            )
        encoding = self.encoding(layout, seat.clients)
        words = encoding.encode(vector)
        own, call = party.vault.pop(f"mask/own/{slot}").reveal(), party.asked
        publics = np.frombuffer(state["mask/publics"], np.uint8).reshape(len(seat.names), -1, KEY)
        keys = dict(zip(seat.names, publics[:, slot - seat.first], strict=True))
        others = {name: keys[name].tobytes() for name in compress(order, partners) if name != party.id}
        seeds = mask_seeds(Secret(own[:KEY]), others, run, call, slot, party.id)
        pairs = [(seed, sign_for(party.id, name)) for name, seed in seeds.items()]
        add_masks(words, [(Secret(own[KEY:]), 1), *pairs])
        forget(party, slot)
        known = {"slot": slot, "sum": ticket["sum"], "partners": ticket["partners"]}
        state.update({f"mask/{name}": value for name, value in known.items()})
        return Message(masked=Blob("masked", encoding.write(words, run, slot, call)))

    @staticmethod
    def _receive(party: Party, ticket: Mapping[str, Any], seat: Seat, order: list[str]) -> None:
        """Unseal the shares that rode on the ask; the first time settles whose they are."""
        if (known := party.state.get("mask/dealt")) is not None:
            if ticket.get("dealt", known) != known:
                raise ProtectionError(f"{party.id} was handed shares of other clients than the first time")
            return
        run, dealt = run_of(party), from_flags(ticket.get("dealt"), len(order))
        sealed: bytes = ticket["shares"].data
        channels = party.vault.pop("mask/channels").reveal()
        length = 2 * SHARE * seat.sums
        held = np.zeros((len(order), seat.sums, 2 * ELEMENTS), "<u8")
        for index, name in enumerate(order):
            if name == party.id:
                raw = party.vault.pop("mask/row").reveal()
            elif dealt[index]:
                key = Secret(channels[KEY * seat.names.index(name) :][:KEY])
                part, sealed = sealed[: NONCE + length + TAG], sealed[NONCE + length + TAG :]
                try:
                    raw = unseal(key, part, place(run, seat.first, "shares", name, party.id))
                except ProtectionError:
                    raise ProtectionError(
                        f"the shares that {name} dealt to {party.id} do not open: they were changed, or the "
                        "relay or a stranger swapped a key of one of them; do not go on"
                    ) from None
            else:
                continue
            if len(raw) != length:
                raise ProtectionError(f"{name} dealt {len(raw)} bytes of shares, agreed were {length}")
            held[index] = np.frombuffer(raw, "<u8").reshape(seat.sums, -1)
        for i in range(seat.sums):
            party.vault[f"mask/held/{seat.first + i}"] = Secret(held[:, i].tobytes())
        party.state["mask/dealt"] = ticket["dealt"]

    @step
    def unmask(self, party: Party, message: Message, shared: Shared | None) -> Message:
        """Give one share for each neighbour: of its seed if it arrived, of its key if it vanished."""
        state, slot = party.state, message["slot"]
        if state.get("mask/slot") != slot or f"mask/held/{slot}" not in party.vault:
            raise OpeningError(
                f"{party.id} took no part in sum {slot}, or gave its shares of it already: it gives none"
            )
        seat = Seat.of(party)
        order = seat.order(party.id)
        alive, partners = (from_flags(raw, len(order)) for raw in (message["alive"], state["mask/partners"]))
        self._check_survivors(party, message, seat, alive, partners)
        held = np.frombuffer(party.vault.pop(f"mask/held/{slot}").reveal(), "<u8")
        keys, seeds = np.split(held.reshape(len(order), 2 * ELEMENTS), 2, axis=1)
        state["mask/opened"] = state["mask/sum"]
        return Message(shares=Blob("share", np.where(alive[:, None], seeds, keys)[partners].tobytes()))

    def _check_survivors(
        self, party: Party, message: Message, seat: Seat, alive: Flags, partners: Flags
    ) -> None:
        """Refuse to help if the survivors are too few, or not those that everybody was told of."""
        least, threshold = self.min_contributions(agreed_minimum(party)), party.state["mask/threshold"]
        order, around = seat.order(party.id), int(alive.sum())
        if not alive[order.index(party.id)] or (alive & ~partners).any():
            raise ProtectionError(
                f"{party.id} was told that itself vanished, or that clients arrived with whom it did not "
                "mask: it gives no shares"
            )
        if (survivors := whole(message, "survivors")) < least or around < threshold:
            raise OpeningError(
                f"{survivors} contributions, {around} of them around {party.id}: agreed were at "
                f"least {least} and {threshold}; the sum stays shut"
            )
        # Whoever masks with all others can check the list; on the circle it binds only its neighbours.
        if self.sizing(seat.clients)[0] == seat.clients - 1:
            arrived = list(compress(order, alive))
            if len(arrived) != survivors or listed(arrived) != message["list"]:
                raise ProtectionError(f"{party.id} was told of other survivors than the list names")
