"""Two-Phase MPC: clients share their vectors with a small committee only.

Kanagavelu et al., "Two-Phase Multi-Party Computation Enabled Privacy-Preserving Federated Learning" (CCGRID
2020), as the survey's section 4.5 describes it: phase 1 elects a committee of K clients by random votes;
in phase 2 each client cuts its vector into K shares, one for every member, and the committee adds them. Two
things differ here. By votes, three colluders of 16 take all three seats in more than 80 % of the elections;
ours is drawn by commit and reveal, which they cannot steer (:mod:`tacit.protections.secret_sharing.election`). And published, every
member must stay; here any ``threshold`` of them open a total (Shamir), unless scheme is "additive".

    survey: 2 n (n - 1) messages once, and n K + K (K - 1) + n a round
    ours:   2 n once, and 2 K (n - 1) a round; K (n - 1) and K replies if totals open at the coordinator

If too few members are left, a new committee is drawn without them and the sum starts again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError, FederationError, OpeningError, ProtectionError
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.promises import Promises
from tacit.core.protection import Sum
from tacit.core.secret import Secret
from tacit.core.shared import Shared
from tacit.core.values import Blob
from tacit.crypto.channel import checked_key, sign_key
from tacit.protections.keys.authenticated import run_of
from tacit.protections.secret_sharing import election
from tacit.protections.secret_sharing.election import (
    NONCE,
    ballot_of,
    checked_members,
    commitment,
    elected,
    electorate,
    message_counts,
    rank,
    seed_of,
    simulate_elections,
)
from tacit.protections.secret_sharing.protocol import Dealt
from tacit.protections.secret_sharing.share_round import Dealing, joined, lines, rows_of
from tacit.protections.secret_sharing.shares import NO_DROPOUT

__all__ = ["Committee", "message_counts", "simulate_elections"]


@dataclass(frozen=True)
class Committee(Dealt):
    """Shares of every vector among an elected committee, which adds them (Two-Phase MPC).

    Parameters
    ----------
    scheme : {"shamir", "additive"}
        Shamir's shares open with ``threshold`` members; additive ones only with all, as published.
    opens : {"clients", "coordinator"}
        Where partial sums are put together.
    bits : int
        Bits of a value in fixed point, its sign included.
    clip : bool
        Cut values at their bound instead of refusing them.
    members : int
        Size of the committee; all clients, if there are fewer.
    threshold : int
        Members that open a total (Shamir): more than half of them.
    draws : int
        How many committees may be drawn in a run: again if somebody withholds its number or too many members
        vanish. Whoever wants a certain committee has that many tries.
    """

    name = "committee"

    members: int = 3
    threshold: int = 2
    draws: int = 3

    def __post_init__(self) -> None:
        checked_members(self.members, self.threshold)
        if self.draws < 1:
            raise ConfigError(f"draws is {self.draws}: a committee is drawn at least once")

    @property
    def promises(self) -> Promises:
        """What is promised, by scheme and by where totals open."""
        shamir, here = self.scheme == "shamir", self.opens == "clients"
        needed = f"{self.threshold} of {self.members}" if shamir else f"all {self.members}"
        lying = f"; a coordinator that lies about who contributed needs {2 * self.threshold - self.members}"
        return Promises(
            opens=self.opens,
            keys={
                "client": "an exchange key of its own" + (", and the key of all clients" if here else ""),
                "coordinator": "none of either",
            },
            sees={
                "coordinator": "sealed shares"
                + (" and sealed partial sums it cannot read" if here else " it cannot read, and the total"),
                "client": ("the total" if here else "what is made of the total")
                + "; a member also one share of each contribution, which tells nothing",
                "outsider": "nothing",
            },
            collusion=f"{needed} members together open every contribution{lying if shamir else ''}; one that "
            "lies about who vanished has sums formed anew, over other clients, as often as draws says",
            dropout="the sum goes on without the client, down to the quorum; if fewer members stay than open "
            "a total, another committee is drawn and the sum starts again",
            precision=2.0 ** -(self.bits - 1),
            bytes_per_value=8.0 * self.members if shamir else 8.0,
            warnings=() if shamir else (NO_DROPOUT,),
        )

    # -- commit ------------------------------------------------------------------------------------

    def introduce(self, party: Party, greeting: Mapping[str, Any]) -> dict[str, Any]:
        """Party half: commit to a number, beside the exchange key."""
        return {**super().introduce(party, greeting), "commitment": self._committed(party)}

    def _committed(self, party: Party) -> bytes:
        nonce, run = os.urandom(NONCE), run_of(party)
        party.vault["nonce"] = Secret(nonce)
        return sign_key(party.identity, "commitment", party.id, run, commitment(run, party.id, nonce))

    def welcome(self, coordinator: Any, party: str, fields: Mapping[str, Any]) -> None:
        """Coordinator half: keep the commitment, if it is that party's own."""
        super().welcome(coordinator, party, fields)
        signed, run = fields.get("commitment"), coordinator.manifest.digest
        if not isinstance(signed, bytes):
            raise ProtectionError(f"{party} committed to no number where one was agreed")
        checked_key(signed, coordinator.pinned(party), "commitment", party, run)
        coordinator.memory.setdefault("commitments", {})[party] = signed

    # -- reveal ------------------------------------------------------------------------------------

    def prepare(self, coordinator: Any, sums: int) -> None:
        """Give out the clients' key, and elect; who withholds its number takes no further part."""
        super().prepare(coordinator, sums)
        coordinator.memory.update({"run": coordinator.manifest.digest, "draw": 0})
        coordinator.parties = tuple(self._elect(coordinator.ask, coordinator.memory, coordinator.parties))

    def admit(self, coordinator: Any, names: Sequence[str]) -> None:
        """Give the clients' key to those that come later, and elect anew: all have a part in it again."""
        super().admit(coordinator, names)
        if coordinator.memory["draw"] >= self.draws:
            raise ProtectionError(f"all {self.draws} draws of a committee are used: raise draws")
        left = self._elect(coordinator.ask, coordinator.memory, (*coordinator.parties, *names))
        coordinator.parties = tuple(name for name in coordinator.parties if name in left)

    def _elect(self, ask: Callable[..., Any], memory: dict[str, Any], alive: Sequence[str]) -> list[str]:
        """Draw until nobody withholds; gives who is left."""
        left, run = list(alive), memory["run"]
        while memory["draw"] < self.draws and len(left) >= 2:
            memory["draw"] += 1
            names = electorate(left, run, election.ELECTORATE)
            signed = rows_of(memory["commitments"], names)
            ballot = {"draw": memory["draw"], "names": joined(names), "commitments": signed}
            nonces = {}
            for party, reply in ask(self.reveal, ballot, parties=names):
                nonce, following = reply.get("nonce"), reply.get("commitment")
                if _matches(run, party, nonce, memory["commitments"][party]) and isinstance(following, Blob):
                    nonces[party], memory["commitments"][party] = nonce.data, following.data
            left = [name for name in left if name in nonces or name not in names]
            if len(nonces) == len(names):
                drawn = elected(
                    seed_of(run, memory["draw"], [nonces[name] for name in names]), names, self.members
                )
                numbers = np.frombuffer(b"".join(nonces[name] for name in names), np.uint8)
                memory["evidence"] = {**ballot, "nonces": numbers.reshape(-1, NONCE)}
                memory.update({"members": drawn, "voters": left, "told": set()})
                return left
        raise FederationError(
            f"no committee after {memory['draw']} draws, with {len(left)} clients left: in each somebody "
            "withheld its number, or too many members vanished. Raise draws, or leave out who vanishes"
        )

    @step
    def reveal(self, party: Party, message: Message, shared: Shared | None) -> Message:
        """Reveal one's number, once all have committed to theirs; commit to the next."""
        draw, names, signed = message["draw"], lines(message["names"]), message["commitments"]
        if not party.state.get("draw", 0) < draw <= self.draws:
            raise OpeningError(
                f"{party.id} was asked for draw {draw}, after draw {party.state.get('draw', 0)} and with "
                f"{self.draws} agreed: nobody gets to draw until the committee suits it"
            )
        self._check_ballot(party, names, signed)
        nonce, run = party.vault["nonce"].reveal(), run_of(party)
        own = dict(zip(names, signed, strict=True)).get(party.id)
        if own is None or own.tobytes()[-NONCE:] != commitment(run, party.id, nonce):
            raise ProtectionError(f"{party.id} does not find its own commitment among those it was shown")
        party.state.update({"draw": draw, "ballot": ballot_of(draw, names, signed)})
        return Message(nonce=Blob("public", nonce), commitment=Blob("public", self._committed(party)))

    @staticmethod
    def _check_ballot(party: Party, names: Sequence[str], signed: NDArray[np.uint8]) -> None:
        """Each name once, each with a commitment that it signed itself."""
        if list(names) != sorted(set(names)):
            raise ProtectionError("the list of commitments is not sorted, or names a client twice")
        run = run_of(party)
        for name, row in zip(names, signed, strict=True):
            claim = ("commitment", name, party.pinned(name), row.tobytes())
            if claim not in party.cache:
                checked_key(row.tobytes(), party.pinned(name), "commitment", name, run)
                party.cache[claim] = True

    # -- check the election --------------------------------------------------------------------------

    def news(self, pending: Sum, party: str) -> Mapping[str, Any]:
        """What the election can be checked with, for who has not seen it."""
        evidence: Mapping[str, Any] = pending.memory["evidence"]
        return {} if party in pending.memory["told"] else evidence

    def _accept(self, party: Party, fields: Mapping[str, Any]) -> None:
        """Draw the committee again from what was revealed, and check that one's own number is in it."""
        draw, names, signed = fields["draw"], lines(fields["names"]), fields["commitments"]
        run, nonces = run_of(party), [row.tobytes() for row in fields["nonces"]]
        if party.id in names:
            if party.state.get("ballot") != ballot_of(draw, names, signed):
                raise ProtectionError(f"{party.id} is shown an election that it revealed no number for")
        else:
            self._check_ballot(party, names, signed)
            own, most = rank(run, party.id), election.ELECTORATE
            if len(names) < most or draw > self.draws or own < max(rank(run, name) for name in names):
                raise ProtectionError(
                    f"{party.id} had no part in the election of this committee: it takes no part in its sums"
                )
        for name, nonce, row in zip(names, nonces, signed, strict=True):
            if row.tobytes()[-NONCE:] != commitment(run, name, nonce):
                raise ProtectionError(f"the number of {name} is not the one that it committed to")
        members = elected(seed_of(run, draw, nonces), names, self.members)
        party.state.update({"committee": joined(members), "elected": draw})

    def dealing(self, party: Party, fields: Mapping[str, Any]) -> Dealing:
        """The committee holds that this party itself found to be elected."""
        if "nonces" in fields:
            self._accept(party, fields)
        members, lap = tuple(lines(party.state.get("committee", b""))), fields["lap"]
        if not members or lap != party.state["elected"] or tuple(lines(fields["holders"])) != members:
            raise ProtectionError(f"{party.id} was told of a committee that it did not find elected")
        if (fields["sum"], lap) <= party.state.get("released", (0, 0)):
            raise OpeningError(f"{party.id} told its partial sum of sum {fields['sum']} already")
        return Dealing(self.scheme, fields["sum"], lap, members, self._needed(len(members)))

    def _needed(self, members: int) -> int:
        return min(self.threshold, members) if self.scheme == "shamir" else members

    # -- the sum -----------------------------------------------------------------------------------

    def gather(self, pending: Sum) -> dict[str, Any]:
        """Let the committee form the sum; if too few of it are left, elect another and start again."""
        memory, gone = pending.memory, set[str]()
        while True:
            pending.restart()
            members = memory["members"]
            deal = Dealing(self.scheme, pending.number, memory["draw"], members, self._needed(len(members)))
            formed = self.form(pending, deal, gone)
            if formed is not None and len(formed.partials) >= deal.threshold:
                memory["told"].update(formed.dealers, formed.partials)
                return self.total(pending, deal, formed)
            gone.update(set(members) - (formed.partials.keys() if formed else set(members)))
            voters = [name for name in memory["voters"] if name not in gone]
            gone.update(set(voters) - set(self._elect(pending.ask, memory, voters)))
            pending.check([name for name in pending.parties if name not in gone])


def _matches(run: str, party: str, nonce: Any, signed: bytes) -> bool:
    return isinstance(nonce, Blob) and commitment(run, party, nonce.data) == signed[-NONCE:]
