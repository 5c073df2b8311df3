"""Rounds to an accuracy where each client has few classes: FedAvg, FedProx, SCAFFOLD, MIME and MimeLite.

S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh, "SCAFFOLD: Stochastic Controlled
Averaging for Federated Learning", ICML 2020, table 3: rounds to an accuracy on labels that are sorted. The
data are others here, and so are the numbers: what is repeated is the order of the methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from tacit.core.random import generator
from tacit.core.snapshot import Snapshot
from tacit.data.files import load
from tacit.data.split import split
from tacit.federation import Federation
from tacit.methods import METHODS
from tacit.methods.scaffold import Scaffold
from tacit.reproduce.harness import Cell, Experiment
from tacit.reproduce.lines import lines, series

METHODS_HERE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "FedAvg": ("fedavg", {}),
    "FedProx": ("fedprox", {"mu": 0.1}),
    "SCAFFOLD": ("scaffold", {}),
    "MIME": ("mime", {}),
    "MimeLite": ("mime", {"lite": True}),
}
COMMON = {"weighting": "equal", "limit": 10.0, "hidden": 32, "batch": 32}
# Data: clients, rows, local epochs, rounds at the most, accuracy, rates, rounds of the curves.
DIGITS = ("digits", 10, 1257, 5, 40, 0.93, (0.1, 0.3, 1.0), (1, 2, 3, 5, 8, 12, 20, 30, 40))
HAR = ("har_recomputed", 6, 2000, 2, 40, 0.85, (0.03, 0.1), (1, 2, 3, 5, 8, 12, 20, 30, 40))


@cache
def course(way: str, rate: float, data: str, seed: int) -> tuple[float, ...]:
    """Return the accuracy on the test after each round."""
    _, clients, rows, epochs, rounds, *_ = DIGITS if data == "digits" else HAR
    training, test = split(load(data), 0.3 if data == "digits" else "split", seed)
    drawn = generator(b"public", seed, "rows").choice(training.rows, rows, replace=False)
    federation = Federation.embedded(
        training.take(np.sort(drawn)), test=None, clients=clients, partition="label-sorted", seed=seed
    )
    name, options = METHODS_HERE[way]
    method = METHODS.build(name, {**COMMON, "epochs": epochs, "rounds": rounds, "rate": rate, **options})
    found: list[float] = []

    def keep(kept: Snapshot) -> None:
        assert test is not None and kept.shared is not None
        found.append(method.model(kept.shared).scores(test)["accuracy"])

    federation.train(method, protect="plain", keep=keep)
    return tuple(found)


def count_rounds(way: str, rate: float, data: str, accuracy: float, seed: int) -> float:
    """Return how many rounds it takes to an accuracy; one more than all if it is never reached."""
    found = course(way, rate, data, seed)
    return float(next((n for n, one in enumerate(found, 1) if one >= accuracy), len(found) + 1))


def read_accuracy(way: str, rate: float, data: str, number: int, seed: int) -> float:
    """Return the accuracy after so many rounds."""
    return course(way, rate, data, seed)[number - 1]


def _drawn(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {"test accuracy by round": lines(series(rows, "round", "method", "rate"), "round", "accuracy")}


def experiments() -> Iterator[Experiment]:
    """Yield the rounds to an accuracy and the curves, for digits and activities."""
    for data, clients, rows, epochs, rounds, accuracy, rates, marks in (DIGITS, HAR):
        settings = {**COMMON, "clients": clients, "rows": rows, "epochs": epochs, "rounds": rounds}
        more: dict[str, Any] = {"paper": Scaffold.paper, "settings": {**settings, "data": data}, "seeds": 5}
        pairs, slow = [(way, rate) for rate in rates for way in METHODS_HERE], data != "digits"
        remarks = f"Rows are sorted by label among the clients. {rounds + 1} stands for never."
        yield Experiment(
            name=f"drift-{data.partition('_')[0]}-rounds",
            title=f"Label-skewed {data}: rounds to an accuracy of {accuracy:g}",
            quantity=f"rounds to an accuracy of {accuracy:g}",
            cells=[
                Cell({"method": w, "rate": r}, partial(count_rounds, w, r, data, accuracy), slow=slow)
                for w, r in pairs
            ],
            remarks=remarks,
            **more,
        )
        best = rates[-1]
        yield Experiment(
            name=f"drift-{data.partition('_')[0]}-curves",
            title=f"Label-skewed {data}: accuracy after each round, at a rate of {best:g}",
            quantity="test accuracy",
            cells=[
                Cell({"method": w, "rate": r, "round": n}, partial(read_accuracy, w, r, data, n), slow=slow)
                for w, r in pairs
                if r == best
                for n in marks
            ],
            drawings=_drawn,
            **more,
        )
