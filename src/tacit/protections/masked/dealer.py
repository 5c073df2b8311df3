"""The clients' half of masked sums before they begin: offer keys, check the draw, deal shares.

A client deals its shares once. What it has used or given is deleted in the same step, so that a repeated or
altered ask finds nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from tacit.core.client import agreed_minimum
from tacit.core.errors import ConfigError, MessageError, OpeningError, ProtectionError
from tacit.core.layout import Layout
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.core.shared import Shared
from tacit.core.values import Blob
from tacit.crypto.channel import identity_secrets, new_exchange, pair_keys, place, seal
from tacit.crypto.fixedpoint import FixedPoint
from tacit.crypto.neighbours import COMPLETE_BELOW, neighbours_for
from tacit.crypto.sharing import share_vector
from tacit.protections.keys.authenticated import COORDINATOR, Guarded, run_of
from tacit.protections.masked.keys import Offer, Seat, new_number
from tacit.protections.masked.neighbours import is_drawn, place_of, proof_bytes, proves
from tacit.protections.masked.wire import (
    KEY,
    Encoding,
    commitment,
    hashed,
    to_elements,
)

MOST_SUMS = 10_000  # that one batch prepares


@dataclass(frozen=True)
class MaskedDealer(Guarded):
    """Settings, and what a client does before the sums; see :class:`tacit.protections.masked.coordinator.Masked`."""

    bits: int = 32
    clip: bool = False
    neighbours: int | None = None
    corrupt_share: float = 0.1
    dropout_share: float = 0.1
    active: bool = False

    def __post_init__(self) -> None:
        if not 8 <= self.bits <= 50:
            raise ConfigError(f"bits is {self.bits}: fixed point works with 8 to 50 bits a value")
        if self.neighbours is not None and self.neighbours < 2:
            raise ConfigError(f"neighbours is {self.neighbours}: at least two, or None for as many as needed")
        for name, share in (("corrupt_share", self.corrupt_share), ("dropout_share", self.dropout_share)):
            if not 0 <= share < 1:
                raise ConfigError(f"{name} is {share}: it is a part of all clients, from 0 to below 1")

    def sizing(self, clients: int) -> tuple[int, int]:
        """Neighbours of each client, and how many of the shares that it and they hold open its masks."""
        if clients < 2:
            raise ProtectionError(f"{self.name} protects nothing with a single client: have at least two")
        if self.neighbours is None and clients >= COMPLETE_BELOW:
            found = neighbours_for(clients, self.corrupt_share, self.dropout_share, active=self.active)
            return found.neighbours, found.threshold
        count = clients - 1
        if self.neighbours is not None:
            count = min(self.neighbours + self.neighbours % 2, count)
        holders = count + 1
        corrupt = ceil(self.corrupt_share * holders - 1e-9)
        threshold = (holders + corrupt) // 2 + 1 if self.active else max(holders // 2, corrupt) + 1
        return count, min(threshold, holders)

    def encoding(self, layout: Layout, clients: int) -> Encoding:
        """How vectors become words, with room for the sum of that many."""
        return Encoding(FixedPoint.of(layout, self.bits, clients, self.clip))

    # -- before the sums -----------------------------------------------------------------------------------

    def introduce(self, party: Party, greeting: Mapping[str, Any]) -> dict[str, Any]:
        """Commit to a number for the draw of neighbours, before anyone knows who takes part."""
        return {**super().introduce(party, greeting), "draw": new_number(party)}

    @step
    def offer(self, party: Party, message: Message, shared: Shared | None) -> Message:
        """Offer a public key for every sum of a batch, reveal one's number, and commit to the next."""
        first, sums, clients = (whole(message, name) for name in ("first", "sums", "clients"))
        root = message["root"]
        if not (first > party.state.get("mask/last", 0) and 1 <= sums <= MOST_SUMS):
            raise ProtectionError(f"{sums} sums from number {first} on: prepared before, or too many")
        if clients < (least := self.min_contributions(agreed_minimum(party))):
            raise OpeningError(f"{clients} clients, agreed were at least {least}: {party.id} offers no key")
        forget(party, first)
        pairs = [new_exchange() for _ in range(sums)]
        party.vault.update({f"mask/own/{first + i}": private for i, (private, _) in enumerate(pairs)})
        number = party.vault["mask/number"].reveal()
        publics = b"".join(public for _, public in pairs)
        # Shares are sealed with a key of this batch, so that none of an earlier one can be unsealed later.
        party.vault["mask/exchange"], exchange = new_exchange()
        offer = Offer(exchange, root, number, new_number(party), first, sums, publics)
        for name in ("names", "dealt", "slot"):
            party.state.pop(f"mask/{name}", None)
        known = {"first": first, "last": first + sums - 1, "sums": sums, "clients": clients, "root": root}
        party.state.update({f"mask/{name}": value for name, value in known.items()})
        party.state["mask/revealed"] = number
        party.state["mask/offer"] = offer.to_bytes()
        return Message(offer=Blob("public", offer.to_bytes()))

    @step
    def deal(self, party: Party, message: Message, shared: Shared | None) -> Message:
        """Check the neighbours, and seal for each its shares of one's keys and seeds.

        The sealing key of two clients comes from keys of this batch, from their identities and from both
        offers. So a relay that swaps an offer can read nothing, and nobody masks with a swapped key:
        the shares that come with it do not open.
        """
        if "mask/names" in party.state:
            raise ProtectionError(f"{party.id} has dealt its shares already: it deals them once")
        run, seat = run_of(party), Seat.of(party)._replace(names=message["names"].decode().split("\n"))
        offers, threshold = self._neighbours(party, seat, message)
        secrets, commits = [], []
        for slot in range(seat.first, seat.first + seat.sums):
            private, seed = party.vault[f"mask/own/{slot}"].reveal(), os.urandom(KEY)
            party.vault[f"mask/own/{slot}"] = Secret(private + seed)
            secrets.append(private + seed)
            commits.append(commitment("self", run, party.id, slot, seed))
        shares = share_vector(to_elements(b"".join(secrets)).reshape(-1), len(seat.names) + 1, threshold)
        channels = self._channels(party, seat, offers)
        party.vault["mask/channels"] = Secret(b"".join(key.reveal() for key in channels.values()))
        sealed = []
        for name, share in zip(seat.order(party.id), shares, strict=True):
            raw = share.values.astype("<u8").tobytes()
            if name == party.id:
                party.vault["mask/row"] = Secret(raw)
            else:
                sealed.append(seal(channels[name], raw, place(run, seat.first, "shares", party.id, name)))
        publics = b"".join(offers[name].publics for name in seat.names)
        known = {"names": message["names"], "threshold": threshold, "publics": publics}
        party.state.update({f"mask/{name}": value for name, value in known.items()})
        return Message(shares=Blob("sealed", b"".join(sealed)), commits=Blob("public", b"".join(commits)))

    @staticmethod
    def _channels(party: Party, seat: Seat, offers: Mapping[str, Offer]) -> dict[str, Secret]:
        """Keys under which this client and each neighbour seal shares for one another."""
        known = identity_secrets(party.identity, [party.pinned(name) for name in seat.names])
        own, others = party.state.pop("mask/offer"), [offers[name].to_bytes() for name in seat.names]
        for index, (name, other) in enumerate(zip(seat.names, others, strict=True)):
            known[index] += hashed(*((own, other) if party.id < name else (other, own)))
        exchange, exchanges = party.vault.pop("mask/exchange"), [offers[name].exchange for name in seat.names]
        keys = pair_keys(exchange, exchanges, "shares", run_of(party), known)
        return dict(zip(seat.names, keys, strict=True))

    def _neighbours(self, party: Party, seat: Seat, message: Message) -> tuple[dict[str, Offer], int]:
        """Neighbours' offers, once they are known to be drawn rather than chosen."""
        wanted, threshold = self.sizing(seat.clients)
        sparse, found = wanted < seat.clients - 1, len(seat.names)
        if seat.names != sorted({*seat.names} - {party.id, COORDINATOR}):
            raise ProtectionError("neighbours that are not others, each of them once and in order")
        # Where all mask with all, some may have vanished; on the circle others take their places.
        if not (wanted if sparse else threshold - 1) <= found <= wanted:
            raise OpeningError(
                f"{found} neighbours among {seat.clients} clients, agreed were {wanted} and at least "
                f"{threshold - 1} of them: {party.id} deals nothing"
            )
        raw = np.frombuffer(message["offers"], np.uint8).reshape(found, -1)
        proofs = np.frombuffer(message.get("proofs", b""), np.uint8)
        if proofs.size != found * proof_bytes(seat.clients) * sparse:
            raise ProtectionError(f"proofs of {proofs.size} bytes: they are missing or too many")
        run, offers = run_of(party), {}
        for name, content, proof in zip(seat.names, raw, proofs.reshape(found, -1), strict=True):
            offers[name] = offer = Offer.from_bytes(content.tobytes(), seat.root, seat.first, seat.sums)
            leaf = commitment("draw", run, name, 0, offer.number)
            if sparse and not proves(seat.root, seat.clients, name, leaf, proof.tobytes()):
                raise ProtectionError(f"{name} took no part in the draw with the number that it shows")
        own = place_of(seat.root, party.state["mask/revealed"])
        places = [place_of(seat.root, offer.number) for offer in offers.values()]
        if sparse and not is_drawn(own, places, seat.clients, self.dropout_share):
            raise ProtectionError(
                f"the neighbours of {party.id} sit further away than chance explains: others were left out"
            )
        return offers, threshold

    def settle(self, holder: Any) -> None:
        """Delete what was agreed on for sums that did not come, at a party and at the coordinator."""
        if isinstance(holder, Party):
            forget(holder, holder.state.get("mask/last", 0) + 1)
            for name in ("exchange", "channels", "row"):
                holder.vault.pop(f"mask/{name}", None)
        else:
            holder.memory["batch"] = None


def forget(party: Party, before: int) -> None:
    """Delete the secrets of sums that are over: what is gone cannot be asked for."""
    for name in list(party.vault):
        if name.startswith(("mask/own/", "mask/held/")) and int(name.split("/")[2]) < before:
            del party.vault[name]


def whole(fields: Mapping[str, Any], name: str) -> int:
    """A whole number of an ask: NaN, for one, is never less than anything."""
    if type(value := fields.get(name)) is not int:
        raise MessageError(f"'{name}' of an ask is a {type(value).__name__}, not a whole number")
    return value
