"""Sums with noise: differential privacy of clients or of single rows, around any other protection.

Every client clips its vector and rounds it to a grid; the noise is a discrete Gaussian on that grid
(:mod:`tacit.protections.noised.grid` says how much). Either the coordinator draws it once it has opened the
total, or every client adds a part (Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism
for Federated Learning", 2021), and only totals with noise exist. Opened totals are rounded to the grid,
which takes away what error the inner protection made: what is accounted is what is released. A client sizes
its part by what the manifest pins, and counts its sums.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, log, sqrt
from typing import Any, ClassVar

from tacit.core.component import Component
from tacit.core.layout import Layout
from tacit.core.link import Link
from tacit.core.marks import Mark
from tacit.core.party import Party
from tacit.core.promises import Promises
from tacit.core.protection import NoiseUnit, hands_on
from tacit.data.schema import Schema
from tacit.data.table import Column
from tacit.protections.noised.grid import NoiseSettings, without_columns
from tacit.protections.noised.halves import NoisedClient, NoisedCoordinator


# Key holders among the parties of the inner protection ask only that one for the least contributions.
@hands_on("inner_protection", "warnings_for", "at_service", "min_contributions")
@dataclass(frozen=True)
class Noised(NoiseSettings):
    """Differential privacy of clients or rows: totals of clipped vectors with noise, around another one."""

    name = "noised"
    adds_noise: ClassVar[bool] = True
    shows_contributions: ClassVar[bool] = False  # they are clipped

    @property
    def noise_unit(self) -> NoiseUnit:
        return self.unit

    @property
    def services(self) -> tuple[str, ...]:
        return self.inner_protection.services

    @property
    def promises(self) -> Promises:
        """Those of the inner protection, and what noise adds to them; ``precision`` is its deviation."""
        inner, central = self.inner_protection.promises, not self.distributed
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
        if self.opens == "leader":
            return f"{self.inner} opens totals at a leader, who knows of no noise: let clients open them"
        if not self.distributed and self.opens == "clients":
            return (
                f"the coordinator adds the noise, but {self.inner} opens totals at the clients, where each "
                "would have to draw its own and replicas would differ: set where = 'distributed'"
            )
        for name in getattr(method, "noisy_contributions", None) or dir(type(method)):
            mark = getattr(getattr(type(method), name, None), "tacit", None)
            if not isinstance(mark, Mark) or mark.kind != "contribution" or not mark.layout:
                continue
            # Which fields there are does not depend on the data, so the smallest schema shows them.
            schema = Schema((Column("x"),), method.tasks[0], ("no", "yes"), ("y",))  # type: ignore[attr-defined]
            layout = mark.layout(method, schema)
            if (fine := [field.name for field in layout.fields if field.fine]) and not mark.revealed:
                return (
                    f"{name} needs '{fine[0]}' to about 2^-40 of its bound, and noise of any epsilon is far "
                    "above that: use a method that bears noise"
                )
            if reason := self.find_unfit(name, layout):
                return reason
        return self.inner_protection.incompatibility(method)

    @property
    def rotates_keys(self) -> bool:
        return self.inner_protection.rotates_keys

    @property
    def own_epsilon(self) -> float:
        """The budget, if clients add the noise; a coordinator's noise protects nobody from it."""
        return self.epsilon if self.distributed else inf

    def proves(self, layout: Layout) -> bool:
        return self.inner_protection.proves(without_columns(layout))

    def error(self, layout: Layout, contributions: int, total: Mapping[str, Any] | None = None) -> float:
        """Return the error of the inner protection: noise is not an error."""
        return self.inner_protection.error(without_columns(layout), contributions, total)

    def at_coordinator(self, link: Link) -> NoisedCoordinator:
        return NoisedCoordinator(self, link)

    def at_client(self, party: Party) -> NoisedClient:
        return NoisedClient(self, party)
