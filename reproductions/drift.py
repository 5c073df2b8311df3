"""Rounds to an accuracy where each client has few classes: FedAvg, FedProx, SCAFFOLD, MIME and MimeLite.

After table 3 of SCAFFOLD's paper, rounds to an accuracy on labels that are sorted. The data are others here,
and so are the numbers: what is repeated is the order of the methods.
"""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

from reproductions import _trainings as trainings
from reproductions._harness import Experiment, grid
from reproductions._lines import plot
from tacit.methods import METHODS
from tacit.methods.scaffold import Scaffold

WAYS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "FedAvg": ("fedavg", {}),
    "FedProx": ("fedprox", {"mu": 0.1}),
    "SCAFFOLD": ("scaffold", {}),
    "MIME": ("mime", {}),
    "MimeLite": ("mime", {"lite": True}),
}
ROUNDS = 40
COMMON = {"weighting": "equal", "limit": 10.0, "hidden": 32, "batch": 32, "rounds": ROUNDS}
SHOWN = (1, 2, 3, 5, 8, 12, 20, 30, 40)  # rounds of the curves
# Clients, rows, test, local epochs, accuracy, rates.
DATA: Mapping[str, tuple[int, int, float | str, int, float, tuple[float, ...]]] = {
    "digits": (10, 1257, 0.3, 5, 0.93, (0.1, 0.3, 1.0)),
    "har_recomputed": (6, 2000, "split", 2, 0.85, (0.03, 0.1)),
}


@cache
def course(data: str, way: str, rate: float, seed: int) -> tuple[float, ...]:
    """Return the accuracy on the test after each round."""
    clients, rows, test, epochs, *_ = DATA[data]
    federation = trainings.divide(data, rows, test, seed, clients=clients, partition="label-sorted")
    name, options = WAYS[way]
    method = METHODS.build(name, {**COMMON, "epochs": epochs, "rate": rate, **options})
    return tuple(scores["accuracy"] for scores in trainings.score_rounds(federation, method))


def count_rounds(data: str, way: str, rate: float, seed: int) -> float:
    """Return how many rounds it takes to the accuracy."""
    return trainings.count_rounds(course(data, way, rate, seed), DATA[data][4])


def read_accuracy(data: str, way: str, rate: float, number: int, seed: int) -> float:
    """Return the accuracy after so many rounds."""
    return course(data, way, rate, seed)[number - 1]


def experiments() -> Iterator[Experiment]:
    """Yield the rounds to an accuracy and the curves, for digits and activities."""
    for data, (clients, rows, _, epochs, accuracy, rates) in DATA.items():
        settings = {**COMMON, "clients": clients, "rows": rows, "epochs": epochs, "data": data}
        table = partial(Experiment, paper=Scaffold.paper, settings=settings, seeds=5)
        cells = partial(grid, slow=data != "digits")
        name = data.partition("_")[0]
        yield table(
            name=f"drift-{name}-rounds",
            title=f"Label-skewed {data}: rounds to an accuracy of {accuracy:g}",
            quantity=f"rounds to an accuracy of {accuracy:g}",
            cells=cells(partial(count_rounds, data), {"method": WAYS, "rate": rates}),
            remarks=f"Rows are sorted by label among the clients. {ROUNDS + 1} stands for never.",
            drawings=plot("rounds by rate", "rounds", "rate", "method", log="x"),
        )
        yield table(
            name=f"drift-{name}-curves",
            title=f"Label-skewed {data}: accuracy after each round, at a rate of {rates[-1]:g}",
            quantity="test accuracy",
            cells=cells(partial(read_accuracy, data), {"method": WAYS, "rate": rates[-1:], "round": SHOWN}),
            drawings=plot("test accuracy by round", "accuracy", "round", "method", "rate"),
        )
