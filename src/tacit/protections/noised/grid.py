"""How much noise a sum needs, and the grid of integers on which it is drawn.

Every client clips its whole vector to an L2 norm of C (``clip``) and rounds it to a grid of unit u, a power
of two: leaving out one client's d values then changes the sum by at most Δ = C/u + √d/2. The noise is the
discrete Gaussian of standard deviation z·Δ (Canonne, Kamath and Steinke 2020), z being the least for which
all sums of the run together cost (ε, δ).

Where the noise hides single rows (``unit = "row"``), C is the longest norm of what one row brings, which the
method bounds (``row_norm`` of a layout). A client's sum has no bound then and is not clipped. With and
without a row it is rounded once each, and floating point adds less than that again: Δ = C/u + 2√d.

A sum that takes k parts of the budget has noise of z/√k, which costs as much as k sums with z, because Rényi
divergences of Gaussians add.

Where every client adds a part of the noise, the parts of the fewest clients over which a total opens, less
those that ``colluding`` of them know (who sees the total knows its own), have the whole variance; more
survivors, more noise. A part is cut where the tails of so many parts, in the whole run, cost a thousandth of
δ, by (1 + e^ε)·P[a cut]; the accountant has the rest. Parts of further clients, cut or not, only add noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, log, log2, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.layout import Layout
from tacit.core.protection import Opener, Vector
from tacit.crypto.accounting import sigma_for
from tacit.crypto.noise import LEAST_PART, discrete_gaussian, integer_sensitivity

if TYPE_CHECKING:
    from tacit.protections.noised import Noised

TAIL_SHARE = 1e-3  # of delta, for the tails that are cut
FINEST = 2.0**-40  # precision of an inner protection beyond which a finer grid gains nothing
FINEST_NOISE = 2.0**-36  # unit over the noise, likewise
ROW_FINEST_NOISE = 2.0**-20  # the same for sums of rows, so that float64 holds those of 2³² rows exactly
WIDE_ERROR = 2.0**-60  # of a value without a bound, under any protection
ASKED, SUMS = "noise_asked", "noise_sums"  # ride on asks and totals: the grid follows from them


@dataclass(frozen=True)
class Grid:
    """Numbers of one sum: unit of the grid, variance and cut of a noise part in units, bounds with noise."""

    unit: float
    variance: float
    cut: float
    layout: Layout


def accounted_delta(settings: Noised) -> float:
    """Return what is left of delta for the accountant, once tails are cut."""
    return settings.delta * (1 - TAIL_SHARE) if settings.where == "distributed" else settings.delta


def noise_multiplier(settings: Noised, sums: int) -> float:
    """Return z: the noise's standard deviation over the sensitivity, for a run of so many sums."""
    return _least_noise(settings.epsilon, accounted_delta(settings), sums)


def needed_parts(settings: Noised, least: int) -> int:
    """Return how many parts have the whole variance, if totals open over so many clients at the least."""
    return least - settings.colluding if settings.where == "distributed" else 1


