"""What noise costs a party, told before the noise is drawn."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Charge:
    """Releases with noise that a party is about to make in a run."""

    unit: str  # whose privacy it is: "row" or "client"
    noise: float  # standard deviation of the discrete Gaussian over the L2 sensitivity
    sampling: float  # probability with which a unit is part of a release
    delta: float  # at which epsilon is told
    releases: int  # that follow now
    most: int  # that the agreed budget allows in the whole run
