"""Weighting: how much a client counts in the average, and which of its rows take part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.layout import Field
from tacit.core.party import Party
from tacit.core.settings_group import SettingsGroup
from tacit.core.shared import Shared

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Weighting(SettingsGroup):
    """A client counts by its rows, or as much as any other.

    Parameters
    ----------
    weighting : {"rows", "equal"}
        Whether a client counts by its rows, or as much as any other.
    """

    weighting: Literal["rows", "equal"] = "rows"

    # Weights that follow from labels are not covered by the privacy of examples.
    from_labels: ClassVar[bool] = False

    @property
    def equal(self) -> bool:
        """Return whether all clients count the same, so that no weight travels."""
        return self.weighting == "equal"

    @property
    def sums(self) -> int:
        """Return how many sums it takes to agree on the weights."""
        return 0 if self.equal else 1

    def choose_rows(self, party: Party, shared: Shared, labels: Labels) -> Labels | None:
        """Return which rows of a client take part in a round; None for all."""
        return None

    def weigh(self, labels: Labels, shared: Shared) -> float:
        """Return n_k: how much a client counts, from the labels of the rows that take part."""
        return float(len(labels))

    def share(self, labels: Labels, shared: Shared) -> float:
        """Return u_k = n_k/c, between 0 and 1; 1 if all count the same."""
        # Noise on the norm, or a client that joined late, may leave it smaller than a weight.
        return 1.0 if self.equal else min(1.0, self.weigh(labels, shared) / float(shared["scale"]))

    def fields(self) -> list[Field]:
        """Return the fields of a contribution that carry the weight."""
        return [] if self.equal else [Field("weight", (), bound=1.0)]

    def explain_noise_conflict(self) -> str | None:
        """Return why noise on sums makes no sense: it would clip squares, and the mean be divided by it."""
        if self.equal:
            return None
        return "clients count by weights, which noise and clipping would spoil: set weighting = 'equal'"
