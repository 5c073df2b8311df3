"""Two-Phase MPC: clients share their vectors with a small committee only.

Kanagavelu et al., "Two-Phase Multi-Party Computation Enabled Privacy-Preserving Federated Learning" (CCGRID
2020), as the survey's section 4.5 describes it. Two things differ here, for which docs/committee.md has the
reasons: the committee of K is drawn by commit and reveal (:mod:`tacit.protections.secret_sharing.election`),
and any ``threshold`` members open a total (Shamir), unless scheme is "additive".

    survey:    2 n (n - 1) messages once, and n K + K (K - 1) + n a round, some of them to oneself
    published: 2 n (n - 1) once, and (K + 1) (n - 1) + K (K - 1) a round
    ours:      2 n once, and 2 K (n - 1) a round; K (n - 1) and K replies if totals open at the coordinator
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.core.errors import ConfigError, OpeningError, ProtectionError, QuorumError
from tacit.core.fields import add_prefix, read_integer, strip_prefix
from tacit.core.link import Link
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.pending_sum import PendingSum
from tacit.core.promises import Promises
from tacit.core.protection import hands_on
from tacit.core.values import Blob
from tacit.crypto.channel import seal
from tacit.protections.keys.authenticated import manifest_digest_of
from tacit.protections.secret_sharing import wire
from tacit.protections.secret_sharing.election import Election, Voter
from tacit.protections.secret_sharing.settings import SecretSharing
from tacit.protections.secret_sharing.share_holder import ShareHolder
from tacit.protections.secret_sharing.share_relay import ShareRelay
from tacit.protections.secret_sharing.share_round import ShareRound, partial_place, recover_total
from tacit.protections.secret_sharing.votes import VoteElection, VotingVoter

VOTES = (
    "votes elect the committee: clients that conspire vote for each other and take the seats; leave out "
    "published, and it is drawn so that nobody can steer it"
)


@dataclass(frozen=True)
class Committee(SecretSharing):
    """Shares of every vector among an elected committee, which adds them (Two-Phase MPC).

    Parameters
    ----------
    scheme : {"shamir", "additive"}
        Shamir's shares open with ``threshold`` members; additive ones only with all, as published.
    members : int
        Size of the committee; all clients, if there are fewer.
    threshold : int
        Members that open a total (Shamir): more than half of them.
    draws : int
        How many committees may be drawn in a run: again if somebody withholds its number or too many members
        vanish. Whoever wants a certain committee has that many tries.
    published : bool
        Elect by votes and let one member tell the total, as in the paper: for comparison, since colluders
        take the seats. It goes with scheme "additive", and totals that open at the clients.
    """

    name = "committee"

    members: int = 3
    threshold: int = 2
    draws: int = 3
    published: bool = False

    def __post_init__(self) -> None:
        if not self.members >= 2:
            raise ConfigError(f"members is {self.members}: a committee has at least two")
        if not self.members < 2 * self.threshold <= 2 * self.members:  # else two groups could open one each
            raise ConfigError(
                f"threshold is {self.threshold}: of {self.members} members more than half, and at most all, "
                "open a total"
            )
        if self.draws < 1:
            raise ConfigError(f"draws is {self.draws}: a committee is drawn at least once")
        if self.published and (self.scheme, self.opens) != ("additive", "clients"):
            raise ConfigError(
                f"published with scheme = {self.scheme} and opens = {self.opens}: the paper's shares are "
                "additive, and its totals open at the clients"
            )

    @property
    def announces(self) -> bool:
        return self.published

    @property
    def promises(self) -> Promises:
        shamir = self.scheme == "shamir"
        needed = f"{self.threshold} of {self.members}" if shamir else f"all {self.members}"
        lying = f"; a coordinator that lies about who contributed needs {2 * self.threshold - self.members}"
        promises = self.promise(
            ("the total" if self.opens == "clients" else "what is made of the total")
            + "; a member also one share of each contribution, which tells nothing",
            collusion=f"{needed} members together open every contribution{lying if shamir else ''}; one that "
            "lies about who vanished has sums formed anew, over other clients, as often as draws says",
            dropout="the sum goes on without the client, down to the quorum; if fewer members stay than open "
            "a total, another committee is drawn and the sum starts again",
            bytes_per_value=8.0 * self.members if shamir else 8.0,
        )
        return replace(promises, warnings=(*promises.warnings, VOTES)) if self.published else promises

    def min_holders(self, holders: int) -> int:
        return min(self.threshold, holders) if self.scheme == "shamir" else holders

    def at_coordinator(self, link: Link) -> "CommitteeCoordinator":
        return CommitteeCoordinator(self, link)

    def at_client(self, party: Party) -> "CommitteeClient":
        return CommitteeClient(self, party)


@hands_on("election", "ticket_fields")
class CommitteeCoordinator(ShareRelay):
    """Has committees elected, and relays shares to them."""

    def __init__(self, settings: Committee, link: Link) -> None:
        super().__init__(settings, link)
        self.election = Election(link, settings.members, settings.draws)
        if settings.published:
            self.election = VoteElection(link, settings.members, settings.draws, self.directory)

    def welcome(self, party: str, fields: Mapping[str, Any]) -> None:
        super().welcome(party, fields)
        self.election.welcome(party, fields)

    def prepare(self, sums: int) -> None:
        """Give out the clients' key, and elect; who withholds its number takes no further part."""
        super().prepare(sums)
        self.link.keep_only(self.election.elect(self.link.ask, self.link.parties))

    def admit(self, names: Sequence[str]) -> None:
        super().admit(names)
        if self.election.draw >= self.election.draws:
            raise ProtectionError(f"all {self.election.draws} draws of a committee are used: raise draws")
        self.link.keep_only(self.election.elect(self.link.ask, (*self.link.parties, *names)))

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        settings, election, gone = self._settings, self.election, set[str]()
        while True:
            pending.restart()
            members = election.members
            threshold = settings.min_holders(len(members))
            share_round = ShareRound(settings.scheme, pending.number, election.draw, members, threshold)
            formed = self.form(pending, share_round, gone)
            if formed is not None and len(formed.by_holder) >= threshold:
                election.informed.update(formed.dealers, formed.by_holder)
                total = self.make_total(pending, share_round, formed)
                return self._announce(pending, members, total) if settings.announces else total
            gone.update(set(members) - (formed.by_holder.keys() if formed else set(members)))
            voters = [name for name in election.voters if name not in gone]
            gone.update(set(voters) - set(election.elect(pending.ask, voters)))
            pending.check([name for name in pending.parties if name not in gone])

    def _announce(
        self, pending: PendingSum, members: Sequence[str], total: Mapping[str, Any]
    ) -> dict[str, Any]:
        for member in members:
            for _, reply in pending.ask(CommitteeClient.announce, add_prefix("total/", total), {member: {}}):
                if isinstance(told := reply.get("partial"), Blob):
                    for name in pending.parties:
                        if name != member:
                            self.link.record_relay(member, name, len(told.data))
                    return {**total, "points": np.array([0]), "partials": told}
        raise QuorumError("no member of the committee put the total together: run again")


