"""What noise costs: the privacy budget, counted by Google's ``dp-accounting``.

A :class:`Release` says what happened, an :class:`Accountant` what it cost, in (ε, δ) for adding or removing
one client (or whatever unit was clipped). Gaussian releases, sampled or not, are composed by privacy loss
distributions, the tightest figure there is. As soon as a *discrete* Gaussian is among them, all are composed
by Rényi divergences of whole orders, because that is what is proven: there its divergences are the
continuous one's (Canonne, Kamath and Steinke 2020), and under Poisson sampling the same sum over moments
bounds it (Mironov, Talwar and Zhang 2019).

Sampling means Poisson sampling: each client takes part by its own coin. A cohort of fixed size is not that.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

from tacit.core.errors import ConfigError, extra, nearest

Mechanism = Literal["gaussian", "discrete"]
ORDERS = (*range(2, 65), *range(72, 257, 8), 320, 512, 1024)
LARGE_ORDERS = tuple(2**power for power in range(11, 21))  # for tiny budgets; slow if there is sampling
BEYOND_USE = 100.0  # an epsilon from which on a bound will do

Releases: TypeAlias = "dict[Release, int]"


@dataclass(frozen=True)
class Release:
    """One noisy total."""

    noise: float  # standard deviation over L2 sensitivity
    mechanism: Mechanism = "gaussian"
    sampling: float = 1.0  # probability with which each client took part

    def __post_init__(self) -> None:
        if self.mechanism not in get_args(Mechanism):
            raise ConfigError(
                f"unknown noise '{self.mechanism}': {nearest(self.mechanism, get_args(Mechanism))}"
            )
        if not (math.isfinite(self.noise) and self.noise > 0):
            raise ConfigError(
                f"noise is {self.noise}: a release without noise has no finite cost; it must be above 0"
            )
        if not 0 < self.sampling <= 1:
            raise ConfigError(f"sampling is {self.sampling}: it is a probability above 0, at most 1")

    def event(self) -> Any:
        """Return the same as an event of ``dp-accounting``."""
        accounting = _library()
        event = accounting.GaussianDpEvent(self.noise)
        return event if self.sampling == 1 else accounting.PoissonSampledDpEvent(self.sampling, event)


@dataclass
class Accountant:
    """Counts what has been released."""

    delta: float  # well below one over the number of clients
    releases: Releases = field(default_factory=dict)  # with how often: all there is to keep in a checkpoint

    def __post_init__(self) -> None:
        _check_delta(self.delta)

    def add(self, release: Release, rounds: int = 1) -> None:
        """Record that something was released, once or in several rounds."""
        _check_rounds(rounds)
        self.releases = {**self.releases, release: self.releases.get(release, 0) + rounds}

    def epsilon(self) -> float:
        """Return the ε of all releases so far, at this δ."""
        return _epsilon(self.releases, self.delta)


@lru_cache(maxsize=64)
def sigma_for(epsilon: float, delta: float, rounds: int) -> float:
    """Return the least discrete Gaussian noise (of :class:`Release`, to three digits) within a budget."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ConfigError(f"epsilon is {epsilon}: a privacy budget is a number above 0")
    _check_delta(delta)
    _check_rounds(rounds)

    def fits(noise: float) -> bool:
        return _bound({Release(noise, "discrete"): rounds}, delta) <= epsilon

    high = 1.0
    while not fits(high):
        high *= 2
        if high > 1e9:
            raise ConfigError(f"no noise gives epsilon {epsilon} at delta {delta}: raise one of them")
    low = high / 2
    while low > 1e-3 and fits(low):
        high, low = low, low / 2
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _epsilon(releases: Releases, delta: float) -> float:
    bound = _bound(releases, delta)
    # Nobody needs digits of a cost in the hundreds, and finding them would fill the memory.
    if any(release.mechanism == "discrete" for release in releases) or not 0 < bound < BEYOND_USE:
        return bound
    accountant = _library().pld.PLDAccountant()
    for release, rounds in releases.items():
        accountant.compose(release.event(), rounds)
    return float(accountant.get_epsilon(delta))


def _bound(releases: Releases, delta: float) -> float:
    sampled = any(release.sampling < 1 for release in releases)
    accountant = _library().rdp.RdpAccountant(ORDERS if sampled else ORDERS + LARGE_ORDERS)
    for release, rounds in releases.items():
        accountant.compose(release.event(), rounds)
    return float(accountant.get_epsilon(delta))


def _library() -> Any:
    with extra("dp-accounting is not installed: pip install dp-accounting"):
        import dp_accounting  # type: ignore[import-untyped]
    return dp_accounting


def _check_rounds(rounds: int) -> None:
    if rounds < 1:
        raise ConfigError(f"rounds is {rounds}: a release happens at least once")


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ConfigError(f"delta is {delta}: it is a probability above 0 and below 1")
