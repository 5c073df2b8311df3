"""How much noise a sum needs, and the grid of integers on which it is drawn.

Every client clips its whole vector to an L2 norm of C (``clip``) and rounds it to a grid of unit u, a power
of two: leaving out one client's d values then changes the sum by at most Δ = C/u + √d/2. The noise is the
discrete Gaussian of standard deviation z·Δ (Canonne, Kamath and Steinke 2020), z being the least for which
all sums of the run together cost (ε, δ).

Where the noise hides single rows (``unit = "row"``), C is the longest norm of what one row brings, which the
method bounds (``row_norm`` of a layout). A client's sum has no bound then and is not clipped. With and
without a row it is rounded once each, and floating point adds less than that again: Δ = C/u + 2√d.

Where every client adds a part of the noise, the parts of the fewest clients over which a total opens, less
those that ``colluding`` of them know (who sees the total knows its own), have the whole variance; more
survivors, more noise. A part is cut where the tails of so many parts, in the whole run, cost a thousandth of
δ, by (1 + e^ε)·P[a cut]; the accountant has the rest. Parts of further clients, cut or not, only add noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, isfinite, log, log2, sqrt
from typing import Any, Literal

import numpy as np

from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.layout import Layout
from tacit.core.protection import NoiseUnit, Opener, Protection, Vector
from tacit.crypto.accounting import sigma_for
from tacit.crypto.noise import LEAST_PART, discrete_gaussian, integer_sensitivity
from tacit.protections import PROTECTIONS

LEAST = 1e-9  # epsilon and clip: below it floating point ends before the noise does
TAIL_SHARE = 1e-3  # of delta, for the tails that are cut
FINEST = 2.0**-40  # precision of an inner protection beyond which a finer grid gains nothing
FINEST_NOISE = 2.0**-36  # unit over the noise, likewise
ROW_FINEST_NOISE = 2.0**-20  # the same for sums of rows, so that float64 holds those of 2³² rows exactly
WIDE_ERROR = 2.0**-60  # of a value without a bound, under any protection
# Fixed for every other protection; here they follow from the settings.
INHERITED = ("opens", "restarts", "authenticated", "key_fields", "own_fields", "field_names", "field_kinds")
ASKED, SUMS = "noise_asked", "noise_sums"  # ride on asks and totals: the grid follows from them


@dataclass(frozen=True)
class Grid:
    """Numbers of one sum: unit of the grid, variance and cut of a noise part in units, bounds with noise."""

    unit: float
    variance: float
    cut: float
    layout: Layout


@dataclass(frozen=True)
class NoiseSettings(Protection):
    """The settings of noise, and how much of it follows from them.

    Parameters
    ----------
    inner : str
        The protection that forms the sum.
    inner_options : mapping
        Its settings.
    epsilon : float
        Privacy budget of the whole run, for leaving out any one client's vector, or any one row.
    delta : float
        Probability with which epsilon may not hold; well below one over the number of clients, or rows.
    clip : float
        Longest L2 norm of a client's whole contribution; longer ones are scaled down. It holds for every
        sum of a run. Of rows (unit "row") the method bounds the norm, not this.
    where : {"central", "distributed"}
        Who adds the noise: the coordinator, trusted with the total, or every client a part.
    colluding : int
        Distributed: how many clients may know their parts of the noise and see the total.
    unit : {"client", "row"}
        Whose presence the noise hides: a client's with all its rows, or any single row's. The latter needs
        a method that bounds what a row brings: fedheonn or federboost.
    """

    inner: str = "plain"
    inner_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    epsilon: float = 1.0
    delta: float = 1e-5
    clip: float = 1.0
    where: Literal["central", "distributed"] = "central"
    colluding: int = 1
    unit: NoiseUnit = "client"

    def __post_init__(self) -> None:
        for name, why in (("epsilon", "a privacy budget"), ("clip", "the longest norm of a contribution")):
            if not (isfinite(value := getattr(self, name)) and value >= LEAST):
                raise ConfigError(f"{name} is {value}: {why} is a number above 0, of at least {LEAST:g}")
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta is {self.delta}: it is a probability above 0 and below 1")
        if self.colluding < 0:
            raise ConfigError(f"colluding is {self.colluding}: a number of clients, 0 or more")
        if (inner := self.inner_protection).adds_noise:
            raise ConfigError(
                f"inner is '{inner.name}': two noises have no one budget; name what is to be noised"
            )
        for name in INHERITED:
            object.__setattr__(self, name, getattr(inner, name))

    @cached_property
    def inner_protection(self) -> Protection:
        return PROTECTIONS.build(self.inner, self.inner_options)

    @property
    def distributed(self) -> bool:
        """Whether every client adds a part of the noise."""
        return self.where == "distributed"

    @property
    def accounted_delta(self) -> float:
        """What is left of delta for the accountant, once tails are cut."""
        return self.delta * (1 - TAIL_SHARE) if self.distributed else self.delta

    def multiplier(self, sums: int) -> float:
        """Return z: the noise's standard deviation over the sensitivity, for a run of so many sums."""
        return sigma_for(self.epsilon, self.accounted_delta, sums)

    def needed_parts(self, least: int) -> int:
        """Return how many parts have the whole variance, if totals open over so many clients at the least."""
        return least - self.colluding if self.distributed else 1

    def choose_grid(self, layout: Layout, asked: Any, sums: Any, min_clients: int) -> Grid:
        """Return the finest grid that the inner protection resolves, and its noise; counts are checked."""
        for count in (asked, sums):
            if type(count) is not int or count < 1:
                raise ProtectionError(f"noise for {count!r} clients or sums: it is sized for 1 or more")
        values, clip = max(1, layout.size), self.longest(layout)
        multiplier = self.multiplier(sums) / sqrt(layout.parts)
        parts = self.needed_parts(self.min_contributions(min_clients))
        cut = 0.0
        if self.distributed:
            tails = log(2 * values * parts * sums) + float(np.logaddexp(0, self.epsilon))
            cut = sqrt(2 * (tails - log(TAIL_SHARE * self.delta)))
        # Rounding may at most double the sensitivity, or is refused below: so large the noise can get.
        widest = 2 * multiplier * clip / sqrt(parts)
        rows = self.unit == "row"
        precision = self.inner_protection.promises.precision
        error = asked * (WIDE_ERROR if rows else max(precision, FINEST) * (clip + cut * widest))
        unit = 2.0 ** ceil(log2(max(4 * error, (ROW_FINEST_NOISE if rows else FINEST_NOISE) * widest)))
        sensitivity = integer_sensitivity(clip, 1 / unit, values) + rows * 1.5 * sqrt(values)
        variance = (multiplier * sensitivity) ** 2 / parts
        if sensitivity > 2 * clip / unit or (cut and variance < LEAST_PART):
            raise ConfigError(
                f"{self.inner} resolves {unit:.2g}: too coarse for {values:,} values, clip {clip:g} and "
                f"noise of {widest / 2:.2g} a client; give it more bits (inner_options), or a smaller epsilon"
            )
        cut = ceil(cut * sqrt(variance))
        fields = []
        for one in without_columns(layout).fields:
            known = np.inf if one.bound is None else one.bound
            bound = one.bound if rows else min(known, clip) + (1 + cut) * unit
            # Tags are bound to the fields: so they are to what this grid follows from.
            name = f"{one.name}, {asked} asked, {sums} sums"
            fields.append(replace(one, name=name, bound=bound, total=None))  # noise may exceed it
        return Grid(unit, variance, cut, Layout(*fields))

    def longest(self, layout: Layout) -> float:
        """Return the longest norm of what one row, or one client as a mean of rows, brings to a sum."""
        if self.unit == "client":
            return self.clip if layout.row_norm is None else min(self.clip, layout.row_norm)
        if layout.row_norm is None:
            raise ProtectionError("noise for single rows needs a bound of what one row brings to a sum")
        return layout.row_norm

    def open_total(self, inner: Opener, total: Mapping[str, Any], layout: Layout, min_clients: int) -> Vector:
        """Open a total with a half of the inner protection, round it to the grid, and add central noise."""
        grid = self.choose_grid(layout, total.get(ASKED), total.get(SUMS), min_clients)
        rest = {name: value for name, value in total.items() if name not in (ASKED, SUMS)}
        integers = np.rint(inner.open(rest, grid.layout) / grid.unit)
        if not self.distributed:
            integers += discrete_gaussian(grid.variance, layout.size)
        return np.asarray(integers * grid.unit)

    def measure_noise(
        self, total: Mapping[str, Any], layout: Layout, contributions: int, min_clients: int
    ) -> float:
        """Return the standard deviation of the noise in each value of an opened total."""
        grid = self.choose_grid(layout, total.get(ASKED), total.get(SUMS), min_clients)
        return sqrt(grid.variance * (contributions if self.distributed else 1)) * grid.unit

    def find_unfit(self, contribution: str, layout: Layout) -> str | None:
        """Return why a contribution cannot have noise: part of it travels beside the sum, or bears none."""
        if layout.clear:
            names = ", ".join(f"'{found.name}'" for found in layout.clear)
            return (
                f"{contribution} sends {names} in the clear, without noise: use a method that sends sums only"
            )
        if self.unit == "row" and layout.row_norm is None:
            return (
                f"nothing bounds what a single row brings to {contribution}: hide whole clients with unit = "
                "'client', or use fedheonn or federboost; averaging hides rows by example_noise, without "
                "noised"
            )
        return None


def without_columns(layout: Layout) -> Layout:
    """Return the same fields, none of them to be multiplied unopened or finer than the noise."""
    return Layout(*(replace(one, columns=0, fine=False) for one in (*layout.fields, *layout.clear)))


def overspent(found: str, sums: int) -> str:
    """Return the text that refuses a further sum."""
    return f"the privacy budget is spent: {found}, noise was sized for {sums}; announce more sums beforehand"
