"""Aggregation strategies on smartphone activities: figures 1 to 4 of the paper, and its slides.

B. Santos, J. Templeton, R. Chemli, E. Cerasti, F. Pugliese, M. Bruno, M. De Cubellis, M. Jug, "Exploring
Aggregation Strategies for Federated Learning in National Statistics", IFC-Bank of Italy workshop, 2023.

The paper gives networks, partitions and numbers of rows; not its optimiser, batches or rates. Ours: one
local epoch of Adam at 0.001 in batches of 32, as a Keras user gets them, and Flower's own defaults at the
server. The test is the data set's own division by subjects, so nobody whose rows are trained on is tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from tacit.core.random import generator
from tacit.core.snapshot import Snapshot
from tacit.data.files import load
from tacit.data.split import split
from tacit.federation import Federation
from tacit.methods import METHODS
from tacit.methods.homogeneity import HWFedAvg
from tacit.reproduce.harness import Cell, Experiment
from tacit.reproduce.lines import lines

DATA, CLIENTS, ROUNDS = "har_recomputed", 8, 8
STRATEGIES = ("fedavg", "hwfedavg", "nwfedavg", "fedyogi", "fedadam", "fedadagrad")
PARTITIONS = ("random", "majority-even", "majority", "pick-two")
DEEP = "437,312"
LOCAL: Mapping[str, Any] = {"optimiser": "adam", "rate": 0.001, "batch": 32, "epochs": 1}
FEW = 1600
GOOD, MOST_ROUNDS = 0.95, 30
# Flower's own settings of the server, and rates at which these learn here.
FLOWER: Mapping[str, Mapping[str, float]] = {
    "fedyogi": {"eta": 0.01, "beta1": 0.9, "tau": 1e-3},
    "fedadam": {"eta": 0.1, "beta1": 0.9, "tau": 1e-3},
    "fedadagrad": {"eta": 0.1, "tau": 1e-3, "v0": 0.0},
}
TUNED = {"fedadam": 0.01, "fedadagrad": 0.003}

Round = Mapping[str, Any]


@lru_cache(maxsize=32)
def federation(partition: str, rows: int | None, seed: int) -> Federation:
    """Make a federation of eight clients, or one per subject; the test is the data set's own."""
    training, test = split(load(DATA), "split", seed)
    if rows is not None:
        drawn = generator(b"public", seed, "rows").choice(training.rows, rows, replace=False)
        training = training.take(np.sort(drawn))
    options: dict[str, Any] = {"column": "subject"} if partition == "by-column" else {}
    clients = None if options else CLIENTS
    made = Federation.embedded(
        training, test=None, clients=clients, partition=partition, seed=seed, **options
    )
    made.test = test
    return made


@cache
def course(
    strategy: str,
    partition: str,
    rows: int | None,
    seed: int,
    *,
    hidden: str = DEEP,
    protect: str = "plain",
    layers: int | str = "all",
    rounds: int = ROUNDS,
    eta: float | None = None,
) -> tuple[Round, ...]:
    """Return the scores after each round."""
    settings = {**LOCAL, **FLOWER.get(strategy, {}), "hidden": hidden, "rounds": rounds}
    settings["protect_layers"] = layers
    method = METHODS.build(strategy, settings if eta is None else {**settings, "eta": eta})
    chosen, scores = federation(partition, rows, seed), []

    def keep(kept: Snapshot) -> None:
        assert kept.shared is not None and chosen.test is not None
        scores.append(method.model(kept.shared).scores(chosen.test))

    training = chosen.train(method, protect=protect, keep=keep)
    assert chosen.test is not None
    spent = training.ledger.summary(watts=65.0)["cpu_s"]
    cpu = sum(spent[who] for who in ("clients", "coordinator", "services"))
    last = {**training.model.scores(chosen.test), "cpu_s": cpu}
    return (*scores[:-1], last)


def f1(strategy: str, partition: str, rows: int | None, after: int, seed: int) -> float:
    """Return the macro F1 on the test after a round."""
    return float(course(strategy, partition, rows, seed)[after - 1]["f1"])


def rounds_to(strategy: str, eta: float | None, seed: int) -> float:
    """Count the rounds until macro F1 first reaches 0.95; one more than there were if it never does."""
    scores = course(strategy, "majority-even", None, seed, rounds=MOST_ROUNDS, eta=eta)
    return float(next((i for i, s in enumerate(scores, 1) if s["f1"] >= GOOD), MOST_ROUNDS + 1))


