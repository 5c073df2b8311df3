"""Gradients beside changes: what corrects the drift of clients, summed under the same protection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from tacit.core.errors import DataError
from tacit.core.layout import Field
from tacit.core.party import Party
from tacit.core.settings_group import Rule, SettingsGroup
from tacit.core.shared import Total
from tacit.methods.averaging.aggregation import Weighting
from tacit.models.network import Network, Vector


@dataclass(frozen=True)
class Gradients(SettingsGroup):
    """How a gradient of all parameters travels: as one vector with a bound, always protected.

    Parameters
    ----------
    limit : float
        Largest value of a gradient, or of the change of a control variate; a client whose own is larger
        scales it down as a whole.
    """

    prefix: ClassVar[str] = "gradient_"

    limit: float = 10.0

    def rules(self) -> Iterable[Rule]:
        """Return what the values must satisfy."""
        return (("limit", 0 < self.limit < inf, "give the largest value of a gradient, above 0"),)

    def fields(self, network: Network) -> list[Field]:
        """Return the field of a contribution that carries a gradient."""
        return [Field("gradient", (network.trained,), bound=self.limit)]

    def confine(self, gradient: Vector, party: Party) -> Vector:
        """Return a gradient within the limit; refuse one that is no number."""
        if not np.isfinite(gradient).all():
            raise DataError("a gradient is no number: lower the rate, or look for odd values in the rows")
        if (largest := float(np.abs(gradient).max())) <= self.limit:
            return gradient
        party.note(f"a gradient exceeded the limit of {self.limit:g} and was scaled down", "warning")
        return gradient * (self.limit / largest * (1 - 1e-15))

    def average(self, total: Total) -> Vector:
        """Return the mean gradient."""
        weight = float(total.get("weight", total.contributors))
        mean: Vector = np.asarray(total["gradient"]) / max(weight, 1e-300)
        return mean


def count_alike() -> Weighting:
    """Return the weighting in which all clients count the same, as papers on drift have it."""
    return Weighting("equal")
