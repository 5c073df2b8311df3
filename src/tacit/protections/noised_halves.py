"""What noise around another protection does at the coordinator and at a client.

Each half *has* the inner protection's half. It calls it for all that it does not change, and works on what
goes in and comes out where it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.client import Opener, agreed_minimum
from tacit.core.errors import ConfigError, ProtectionError
from tacit.core.events import BudgetSpent, Noted
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.pending_sum import PendingSum
from tacit.core.protection import ClientHalf, CoordinatorHalf, Vector
from tacit.crypto.accounting import Accountant
from tacit.crypto.noise import clip_l2, discrete_gaussian
from tacit.protections.budget import Budget, overspent
from tacit.protections.noise_sizing import (
    accounted_delta,
    choose_grid,
    find_unfit,
    needed_parts,
    noise_multiplier,
)

if TYPE_CHECKING:
    from tacit.protections.noised import Noised

ASKED, SUMS = "noise_asked", "noise_sums"  # ride on asks and totals: a grid follows from them


class NoisedCoordinator(CoordinatorHalf):
    """Keeps the budget of the run; the inner protection forms the sums."""

    def __init__(self, settings: Noised, link: Link) -> None:
        super().__init__(link)
        self.settings = settings
        self.inner = settings.inner_protection.at_coordinator(link)
        self.budget: Budget | None = None

    def greet(self) -> Mapping[str, Any]:
        """As the inner protection does."""
        return self.inner.greet()

    def welcome(self, party: str, fields: Mapping[str, Any]) -> None:
        """As the inner protection does."""
        self.inner.welcome(party, fields)

    def admit(self, names: Sequence[str]) -> None:
        """As the inner protection does."""
        self.inner.admit(names)

    def settle(self) -> None:
        """As the inner protection does."""
        self.inner.settle()

    def prepare(self, sums: int) -> None:
        """Size the noise so that this many sums cost the whole budget."""
        settings, link = self.settings, self.link
        if reason := settings.fits(link.components.method):
            raise ConfigError(f"{settings.name} cannot protect {link.components.method.name}: {reason}")
        if self.budget is not None:
            raise ProtectionError("the noise of this run is sized already: its budget is for the whole run")
        sums, least = max(1, sums), settings.min_contributions(link.manifest.min_clients)
        if needed_parts(settings, least) < 1:
            raise ConfigError(
                f"totals open over {least} clients, of which {settings.colluding} may know their parts of "
                f"the noise: set min_clients to {settings.colluding + 1} or more, the more the less noise"
            )
        multiplier = noise_multiplier(settings, sums)
        self.budget = Budget(sums, multiplier, settings.epsilon, Accountant(accounted_delta(settings)))
        deviation, adding = multiplier * settings.clip, link.manifest.quorum * len(link.parties)
        epsilon = f"epsilon {settings.epsilon:g} in all"
        text = f"noise of {deviation:.3g} a value in each of {sums} sums, for {epsilon}"
        if settings.where == "distributed" and adding >= 2 * least:
            text += (
                f" if {least} clients add it, and {adding:.0f} will: a larger min_clients means less noise"
            )
        link.events.emit(Noted("protection", text))
        self.inner.prepare(sums)

    def resume(self, sums: int) -> None:
        """Charge what was released before the run was stopped."""
        if sums and self.budget is not None:
            self.budget.charge(min(sums, self.budget.sums))
        self.inner.resume(sums)

    def spent(self) -> float:
        """Return the epsilon that the sums have cost so far, at delta."""
        return 0.0 if self.budget is None else self.budget.epsilon

    def left(self) -> int | None:
        """Return how many of the sums that the noise was sized for are still to come."""
        return None if self.budget is None else self.budget.left

    def gather(self, pending: PendingSum) -> Mapping[str, Any]:
        """Charge the budget, then let the inner protection gather."""
        if reason := find_unfit(pending.contribution, pending.layout):
            raise ProtectionError(reason)
        settings, budget = self.settings, self.budget
        if budget is None:
            raise ProtectionError("the noise was not sized: prepare the protection before the first sum")
        asked, min_clients = len(pending.parties), self.link.manifest.min_clients
        grid = choose_grid(settings, pending.layout, asked, budget.sums, min_clients)
        told = {ASKED: asked, SUMS: budget.sums}
        budget.charge()
        total = self.inner.gather(pending.telling(grid.layout, told))
        spent = BudgetSpent(pending.number, budget.epsilon, settings.epsilon, settings.delta, budget.left)
        self.link.events.emit(spent)
        return {**total, **told}

    def multiply(
        self, pending: PendingSum, total: Mapping[str, Any], operator: Callable[[], Any]
    ) -> Mapping[str, Any] | None:
        """Leave it to whoever opens: a product does not lie on the grid of the noise."""
        return None

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Open, round to the grid, and add the noise if it is the coordinator's to add."""
        return _open_total(self.settings, self.inner, total, layout, self.link.manifest.min_clients)


