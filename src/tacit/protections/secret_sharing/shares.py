"""Peer-to-peer MPC: every client shares its vector among all clients, and partial sums give the total.

The protocol is the one that the survey's section 4.5 describes before Two-Phase MPC (Kanagavelu et al.,
"Two-Phase Multi-Party Computation Enabled Privacy-Preserving Federated Learning", CCGRID 2020; Shamir, "How
to Share a Secret", 1979); docs/shares.md tells it.

    survey: 2 n (n - 1) messages a round          ours: the same (and n - 1 once, for the clients' key)

Published over real numbers, it is done here in fixed point, modulo 2^64 (additive) or in the field of
2^61 - 1 elements (Shamir): shares hide, and sums are exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from typing import Any

from tacit.core.client import manifest_of
from tacit.core.errors import ConfigError, OpeningError, ProtectionError, QuorumError
from tacit.core.fields import read_integer
from tacit.core.link import Link
from tacit.core.party import Party
from tacit.core.pending_sum import PendingSum
from tacit.core.promises import Promises
from tacit.protections.secret_sharing import wire
from tacit.protections.secret_sharing.settings import SecretSharing
from tacit.protections.secret_sharing.share_holder import ShareHolder
from tacit.protections.secret_sharing.share_relay import ShareRelay
from tacit.protections.secret_sharing.share_round import ShareRound


@dataclass(frozen=True)
class Shares(SecretSharing):
    """Shares of every vector among all clients; partial sums give the total (peer-to-peer MPC).

    Parameters
    ----------
    scheme : {"shamir", "additive"}
        Shamir's shares open with more than half of the clients, and a client sends 8 bytes a value for each
        of them; additive ones open only with all, as published, and cost 8 bytes a value in all.
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
        sees = "one share of each contribution, which tells nothing, and "
        sees += "the total" if self.opens == "clients" else "what is made of the total"
        if self.scheme == "additive":
            return self.promise(
                sees,
                collusion="all asked clients but one together learn the contribution of that one",
                dropout="a client that vanishes while shares are dealt: the sum starts again without it; "
                "later: it stops",
                bytes_per_value=8.0,
            )
        needed = f"more than {self.threshold:.0%} of the asked clients"
        return self.promise(
            sees,
            collusion=f"{needed} (t of n) together open every contribution; a coordinator that lies to them "
            "about who contributed needs only 2t - n of them, and it picks whom it asks",
            dropout=f"the sum goes on while {needed} stay; if fewer have dealt shares, it starts again "
            "without the others; if fewer tell partial sums, it stops",
            bytes_per_value=8.0,
            per_client=True,
        )

    def min_holders(self, holders: int) -> int:
        if self.scheme == "additive":
            return holders
        return min(holders, floor(holders * self.threshold + 1e-9) + 1)

    def at_coordinator(self, link: Link) -> "SharesCoordinator":
        return SharesCoordinator(self, link)

    def at_client(self, party: Party) -> "SharesClient":
        return SharesClient(self, party)


class SharesCoordinator(ShareRelay):
    """Relays shares among all clients of a sum."""

    def gather(self, pending: PendingSum) -> dict[str, Any]:
        settings, gone, lap = self._settings, set[str](), 0
        while True:
            lap += 1
            left = [name for name in pending.parties if name not in gone]
            pending.check(left)
            pending.restart()
            threshold = settings.min_holders(len(left))
            share_round = ShareRound(settings.scheme, pending.number, lap, tuple(left), threshold)
            if (formed := self.form(pending, share_round, gone)) is None:
                continue
            if len(formed.by_holder) < threshold:
                silent = ", ".join([name for name in left if name not in formed.by_holder][:3])
                raise QuorumError(
                    f"{pending.contribution}: {len(formed.by_holder)} of {len(left)} holders told their "
                    f"partial sum, {threshold} open the total ({silent} did not): run again without them"
                )
            return self.make_total(pending, share_round, formed)


class SharesClient(ShareHolder):
    """Deals shares to all clients of a sum, and holds theirs."""

    def read_round(self, fields: Mapping[str, Any]) -> ShareRound:
        """Return who holds shares: all clients of the sum; their number says how many of them open it."""
        own, holders = self.party.id, tuple(wire.names_from_bytes(fields["holders"]))
        if len(set(holders)) < len(holders) or own not in holders:
            raise ProtectionError(f"{own} was told of holders that repeat, or that leave itself out")
        if len(holders) < (least := self._settings.min_contributions(manifest_of(self.party).min_clients)):
            raise OpeningError(
                f"{len(holders)} holders of shares, agreed were at least {least}: {own} deals none"
            )
        number, lap = read_integer(fields, "sum", 1), read_integer(fields, "lap", 1)
        if number <= self.party.state.get("released", (0, 0))[0]:
            raise OpeningError(
                f"{own} told its partial sum of sum {number} already: a second total over other "
                "clients would show those in between"
            )
        threshold = self._settings.min_holders(len(holders))
        return ShareRound(self._settings.scheme, number, lap, holders, threshold)
