"""What noise does at a client: it clips, counts its sums, and adds its part of distributed noise."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tacit.core.client import agreed_minimum
from tacit.core.errors import ProtectionError
from tacit.core.layout import Layout
from tacit.core.message import Message
from tacit.core.party import Charge, Party
from tacit.core.protection import ClientHalf, Vector
from tacit.crypto.noise import clip_l2, discrete_gaussian
from tacit.protections.noised.grid import ASKED, SUMS, NoiseSettings, overspent


class NoisedClient(ClientHalf):
    """Clips, counts sums, and adds its part of the noise; the inner protection hides the rest."""

    def __init__(self, settings: NoiseSettings, party: Party) -> None:
        super().__init__(party)
        self._settings = settings
        self.inner = settings.inner_protection.at_client(party)

    def introduce(self, greeting: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the inner protection's introduction; noise adds nothing to it."""
        return self.inner.introduce(greeting)

    def receive(self, ticket: Mapping[str, Any]) -> None:
        """Hand the ticket to the inner protection, which may find a key in it."""
        self.inner.receive(ticket)

    def conceal(self, digest: str) -> str:
        """Leave it to the inner protection, which may have a key."""
        return self.inner.conceal(digest)

    def discard_unused_keys(self) -> None:
        """Let the inner protection forget what it prepared for sums that never came."""
        self.inner.discard_unused_keys()

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

    def check_layout(self, contribution: str, layout: Layout) -> None:
        """Refuse what cannot have noise."""
        if reason := self._settings.find_unfit(contribution, layout):
            raise ProtectionError(reason)

    def protect(self, ticket: Mapping[str, Any], vector: Vector, layout: Layout) -> Message:
        """Clip, round to the grid, add this party's part of the noise, and protect that."""
        settings = self._settings
        self.check_layout("contribution", layout)
        asked, sums, min_clients = ticket.get(ASKED), ticket.get(SUMS), agreed_minimum(self.party)
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
        """Count the parts of the budget that a sum takes, before its noise is drawn.

        If it starts again, return what was sent: two draws of noise tell more than one.
        """
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
        """Open, and round to the grid."""
        return self._settings.open_total(self.inner, total, layout, agreed_minimum(self.party))

    def measure_noise(self, total: Mapping[str, Any], layout: Layout, contributions: int) -> float:
        """Return the standard deviation of the noise in each value."""
        return self._settings.measure_noise(total, layout, contributions, agreed_minimum(self.party))
