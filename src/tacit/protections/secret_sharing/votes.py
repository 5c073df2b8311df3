"""Electing a committee by votes, as Two-Phase MPC was published.

Each client gives every other a random number as its vote. The votes are a vector, cut into additive shares
among all voters. It is here to be compared, since colluders can choose their numbers (docs/committee.md);
nobody can steer :mod:`tacit.protections.secret_sharing.election`.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tacit.core.errors import OpeningError, ProtectionError
from tacit.core.fields import Fields, read_integer
from tacit.core.link import Link
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import checked_key, seal, sign_key, unseal
from tacit.crypto.field import Integers
from tacit.crypto.masking import SEED
from tacit.protections.keys.authenticated import manifest_digest_of, read_exchanges, stack_rows
from tacit.protections.keys.key_relay import Ask
from tacit.protections.secret_sharing import wire
from tacit.protections.secret_sharing.election import Election, Voter
from tacit.protections.secret_sharing.share_round import ShareRound

PeerKey = Callable[[str, bytes], Secret]
TALLY = "tally"  # purpose of a signature


def round_of(draw: int, names: Sequence[str]) -> ShareRound:
    """Return how the votes of a draw are shared: additively among all voters; sums are numbered from 1."""
    return ShareRound("additive", 0, draw, tuple(names), len(names))


def read_tally(signed: bytes, pinned: bytes, name: str, run: str, share_round: ShareRound) -> Any:
    """Return the votes that a client added up, if it signed them for this draw."""
    told, digest = checked_key(signed, pinned, TALLY, name, run), share_round.digest.encode()
    if not told.startswith(digest) or len(told) != len(digest) + 8 * (len(share_round.holders) + 1):
        raise ProtectionError(f"{name} has added up the votes of another election")
    return wire.words_from_bytes(told[len(digest) :])[:-1]


def cast_votes(own: str, names: Sequence[str]) -> Integers:
    """Return a random number of 32 bits for each other voter."""
    votes = np.frombuffer(os.urandom(4 * len(names)), "<u4").astype(np.int64)
    return np.where([name == own for name in names], 0, votes)


def most_votes(tallies: Sequence[Any], names: Sequence[str], members: int) -> tuple[str, ...]:
    """Return who has the most votes, by the sums that all voters have told."""
    votes = np.sum(tallies, axis=0, dtype=np.uint64)
    ranked = sorted(zip((-votes.astype(object)).tolist(), names, strict=True))
    return tuple(name for _, name in ranked[:members])


class VoteElection(Election):
    """The coordinator's part: it relays shares of votes, and what voters have added up."""

    def __init__(self, link: Link, seats: int, draws: int, directory: Mapping[str, bytes]) -> None:
        super().__init__(link, seats, draws)
        self._directory = directory  # signed exchange keys of the clients

    def welcome(self, party: str, fields: Mapping[str, Any]) -> None:
        """Keep nothing: votes need no commitment."""

    def collect(self, ask: Ask, names: Sequence[str]) -> dict[str, bytes]:
        ballot = {"draw": self.draw, "names": wire.names_to_bytes(names)}
        ballot["exchanges"] = stack_rows(self._directory, names)
        size, votes, found = SEED + wire.OVERHEAD, dict[str, bytes](), dict[str, bytes]()
        for party, reply in ask(VotingVoter.vote, ballot, parties=names):
            blob = reply.get("votes")
            if isinstance(blob, Blob) and (blob.kind, len(blob.data)) == ("sealed", size * (len(names) - 1)):
                votes[party] = blob.data
        if len(votes) < len(names):
            return votes
        jobs = {}
        for index, holder in enumerate(names):
            pieces = []
            for dealer, raw in votes.items():
                place = index - (names.index(dealer) < index)
                if dealer != holder:
                    pieces.append(raw[place * size : (place + 1) * size])
                    self._link.record_relay(dealer, holder, size)
            jobs[holder] = {"votes": Blob("sealed", b"".join(pieces))}
        for party, reply in ask(VotingVoter.add_votes, ballot, jobs):
            blob, run = reply.get(TALLY), self._link.manifest.digest
            with suppress(ProtectionError):
                if isinstance(blob, Blob):
                    read_tally(blob.data, self._link.pinned(party), party, run, round_of(self.draw, names))
                    found[party] = blob.data
        return found

    def decide(self, names: Sequence[str], found: Mapping[str, bytes]) -> tuple[str, ...]:
        run, share_round = self._link.manifest.digest, round_of(self.draw, names)
        rows = [read_tally(found[name], self._link.pinned(name), name, run, share_round) for name in names]
        tallies = stack_rows(found, names)
        self.evidence = {"draw": self.draw, "names": wire.names_to_bytes(names), "tallies": tallies}
        for name in names:
            for other in names:
                if other != name:
                    self._link.record_relay(name, other, len(found[name]))
        return most_votes(rows, names, self._seats)


