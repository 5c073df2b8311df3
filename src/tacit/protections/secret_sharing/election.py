"""Electing a committee by commit and reveal, so that nobody can steer it.

Every client commits to a random number when it enrols, sees all commitments, and only then reveals. The
seed is a hash of all numbers, so it is uniform if a single client is honest, whoever speaks last.

**Who does not reveal.** Whoever hears all numbers before its own is out (a colluder of the coordinator, which
relays them) could withhold it and so change the seed. If the draw went on without it, c colluders could
choose among 2^c seeds. So a draw in which anybody withholds is void: those that did are out, of the draw
and of the electorate, and the others draw again with numbers they committed to before. Every client
counts the draws and refuses more than were agreed. Withholding thus buys one further draw with one
friend fewer, and ``draws`` bounds how often that, or a coordinator that cuts off honest clients, can void a
draw: the chance of any committee is at most ``draws`` times the fair one among those that are left.

**Who votes.** Whoever chose the voters would choose the committee: docs/committee.md has the rule.

**Limits.** Every client gets the full list of commitments and numbers, about 150 bytes a client. With more
than 1,000 clients those 1,000 vote and stand for election whose names hash lowest with the run's digest.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.client import manifest_of
from tacit.core.errors import FederationError, MessageError, OpeningError, ProtectionError
from tacit.core.fields import read_integer
from tacit.core.link import Link
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.core.values import Blob
from tacit.crypto.channel import SIGNATURE, checked_key, hash_pieces, sign_key
from tacit.protections.keys.authenticated import manifest_digest_of, stack_rows
from tacit.protections.keys.key_relay import Ask
from tacit.protections.secret_sharing import wire

ELECTORATE = 1_000
NONCE = 32


def commitment(run: str, owner: str, nonce: bytes) -> bytes:
    """Return what a client shows of its number before all have committed."""
    return hash_pieces(b"commitment", run.encode(), owner.encode(), nonce)


def rank(run: str, name: str) -> bytes:
    """Return the place of a client among those who may vote, where not all can."""
    return hash_pieces(b"electorate", run.encode(), name.encode())


def choose_voters(names: Iterable[str], run: str, limit: int) -> list[str]:
    """Return the clients that vote and may be elected, sorted by name."""
    found = sorted(names)
    return found if len(found) <= limit else sorted(sorted(found, key=lambda name: rank(run, name))[:limit])


def draw_seed(run: str, draw: int, nonces: Iterable[bytes]) -> bytes:
    """Return the seed of a draw: a hash of all numbers, in the order of their owners' names."""
    return hash_pieces(b"draw", run.encode(), draw.to_bytes(8, "little"), *nonces)


def draw_members(seed: bytes, names: Iterable[str], members: int) -> tuple[str, ...]:
    """Draw a committee: every set of members is as likely as any other."""
    return tuple(sorted(names, key=lambda name: hash_pieces(seed, name.encode()))[:members])


