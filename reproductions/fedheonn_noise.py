"""FedHEONN under noise: what epsilon costs in accuracy, beside the model without noise.

Y.-X. Wang, "Revisiting differentially private linear regression: optimal and adaptive prediction and
estimation in unbounded domain", UAI 2018, has the idea, not these figures: no paper reports them.
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

from reproductions._harness import Cell, Experiment
from reproductions._lines import plot
from reproductions._trainings import score
from tacit.core.protection import NoiseUnit
from tacit.federation import Federation
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.noised import Noised

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
# Data set and the paper's accuracy (per cent) without noise, of its table 3.
OF_ROWS: tuple[tuple[str, float | None], ...] = (
    ("dry_bean", 90.43),
    ("skin_segmentation", 92.56),
    *((name, None) for name in ("digits", "optdigits", "gender_voice", "adult", "bank_marketing")),
    *((name, None) for name in ("credit_default", "susy_sample")),
)
CLIENTS = 20
MANY = 1_000  # clients, if whole ones are hidden
LOSS = 3.0  # points that may be lost at an epsilon of 1 for rows


@lru_cache(maxsize=16)
def _federation(data: str, clients: int, seed: int) -> Federation:
    return Federation.embedded(data, clients=clients, seed=seed, quorum=1.0)


def accuracy(data: str, clients: int, unit: NoiseUnit, epsilon: float | None, seed: int) -> float:
    """Return test accuracy (%): 70/30 by class; every client adds its part of the noise, inside masks."""
    protection: Noised | str = "plain"
    least = None
    if epsilon is not None:
        # Masks among thousands of clients take long, and hide parts of the noise that are the same without.
        inner, least = "masked" if clients < 100 else "plain", clients
        added: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "unit": unit, "where": "distributed"}
        protection = Noised(**added, inner=inner, colluding=1)
    scores = score(_federation(data, clients, seed), FedHEONN(), protection, min_clients=least)
    return 100.0 * float(scores["accuracy"])


def _cells(data: str, clients: int, unit: NoiseUnit, paper: float | None) -> list[Cell]:
    return [
        Cell(
            {"data": data, "epsilon": "no noise" if epsilon is None else epsilon},
            partial(accuracy, data, clients, unit, epsilon),
            paper,
            (paper - LOSS, 100.0) if paper and (unit, epsilon) == ("row", 1.0) else None,
            slow=clients > CLIENTS or paper is None,
        )
        for epsilon in (None, *EPSILONS)
    ]


def experiments() -> Iterator[Experiment]:
    """Yield the tables of accuracy against epsilon: of rows, and of clients."""
    settings = {"delta": DELTA, "test": 0.3, "partition": "iid", "protect": "noised, distributed"}
    remarks = (
        "The paper has no noise: its column shows what it reports without. All that opens is covered by "
        "epsilon. Every client adds its part of the noise, and all of them must: min_clients is their "
        "number. Constants of the method were chosen by looking at five of the data sets (docs/noise.md)."
    )
    table = partial(
        Experiment,
        paper=FedHEONN.paper,
        quantity="test accuracy, per cent",
        remarks=remarks,
        drawings=plot("Accuracy against epsilon", "accuracy, %", "epsilon", "data", log="x"),
    )
    yield table(
        name="fedheonn-noise-rows",
        title="FedHEONN under noise that hides single rows: accuracy against epsilon",
        settings={**settings, "clients": CLIENTS, "unit": "row"},
        seeds=10,
        cells=[cell for data, paper in OF_ROWS for cell in _cells(data, CLIENTS, "row", paper)],
    )
    yield table(
        name="fedheonn-noise-clients",
        title="FedHEONN under noise that hides whole clients: accuracy against epsilon",
        settings={**settings, "clients": MANY, "unit": "client"},
        seeds=3,
        cells=_cells("skin_segmentation", MANY, "client", 92.56),
    )
