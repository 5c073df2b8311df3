"""The privacy budget of a run, as the coordinator keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.core.errors import ProtectionError
from tacit.crypto.accounting import Accountant, Release


@dataclass
class Budget:
    """What a run may release and has released.

    Parameters
    ----------
    sums : int
        Sums that the noise was sized for.
    multiplier : float
        Standard deviation of the noise over the sensitivity, in every sum.
    limit : float
        Epsilon that all of them cost.
    accountant : Accountant
    used : int
        Sums so far.
    """

    sums: int
    multiplier: float
    limit: float
    accountant: Accountant
    used: int = 0

    @property
    def left(self) -> int:
        """Return how many sums may still come."""
        return self.sums - self.used

    @property
    def epsilon(self) -> float:
        """Return what the sums so far have cost."""
        return self.accountant.epsilon() if self.used else 0.0

    def charge(self, sums: int = 1) -> None:
        """Count sums, before anyone is asked: whatever fails later, no opened total goes uncounted."""
        if sums > self.left:
            found = f"{self.used} sums cost epsilon {self.epsilon:.4g} of {self.limit:g}"
            raise ProtectionError(overspent(found, self.sums))
        self.used += sums
        self.accountant.add(Release(self.multiplier, "discrete"), rounds=sums)


def overspent(found: str, sums: int) -> str:
    """Return the text that refuses a further sum."""
    return f"the privacy budget is spent: {found}, noise was sized for {sums}; announce more sums beforehand"
