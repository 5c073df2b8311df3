"""What sums by secret sharing have in common at a client: it deals shares, holds, adds and opens."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tacit.core.client import check_opening
from tacit.core.errors import MessageError, OpeningError, ProtectionError
from tacit.core.fields import MOST_SUMMANDS, read_integer
from tacit.core.layout import Layout
from tacit.core.marks import step
from tacit.core.message import DEFAULT_LIMIT, Message
from tacit.core.party import Party
from tacit.core.protection import Vector
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import seal, unseal
from tacit.crypto.field import PRIME, Ring
from tacit.protections.keys.authenticated import manifest_digest_of, read_exchanges, sealing_key
from tacit.protections.keys.proved_totals import TAG, ProvedTotals, read_tag, write_tag
from tacit.protections.keys.shared_key import SharedKeyClient
from tacit.protections.secret_sharing import wire
from tacit.protections.secret_sharing.settings import SecretSharing
from tacit.protections.secret_sharing.share_round import ShareRound, partial_place, recover_total


class ShareHolder(SharedKeyClient):
    """Half of a client: it deals shares of its vector, adds those it holds, and opens totals."""

    def __init__(self, settings: SecretSharing, party: Party) -> None:
        super().__init__(settings.terms, party)
        self._settings = settings
        self._proved = ProvedTotals(party, self.key)

    def read_round(self, fields: Mapping[str, Any]) -> ShareRound:
        """Return who holds shares, checked by this party: a coordinator could name its friends."""
        raise TypeError(f"{type(self).__name__} must say who holds shares")

    @step
    def take_key(self, message: Message) -> Message:
        """Acknowledge the key, which ``receive`` has stored before this step runs."""
        return Message()

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Cut this party's vector into shares, and seal each for its holder.

        Where clients open totals, the vector's tag is shared with it: with the clients' key, a tag in the
        clear would tell the coordinator 61 bits of the vector.
        """
        party, share_round, run = self.party, self.read_round(ticket), manifest_digest_of(self.party)
        summands = read_integer(ticket, "summands", 1, MOST_SUMMANDS)
        integers = self._settings.code(layout, summands).encode(vector)
        tag = 0  # of vectors whose totals the coordinator opens: they prove nothing
        if self._settings.proves(layout):
            [tag] = read_tag({TAG: self._proved.tag(ticket, layout, integers)})
        pieces = share_round.cut(party.id, integers, tag)
        sealed = []
        for (name, signed), piece in zip(read_exchanges(ticket, share_round.holders), pieces, strict=True):
            if name == party.id:
                party.vault["own"], party.state["own"] = Secret(piece), share_round.digest
            else:
                key = self.peer_key(name, signed)
                sealed.append(seal(key, piece, share_round.share_place(run, party.id, name)))
        return Message(shares=Blob("sealed", b"".join(sealed)))

    @step
    def hold(self, message: Message) -> Message:
        """Add the shares of some dealers to those held before; with the last of them, tell the sum."""
        party, share_round = self.party, self.read_round(message)
        if party.id not in share_round.holders:
            raise ProtectionError(f"{party.id} was asked to hold shares, and is none of the holders")
        index, new = share_round.holders.index(party.id), wire.names_from_bytes(message["dealers"])
        slots = read_integer(message, "slots", 1, DEFAULT_LIMIT // 8)
        dealers, running = new, np.zeros(slots, np.uint64)
        if party.state.get("held") == share_round.digest:
            dealers = [*wire.names_from_bytes(party.state["dealers"]), *new]
            running = wire.words_from_bytes(party.vault["running"].reveal())
        if len(set(dealers)) < len(dealers):
            raise OpeningError(f"{party.id} was sent a client's shares twice: it would count double")
        running = share_round.add(index, running, new, self._unseal(share_round, message, new, slots))
        if not message["last"]:
            party.vault["running"] = Secret(wire.words_to_bytes(running))
            party.state.update({"held": share_round.digest, "dealers": wire.names_to_bytes(dealers)})
            return Message()
        check_opening(party, self._settings, len(dealers))
        # Once told, never again: two sums over different dealers differ by single clients.
        party.state["released"] = (share_round.number, share_round.lap)
        for done in ("own", "running"):
            party.vault.pop(done, None)
        partial = wire.words_to_bytes(running)
        if self._settings.opens == "coordinator":
            return Message(partial=Blob("share", partial))
        where = partial_place(manifest_digest_of(party), share_round.sum_terms(dealers), index + 1)
        return Message(partial=Blob("sealed", seal(self.key.newest(), partial, where)))

    def _unseal(
        self, share_round: ShareRound, message: Message, dealers: Sequence[str], slots: int
    ) -> Iterator[bytes]:
        party, raw, position = self.party, message["shares"].data, 0
        index, run = share_round.holders.index(party.id), manifest_digest_of(party)
        for name, signed in read_exchanges(message, dealers):
            size = share_round.sealed_size(name, index, slots)
            if name == party.id:
                if party.state.get("own") != share_round.digest:
                    raise ProtectionError(f"{party.id} is named as a dealer, and dealt nothing in this sum")
                if len(own := party.vault["own"].reveal()) + wire.OVERHEAD != size:
                    raise MessageError(f"shares of {slots} values, {party.id} dealt {len(own) // 8}")
                yield own
                continue
            piece, position = raw[position : position + size], position + size
            key = self.peer_key(name, signed)
            try:
                yield unseal(key, piece, share_round.share_place(run, name, party.id))
            except ProtectionError as error:
                raise ProtectionError(f"share that {name} dealt to {party.id}: {error.public}") from None

    def peer_key(self, other: str, signed: bytes) -> Secret:
        """Return the sealing key; checking and agreeing it takes longer than sealing a short vector."""
        party = self.party
        own = hashlib.sha256(party.vault["exchange"].reveal()).digest()
        cached = ("peer", party.id, own, other, signed)
        if cached not in party.cache:
            party.cache[cached] = sealing_key(party, other, signed)
        key: Secret = party.cache[cached]
        return key

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        party, summands = self.party, read_integer(total, "summands", 1, MOST_SUMMANDS)
        number, threshold = (read_integer(total, name, 1) for name in ("number", "threshold"))
        check_opening(party, self._settings, read_integer(total, "contributions"))
        if number <= party.state.get("opened", 0):
            raise OpeningError(f"total of sum {number}, which or a later one was opened: a replay")
        party.state["opened"] = number
        needed = 1 if self._settings.announces else threshold
        points, rows = self.read_partials(total, self._settings.words(layout, summands), needed)
        integers, tag = recover_total(self._settings.scheme, points, rows, threshold)
        self._proved.check({**total, TAG: write_tag(tag)}, layout, summands, {PRIME: integers})
        return self._settings.code(layout, summands).decode(integers)

    def read_partials(
        self, total: Mapping[str, Any], words: int, needed: int
    ) -> tuple[list[int], list[Ring]]:
        """Return the points of holders and their partial sums, which the clients' key opens."""
        points, raw, size = total["points"].tolist(), total["partials"].data, 8 * words + wire.OVERHEAD
        if len(set(points)) < max(needed, len(points)) or len(raw) != size * len(points):
            raise OpeningError(
                f"{len(raw) // size} partial sums of {len(points)} holders, {needed} open this "
                "total: it stays shut"
            )
        key, run = self.key.newest(), manifest_digest_of(self.party)
        pieces = [(point, raw[i * size : (i + 1) * size]) for i, point in enumerate(points)]
        places = [(partial_place(run, total, point), piece) for point, piece in pieces]
        return points, [wire.words_from_bytes(unseal(key, piece, where)) for where, piece in places]