class VotingVoter(Voter):
    """A client's part: it votes, adds up the shares of votes that it holds, and checks who was elected."""

    def __init__(self, party: Party, seats: int, draws: int, peer_key: PeerKey) -> None:
        super().__init__(party, seats, draws)
        self._peer_key = peer_key

    def commit(self) -> bytes:
        """Return nothing: votes need no commitment."""
        return b""

    def _read(self, message: Mapping[str, Any]) -> ShareRound:
        names = wire.names_from_bytes(message["names"])
        if names != sorted(set(names)):
            raise ProtectionError("the list of voters is not sorted, or names a client twice")
        self._check_electorate(names)
        return round_of(read_integer(message, "draw", 1), names)

    def _peers(
        self, share_round: ShareRound, message: Mapping[str, Any]
    ) -> Iterator[tuple[str, Secret | None]]:
        if self._party.id not in share_round.holders:
            raise ProtectionError(f"{self._party.id} was sent a ballot that is not its own")
        for name, signed in read_exchanges(message, share_round.holders):
            yield name, None if name == self._party.id else self._peer_key(name, signed)

    @step
    def vote(self, message: Message) -> Message:
        """Give every other voter a random number, in shares for all."""
        party, share_round = self._party, self._read(message)
        self.begin_draw(share_round.lap)
        votes = cast_votes(party.id, share_round.holders)
        pieces, run, sealed = share_round.cut(party.id, votes, 0), manifest_digest_of(party), []
        for piece, (name, key) in zip(pieces, self._peers(share_round, message), strict=True):
            if key is None:
                party.vault["votes"], party.state["ballot"] = Secret(piece), share_round.digest
            else:
                sealed.append(seal(key, piece, share_round.share_place(run, party.id, name)))
        return Message(votes=Blob("sealed", b"".join(sealed)))

    @step
    def add_votes(self, message: Message) -> Message:
        """Add up the shares of all voters that this party holds, and tell the sum, once."""
        party, share_round = self._party, self._read(message)
        if party.state.get("ballot") != share_round.digest or "votes" not in party.vault:
            raise OpeningError(f"{party.id} has not voted in this draw, or told its sum already")
        raw, run, size, pieces = message["votes"].data, manifest_digest_of(party), SEED + wire.OVERHEAD, []
        for name, key in self._peers(share_round, message):
            if key is None:
                pieces.append(party.vault["votes"].reveal())
            else:
                pieces.append(unseal(key, raw[:size], share_round.share_place(run, name, party.id)))
                raw = raw[size:]
        index, zeros = share_round.holders.index(party.id), np.zeros(len(pieces) + 1, np.uint64)
        added = wire.words_to_bytes(share_round.add(index, zeros, share_round.holders, pieces))
        party.vault.pop("votes")
        told = share_round.digest.encode() + added
        return Message({TALLY: Blob("public", sign_key(party.identity, TALLY, party.id, run, told))})

    def find_committee(self, fields: Mapping[str, Any]) -> tuple[tuple[str, ...], int]:
        if "tallies" in fields:
            party, share_round, run = self._party, self._read(Fields(fields)), manifest_digest_of(self._party)
            names = share_round.holders
            if party.id not in names:
                self.check_absence(names, share_round.lap)
            elif party.state.get("ballot") != share_round.digest:
                raise ProtectionError(f"{party.id} is shown an election in which it has not voted")
            if len(fields["tallies"]) != len(names):
                raise ProtectionError(f"sums of {len(fields['tallies'])} voters, there are {len(names)}")
            rows = [
                read_tally(row.tobytes(), party.pinned(name), name, run, share_round)
                for name, row in zip(names, fields["tallies"], strict=True)
            ]
            self.keep_committee(most_votes(rows, names, self._seats), share_round.lap)
        return super().find_committee({})