def choose_grid(settings: Noised, layout: Layout, asked: Any, sums: Any, min_clients: int) -> Grid:
    """Return the finest grid that the inner protection resolves, and the noise on it.

    How many clients were ``asked``, and the ``sums`` of the whole run, may come from another party.
    """
    for count in (asked, sums):
        if type(count) is not int or count < 1:
            raise ProtectionError(f"noise for {count!r} clients or sums: it is sized for 1 or more")
    values, clip = max(1, layout.size), longest_of(settings, layout)
    multiplier = noise_multiplier(settings, sums) / sqrt(layout.parts)
    parts = needed_parts(settings, settings.min_contributions(min_clients))
    cut = 0.0
    if settings.where == "distributed":
        tails = log(2 * values * parts * sums) + float(np.logaddexp(0, settings.epsilon))
        cut = sqrt(2 * (tails - log(TAIL_SHARE * settings.delta)))
    # Rounding may at most double the sensitivity, or is refused below: so large the noise can get.
    widest = 2 * multiplier * clip / sqrt(parts)
    rows = settings.unit == "row"
    precision = settings.inner_protection.promises.precision
    error = asked * (WIDE_ERROR if rows else max(precision, FINEST) * (clip + cut * widest))
    unit = 2.0 ** ceil(log2(max(4 * error, (ROW_FINEST_NOISE if rows else FINEST_NOISE) * widest)))
    sensitivity = integer_sensitivity(clip, 1 / unit, values) + rows * 1.5 * sqrt(values)
    variance = (multiplier * sensitivity) ** 2 / parts
    if sensitivity > 2 * clip / unit or (cut and variance < LEAST_PART):
        raise ConfigError(
            f"{settings.inner} resolves {unit:.2g}: too coarse for {values:,} values, clip {clip:g} and "
            f"noise of {widest / 2:.2g} a client; give it more bits (inner_options), or a smaller epsilon"
        )
    cut = ceil(cut * sqrt(variance))
    fields = []
    for field in without_columns(layout).fields:
        known = np.inf if field.bound is None else field.bound
        bound = field.bound if rows else min(known, clip) + (1 + cut) * unit
        # Tags are bound to the fields: so they are to what this grid follows from.
        name = f"{field.name}, {asked} asked, {sums} sums"
        fields.append(replace(field, name=name, bound=bound, total=None))  # noise may exceed it
    return Grid(unit, variance, cut, Layout(*fields))


def longest_of(settings: Noised, layout: Layout) -> float:
    """Return the longest norm of what one row, or one client, brings to a sum.

    A client's mean over rows of a known norm is no longer than that.
    """
    if settings.unit == "client":
        return settings.clip if layout.row_norm is None else min(settings.clip, layout.row_norm)
    if layout.row_norm is None:
        raise ProtectionError("noise for single rows needs a bound of what one row brings to a sum")
    return layout.row_norm


def open_total(
    settings: Noised, inner: Opener, total: Mapping[str, Any], layout: Layout, min_clients: int
) -> Vector:
    """Open a total with a half of the inner protection, round it to the grid, and add central noise."""
    grid = choose_grid(settings, layout, total.get(ASKED), total.get(SUMS), min_clients)
    rest = {name: value for name, value in total.items() if name not in (ASKED, SUMS)}
    integers = np.rint(inner.open(rest, grid.layout) / grid.unit)
    if settings.where == "central":
        integers += discrete_gaussian(grid.variance, layout.size)
    opened: Vector = integers * grid.unit
    return opened


def measure_noise(
    settings: Noised, total: Mapping[str, Any], layout: Layout, contributions: int, min_clients: int
) -> float:
    """Return the standard deviation of the noise in each value of an opened total."""
    grid = choose_grid(settings, layout, total.get(ASKED), total.get(SUMS), min_clients)
    return sqrt(grid.variance * (contributions if settings.where == "distributed" else 1)) * grid.unit


def without_columns(layout: Layout) -> Layout:
    """Return the same fields, none of them to be multiplied unopened or finer than the noise."""
    return Layout(*(replace(field, columns=0, fine=False) for field in (*layout.fields, *layout.clear)))


def find_unfit(settings: Noised, contribution: str, layout: Layout) -> str | None:
    """Return why a contribution cannot have noise: part of it travels beside the sum, or bears none.

    Nor can it if single rows are to be hidden, and nobody knows how much one brings.
    """
    if layout.clear:
        names = ", ".join(f"'{found.name}'" for found in layout.clear)
        return f"{contribution} sends {names} in the clear, without noise: use a method that sends sums only"
    if settings.unit == "row" and layout.row_norm is None:
        return (
            f"nothing bounds what a single row brings to {contribution}: hide whole clients with unit = "
            "'client', or use fedheonn or federboost; averaging hides rows by example_noise, without noised"
        )
    return None


def overspent(found: str, sums: int) -> str:
    """Return the text that refuses a further sum."""
    return f"the privacy budget is spent: {found}, noise was sized for {sums}; announce more sums beforehand"


@lru_cache(maxsize=64)
def _least_noise(epsilon: float, delta: float, sums: int) -> float:
    return sigma_for(epsilon, delta, sums)