class Election:
    """The coordinator's part: it collects commitments and numbers, and passes them on."""

    def __init__(self, link: Link, seats: int, draws: int) -> None:
        self._link, self._seats, self.draws = link, seats, draws
        self.commitments: dict[str, bytes] = {}  # signed, of the numbers that are revealed next
        self.draw = 0  # how many committees were drawn
        self.members: tuple[str, ...] = ()  # the committee
        self.voters: list[str] = []  # who was left when it was drawn
        self.evidence: dict[str, Any] = {}  # what the election can be checked with
        self.informed: set[str] = set()  # who has seen that

    def welcome(self, party: str, fields: Mapping[str, Any]) -> None:
        """Keep a commitment, if it is that party's own: one of another length would shift all others."""
        signed = fields.get("commitment")
        if not isinstance(signed, bytes) or len(signed) != SIGNATURE + NONCE:
            raise ProtectionError(f"{party} committed to no number where one was agreed")
        checked_key(signed, self._link.pinned(party), "commitment", party, self._link.manifest.digest)
        self.commitments[party] = signed

    def elect(self, ask: Ask, candidates: Sequence[str]) -> list[str]:
        """Draw until nobody withholds its number, and return who is left."""
        left, run = list(candidates), self._link.manifest.digest
        if len(left) < (least := self._link.min_contributions):
            raise OpeningError(
                f"an election by {len(left)} clients, agreed were at least {least}: wait for more"
            )
        while self.draw < self.draws and len(left) >= 2:
            self.draw += 1
            names = choose_voters(left, run, ELECTORATE)
            found = self.collect(ask, names)
            left = [name for name in left if name in found or name not in names]
            if len(found) == len(names):
                self.members = self.decide(names, found)
                self.voters, self.informed = left, set()
                return left
        raise FederationError(
            f"no committee after {self.draw} draws, with {len(left)} clients left: in each somebody "
            "withheld its number, or too many members vanished. Raise draws, or leave out who vanishes"
        )

    def collect(self, ask: Ask, names: Sequence[str]) -> dict[str, bytes]:
        """Let clients reveal, and return the numbers of those that did, and committed to the next."""
        signed = stack_rows(self.commitments, names)
        ballot = {"draw": self.draw, "names": wire.names_to_bytes(names), "commitments": signed}
        nonces = {}
        for party, reply in ask(Voter.reveal, ballot, parties=names):
            nonce, following = reply.get("nonce"), reply.get("commitment")
            if self._is_committed(party, nonce) and isinstance(following, Blob):
                with suppress(ProtectionError):
                    self.welcome(party, {"commitment": following.data})
                    nonces[party] = nonce.data
        complete = len(nonces) == len(names)
        self.evidence = {**ballot, "nonces": stack_rows(nonces, names)} if complete else {}
        return nonces

    def ticket_fields(self, party: str) -> Mapping[str, Any]:
        """Return what a party has to be told of the election, until it has seen that."""
        return {} if party in self.informed else self.evidence

    def decide(self, names: Sequence[str], found: Mapping[str, bytes]) -> tuple[str, ...]:
        """Return the committee that follows from all numbers."""
        seed = draw_seed(self._link.manifest.digest, self.draw, [found[name] for name in names])
        return draw_members(seed, names, self._seats)

    def _is_committed(self, party: str, nonce: Any) -> bool:
        if not isinstance(nonce, Blob) or len(nonce.data) != NONCE:
            return False
        return commitment(self._link.manifest.digest, party, nonce.data) == self.commitments[party][-NONCE:]


