"""What the tables of FedHEONN's paper are measured from: one training serves all that is read from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from tacit.core.message import Message
from tacit.data.files import load
from tacit.data.inputs import Inputs
from tacit.data.partition import split
from tacit.federation import Federation
from tacit.methods.fedheonn import FedHEONN

LAM = 1e-3
MOST_ROWS = 1_000_000  # of synthetic data: beyond, memory and not the method is measured


@dataclass(frozen=True)
class Data:
    """A data set as the paper uses it: by name, repeated, of so many rows."""

    name: str
    repeat: int = 1

    @property
    def label(self) -> str:
        """How tables call it."""
        return self.name if self.repeat == 1 else f"{self.name} ×{self.repeat}"

    def load(self, seed: int) -> Any:
        """Load all rows; of synthetic data no more than a million."""
        return load(self.name, repeat=self.repeat, seed=seed, rows=self.rows)

    @property
    def rows(self) -> int | None:
        """Rows to draw, if the data set is synthetic."""
        from tacit.data.synthetic import SHAPES

        return min(MOST_ROWS, SHAPES[self.name].rows) if self.name in SHAPES else None


@lru_cache(maxsize=512)
def trained(
    data: Data,
    clients: int,
    partition: str,
    protect: str,
    seed: int,
    mode: Literal["sealed", "paper", "robust"] = "sealed",
) -> Mapping[str, float]:
    """Train as the paper does, 70/30, logistic outputs, λ = 0.001; return accuracy and cost.

    ``upload`` are the bytes that a client sent for the model itself, its terms; ``weights`` those of the
    model, as a method that averages weights would send it in each round.
    """
    federation = Federation.embedded(data.load(seed), clients=clients, partition=partition, seed=seed)
    training = federation.train(FedHEONN(lam=LAM, activation="logistic", mode=mode), protect=protect)
    cost = training.ledger.summary()
    terms = [wave for wave in cost["waves"] if wave["step"] == "client.contribute"][-1]
    weights = np.asarray(training.model.weights)  # type: ignore[attr-defined]
    return {
        **{name: cost[name] for name in ("training_s", "sum_cpu_s", "wh")},
        "accuracy": 100.0 * (training.scores or {})["accuracy"],
        "upload": terms["bytes_up"] / clients,
        "weights": len(Message(weights=weights).encode()),
    }


def quantity(name: str, data: Data, clients: int, partition: str, protect: str, seed: int) -> float:
    """Return one of a run's figures."""
    return trained(data, clients, partition, protect, seed)[name]


def quasi_newton(data: Data, seed: int) -> float:
    """Return the accuracy of one layer trained on all rows in one place, by L-BFGS on the cross-entropy."""
    from sklearn.linear_model import LogisticRegression

    federation = Federation.embedded(data.load(seed), clients=1, seed=seed)
    assert federation.test is not None
    training = federation.train(FedHEONN(lam=LAM), protect="plain")
    inputs: Inputs = training.model.inputs
    X, X_test = inputs.matrix(federation.holdings.table), inputs.matrix(federation.test)
    network = LogisticRegression(C=1 / LAM, max_iter=1000, solver="lbfgs")
    network.fit(X, federation.holdings.table.target)
    return 100.0 * float(network.score(X_test, federation.test.target))


@lru_cache(maxsize=16)
def training_rows(data: Data, clients: int) -> np.ndarray[Any, Any]:
    """Return the rows that each client has when the training rows are dealt out evenly."""
    training, _ = split(load(data.name, repeat=data.repeat, rows=data.rows), 0.3, 0)
    return np.array([len(part) for part in np.array_split(np.arange(training.rows), clients)])


def formula_rounds(data: Data, clients: int, features: int, share: float, seed: int) -> float:
    """Compute eq. 16: (mean of k + 1) / ρ, k the rank of a client's factor, features counted without bias."""
    ranks = np.minimum(training_rows(data, clients), features)
    return float((ranks.mean() + 1) / share)


def measured_rounds(
    data: Data, clients: int, mode: Literal["sealed", "paper"], protect: str, share: float, seed: int
) -> float:
    """Compute the same from bytes sent: a client's terms over all weights, by the share taking part."""
    run = trained(data, clients, "iid", protect, seed, mode)
    return run["upload"] / run["weights"] / share


accuracy = partial(quantity, "accuracy")
