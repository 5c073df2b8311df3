"""What a client of masked sums insists on, and why no coordinator can then open one client's vector.

The functions here are pure, and the client asks them. ``tests/attacks`` searches all strategies of a
coordinator on small federations against these very functions.

A client gives shares once in a sum, for one list of survivors: of the seeds of those on the list, and of the
keys of those that are not. What it gives is locked: the coordinator can read it only with *confirmations* of
t holders, the client among them, that come with their own answers (``tacit.protections.masked.confirming``).
Let u be an honest client, and c the number of clients that collude with the coordinator.

**Complete graph** (n members, one list of whom all keys are bound to; a client masks with at least t, itself
included; a confirmation is of one list of survivors). If 2t > n + c and t ≥ c + 2, the coordinator learns at
most one total, over all honest clients of one list, at least t - c of them and on a list as long as agreed:

1. What can be read was given for one list L: behind each list stand t - c honest clients at least, each of
   them behind one, and 2(t - c) > n - c.
2. So the seed of a client on L and the key of one that is not can be had, and nobody's seed and key both.
3. The t - c or more honest clients F behind L have masked with everybody on L, so with each other. An honest
   u on L outside F has masked with one of F, since (t - 1) + (t - c) > n - 1; neither's key can be had. So
   all honest clients of L hang together by masks that only their sum removes; whoever among them has masked
   with somebody that did not mask with it stays hidden, and with it the total.

**Sparse graph** (k neighbours each; a client masks with at least m of its k + 1 holders, itself included; a
confirmation says "you arrived"). If 2t > k + 1 + c, with c colluders around any client, every total that can
be had is over at least t - c + m - (k + 1) honest clients, and m > t makes these two at least:

1. Seed and key of u together would take 2(t - c) honest holders, of k + 1 - c.
2. If what an honest holder gave can be read, t - c honest clients hold that it arrived: its key cannot be
   had, as at most k + 1 - t others and c colluders are left to give it.
3. If the seed of u can be had, t - c honest holders have given it, having masked with u. By 2 their keys
   cannot be had; and at least t - c + m - (k + 1) of them, u included, are among those u masked with.
"""

from collections.abc import Set
from dataclasses import dataclass

from tacit.protections.masked.wire import digest_names


@dataclass(frozen=True)
class Rules:
    """Thresholds of a federation with so many clients, and what follows from them for each client."""

    neighbours: int  # k, with which a client shares its secrets; on the complete graph all others
    threshold: int  # t
    partners: int  # the fewest clients that one masks with, itself included: m, or t on the complete graph
    complete: bool  # whether everybody masks with everybody

    @classmethod
    def of(cls, clients: int, neighbours: int, threshold: int, dropout_share: float) -> "Rules":
        """Return the rules for so many neighbours and shares among so many clients."""
        holders = neighbours + 1
        if holders == clients:
            return cls(neighbours, threshold, threshold, True)
        wanted = max(threshold + 1, holders - int(dropout_share * holders))
        return cls(neighbours, threshold, min(wanted, holders), False)

    @property
    def colluders(self) -> int:
        """Largest number of colluding clients (on a sparse graph: around one client) for which this holds."""
        room = self.threshold if self.complete else self.threshold + self.partners - self.neighbours - 1
        return max(0, min(2 * self.threshold - self.neighbours - 2, room - 2))

    @property
    def fewest_honest(self) -> int:
        """Fewest honest clients over which a total can be had, with that many colluders."""
        if self.complete:
            return self.threshold - self.colluders
        return self.threshold + self.partners - self.colluders - self.neighbours - 1

    def most_totals(self, clients: int, longest_arc: float) -> int:
        """Return how many totals of one sum a coordinator can have that has no client on its side.

        They are over disjoint sets. By 3 above, each client of such a set masked with f = t + m - (k + 1) of
        it, itself included, that sit no further away than ``longest_arc``, or it had not dealt shares. At
        most k / 2 of these sit behind it on the circle. If f > k / 2 + 1, one sits ahead of it, and the set
        goes all around: no later than three arcs after one of its clients sits another, further away than two
        arcs, so that all that these two masked with are different clients.
        """
        if self.complete:
            return 1
        found = self.threshold + self.partners - self.neighbours - 1
        around = int(1 / (3 * longest_arc)) if found > self.neighbours // 2 + 1 else 0
        return max(1, clients // max(found * around, found, 1))

    def flaw_of_partners(self, own: str, partners: Set[str]) -> str | None:
        """Return why a client does not mask with just these (itself included), if so."""
        if own not in partners:
            return f"{own} was told to mask without itself"
        if len(partners) < self.partners:
            return f"{len(partners)} clients around {own}, agreed were {self.partners}: it gives nothing"
        return None

    def flaw_of_survivors(self, own: str, alive: Set[str], partners: Set[str], least: int) -> str | None:
        """Return why a client with these partners gives no shares for this list; a total has ``least``."""
        if own not in alive or not alive <= partners:
            return (
                f"{own} was told that itself vanished, or that clients arrived with whom it did not mask: "
                "it gives no shares"
            )
        needed = max(self.threshold, least if self.complete else 0)
        if len(alive) < needed:
            return f"{len(alive)} contributions around {own}, at least {needed} were agreed: it stays shut"
        return None

    def confirmed_text(self, alive: Set[str]) -> bytes:
        """Return what a client confirms to all on its list of survivors: the list, or that they arrived."""
        return digest_names(list(alive)) if self.complete else b""
