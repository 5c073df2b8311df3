"""What a client of masked sums does before the sums: offer a key, check the draw, and deal shares, once."""

import os
from collections.abc import Mapping
from hashlib import blake2b

import numpy as np

from tacit.core.client import manifest_of
from tacit.core.errors import OpeningError, ProtectionError
from tacit.core.fields import add_prefix, read_integer
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import hash_pieces, new_exchange, pair_keys, seal, sign_key
from tacit.crypto.field import elements_from, random_elements
from tacit.crypto.masking import advance_chains, cover
from tacit.crypto.sharing import evaluate
from tacit.protections.keys.authenticated import manifest_digest_of
from tacit.protections.masked import Masked, wire
from tacit.protections.masked.neighbours import Neighbourhood, check_members, check_neighbours

MOST_SUMS = 10_000  # that one batch prepares


class Dealer:
    """Agrees with neighbours on what masks follow from, and deals shares of its own secrets to them."""

    def __init__(self, settings: Masked, party: Party) -> None:
        self.settings, self.party = settings, party

    def draw_number(self) -> bytes:
        """Draw a number that places this client on the circle, and return a commitment to it."""
        number = os.urandom(wire.KEY)
        self.party.vault["mask/number"] = Secret(number)
        return wire.commit("draw", manifest_digest_of(self.party), self.party.id, 0, number)

    @step
    def offer(self, message: Message) -> Message:
        """Offer a key for a batch of sums, reveal one's number, and commit to the next; signed."""
        first, sums, clients = (read_integer(message, name) for name in ("first", "sums", "clients"))
        party, root = self.party, message["root"]
        if not (first > party.state.get("mask/last", 0) and 1 <= sums <= MOST_SUMS):
            raise ProtectionError(f"{sums} sums from number {first} on: prepared before, or too many")
        if clients < (least := self.settings.min_contributions(manifest_of(party).min_clients)):
            raise OpeningError(f"{clients} clients, agreed were at least {least}: {party.id} offers no key")
        self.settings.check_totals(clients)
        members = check_members(self.settings, party, message, clients)
        forget_sums(party, first)
        number = party.vault["mask/number"].reveal()
        # Shares are sealed with a key of this batch, so that none of an earlier one can be unsealed later.
        party.vault["mask/exchange"], exchange = new_exchange()
        offer = wire.Offer(exchange, root, number, self.draw_number(), first, sums).to_bytes()
        for name in ("names", "dealt", "slot"):
            party.state.pop(f"mask/{name}", None)
        party.vault.pop("mask/links", None)
        known = {"first": first, "last": first + sums - 1, "sums": sums, "clients": clients, "root": root}
        party.state.update(
            add_prefix("mask/", {**known, "members": members, "revealed": number, "offer": offer})
        )
        signed = sign_key(party.identity, wire.OFFERED, party.id, manifest_digest_of(party), offer)
        return Message(offer=Blob("public", signed))

    @step
    def deal(self, message: Message) -> Message:
        """Check the neighbours, and deal to each its shares of one's keys and seeds.

        The key of two clients comes from keys of this batch, which both have signed, and from both offers:
        they have one only if both were shown the same. From it follow the shares of the first t - 1
        neighbours, which makes the others' as random as if all had been drawn; these travel under it.
        """
        party = self.party
        if "mask/names" in party.state:
            raise ProtectionError(f"{party.id} has dealt its shares already: it deals them once")
        run, around = manifest_digest_of(party), Neighbourhood.of(party, message["names"])
        offers = check_neighbours(self.settings, party, around, message)
        channels = self._derive_channels(offers)
        # The first link of the chain of each two clients belongs to their channel.
        firsts = (blake2b(key.reveal(), digest_size=wire.KEY, person=b"tacit link") for key in channels)
        links = b"".join([first.digest() for first in firsts])
        party.vault["mask/links"], party.state["mask/next"] = Secret(links), around.first
        drawn = random_elements(2 * wire.ELEMENTS * around.sums).reshape(around.sums, 2, wire.ELEMENTS)
        commits, deposits = list[bytes](), list[bytes]()
        for slot in range(around.first, around.first + around.sums):
            key, seed = map(wire.key_of, drawn[slot - around.first])
            party.vault[f"mask/own/{slot}"] = seed
            for purpose, secret in (("key", key), ("self", seed)):
                commits.append(wire.commit(purpose, run, party.id, slot, secret.reveal())[: wire.COMMIT])
            links, given = advance_chains(links)
            deposits.append(cover(key, given))
        party.vault["mask/channels"] = Secret(b"".join([key.reveal() for key in channels]))
        threshold, place = self.settings.rules(around.clients).threshold, wire.share_place(run, around.first)
        places = [place(party.id, name) for name in around.neighbours]
        first = zip(channels[: threshold - 1], places, strict=False)
        derived = [wire.derive_share(key, where, drawn.nbytes) for key, where in first]
        following = elements_from(b"".join(derived))
        points = (0, *range(2, threshold + 1)), (1, *range(threshold + 1, len(around.holders) + 1))
        own, *rows = evaluate(np.append(drawn, following).reshape(threshold, -1), *points).astype("<u8")
        party.vault["mask/row"] = Secret(own.tobytes())
        rest = zip(channels[threshold - 1 :], rows, places[threshold - 1 :], strict=True)
        sealed = [seal(key, row.tobytes(), where) for key, row, where in rest]
        party.state["mask/names"] = message["names"]
        return Message(
            shares=Blob("sealed", b"".join(sealed)),
            commits=Blob("public", b"".join(commits)),
            deposits=Blob("sealed", b"".join(deposits)),
        )

    def _derive_channels(self, offers: Mapping[str, wire.Offer]) -> list[Secret]:
        party, own, known = self.party, self.party.state.pop("mask/offer"), []
        for name, offer in offers.items():
            other = offer.to_bytes()
            known.append(hash_pieces(*((own, other) if party.id < name else (other, own))))
        exchanges = [offer.exchange for offer in offers.values()]
        return pair_keys(
            party.vault.pop("mask/exchange"), exchanges, "shares", manifest_digest_of(party), known
        )


def forget_sums(party: Party, before: int) -> None:
    """Delete the secrets of sums that are over: what is gone cannot be asked for."""
    first, last = (party.state.get(f"mask/{name}", 0) for name in ("kept", "last"))
    for slot in range(first, min(before, last + 1)):
        for name in ("own", "held"):
            party.vault.pop(f"mask/{name}/{slot}", None)
    party.state["mask/kept"] = max(first, before)
