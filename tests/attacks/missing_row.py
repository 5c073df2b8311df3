"""The rows of a client that is in one statistic of a federation and not in another.

The moments of a preparation hold n and Σx of all clients, and so does the first row of a Gram matrix: if the
two are over other clients, their difference is n and Σx of those between. Of a client with one row, that is
the row.
"""

from __future__ import annotations

import numpy as np

from tacit.core.shared import Shared
from tacit.methods.heonn.exchange import Units
from tacit.models.leastsquares import Matrix, symmetric


def row_of_the_missing(settled: Shared, learnt: Shared) -> Matrix:
    """Return Σx of whoever was in the total of the moments and not in that of the Gram matrix.

    ``settled`` are the shared values after the preparation, ``learnt`` those after the terms: both are known
    to whoever opens totals.
    """
    units = Units.of("logistic", settled, settled["norms"])
    gram = symmetric(learnt["gram"][0], len(units.lengths)) * np.outer(units.lengths, units.lengths)
    later = settled["spread"] * gram[0, 1:] + gram[0, 0] * settled["centre"]
    return settled["norms"][0] * settled["centre"] - later
