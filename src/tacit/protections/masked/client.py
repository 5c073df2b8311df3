"""Masked sums at a client: offer keys, check the draw, deal shares, mask, and release one kind of share.

A client deals its shares once, masks once with each key, and answers one request to unmask: what it has used
or given is deleted in the same step, so that a repeated or altered ask finds nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.client import add_prefix, agreed_minimum
from tacit.core.errors import OpeningError, ProtectionError
from tacit.core.exposure import COORDINATOR
from tacit.core.layout import Layout
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.numbers import read_integer
from tacit.core.party import Party
from tacit.core.protection import Vector
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import NONCE, identity_secrets, new_exchange, pair_keys, place, seal, unseal
from tacit.crypto.masking import add_masks, sign_for
from tacit.crypto.sharing import share_vector
from tacit.protections.keys.authenticated import AuthenticatedClient, manifest_digest_of
from tacit.protections.masked.confirming import confirm_key, confirmations, lock
from tacit.protections.masked.neighbours import Neighbourhood, check_members, check_neighbours
from tacit.protections.masked.wire import (
    ELEMENTS,
    KEY,
    SHARE,
    TAG,
    Flags,
    Offer,
    commit,
    derive_mask_seeds,
    hash_pieces,
    to_elements,
    unpack_flags,
)

if TYPE_CHECKING:
    from tacit.protections.masked import Masked

MOST_SUMS = 10_000  # that one batch prepares


class MaskedClient(AuthenticatedClient):
    """Agrees with neighbours on masks, masks vectors, and helps to remove the masks from their sum.

    In the vault: ``mask/number`` for the next draw; for each sum ``mask/own/…`` (its key, then also its seed)
    and ``mask/held/…`` (shares of its neighbours' keys and seeds); and between two steps ``mask/exchange``,
    ``mask/channels`` and ``mask/row``, with which shares are sealed and unsealed; then ``mask/confirm``, by
    which neighbours confirm to each other who arrived. All else is public.
    """

    def __init__(self, settings: Masked, party: Party) -> None:
        super().__init__(party)
        self.settings = settings

    # -- before the sums -----------------------------------------------------------------------------------

    def introduce(self, greeting: Mapping[str, Any]) -> dict[str, Any]:
        """Commit to a number for the draw of neighbours, before anyone knows who takes part."""
        return {**super().introduce(greeting), "draw": self._draw_number()}

    def _draw_number(self) -> bytes:
        """Draw a number that places this client on the circle, and return a commitment to it."""
        number = os.urandom(KEY)
        self.party.vault["mask/number"] = Secret(number)
        return commit("draw", manifest_digest_of(self.party), self.party.id, 0, number)

    @step
    def offer(self, message: Message) -> Message:
        """Offer a public key for every sum of a batch, reveal one's number, and commit to the next."""
        first, sums, clients = (read_integer(message, name) for name in ("first", "sums", "clients"))
        party, root = self.party, message["root"]
        if not (first > party.state.get("mask/last", 0) and 1 <= sums <= MOST_SUMS):
            raise ProtectionError(f"{sums} sums from number {first} on: prepared before, or too many")
        if clients < (least := self.settings.min_contributions(agreed_minimum(party))):
            raise OpeningError(f"{clients} clients, agreed were at least {least}: {party.id} offers no key")
        members = check_members(self.settings, party, message, clients)
        self._forget(first)
        pairs = [new_exchange() for _ in range(sums)]
        party.vault.update({f"mask/own/{first + i}": private for i, (private, _) in enumerate(pairs)})
        number = party.vault["mask/number"].reveal()
        publics = b"".join(public for _, public in pairs)
        # Shares are sealed with a key of this batch, so that none of an earlier one can be unsealed later.
        party.vault["mask/exchange"], exchange = new_exchange()
        offer = Offer(exchange, root, number, self._draw_number(), first, sums, publics).to_bytes()
        for name in ("names", "dealt", "slot"):
            party.state.pop(f"mask/{name}", None)
        party.vault.pop("mask/confirm", None)
        known = {"first": first, "last": first + sums - 1, "sums": sums, "clients": clients, "root": root}
        party.state.update(
            add_prefix("mask/", {**known, "members": members, "revealed": number, "offer": offer})
        )
        return Message(offer=Blob("public", offer))

    @step
    def deal(self, message: Message) -> Message:
        """Check the neighbours, and seal for each its shares of one's keys and seeds.

        The sealing key of two clients comes from keys of this batch, from their identities and from both
        offers. So a relay that swaps an offer can read nothing, and nobody masks with a swapped key:
        the shares that come with it do not open.
        """
        party = self.party
        if "mask/names" in party.state:
            raise ProtectionError(f"{party.id} has dealt its shares already: it deals them once")
        run, around = manifest_digest_of(party), Neighbourhood.of(party, message["names"])
        offers = check_neighbours(self.settings, party, around, message)
        threshold = self.settings.rules(around.clients).threshold
        secrets, commits = [], []
        for slot in range(around.first, around.first + around.sums):
            private, seed = party.vault[f"mask/own/{slot}"].reveal(), os.urandom(KEY)
            party.vault[f"mask/own/{slot}"] = Secret(private + seed)
            secrets.append(private + seed)
            commits.append(commit("self", run, party.id, slot, seed))
        shares = share_vector(to_elements(b"".join(secrets)).reshape(-1), len(around.holders), threshold)
        channels = self._derive_channels(offers)
        party.vault["mask/channels"] = Secret(b"".join(key.reveal() for key in channels.values()))
        sealed = []
        for name, share in zip(around.holders, shares, strict=True):
            raw = share.values.astype("<u8").tobytes()
            if name == party.id:
                party.vault["mask/row"] = Secret(raw)
            else:
                sealed.append(seal(channels[name], raw, place(run, around.first, "shares", party.id, name)))
        publics = b"".join(offer.publics for offer in offers.values())
        known = {"names": message["names"], "publics": publics}
        party.state.update(add_prefix("mask/", known))
        return Message(shares=Blob("sealed", b"".join(sealed)), commits=Blob("public", b"".join(commits)))

    def _derive_channels(self, offers: Mapping[str, Offer]) -> dict[str, Secret]:
        """Return the keys under which this client and each neighbour seal shares for one another."""
        party = self.party
        known = identity_secrets(party.identity, [party.pinned(name) for name in offers])
        own = party.state.pop("mask/offer")
        for index, (name, offer) in enumerate(offers.items()):
            other = offer.to_bytes()
            known[index] += hash_pieces(*((own, other) if party.id < name else (other, own)))
        exchange, exchanges = party.vault.pop("mask/exchange"), [offer.exchange for offer in offers.values()]
        keys = pair_keys(exchange, exchanges, "shares", manifest_digest_of(party), known)
        return dict(zip(offers, keys, strict=True))

    # -- a sum -----------------------------------------------------------------------------------------------

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Mask this party's vector, once; its key and seed of this sum are gone afterwards."""
        party, state, slot = self.party, self.party.state, ticket["slot"]
        if f"mask/own/{slot}" not in party.vault or "mask/names" not in state:
            raise ProtectionError(
                f"{party.id} has no masks for sum {slot}: they are agreed on, and used once"
            )
        if read_integer(ticket, "sum") <= state.get("mask/opened", 0):
            raise OpeningError(f"{party.id} helped to open sum {ticket['sum']}: it gives nothing more to it")
        around = Neighbourhood.of(party, state["mask/names"])
        self._receive_shares(ticket, around)
        partners = self._check_partners(ticket["partners"], around)
        encoding = self.settings.encoding(layout, around.clients)
        words = encoding.encode(vector)
        own, run, call = party.vault.pop(f"mask/own/{slot}").reveal(), manifest_digest_of(party), party.asked
        publics = np.frombuffer(state["mask/publics"], np.uint8).reshape(len(around.neighbours), -1, KEY)
        keys = dict(zip(around.neighbours, publics[:, slot - around.first], strict=True))
        others = {
            name: keys[name].tobytes() for name in compress(around.holders, partners) if name != party.id
        }
        seeds = derive_mask_seeds(Secret(own[:KEY]), others, run, call, slot, party.id)
        pairs = [(seed, sign_for(party.id, name)) for name, seed in seeds.items()]
        add_masks(words, [(Secret(own[KEY:]), 1), *pairs])
        self._forget(slot)
        known = {"slot": slot, "sum": ticket["sum"], "partners": ticket["partners"]}
        state.update(add_prefix("mask/", known))
        return Message(masked=Blob("masked", encoding.write(words, run, slot, call)))

    def _receive_shares(self, ticket: Mapping[str, Any], around: Neighbourhood) -> None:
        """Unseal the shares that rode on the ask; the first time settles whose they are."""
        party, holders = self.party, around.holders
        if (known := party.state.get("mask/dealt")) is not None:
            if ticket.get("dealt", known) != known:
                raise ProtectionError(f"{party.id} was handed shares of other clients than the first time")
            return
        run, dealt = manifest_digest_of(party), unpack_flags(ticket.get("dealt"), len(holders))
        sealed: bytes = ticket["shares"].data
        channels = party.vault.pop("mask/channels").reveal()
        starts = range(0, len(channels), KEY)
        confirming = b"".join(confirm_key(channels[start : start + KEY]) for start in starts)
        party.vault["mask/confirm"] = Secret(confirming)
        length = 2 * SHARE * around.sums
        held = np.zeros((len(holders), around.sums, 2 * ELEMENTS), "<u8")
        for index, name in enumerate(holders):
            if name == party.id:
                raw = party.vault.pop("mask/row").reveal()
            elif dealt[index]:
                key = Secret(channels[KEY * around.neighbours.index(name) :][:KEY])
                part, sealed = sealed[: NONCE + length + TAG], sealed[NONCE + length + TAG :]
                try:
                    raw = unseal(key, part, place(run, around.first, "shares", name, party.id))
                except ProtectionError:
                    raise ProtectionError(
                        f"the shares that {name} dealt to {party.id} do not open: they were changed, or the "
                        "relay or a stranger swapped a key of one of them; do not go on"
                    ) from None
            else:
                continue
            if len(raw) != length:
                raise ProtectionError(f"{name} dealt {len(raw)} bytes of shares, agreed were {length}")
            held[index] = np.frombuffer(raw, "<u8").reshape(around.sums, -1)
        for i in range(around.sums):
            party.vault[f"mask/held/{around.first + i}"] = Secret(held[:, i].tobytes())
        party.state["mask/dealt"] = ticket["dealt"]

    def _check_partners(self, raw: Any, around: Neighbourhood) -> Flags:
        """Return with which holders to mask, if this client has shares of them all and they are enough."""
        party, state = self.party, self.party.state
        partners = unpack_flags(raw, len(around.holders))
        unknown = partners & ~unpack_flags(state["mask/dealt"], len(around.holders))
        if unknown.any():
            raise ProtectionError(f"{party.id} was told to mask with clients of whom it holds no shares")
        rules = self.settings.rules(around.clients)
        if flaw := rules.flaw_of_partners(party.id, around.select(partners)):
            raise OpeningError(flaw)
        return partners

    @step
    def unmask(self, message: Message) -> Message:
        """Return one share for each neighbour: of its seed if it arrived, of its key if it vanished.

        They are locked: who has fewer confirmations of the same survivors than the threshold reads nothing.
        """
        party, state, slot = self.party, self.party.state, message["slot"]
        if state.get("mask/slot") != slot or f"mask/held/{slot}" not in party.vault:
            raise OpeningError(
                f"{party.id} took no part in sum {slot}, or gave its shares of it already: it gives none"
            )
        around = Neighbourhood.of(party, state["mask/names"])
        alive = unpack_flags(message["alive"], len(around.holders))
        partners = unpack_flags(state["mask/partners"], len(around.holders))
        survivors = self._check_survivors(message, around, alive, partners)
        held = np.frombuffer(party.vault.pop(f"mask/held/{slot}").reveal(), "<u8")
        keys, seeds = np.split(held.reshape(len(around.holders), 2 * ELEMENTS), 2, axis=1)
        state["mask/opened"] = state["mask/sum"]
        released = np.where(alive[:, None], seeds, keys)[partners].tobytes()
        return self._lock(released, slot, around, survivors)

    def _check_survivors(
        self, message: Message, around: Neighbourhood, alive: Flags, partners: Flags
    ) -> Set[str]:
        """Return who arrived, or refuse to help if they are too few or cannot have."""
        party, rules = self.party, self.settings.rules(around.clients)
        least, arrived = self.settings.min_contributions(agreed_minimum(party)), around.select(alive)
        if flaw := rules.flaw_of_survivors(party.id, arrived, around.select(partners), least):
            raise OpeningError(flaw)
        if (survivors := read_integer(message, "survivors")) < least:
            raise OpeningError(f"{survivors} contributions, agreed were at least {least}: the sum stays shut")
        return arrived

    def _lock(self, released: bytes, slot: int, around: Neighbourhood, alive: Set[str]) -> Message:
        """Return shares that open with confirmations of enough holders, and this client's own for them."""
        party, rules = self.party, self.settings.rules(around.clients)
        secret = party.vault["mask/confirm"].reveal()
        keys = {name: secret[KEY * i : KEY * (i + 1)] for i, name in enumerate(around.neighbours)}
        text = rules.confirmed_text(alive)
        given, taken = confirmations(keys, slot, text, party.id, around.holders, alive)
        if slot == party.state["mask/last"]:
            del party.vault["mask/confirm"]
        where = place(manifest_digest_of(party), slot, "release", party.id, COORDINATOR)
        locked = lock(released, taken, rules.threshold, where)
        return Message(shares=Blob("share", locked), confirms=Blob("public", given))

    # -- afterwards ------------------------------------------------------------------------------------------

    def discard_unused_keys(self) -> None:
        """Delete what was agreed on for sums that did not come."""
        self._forget(self.party.state.get("mask/last", 0) + 1)
        for name in ("exchange", "channels", "confirm", "row"):
            self.party.vault.pop(f"mask/{name}", None)

    def _forget(self, before: int) -> None:
        """Delete the secrets of sums that are over: what is gone cannot be asked for."""
        for name in list(self.party.vault):
            if name.startswith(("mask/own/", "mask/held/")) and int(name.split("/")[2]) < before:
                del self.party.vault[name]