class CommitteeClient(ShareHolder):
    """Takes part in elections, deals shares to the committee, and holds them as a member."""

    def __init__(self, settings: Committee, party: Party) -> None:
        super().__init__(settings, party)
        self.voter = Voter(party, settings.members, settings.draws)
        if settings.published:
            self.voter = VotingVoter(party, settings.members, settings.draws, self.peer_key)

    @property
    def step_owners(self) -> tuple[object, ...]:
        return self.voter, *super().step_owners

    def introduce(self, greeting: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().introduce(greeting), "commitment": self.voter.commit()}

    def read_round(self, fields: Mapping[str, Any]) -> ShareRound:
        """Return who holds shares: the committee that this party itself found to be elected."""
        (members, draw), own = self.voter.find_committee(fields), self.party.id
        number, lap = read_integer(fields, "sum", 1), read_integer(fields, "lap", 1)
        if not members or lap != draw or tuple(wire.names_from_bytes(fields["holders"])) != members:
            raise ProtectionError(f"{own} was told of a committee that it did not find elected")
        if (number, lap) <= self.party.state.get("released", (0, 0)):
            raise OpeningError(f"{own} told its partial sum of sum {number} already")
        threshold = self._settings.min_holders(len(members))
        return ShareRound(self._settings.scheme, number, lap, members, threshold)

    @step
    def announce(self, message: Message) -> Message:
        """Put the partial sums of all members together, and tell the total, sealed for all clients."""
        total, own = strip_prefix("total/", message), self.party.id
        if own not in (members := self.voter.find_committee({})[0]):
            raise ProtectionError(f"{own} was asked to tell a total, and is no member of the committee")
        number = read_integer(total, "number", 1)
        if not self._settings.announces or number != self.party.state.get("released", (0, 0))[0]:
            raise OpeningError(f"{own} was asked to tell a total of which it told no partial sum")
        words = (len(total["partials"].data) // len(members) - wire.OVERHEAD) // 8
        points, rows = self.read_partials(total, words, len(members))
        integers, tag = recover_total("additive", points, rows, len(members))
        raw = wire.words_to_bytes(np.append(integers.view(np.uint64), np.uint64(tag)))
        where = partial_place(manifest_digest_of(self.party), total, 0)
        return Message(partial=Blob("sealed", seal(self.key.newest(), raw, where)))