class Voter:
    """A client's part: it commits to a number, reveals it once, and checks who was elected."""

    def __init__(self, party: Party, seats: int, draws: int) -> None:
        self._party, self._seats, self._draws = party, seats, draws

    def commit(self) -> bytes:
        """Choose a number, and return the signed commitment to it."""
        party, run, nonce = self._party, manifest_digest_of(self._party), os.urandom(NONCE)
        party.vault["nonce"] = Secret(nonce)
        return sign_key(party.identity, "commitment", party.id, run, commitment(run, party.id, nonce))

    @step
    def reveal(self, message: Message) -> Message:
        """Reveal one's number, once all have committed to theirs; commit to the next."""
        party, (draw, names, signed) = self._party, _read_ballot(message)
        self.begin_draw(draw)
        self._check_ballot(names, signed)
        nonce, run = party.vault["nonce"].reveal(), manifest_digest_of(party)
        own = dict(zip(names, signed, strict=True)).get(party.id)
        if own is None or own.tobytes()[-NONCE:] != commitment(run, party.id, nonce):
            raise ProtectionError(f"{party.id} does not find its own commitment among those it was shown")
        party.state["ballot"] = _ballot_digest(draw, names, signed)
        return Message(nonce=Blob("public", nonce), commitment=Blob("public", self.commit()))

    def begin_draw(self, draw: int) -> None:
        """Count a draw, and refuse one that was, or more than were agreed."""
        party, last = self._party, self._party.state.get("draw", 0)
        if not last < draw <= self._draws:
            raise OpeningError(
                f"{party.id} was asked for draw {draw}, after draw {last} and with "
                f"{self._draws} agreed: nobody gets to draw until the committee suits it"
            )
        party.state["draw"] = draw

    def _check_ballot(self, names: Sequence[str], signed: NDArray[np.uint8]) -> None:
        """Check that each name is there once, has signed its commitment, and that nearly all vote."""
        if list(names) != sorted(set(names)):
            raise ProtectionError("the list of commitments is not sorted, or names a client twice")
        self._check_electorate(names)
        party, run = self._party, manifest_digest_of(self._party)
        for name, row in zip(names, signed, strict=True):
            claim = ("commitment", name, party.pinned(name), row.tobytes())
            if claim not in party.cache:
                checked_key(row.tobytes(), party.pinned(name), "commitment", name, run)
                party.cache[claim] = True

    def _check_electorate(self, names: Sequence[str]) -> None:
        """Check that these are not voters of the coordinator's choice: nearly all clients of the roster."""
        party, manifest = self._party, manifest_of(self._party)
        clients = len(party.roster)
        absent = floor((1 - manifest.quorum) * clients + 1e-9)  # so many may have vanished
        least = min(ELECTORATE, max(manifest.min_clients, clients - absent))
        if len(names) < least:
            raise OpeningError(
                f"an election by {len(names)} clients, agreed were at least {least} ({clients} are in the "
                f"roster, the quorum is {manifest.quorum:.0%}, min_clients {manifest.min_clients}): "
                f"{party.id} has no part in it"
            )
        if clients - absent > ELECTORATE:
            run, claim = manifest_digest_of(party), ("electorate", manifest_digest_of(party), tuple(names))
            if claim not in party.cache:
                ranks = sorted(rank(run, name) for name in party.roster)
                party.cache[claim] = max(rank(run, name) for name in names) <= ranks[ELECTORATE + absent - 1]
            if not party.cache[claim]:
                raise OpeningError(
                    f"an election by clients of which some rank behind {ELECTORATE + absent} others, though "
                    f"only {absent} may be absent: {party.id} has no part in it"
                )

    def find_committee(self, fields: Mapping[str, Any]) -> tuple[tuple[str, ...], int]:
        """Return the committee that this party itself found to be elected, and in which draw."""
        if "nonces" in fields:
            self._accept(fields)
        state = self._party.state
        return tuple(wire.names_from_bytes(state.get("committee", b""))), state.get("elected", 0)

    def _accept(self, evidence: Mapping[str, Any]) -> None:
        """Draw the committee again from what was revealed, and check that one's own number is in it."""
        party, run = self._party, manifest_digest_of(self._party)
        draw, names, signed = _read_ballot(evidence)
        nonces = [row.tobytes() for row in evidence["nonces"]]
        if len(nonces) != len(names):
            raise MessageError(f"{len(nonces)} numbers of {len(names)} voters: one is needed of each")
        if party.id in names:
            if party.state.get("ballot") != _ballot_digest(draw, names, signed):
                raise ProtectionError(f"{party.id} is shown an election that it revealed no number for")
        else:
            self._check_ballot(names, signed)
            self.check_absence(names, draw)
        for name, nonce, row in zip(names, nonces, signed, strict=True):
            if row.tobytes()[-NONCE:] != commitment(run, name, nonce):
                raise ProtectionError(f"the number of {name} is not the one that it committed to")
        self.keep_committee(draw_members(draw_seed(run, draw, nonces), names, self._seats), draw)

    def check_absence(self, names: Sequence[str], draw: int) -> None:
        """Refuse an election in which this party should have had a part."""
        own, run = self._party.id, manifest_digest_of(self._party)
        all_vote = len(names) < ELECTORATE
        if all_vote or draw > self._draws or rank(run, own) < max(rank(run, name) for name in names):
            raise ProtectionError(
                f"{own} had no part in the election of this committee: it takes no part in its sums"
            )

    def keep_committee(self, members: Sequence[str], draw: int) -> None:
        """Keep who was elected, and in which draw."""
        self._party.state.update({"committee": wire.names_to_bytes(members), "elected": draw})


def _read_ballot(fields: Mapping[str, Any]) -> tuple[int, list[str], NDArray[np.uint8]]:
    names, signed = wire.names_from_bytes(fields["names"]), fields["commitments"]
    if not isinstance(signed, np.ndarray) or signed.dtype != np.uint8 or signed.shape[:-1] != (len(names),):
        raise MessageError(f"a ballot of {len(names)} names without as many commitments")
    return read_integer(fields, "draw", 1), names, signed


def _ballot_digest(draw: int, names: Sequence[str], signed: NDArray[np.uint8]) -> bytes:
    return hash_pieces(draw.to_bytes(8, "little"), wire.names_to_bytes(names), signed.tobytes())
