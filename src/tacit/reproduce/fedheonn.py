"""Accuracy of FedHEONN against the number of clients: figure 2 and table 3 of its paper.

O. Fontenla-Romero, B. Guijarro-Berdiñas, E. Hernández-Pereira, B. Pérez-Sánchez, "FedHEONN: Federated
and homomorphically encrypted learning method for one-layer neural networks", 2023.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tacit.federation import Federation
from tacit.methods.fedheonn import FedHEONN
from tacit.reproduce.harness import Cell, Experiment

# Data set, accuracy in the paper's table 3 (per cent), range expected of ours.
TABLE_3 = (
    ("dry_bean", 90.43, (90.0, 90.8)),
    ("skin_segmentation", 92.56, (92.3, 92.8)),
    ("digits", None, (92.5, 100.0)),
)


def accuracy(data: str, clients: int, partition: str, seed: int) -> float:
    """Test accuracy in per cent: 70/30 by class, logistic outputs, λ = 0.001."""
    federation = Federation.embedded(data, clients=clients, partition=partition, seed=seed)
    assert federation.test is not None
    model = FedHEONN(lam=1e-3, activation="logistic").fit(federation)
    return 100.0 * float(model.scores(federation.test)["accuracy"])


def experiments() -> Iterator[Experiment]:
    """Tables that can be measured today."""
    cells = [
        Cell(
            {"data": data, "clients": clients, "partition": partition},
            paper,
            expected,
            partial(accuracy, data, clients, partition),
        )
        for data, paper, expected in TABLE_3
        for clients in ((1, 100) if data == "digits" else (1, 200, 2000))
        for partition in ("iid", "label-sorted")
        if clients > 1 or partition == "iid"
    ]
    yield Experiment(
        name="fedheonn-accuracy",
        title="FedHEONN: accuracy against the number of clients, IID and label-sorted",
        paper=FedHEONN.paper,
        quantity="test accuracy, per cent",
        settings={
            "lam": 1e-3,
            "activation": "logistic",
            "test": 0.3,
            "scale": "standard",
            "protect": "plain",
        },
        seeds=5,
        cells=cells,
        remarks=(
            "The paper repeats each figure three times and does not publish its splits; ours are drawn by "
            "class. Within a data set all rows agree because the closed form does not depend on who holds "
            "which rows. digits is not in the paper."
        ),
    )
