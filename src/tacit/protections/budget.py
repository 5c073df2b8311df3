"""The privacy budget of a run, as the coordinator keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tacit.core.errors import ProtectionError
from tacit.core.events import Event
from tacit.crypto.accounting import Accountant, Release


@dataclass
class Budget:
    """What a run may release and has released.

    Parameters
    ----------
    sums : int
        Sums that the noise was sized for.
    fewest : int
        Clients over which a total opens at the least.
    noise : float
        Standard deviation over sensitivity, of every sum.
    limit : float
        Epsilon that all of them cost.
    accountant : Accountant
    tell : callable
        Told what was spent.
    used : int
        Sums so far.
    """

    sums: int
    fewest: int
    noise: float
    limit: float
    accountant: Accountant
    tell: Callable[[Event], None]
    used: int = 0

    @property
    def left(self) -> int:
        """Sums that may still come."""
        return self.sums - self.used

    @property
    def epsilon(self) -> float:
        """What the sums so far have cost."""
        return self.accountant.epsilon() if self.used else 0.0

    def charge(self, sums: int = 1) -> None:
        """Count sums, before anyone is asked: whatever fails later, no opened total goes uncounted."""
        if sums > self.left:
            found = f"{self.used} sums cost epsilon {self.epsilon:.4g} of {self.limit:g}"
            raise ProtectionError(overspent(found, self.sums))
        self.used += sums
        self.accountant.add(Release(self.noise, "discrete"), rounds=sums)


def overspent(found: str, sums: int) -> str:
    """Say that there may be no further sum."""
    return f"the privacy budget is spent: {found}, noise was sized for {sums}; announce more sums beforehand"
