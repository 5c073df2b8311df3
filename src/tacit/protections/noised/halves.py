"""What noise does on both sides: a coordinator keeps the budget, clients clip; either adds noise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any

import numpy as np

from tacit.core.client import manifest_of
from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.events import BudgetSpent, Noted
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.message import Message
from tacit.core.party import Charge, Party
from tacit.core.pending_sum import PendingSum
from tacit.core.protection import ClientHalf, CoordinatorHalf, Vector, hands_on
from tacit.crypto.accounting import Accountant, Release
from tacit.crypto.noise import clip_l2, discrete_gaussian
from tacit.protections.noised.grid import ASKED, SUMS, NoiseSettings, overspent


@dataclass
class Budget:
    """What a run may release and has released."""

    sums: int  # that the noise was sized for
    multiplier: float  # standard deviation of the noise over the sensitivity, in every sum
    limit: float  # epsilon that all of them cost
    accountant: Accountant
    used: int = 0  # sums so far

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


@hands_on("inner", "greet", "welcome", "admit", "discard_unused_keys")
class NoisedCoordinator(CoordinatorHalf):
    """Keeps the budget of the run; the inner protection forms the sums."""

    def __init__(self, settings: NoiseSettings, link: Link) -> None:
        super().__init__(link)
        self._settings = settings
        self.inner = settings.inner_protection.at_coordinator(link)
        self.budget: Budget | None = None

    def prepare(self, sums: int) -> None:
        """Size the noise so that this many sums, or parts of the budget, cost the whole of it."""
        settings, link = self._settings, self.link
        method = link.components.method
        refused = f"{settings.name} cannot protect {method.name}: "
        if reason := settings.incompatibility(method):
            raise ConfigError(refused + reason)
        if self.budget is not None:
            raise ProtectionError("the noise of this run is sized already: its budget is for the whole run")
        sums, least = max(1, sums), settings.min_contributions(link.manifest.min_clients)
        if (needed := settings.needed_parts(least)) < 1:
            raise ConfigError(
                f"totals open over {least} clients, of which {settings.colluding} may know their parts of "
                f"the noise: set min_clients to {settings.colluding + 1} or more, the more the less noise"
            )
        multiplier, clients = settings.multiplier(sums), len(link.parties)
        noise = multiplier * sqrt(clients / needed if settings.distributed else 1)
        brought = clients if settings.unit == "client" else inf
        if reason := method.find_hopeless(link.schema, brought, noise):
            raise ConfigError(refused + reason)
        self.budget = Budget(sums, multiplier, settings.epsilon, Accountant(settings.accounted_delta))
        adding, epsilon = link.manifest.quorum * clients, f"epsilon {settings.epsilon:g} in all"
        text = f"noise of {multiplier * settings.clip:.3g} a value in each of {sums} sums, for {epsilon}"
        if settings.unit == "row":
            text = f"noise of {multiplier:.3g} times what a row brings, over √k in a sum that takes k of "
            text += f"{sums} parts of the budget, for {epsilon} for any row"
        if settings.distributed and adding >= 2 * least:
            text += (
                f" if {least} clients add it, and {adding:.0f} will: a larger min_clients means less noise"
            )
        link.events.emit(Noted("protection", text))
        self.inner.prepare(sums)

    def resume(self, sums: int) -> None:
        if sums and self.budget is None:
            raise ProtectionError("the noise was not sized: prepare the protection before the run goes on")
        if sums and self.budget is not None:
            self.budget.charge(min(sums, self.budget.sums))
        self.inner.resume(sums)

    def spent(self) -> float:
        return 0.0 if self.budget is None else self.budget.epsilon

    def left(self) -> int | None:
        return None if self.budget is None else self.budget.left

    def gather(self, pending: PendingSum) -> Mapping[str, Any]:
        settings, budget = self._settings, self.budget
        if reason := settings.find_unfit(pending.contribution, pending.layout):
            raise ProtectionError(reason)
        if budget is None:
            raise ProtectionError("the noise was not sized: prepare the protection before the first sum")
        asked, min_clients = len(pending.parties), self.link.manifest.min_clients
        grid = settings.choose_grid(pending.layout, asked, budget.sums, min_clients)
        told = {ASKED: asked, SUMS: budget.sums}
        budget.charge(pending.layout.parts)
        total = self.inner.gather(replace(pending, layout=grid.layout, told=told))
        budgeted = settings.epsilon, settings.delta, budget.left, settings.unit
        self.link.events.emit(BudgetSpent(pending.number, budget.epsilon, *budgeted))
        return {**total, **told}

    def multiply(
        self, pending: PendingSum, total: Mapping[str, Any], operator: Callable[[], Any]
    ) -> Mapping[str, Any] | None:
        """Leave it to whoever opens: a product does not lie on the grid of the noise."""
        return None

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        return self._settings.open_total(self.inner, total, layout, self.link.manifest.min_clients)

    def measure_noise(self, total: Mapping[str, Any], layout: Layout, contributions: int) -> float:
        return self._settings.measure_noise(total, layout, contributions, self.link.manifest.min_clients)


@hands_on("inner", "introduce", "receive", "conceal", "discard_unused_keys", "find_step")
class NoisedClient(ClientHalf):
    """Clips, counts sums, and adds its part of the noise; the inner protection hides the rest."""

    def __init__(self, settings: NoiseSettings, party: Party) -> None:
        super().__init__(party)
        self._settings = settings
        self.inner = settings.inner_protection.at_client(party)

    def carry_over(self, earlier: Party) -> None:
        self.inner.carry_over(earlier)
        if "noised" in earlier.state:
            announced, used, _ = earlier.state["noised"]
            own = self.party.state.get("noised", (0, 0, 0))[1]
            self.party.state["noised"] = (announced, max(used, own), 0)

    def check_layout(self, contribution: str, layout: Layout) -> None:
        if reason := self._settings.find_unfit(contribution, layout):
            raise ProtectionError(reason)

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        settings = self._settings
        self.check_layout("contribution", layout)
        asked, sums, min_clients = ticket.get(ASKED), ticket.get(SUMS), manifest_of(self.party).min_clients
        grid = settings.choose_grid(layout, asked, sums, min_clients)
        integers = self._count_sum(ticket["sum"], ticket[SUMS], layout.parts)
        if integers is None:
            if settings.unit == "client":
                # Of rows that have a norm each, the mean: how many rows there are must not decide.
                rows = 1 if layout.row_norm is None else max(1, self.party.data.rows)
                vector = clip_l2(vector / rows, settings.longest(layout))
            integers = np.rint(vector / grid.unit)
            if settings.distributed:
                integers += np.clip(discrete_gaussian(grid.variance, vector.size), -grid.cut, grid.cut)
                self.party.state["noised_vector"] = integers
        return self.inner.protect(ticket, integers * grid.unit, grid.layout)

    def _count_sum(self, number: int, sums: int, parts: int) -> Vector | None:
        """Count a sum's parts of the budget; of one that starts again, return what was sent before."""
        announced, used, last = self.party.state.get("noised", (sums, 0, 0))
        if sums != announced:
            raise ProtectionError(f"noise for {sums} sums, {self.party.id} was told {announced} at first")
        if number == last:
            sent: Vector | None = self.party.state.get("noised_vector")
            return sent
        if number < last or used + parts > announced:
            raise ProtectionError(overspent(f"{self.party.id} took part in {used} sums", announced))
        if self._settings.distributed:
            multiplier, delta = self._settings.multiplier(announced), self._settings.accounted_delta
            self.party.charge(Charge(self._settings.unit, multiplier, 1.0, delta, parts, announced))
        self.party.state["noised"] = (announced, used + parts, number)
        return None

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        return self._settings.open_total(self.inner, total, layout, manifest_of(self.party).min_clients)

    def measure_noise(self, total: Mapping[str, Any], layout: Layout, contributions: int) -> float:
        return self._settings.measure_noise(total, layout, contributions, manifest_of(self.party).min_clients)
