"""FedAvg beside FedHEONN on the same one-layer network: section 4.3, figures 5 and 6 of FedHEONN's paper.

FedAvg takes 100 rounds with a tenth, three tenths or half of 5 to 50 clients; FedHEONN takes one. The paper
has curves and says that accuracy is alike, and that FedHEONN needs much less time and energy, encrypted or
not. Its SUSY data are represented by a sample of 11,000 rows here.
"""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

from reproductions._harness import Experiment, grid
from reproductions._lines import plot
from tacit.federation import Federation
from tacit.methods.fedavg import FedAvg
from tacit.methods.fedheonn import FedHEONN

DATA, ROUNDS = "susy_sample", 100
CLIENTS = (5, 20, 50)
WAYS = ("fedheonn", "fedheonn, bfv", "fedavg, 0.1", "fedavg, 0.3", "fedavg, 0.5")
QUANTITIES = (
    ("accuracy", "test accuracy, per cent", (70.0, 100.0)),
    ("training_s", "CPU seconds of the slowest client and the coordinator", None),
    ("cpu_s", "CPU seconds of all parties", None),
    ("wh", "watt-hours at 65 W", None),
    ("bytes_up", "megabytes sent by all clients", None),
)


@cache
def measured(way: str, clients: int, seed: int) -> Mapping[str, Any]:
    """Measure accuracy and cost of one way of training."""
    federation = Federation.embedded(DATA, clients=clients, partition="iid", seed=seed)
    name, _, detail = way.partition(", ")
    method: Any = FedHEONN()
    if name == "fedavg":
        network = {"hidden": "", "initialisation": "zeros", "batch": 64}
        method = FedAvg.from_config({**network, "rounds": ROUNDS, "fraction": float(detail)})
    training = federation.train(method, protect="bfv" if detail == "bfv" else "plain")
    cost = training.ledger.summary()
    return {
        "accuracy": 100.0 * (training.scores or {})["accuracy"],
        "training_s": cost["training_s"],
        "cpu_s": cost["sum_cpu_s"],
        "wh": cost["wh"],
        "bytes_up": cost["bytes_up"] / 1e6,
    }


def figure(key: str, way: str, clients: int, seed: int) -> float:
    """Return one of the measured numbers."""
    return float(measured(way, clients, seed)[key])


def experiments() -> Iterator[Experiment]:
    """Yield the tables of accuracy, training and CPU time, energy and bytes against the number of clients."""
    for key, quantity, expected in QUANTITIES:
        log = "" if key == "accuracy" else "y"
        yield Experiment(
            name=f"fedavg-{key.replace('_', '-')}",
            title=f"FedAvg beside FedHEONN on one-layer networks: {quantity}",
            paper=FedHEONN.paper,
            quantity=quantity,
            settings={"data": DATA, "rounds of FedAvg": ROUNDS, "batch": 64, "rate": 0.1},
            seeds=2,
            cells=grid(partial(figure, key), {"method": WAYS, "clients": CLIENTS}, expected=expected),
            drawings=plot(f"{quantity} (figures 5 and 6)", quantity, "clients", "method", log=log),
            remarks="Section 4.3 of the paper has curves and no numbers, and no batches or rates.",
        )
