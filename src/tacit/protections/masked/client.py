"""Masked sums at a client: it masks its vector, and releases one kind of share of each neighbour.

A client deals its shares once, masks once with each key, and answers one request to unmask: what it has used
or given is deleted in the same step, so that a repeated or altered ask finds nothing.
"""

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from tacit.core.client import manifest_of
from tacit.core.errors import OpeningError, ProtectionError
from tacit.core.exposure import COORDINATOR
from tacit.core.fields import add_prefix, read_integer
from tacit.core.layout import Layout
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import Vector, hands_on
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import NONCE, place, unseal
from tacit.crypto.field import PRIME, elements_from
from tacit.crypto.masking import add_masks, advance_chains, bind_seeds, sign_for
from tacit.protections.keys.authenticated import manifest_digest_of
from tacit.protections.keys.shared_key import SharedKeyClient
from tacit.protections.masked import Masked, wire
from tacit.protections.masked.confirming import confirmations, lock
from tacit.protections.masked.dealing import Dealer, forget_sums
from tacit.protections.masked.neighbours import Neighbourhood
from tacit.protections.masked.totals import PaddedTotals, write_tag


@hands_on("totals", "open")
class MaskedClient(SharedKeyClient):
    """Agrees with neighbours on masks, masks vectors, and helps to remove the masks from their sum.

    In the vault: ``mask/number`` for the next draw; for each sum ``mask/own/…`` (its seed) and
    ``mask/held/…`` (shares of its neighbours' keys and seeds); ``mask/links``, of the chain with each
    neighbour the link after the last sum; and between two steps ``mask/exchange``, ``mask/channels`` and
    ``mask/row``, with which shares are sealed and unsealed. All else is public.
    """

    def __init__(self, settings: Masked, party: Party) -> None:
        super().__init__(settings.terms, party)
        self.settings = settings
        self.dealer = Dealer(settings, party)
        self.totals = PaddedTotals(settings, party, self.key)

    @property
    def step_owners(self) -> tuple[object, ...]:
        return (self, self.dealer, self.key) if self.settings.opens == "clients" else (self, self.dealer)

    def introduce(self, greeting: Mapping[str, Any]) -> dict[str, Any]:
        """Commit to a number for the draw of neighbours, before anyone knows who takes part."""
        return {**super().introduce(greeting), "draw": self.dealer.draw_number()}

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
        run, call = manifest_digest_of(party), party.asked
        integers = encoding.code.encode(vector)
        if self.settings.opens == "clients":
            where = {"root": around.root, "slot": slot, "summands": around.clients, "call": call}
            words, tag = self.totals.write_words(ticket["term"], integers, layout, encoding, where)
        else:
            words, tag = encoding.write_words(integers), None
        seeds = bind_seeds(self._advance(slot), call)
        flags = dict(zip(around.holders, partners.tolist(), strict=True))
        masks = [(party.vault.pop(f"mask/own/{slot}"), 1)]
        masks += [
            (seed, sign_for(party.id, name))
            for name, seed in zip(around.neighbours, seeds, strict=True)
            if flags[name]
        ]
        beside = add_masks(words, masks)
        forget_sums(party, slot)
        known = {"slot": slot, "sum": ticket["sum"], "partners": ticket["partners"]}
        state.update(add_prefix("mask/", known))
        upload = {"masked": Blob("masked", encoding.write(words, run, slot, call))}
        return Message(upload if tag is None else upload | write_tag((tag + beside) % PRIME))

    def _advance(self, slot: int) -> bytes:
        """Return what the chain with each neighbour gives for a sum; that of an earlier one is gone."""
        links, given = self.party.vault["mask/links"].reveal(), b""
        for _ in range(self.party.state["mask/next"], slot + 1):
            links, given = advance_chains(links)
        self.party.vault["mask/links"], self.party.state["mask/next"] = Secret(links), slot + 1
        return given

    def _receive_shares(self, ticket: Mapping[str, Any], around: Neighbourhood) -> None:
        """Unseal the shares that rode on the ask, derive others; the first time settles whose they are."""
        party, holders = self.party, around.holders
        if (known := party.state.get("mask/dealt")) is not None:
            if ticket.get("dealt", known) != known:
                raise ProtectionError(f"{party.id} was handed shares of other clients than the first time")
            return
        flags = (wire.unpack_flags(ticket.get(name), len(holders)).tolist() for name in ("dealt", "derived"))
        dealt, derived = (dict(zip(holders, flag, strict=True)) for flag in flags)
        sealed, channels = ticket["shares"].data, party.vault.pop("mask/channels").reveal()
        where = wire.share_place(manifest_digest_of(party), around.first)
        length = 2 * wire.SHARE * around.sums
        rows, at, size = [], 0, NONCE + length + wire.TAG
        for index, name in enumerate(around.neighbours):
            raw, key = bytes(length), Secret(channels[wire.KEY * index : wire.KEY * (index + 1)])
            if derived[name]:
                raw = wire.derive_share(key, where(name, party.id), length)
            elif dealt[name]:
                try:
                    raw = unseal(key, sealed[at : at + size], where(name, party.id))
                except ProtectionError:
                    raise ProtectionError(
                        f"the shares that {name} dealt to {party.id} do not open: they were changed, or one "
                        "of the two was shown another offer than the other made; do not go on"
                    ) from None
                at += size
            if len(raw) != length:
                raise ProtectionError(f"{name} dealt {len(raw)} bytes of shares, agreed were {length}")
            rows.append(raw)
        rows.insert(holders.index(party.id), party.vault.pop("mask/row").reveal())
        held = np.frombuffer(b"".join(rows), "<u8").copy().reshape(len(holders), around.sums, -1)
        following = np.array(list((derived | {party.id: False}).values()))
        held[following] = elements_from(held[following].tobytes()).reshape(-1, *held.shape[1:])
        for i in range(around.sums):
            party.vault[f"mask/held/{around.first + i}"] = Secret(held[:, i].tobytes())
        party.state["mask/dealt"] = ticket["dealt"]

    def _check_partners(self, raw: Any, around: Neighbourhood) -> wire.Flags:
        party, state = self.party, self.party.state
        partners = wire.unpack_flags(raw, len(around.holders))
        unknown = partners & ~wire.unpack_flags(state["mask/dealt"], len(around.holders))
        if unknown.any():
            raise ProtectionError(f"{party.id} was told to mask with clients of whom it holds no shares")
        rules = self.settings.rules(around.clients)
        if flaw := rules.flaw_of_partners(party.id, around.select(partners)):
            raise OpeningError(flaw)
        return partners

    @step
    def unmask(self, message: Message) -> Message:
        """Return a locked share for each neighbour: of its seed if it arrived, of its key if it vanished."""
        party, state, slot = self.party, self.party.state, message["slot"]
        if state.get("mask/slot") != slot or f"mask/held/{slot}" not in party.vault:
            raise OpeningError(
                f"{party.id} took no part in sum {slot}, or gave its shares of it already: it gives none"
            )
        around = Neighbourhood.of(party, state["mask/names"])
        alive = wire.unpack_flags(message["alive"], len(around.holders))
        partners = wire.unpack_flags(state["mask/partners"], len(around.holders))
        survivors = self._check_survivors(message, around, alive, partners)
        held = np.frombuffer(party.vault.pop(f"mask/held/{slot}").reveal(), "<u8")
        keys, seeds = np.split(held.reshape(len(around.holders), 2 * wire.ELEMENTS), 2, axis=1)
        state["mask/opened"] = state["mask/sum"]
        released = np.where(alive[:, None], seeds, keys)[partners].tobytes()
        return self._lock(released, slot, around, survivors)

    def _check_survivors(
        self, message: Message, around: Neighbourhood, alive: wire.Flags, partners: wire.Flags
    ) -> Set[str]:
        """Return who arrived, or refuse to help if they are too few or cannot have."""
        party, rules = self.party, self.settings.rules(around.clients)
        least, arrived = self.settings.min_contributions(manifest_of(party).min_clients), around.select(alive)
        if flaw := rules.flaw_of_survivors(party.id, arrived, around.select(partners), least):
            raise OpeningError(flaw)
        if (survivors := read_integer(message, "survivors")) < least:
            raise OpeningError(f"{survivors} contributions, agreed were at least {least}: the sum stays shut")
        return arrived

    def _lock(self, released: bytes, slot: int, around: Neighbourhood, alive: Set[str]) -> Message:
        """Return shares that open with confirmations of enough holders, and this client's own for them."""
        party, rules = self.party, self.settings.rules(around.clients)
        links, text = party.vault["mask/links"].reveal(), rules.confirmed_text(alive)
        given, taken = confirmations(links, slot, text, party.id, around.holders, alive)
        if slot == party.state["mask/last"]:
            del party.vault["mask/links"]
        where = place(manifest_digest_of(party), slot, "release", party.id, COORDINATOR)
        locked = lock(released, taken, rules.threshold, where)
        return Message(shares=Blob("share", locked), confirms=Blob("public", given))

    def discard_unused_keys(self) -> None:
        forget_sums(self.party, self.party.state.get("mask/last", 0) + 1)
        for name in ("exchange", "channels", "links", "row"):
            self.party.vault.pop(f"mask/{name}", None)
