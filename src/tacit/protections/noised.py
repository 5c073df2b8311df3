"""Sums with noise: differential privacy of clients, around any other protection.

Every client clips its whole vector to an L2 norm of C (``clip``) and rounds it to a grid of unit u, a power
of two: leaving out one client's d values then changes the sum by at most Δ = C/u + √d/2. The noise is the
discrete Gaussian of standard deviation z·Δ (Canonne, Kamath and Steinke 2020), z being the least for which
all sums of the run together cost (ε, δ). Either the coordinator draws it once it has opened the total, or
every client adds a part (Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for
Federated Learning", 2021), and only noised totals exist. Opened totals are rounded to the grid, which takes
away what error the wrapped protection made: what is accounted is what is released.

A client sizes its part by what the manifest pins, not by what a coordinator says: the parts of
``min_clients`` clients, less those that ``colluding`` of them know (who sees the total knows its own), have
the whole variance; more survivors, more noise. It also counts its sums, and refuses more than were announced
at first. A part is cut where the tails of the whole run cost a thousandth of δ, by (1 + e^ε)·P[a cut]; the
accountant has the rest. ε covers totals: not who took part, nor the schema that clients introduce.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, isfinite, log, log2, sqrt
from typing import Any, ClassVar, Literal, cast

import numpy as np

from tacit.core.client import agreed_minimum
from tacit.core.component import Component
from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.events import BudgetSpent, Noted
from tacit.core.layout import Layout
from tacit.core.marks import Mark
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.protection import Promises, Sum, Vector
from tacit.crypto.accounting import Accountant, sigma_for
from tacit.crypto.noise import LEAST_PART, clip_l2, discrete_gaussian, integer_sensitivity
from tacit.data.schema import Schema
from tacit.data.table import Column
from tacit.protections.budget import Budget, overspent
from tacit.protections.wrapping import Asking, Wrapping

TAIL_SHARE = 1e-3  # of delta, for the tails that are cut
FINEST = 2.0**-40  # precision of a wrapped protection beyond which a finer grid gains nothing
FINEST_NOISE = 2.0**-36  # unit over the noise, likewise
ASKED, SUMS = "noise_asked", "noise_sums"  # ride on asks and totals: a grid follows from them


@dataclass(frozen=True)
class Grid:
    """Numbers of one sum: unit of the grid, variance and cut of a noise part in units, bounds with noise."""

    unit: float
    variance: float
    cut: float
    layout: Layout


@dataclass(frozen=True)
class Noised(Wrapping):
    """Differential privacy of clients: clipped vectors and totals with noise, around another protection.

    Parameters
    ----------
    inner : str
        The protection that forms the sum.
    inner_options : mapping
        Its settings.
    epsilon : float
        Privacy budget of the whole run, for leaving out any one client's vector.
    delta : float
        Probability with which epsilon may not hold; well below one over the number of clients.
    clip : float
        Longest L2 norm of a client's whole contribution; longer ones are scaled down. It holds for every
        sum of a run.
    where : {"central", "distributed"}
        Who adds the noise: the coordinator, trusted with the total, or every client a part.
    colluding : int
        Distributed: how many clients may know their parts of the noise and see the total.

    Examples
    --------
    >>> Noised(epsilon=2.0, clip=0.5, inner="ckks").incompatibility(Component())[:52]
    'the coordinator adds the noise, but ckks opens total'
    >>> Noised(epsilon=2.0, clip=0.5, inner="ckks", where="distributed").incompatibility(Component())
    """

    name = "noised"
    adds_noise: ClassVar[bool] = True
    shows_contributions: ClassVar[bool] = False  # they are clipped

    epsilon: float = 1.0
    delta: float = 1e-5
    clip: float = 1.0
    where: Literal["central", "distributed"] = "central"
    colluding: int = 1

    def __post_init__(self) -> None:
        for name, why in (("epsilon", "a privacy budget"), ("clip", "the longest norm of a contribution")):
            if not (isfinite(value := getattr(self, name)) and value > 0):
                raise ConfigError(f"{name} is {value}: {why} is a number above 0")
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta is {self.delta}: it is a probability above 0 and below 1")
        if self.colluding < 0:
            raise ConfigError(f"colluding is {self.colluding}: a number of clients, 0 or more")
        if self.inner == self.name or isinstance(self.wrapped, Noised):
            raise ConfigError("inner is 'noised': two noises have no one budget; name what is to be noised")
        super().__post_init__()

    @property
    def promises(self) -> Promises:
        """Those of the wrapped protection, and what noise adds to them and takes from them.

        ``precision`` is no largest error here: it is about the noise's standard deviation in each value, as
        a share of ``clip``, if the run has one sum; it grows with the square root of their number.
        """
        inner, central = self.wrapped.promises, self.where == "central"
        trusted = ("coordinator", *self.services) if central else ()
        sees = {
            who: text if who in trusted else text.replace("the total", "the total with noise")
            for who, text in inner.sees.items()
        }
        against = f"more than {self.colluding} clients that tell their parts of the noise weaken it"
        warnings = inner.warnings
        if central:
            sees["coordinator"] += ", before it adds the noise"
            against = "epsilon does not hold against the coordinator, which adds the noise"
            warnings += ("noised: the coordinator is trusted: it sees totals before it adds the noise",)
        elif inner.single:
            sees["coordinator"] += ", each with its part of the noise only"
            warnings += (f"noised: epsilon is for totals, and {self.inner} shows the coordinator more",)
        hidden = log(1 / self.delta)
        return replace(
            inner,
            sees=sees,
            collusion=f"{inner.collusion}; {against}",
            # ρ-zCDP with ρ = 1/2z² costs ε = ρ + 2√(ρ ln 1/δ); the accountant finds up to a third less.
            precision=max(1e-3, 1 / (sqrt(2) * (sqrt(hidden + self.epsilon) - sqrt(hidden)))),
            warnings=warnings,
        )

    def incompatibility(self, method: Component) -> str | None:
        """Refuse central noise where clients open, fields that cannot have noise, and what ``inner`` does."""
        if self.where == "central" and self.opens == "clients":
            return (
                f"the coordinator adds the noise, but {self.inner} opens totals at the clients, where each "
                "would have to draw its own and replicas would differ: set where = 'distributed'"
            )
        for name in dir(type(method)):
            mark = getattr(getattr(type(method), name, None), "tacit", None)
            if isinstance(mark, Mark) and mark.kind == "contribution" and mark.layout:
                # Which fields there are does not depend on the data, so the smallest schema shows them.
                schema = Schema((Column("x"),), method.tasks[0], ("no", "yes"), ("y",))  # type: ignore[attr-defined]
                if reason := _unfit(name, mark.layout(method, schema)):
                    return reason
        return self.wrapped.incompatibility(method)

    def warnings_for(self, clients: int, scaled: bool) -> Sequence[str]:
        """Warn of sums that clipping spoils."""
        own = "noised: clipping spoils the sums of a scale: use scale = 'none'"
        return (*((own,) if scaled else ()), *super().warnings_for(clients, scaled))

    # -- the budget ----------------------------------------------------------------------------------------

    def prepare(self, coordinator: Any, sums: int) -> None:
        """Size the noise so that this many sums cost the whole budget."""
        if reason := self.incompatibility(coordinator.components.method):
            raise ConfigError(f"{self.name} cannot protect {coordinator.components.method.name}: {reason}")
        if "noise" in coordinator.memory:
            raise ProtectionError("the noise of this run is sized already: its budget is for the whole run")
        sums, fewest = max(1, sums), self.min_contributions(coordinator.manifest.min_clients)
        if self._honest(fewest) < 1:
            raise ConfigError(
                f"totals open over {fewest} clients, of which {self.colluding} may know their parts of the "
                f"noise: set min_clients to {self.colluding + 1} or more, the more the less noise"
            )
        noise, accountant = self._noise(sums), Accountant(self._delta)
        coordinator.memory["noise"] = Budget(
            sums, fewest, noise, self.epsilon, accountant, coordinator.events.emit
        )
        deviation, adding = noise * self.clip, coordinator.manifest.quorum * len(coordinator.parties)
        text = f"noise of {deviation:.3g} a value in each of {sums} sums, for epsilon {self.epsilon:g} in all"
        if self.where == "distributed" and adding >= 2 * fewest:
            text += (
                f" if {fewest} clients add it, and {adding:.0f} will: a larger min_clients means less noise"
            )
        coordinator.events.emit(Noted("protection", text))
        self.wrapped.prepare(coordinator, sums)

    def resume(self, coordinator: Any, sums: int) -> None:
        """Charge what was released before the run was stopped."""
        budget: Budget = coordinator.memory["noise"]
        if sums:
            budget.charge(min(sums, budget.sums))

    def left(self, coordinator: Any) -> int | None:
        """Sums that the noise was sized for and that are still to come."""
        budget: Budget | None = coordinator.memory.get("noise")
        return None if budget is None else budget.left

    def carry(self, party: Party, known: Party) -> None:
        """Go on counting; numbers of sums begin anew."""
        if "noised" in known.state:
            announced, used, _ = known.state["noised"]
            party.state["noised"] = (announced, max(used, party.state.get("noised", (0, 0, 0))[1]), 0)

    def spent(self, coordinator: Any) -> float:
        """Epsilon that a coordinator's run has cost so far, at delta."""
        budget: Budget | None = coordinator.memory.get("noise")
        return budget.epsilon if budget else 0.0

    @property
    def _delta(self) -> float:
        return self.delta * (1 - TAIL_SHARE) if self.where == "distributed" else self.delta

    def _noise(self, sums: int) -> float:
        """z: standard deviation over sensitivity."""
        return _least_noise(self.epsilon, self._delta, sums)

    def _honest(self, fewest: int) -> int:
        """Components whose sum has the whole variance."""
        return fewest - self.colluding if self.where == "distributed" else 1

    # -- the sum -------------------------------------------------------------------------------------------

    def grid(self, layout: Layout, asked: Any, sums: Any, fewest: int) -> Grid:
        """Choose the finest grid that the wrapped protection resolves, and the noise on it."""
        for count in (asked, sums):
            if type(count) is not int or count < 1:
                raise ProtectionError(f"noise for {count!r} clients or sums: it is sized for 1 or more")
        values, noise, honest = max(1, layout.size), self._noise(sums), self._honest(fewest)
        cut = 0.0
        if self.where == "distributed":
            tails = log(2 * values * asked * sums) + float(np.logaddexp(0, self.epsilon))
            cut = sqrt(2 * (tails - log(TAIL_SHARE * self.delta)))
        # Rounding may at most double the sensitivity, or is refused below: so large the noise can get.
        widest = 2 * noise * self.clip / sqrt(honest)
        error = max(self.wrapped.promises.precision, FINEST) * asked * (self.clip + cut * widest)
        unit = 2.0 ** ceil(log2(max(4 * error, FINEST_NOISE * widest)))
        sensitivity = integer_sensitivity(self.clip, 1 / unit, values)
        variance = (noise * sensitivity) ** 2 / honest
        if sensitivity > 2 * self.clip / unit or (cut and variance < LEAST_PART):
            raise ConfigError(
                f"{self.inner} resolves {unit:.2g}: too coarse for {values:,} values, clip {self.clip:g} and "
                f"noise of {widest / 2:.2g} a client; give it more bits (inner_options), or a smaller epsilon"
            )
        cut = ceil(cut * sqrt(variance))
        fields = (
            replace(f, bound=min(np.inf if f.bound is None else f.bound, self.clip) + (1 + cut) * unit)
            for f in _unmapped(layout).fields
        )
        return Grid(unit, variance, cut, Layout(*fields))

    def error(self, layout: Layout, contributions: int, total: Mapping[str, Any] | None = None) -> float:
        """As the wrapped protection: noise is not an error."""
        return self.wrapped.error(_unmapped(layout), contributions, total)

    def map(
        self, pending: Sum, total: Mapping[str, Any], operator: Callable[[], Any]
    ) -> Mapping[str, Any] | None:
        """Leave it to whoever opens: a product does not lie on the grid of the noise."""
        return None

    def protect(self, party: Party, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Clip, round to the grid, add this party's part of the noise, and protect that."""
        if reason := _unfit("contribution", layout):
            raise ProtectionError(reason)
        grid = self.grid(
            layout, ticket.get(ASKED), ticket.get(SUMS), self.min_contributions(agreed_minimum(party))
        )
        integers = self._repeated(party, ticket["sum"], ticket[SUMS])
        if integers is None:
            integers = np.rint(clip_l2(vector, self.clip) / grid.unit)
            if self.where == "distributed":
                integers += np.clip(discrete_gaussian(grid.variance, vector.size), -grid.cut, grid.cut)
                party.state["noised_vector"] = integers
        return self.wrapped.protect(party, ticket, integers * grid.unit, grid.layout)

    def _repeated(self, party: Party, number: int, sums: int) -> Vector | None:
        """Count a sum; if it starts again, give what was sent: two draws of noise tell more than one."""
        announced, used, last = party.state.get("noised", (sums, 0, 0))
        if sums != announced:
            raise ProtectionError(f"noise for {sums} sums, {party.id} was told {announced} at first")
        if number == last:
            kept: Vector | None = party.state.get("noised_vector")
            return kept
        if number < last or used >= announced:
            raise ProtectionError(overspent(f"{party.id} took part in {used} sums", announced))
        party.state["noised"] = (announced, used + 1, number)
        return None

    def gather(self, pending: Sum) -> dict[str, Any]:
        """Charge the budget, then let the wrapped protection gather."""
        if reason := _unfit(pending.contribution, pending.layout):
            raise ProtectionError(reason)
        budget: Budget | None = pending.memory.get("noise")
        if budget is None:
            raise ProtectionError("the noise was not sized: prepare the protection before the first sum")
        told = {ASKED: len(pending.parties), SUMS: budget.sums}
        grid = self.grid(pending.layout, len(pending.parties), budget.sums, budget.fewest)
        budget.charge()
        total = self.wrapped.gather(cast(Sum, Asking(pending, grid.layout, told)))
        budget.tell(BudgetSpent(pending.number, budget.epsilon, self.epsilon, self.delta, budget.left))
        return {**total, **told}

    def open(self, holder: Any, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Open, round to the grid, and add the noise if it is the coordinator's to add."""
        agreed = agreed_minimum(holder) if isinstance(holder, Party) else holder.manifest.min_clients
        grid = self.grid(layout, total[ASKED], total[SUMS], self.min_contributions(agreed))
        inner = {name: value for name, value in total.items() if name not in (ASKED, SUMS)}
        integers = np.rint(self.wrapped.open(holder, inner, grid.layout) / grid.unit)
        if self.where == "central":
            integers += discrete_gaussian(grid.variance, layout.size)
        opened: Vector = integers * grid.unit
        return opened


def _unfit(contribution: str, layout: Layout) -> str | None:
    """Why a contribution cannot be noised: part of it travels beside the sum, or bears no noise."""
    if layout.clear:
        names = ", ".join(f"'{found.name}'" for found in layout.clear)
        return f"{contribution} sends {names} in the clear, without noise: use a method that sends sums only"
    if fine := [found.name for found in layout.fields if found.fine]:
        return (
            f"{contribution} needs '{fine[0]}' to about 2^-40 of its bound, and noise of any epsilon is far "
            "above that: use a method that bears noise"
        )
    return None


def _unmapped(layout: Layout) -> Layout:
    """The same fields, none of them to be multiplied unopened."""
    return Layout(*(replace(field, columns=0) for field in (*layout.fields, *layout.clear)))


@lru_cache(maxsize=64)
def _least_noise(epsilon: float, delta: float, sums: int) -> float:
    return sigma_for(epsilon, delta, sums, mechanism="discrete")
