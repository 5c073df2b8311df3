"""Who counts how much: figures 1 and 2 of the paper on aggregation strategies.

Figure 1 shows how majority-even divides the classes, figure 2 what HWFedAvg and NWFedAvg make of it. The
paper draws both and gives no numbers.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from reproductions._harness import Experiment, grid
from reproductions._lines import Rows, plot
from reproductions.aggregation import CLIENTS, DATA, federation
from tacit.methods.homogeneity import HWFedAvg, NWFedAvg, concentration
from tacit.runs.page.figures import division

WEIGHTED = {method.name: method.weighting for method in (HWFedAvg(), NWFedAvg())}


@cache
def counts(seed: int) -> NDArray[np.float64]:
    """Count the rows of each client (majority-even, all training rows) and class."""
    holdings = federation("majority-even", None, seed).holdings
    labels = [np.asarray(holdings.rows(index).target) for index in range(CLIENTS)]
    return np.stack([np.bincount(each, minlength=len(holdings.table.classes)) for each in labels])


def weight(strategy: str, client: int, seed: int) -> float:
    """Return the share of a client in the average, the first being 1."""
    held = counts(seed)
    shares = held.sum(axis=0) / held.sum()
    found = [WEIGHTED[strategy].prefer(concentration(each, shares), int(each.sum())) for each in held]
    return found[client - 1] / sum(found)


def client_weights() -> Experiment:
    """Return the table of the eight clients' weights; the last two have all classes alike."""
    return Experiment(
        name="aggregation-weights",
        title="What each client counts: HWFedAvg and NWFedAvg, majority-even (figures 1 and 2)",
        paper=HWFedAvg.paper,
        quantity="share of the client in the average; eight equal clients would have 0.125",
        settings={"data": DATA, "clients": CLIENTS, "rows": "all"},
        seeds=5,
        cells=grid(weight, {"strategy": WEIGHTED, "client": range(1, CLIENTS + 1)}),
        remarks=(
            "Clients 1 to 6 have a majority class each, 7 and 8 all classes alike: HWFedAvg counts these "
            "more and NWFedAvg less."
        ),
        drawings=_drawn,
    )


def _drawn(rows: Rows) -> dict[str, str]:
    labels = federation("majority-even", None, 0).holdings.table.classes
    shares = plot("Share of each client in the average (figure 2)", "share", "client", "strategy")
    return {
        "Rows of each client and their classes, majority-even (figure 1)": division(counts(0), labels),
        **shares(rows),
    }