def subjects(seed: int) -> float:
    """Return the macro F1 after 20 rounds if every subject is a client of its own."""
    return float(course("fedavg", "by-column", None, seed, rounds=20)[-1]["f1"])


def _drawn(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Draw F1 by round for every strategy, and of each class for FedAvg, of the first seed."""
    drawn = {}
    measured = {(row["strategy"], row["rows"]) for row in rows if row["ours"] is not None}
    for size, name in ((None, "all"), (FEW, FEW)):
        found = [strategy for strategy in STRATEGIES if (strategy, name) in measured]
        if found:
            named = {
                strategy: points(scores["f1"] for scores in course(strategy, "majority-even", size, 0))
                for strategy in found
            }
            drawn[f"Macro F1 by round, majority-even, {name} training rows (figure 3)"] = lines(
                named, "round", "macro F1"
            )
    if ("fedavg", FEW) in measured:
        run = course("fedavg", "majority-even", FEW, 0)
        labels = [str(entry["label"]) for entry in run[0]["per_class"]]
        by_class = {
            label: points(scores["per_class"][place]["f1"] for scores in run)
            for place, label in enumerate(labels)
        }
        caption = f"F1 of each class by round, FedAvg, {FEW:,} training rows (slides)"
        drawn[caption] = lines(by_class, "round", "F1 of the class")
    return drawn


def points(values: Iterable[float]) -> list[tuple[float, float]]:
    """Return the values over the numbers of their rounds."""
    return [(float(place), float(value)) for place, value in enumerate(values, 1)]


def experiments() -> Iterator[Experiment]:
    """Yield the tables: weights, figure 3 with its rounds, partitions, subjects as clients, encryption."""
    from tacit.reproduce.client_weights import client_weights
    from tacit.reproduce.encrypted_layers import encrypted

    same = {"data": DATA, "clients": CLIENTS, "network": "561-437-312-6", **LOCAL, "test": "other subjects"}

    table = partial(Experiment, paper=HWFedAvg.paper, settings=same, quantity="macro F1 on other subjects")

    def cell(strategy: str, partition: str, rows: int | None, after: int) -> Cell:
        settings = {"strategy": strategy, "partition": partition, "rows": rows or "all", "round": after}
        return Cell(settings, partial(f1, strategy, partition, rows, after), slow=rows is None)

    yield client_weights()
    yield table(
        name="aggregation-rounds",
        title="Six strategies, majority-even: macro F1 after rounds 1, 2 and 8",
        seeds=5,
        cells=[
            cell(s, "majority-even", rows, after)
            for rows in (None, FEW)
            for after in (1, 2, ROUNDS)
            for s in STRATEGIES
        ],
        remarks=(
            "The paper has curves and no numbers: in round 1 HWFedAvg is best and NWFedAvg worst, on all "
            "rows and on 1,600; all are high after two rounds on all rows; FedAvg and FedYogi are above "
            "FedAdam and FedAdagrad without tuning."
        ),
        drawings=_drawn,
    )
    yield table(
        name="aggregation-rounds-needed",
        title="Rounds until macro F1 reaches 0.95, majority-even",
        quantity=f"rounds; {MOST_ROUNDS + 1} means not within {MOST_ROUNDS}",
        seeds=2,
        cells=[
            Cell(
                {"strategy": s, "rate at the server": eta or "its own", "rows": "all"},
                partial(rounds_to, s, eta),
                slow=True,
            )
            for s, eta in [*((s, None) for s in STRATEGIES), *TUNED.items()]
        ],
        remarks="The tests are rows of other subjects. On 1,600 rows nobody gets there within eight rounds.",
    )
    yield table(
        name="aggregation-partitions",
        title="All four partitions: macro F1 after rounds 1 and 8",
        seeds=2,
        cells=[
            cell(s, p, rows, after)
            for p in PARTITIONS
            for rows in (None, FEW)
            for after in (1, ROUNDS)
            for s in STRATEGIES
        ],
        remarks="The slides expect FedAvg and the weighted averages to be the same for random rows.",
    )
    yield table(
        name="aggregation-subjects",
        title="Every subject a client",
        quantity="macro F1 on other subjects after 20 rounds of FedAvg",
        settings={**same, "clients": "one for each subject"},
        seeds=3,
        cells=[Cell({"strategy": "fedavg", "partition": "by-column"}, subjects, expected=(0.93, 1.0))],
    )
    yield from encrypted()
