"""Aggregation strategies on smartphone activities: figures 1 to 4 of the paper, and its slides.

The paper gives networks, partitions and numbers of rows; not its optimiser, batches or rates. Ours: one
local epoch of Adam at 0.001 in batches of 32, as a Keras user gets them, and Flower's own defaults at the
server. The test is the data set's own division by subjects, so nobody whose rows are trained on is tested.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any

from reproductions._harness import Cell, Experiment, grid
from reproductions._lines import Rows, lines, plot
from reproductions._trainings import Scores, count_rounds, divide, points, score_rounds
from tacit.federation import Federation
from tacit.methods import METHODS
from tacit.methods.homogeneity import HWFedAvg

DATA, CLIENTS, ROUNDS = "har_recomputed", 8, 8
STRATEGIES = ("fedavg", "hwfedavg", "nwfedavg", "fedyogi", "fedadam", "fedadagrad")
PARTITIONS = ("random", "majority-even", "majority", "pick-two")
DEEP = "437,312"
LOCAL: Mapping[str, Any] = {"optimiser": "adam", "rate": 0.001, "batch": 32, "epochs": 1}
FEW = 1600
SIZES: tuple[int | str, ...] = ("all", FEW)
GOOD, MOST_ROUNDS = 0.95, 30
# Flower's own settings of the server, and rates at which these learn here.
FLOWER: Mapping[str, Mapping[str, float]] = {
    "fedyogi": {"eta": 0.01, "beta1": 0.9, "tau": 1e-3},
    "fedadam": {"eta": 0.1, "beta1": 0.9, "tau": 1e-3},
    "fedadagrad": {"eta": 0.1, "tau": 1e-3, "v0": 0.0},
}
TUNED = {"fedadam": 0.01, "fedadagrad": 0.003}


@lru_cache(maxsize=32)
def federation(partition: str, rows: int | None, seed: int) -> Federation:
    """Make a federation of eight clients, or one per subject; the test is the data set's own."""
    by_subject = partition == "by-column"
    division: dict[str, Any] = {"column": "subject"} if by_subject else {"clients": CLIENTS}
    return divide(DATA, rows, "split", seed, partition=partition, **division)


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
) -> tuple[Scores, ...]:
    """Return the scores after each round."""
    settings = {**LOCAL, **FLOWER.get(strategy, {}), "hidden": hidden, "rounds": rounds}
    settings["protect_layers"] = layers
    method = METHODS.build(strategy, settings if eta is None else {**settings, "eta": eta})
    return score_rounds(federation(partition, rows, seed), method, protect)


def f1(partition: str, rows: int | str, after: int, strategy: str, seed: int) -> float:
    """Return the macro F1 on the test after a round."""
    size = None if isinstance(rows, str) else rows
    return float(course(strategy, partition, size, seed)[after - 1]["f1"])


def rounds_to(strategy: str, eta: float | None, seed: int) -> float:
    """Count the rounds until macro F1 first reaches 0.95; one more than there were if it never does."""
    scores = course(strategy, "majority-even", None, seed, rounds=MOST_ROUNDS, eta=eta)
    return count_rounds([each["f1"] for each in scores], GOOD)


def subjects(seed: int) -> float:
    """Return the macro F1 after 20 rounds if every subject is a client of its own."""
    return float(course("fedavg", "by-column", None, seed, rounds=20)[-1]["f1"])


def _drawn(rows: Rows) -> dict[str, str]:
    """Draw F1 by round for every strategy, and of each class for FedAvg, of the first seed."""
    drawn = plot("macro F1, majority-even (figure 3)", "macro F1", "round", "strategy", each="rows")(rows)
    if any((row["strategy"], row["rows"]) == ("fedavg", FEW) and row["ours"] is not None for row in rows):
        run = course("fedavg", "majority-even", FEW, 0)
        by_class = {
            str(entry["label"]): points(scores["per_class"][place]["f1"] for scores in run)
            for place, entry in enumerate(run[0]["per_class"])
        }
        caption = f"F1 of each class by round, FedAvg, {FEW:,} training rows (slides)"
        drawn[caption] = lines(by_class, "round", "F1 of the class")
    return drawn


def experiments() -> Iterator[Experiment]:
    """Yield the tables: weights, figure 3 with its rounds, partitions, subjects as clients, encryption."""
    from reproductions._client_weights import client_weights
    from reproductions._encrypted_layers import encrypted

    same = {"data": DATA, "clients": CLIENTS, "network": "561-437-312-6", **LOCAL, "test": "other subjects"}
    table = partial(Experiment, paper=HWFedAvg.paper, settings=same, quantity="macro F1 on other subjects")

    def cells(partitions: Sequence[str], rounds: Sequence[int]) -> list[Cell]:
        axes = {"partition": partitions, "rows": SIZES, "round": rounds, "strategy": STRATEGIES}
        return grid(f1, axes, slow=lambda partition, rows, *_: rows == "all")

    yield client_weights()
    yield table(
        name="aggregation-rounds",
        title="Six strategies, majority-even: macro F1 after each round",
        seeds=5,
        cells=cells(["majority-even"], range(1, ROUNDS + 1)),
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
        cells=cells(PARTITIONS, (1, ROUNDS)),
        remarks="The slides expect FedAvg and the weighted averages to be the same for random rows.",
    )
    yield table(
        name="aggregation-subjects",
        title="Every subject a client",
        quantity="macro F1 on other subjects after 20 rounds of FedAvg",
        settings={**same, "clients": "one for each subject"},
        seeds=3,
        cells=[Cell({"strategy": "fedavg", "partition": "by-column"}, subjects, expected=(0.93, 1.0))],
        remarks="Not in the paper: clients as they would be, one for each person, with one epoch a round.",
    )
    yield from encrypted()