class NoisedClient(ClientHalf):
    """Clips, counts sums, and adds its part of the noise; the inner protection hides the rest."""

    def __init__(self, settings: Noised, party: Party) -> None:
        super().__init__(party)
        self.settings = settings
        self.inner = settings.inner_protection.at_client(party)

    def introduce(self, greeting: Mapping[str, Any]) -> Mapping[str, Any]:
        """As the inner protection does."""
        return self.inner.introduce(greeting)

    def receive(self, ticket: Mapping[str, Any]) -> None:
        """As the inner protection does."""
        self.inner.receive(ticket)

    def settle(self) -> None:
        """As the inner protection does."""
        self.inner.settle()

    def find_step(self, name: str) -> Callable[[Message], Message]:
        """Return a step of the inner protection: noise has none of its own."""
        return self.inner.find_step(name)

    def carry_over(self, earlier: Party) -> None:
        """Go on counting; numbers of sums begin anew."""
        self.inner.carry_over(earlier)
        if "noised" in earlier.state:
            announced, used, _ = earlier.state["noised"]
            own = self.party.state.get("noised", (0, 0, 0))[1]
            self.party.state["noised"] = (announced, max(used, own), 0)

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Clip, round to the grid, add this party's part of the noise, and protect that."""
        if reason := find_unfit("contribution", layout):
            raise ProtectionError(reason)
        asked, sums, min_clients = ticket.get(ASKED), ticket.get(SUMS), agreed_minimum(self.party)
        grid = choose_grid(self.settings, layout, asked, sums, min_clients)
        integers = self._count_sum(ticket["sum"], ticket[SUMS])
        if integers is None:
            integers = np.rint(clip_l2(vector, self.settings.clip) / grid.unit)
            if self.settings.where == "distributed":
                integers += np.clip(discrete_gaussian(grid.variance, vector.size), -grid.cut, grid.cut)
                self.party.state["noised_vector"] = integers
        return self.inner.protect(ticket, integers * grid.unit, grid.layout)

    def _count_sum(self, number: int, sums: int) -> Vector | None:
        """Count a sum; if it starts again, return what was sent: two draws of noise tell more than one."""
        announced, used, last = self.party.state.get("noised", (sums, 0, 0))
        if sums != announced:
            raise ProtectionError(f"noise for {sums} sums, {self.party.id} was told {announced} at first")
        if number == last:
            sent: Vector | None = self.party.state.get("noised_vector")
            return sent
        if number < last or used >= announced:
            raise ProtectionError(overspent(f"{self.party.id} took part in {used} sums", announced))
        self.party.state["noised"] = (announced, used + 1, number)
        return None

    def open(self, total: Mapping[str, Any], layout: Layout) -> Vector:
        """Open, and round to the grid."""
        return _open_total(self.settings, self.inner, total, layout, agreed_minimum(self.party))


def _open_total(
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
