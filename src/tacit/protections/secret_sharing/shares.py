"""Peer-to-peer MPC: every client shares its vector among all clients, and partial sums give the total.

The protocol is the one that the survey's section 4.5 describes before Two-Phase MPC (Kanagavelu et al.,
"Two-Phase Multi-Party Computation Enabled Privacy-Preserving Federated Learning", CCGRID 2020; Shamir, "How
to Share a Secret", 1979): each of n clients cuts its vector into n shares, one for every client; each client
adds the shares it received and tells all others its partial sum; the partial sums give the total.

    survey: 2 n (n - 1) messages a round          ours: the same (and n - 1 once, for the clients' key)

Published over real numbers, it is done here in fixed point, modulo 2^64 (additive) or in the field of
2^61 - 1 elements (Shamir): shares hide, and sums are exact. If totals open at the coordinator, the
n partial sums go there instead: n (n - 1) messages between clients a round.

A client tells its partial sum of a sum once. Before that, a sum may start again without clients that
vanished; after it not, because two totals that differ by one client show that client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from typing import Any

from tacit.core.errors import ConfigError, OpeningError, ProtectionError, QuorumError
from tacit.core.party import Party
from tacit.core.promises import Promises
from tacit.core.protection import Sum
from tacit.protections.secret_sharing.protocol import Dealt
from tacit.protections.secret_sharing.share_round import Dealing, lines

NO_DROPOUT = "additive shares: the sum needs every holder of shares; with scheme = shamir some may vanish"


@dataclass(frozen=True)
class Shares(Dealt):
    """Shares of every vector among all clients; partial sums give the total (peer-to-peer MPC).

    Parameters
    ----------
    scheme : {"shamir", "additive"}
        Shamir's shares open with more than half of the clients, and a client sends 8 bytes a value for each
        of them; additive ones open only with all, as published, and cost 8 bytes a value in all.
    opens : {"clients", "coordinator"}
        Where partial sums are put together.
    bits : int
        Bits of a value in fixed point, its sign included.
    clip : bool
        Cut values at their bound instead of refusing them.
    threshold : float
        More than this part of the clients open a total (Shamir), from 0.5 to below 1.
    """

    name = "shares"

    threshold: float = 0.5

    def __post_init__(self) -> None:
        if not 0.5 <= self.threshold < 1:
            raise ConfigError(f"threshold is {self.threshold}: a part of the clients, from 0.5 to below 1")

    @property
    def promises(self) -> Promises:
        """What is promised, by scheme and by where totals open."""
        shamir, here = self.scheme == "shamir", self.opens == "clients"
        needed = f"more than {self.threshold:.0%} of the asked clients"
        return Promises(
            opens=self.opens,
            keys={
                "client": "an exchange key of its own" + (", and the key of all clients" if here else ""),
                "coordinator": "none of either",
            },
            sees={
                "coordinator": "sealed shares"
                + (" and sealed partial sums it cannot read" if here else " it cannot read, and the total"),
                "client": "one share of each contribution, which tells nothing, and "
                + ("the total" if here else "what is made of the total"),
                "outsider": "nothing",
            },
            collusion=(
                f"{needed} (t of n) together open every contribution; a coordinator that lies to them about "
                "who contributed needs only 2t - n of them, and it picks whom it asks"
                if shamir
                else "all asked clients but one together learn the contribution of that one"
            ),
            dropout=(
                f"the sum goes on while {needed} stay; if fewer have dealt shares, it starts again without "
                "the others; if fewer tell partial sums, it stops"
                if shamir
                else "a client that vanishes while shares are dealt: the sum starts again without it; later: "
                "it stops"
            ),
            precision=2.0 ** -(self.bits - 1),
            bytes_per_value=8.0,
            per_client=shamir,
            warnings=() if shamir else (NO_DROPOUT,),
        )

    def needed(self, clients: int) -> int:
        """How many of these clients open a total.

        >>> [Shares().needed(n) for n in (2, 3, 4, 100)], Shares(scheme="additive").needed(4)
        ([2, 2, 3, 51], 4)
        """
        return (
            min(clients, floor(clients * self.threshold + 1e-9) + 1) if self.scheme == "shamir" else clients
        )

    def dealing(self, party: Party, fields: Mapping[str, Any]) -> Dealing:
        """All clients of a sum hold; how many open it follows from how many they are."""
        holders = tuple(lines(fields["holders"]))
        if len(set(holders)) < len(holders) or party.id not in holders:
            raise ProtectionError(f"{party.id} was told of holders that repeat, or that leave itself out")
        if fields["sum"] <= party.state.get("released", (0, 0))[0]:
            raise OpeningError(
                f"{party.id} told its partial sum of sum {fields['sum']} already: a second total over other "
                "clients would show those in between"
            )
        return Dealing(self.scheme, fields["sum"], fields["lap"], holders, self.needed(len(holders)))

    def gather(self, pending: Sum) -> dict[str, Any]:
        """Deal and add among all that are left, until enough of them hold shares of the same sum."""
        gone: set[str] = set()
        lap = 0
        while True:
            lap += 1
            alive = [name for name in pending.parties if name not in gone]
            pending.check(alive)
            pending.restart()
            deal = Dealing(self.scheme, pending.number, lap, tuple(alive), self.needed(len(alive)))
            formed = self.form(pending, deal, gone)
            if formed is None:
                continue
            if len(formed.partials) < deal.threshold:
                silent = ", ".join([name for name in alive if name not in formed.partials][:3])
                raise QuorumError(
                    f"{pending.contribution}: {len(formed.partials)} of {len(alive)} holders told their "
                    f"partial sum, {deal.threshold} open the total ({silent} did not): run again without them"
                )
            return self.total(pending, deal, formed)
