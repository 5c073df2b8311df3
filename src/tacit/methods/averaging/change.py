"""How a client's change of the weights travels: within a bound, and which layers of it under protection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from tacit.core.errors import DataError
from tacit.core.layout import Field
from tacit.core.party import Party
from tacit.core.settings_group import Rule, SettingsGroup
from tacit.models.network import Network, Vector

PREFIX = "delta/"  # of the arrays of a change, in contributions and totals
ABSURD = 1e3  # times the limit: such a change is no learning, and is refused


@dataclass(frozen=True)
class Change(SettingsGroup):
    """What of a client's change travels, and how.

    Parameters
    ----------
    limit : float
        Largest change of a parameter in a round; a client whose change is larger scales it down as a whole,
        and refuses itself beyond a thousand times that.
    protect_layers : layers
        What is summed under protection: "all", a number k for the last k layers, "first-and-last", or names
        or regular expressions, separated by commas. The other layers travel in the clear.
    """

    limit: float = 1.0
    protect_layers: int | str = "all"

    def rules(self) -> Iterable[Rule]:
        """Return what the values must satisfy."""
        return (("limit", 0 < self.limit < inf, "give the largest change of a weight, above 0"),)

    def fields(self, network: Network) -> list[Field]:
        """Return the fields of a contribution that carry a change; state that is not trained has no bound."""
        covered = network.chosen(self.protect_layers)
        return [
            Field(
                PREFIX + name,
                shape,
                bound=self.limit if name in network.parameters else None,
                clear=name not in covered,
            )
            for name, shape in network.shapes.items()
        ]

    def pack(self, delta: Vector, share: float, network: Network, party: Party) -> dict[str, Any]:
        """Return u_k Δ_k by its fields, Δ_k within the limit; refuse one that is no number, or absurd."""
        trained = delta[: network.trained]
        largest = float(np.abs(trained).max())
        if not np.isfinite(delta).all() or largest > ABSURD * self.limit:
            raise DataError(
                f"local training ran away: a weight changed by more than {ABSURD * self.limit:g}, or is no "
                "number; lower the rate, or look for odd values in the rows",
                private=f"largest change {largest:g}",
            )
        if largest > self.limit:
            trained *= self.limit / largest * (1 - 1e-15)
            party.note(f"its change exceeded the limit of {self.limit:g} and was scaled down", "warning")
        return {PREFIX + name: array for name, array in network.named(delta * share).items()}

    def average(self, total: Mapping[str, Any], weight: float, network: Network) -> dict[str, Any]:
        """Return the mean change by the names of the weights, from a total over so much weight."""
        mean = {name: np.asarray(total[PREFIX + name]) / weight for name in network.shapes}
        for name in network.parameters:
            # A mean of changes is within their limit; noise on the sum may not be, and is cut there.
            mean[name] = np.clip(mean[name], -self.limit, self.limit)
        return mean

    def find_flaw(self, name: str, piece: Any, network: Network) -> str | None:
        """Return what is wrong with a visible field: a change or a weight that is too large."""
        if name != "weight" and name.removeprefix(PREFIX) not in network.parameters:
            return None
        limit = 1.0 if name == "weight" else self.limit
        return f"exceeds its bound of {limit:g}" if np.abs(piece).max(initial=0.0) > limit else None
