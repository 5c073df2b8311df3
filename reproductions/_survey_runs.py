"""Small runs of every method, at sizes that can be chosen, for the tables of a survey of frameworks."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from reproductions._survey_formulas import Sizes
from tacit.core.events import Events
from tacit.data.table import Table
from tacit.federation import Federation
from tacit.methods import METHODS
from tacit.protections import PROTECTIONS
from tacit.training import Record

BASE = {"clients": 6, "rows": 60, "features": 8, "parameters": 8, "rounds": 2}
WARM = {**BASE, "rows": 50}
LEVELS = {32: 2, 256: 4, 2048: 6}  # of splits, and else 2
DRAWN, DRAWS, BUCKETS, KEY_BITS, SHORT = 50, 20, 16, 2048, 320
PLAIN = ("fedavg",)  # the survey's classic federated learning has no protection


def options(name: str, units: int, rounds: int) -> dict[str, Any]:
    """Return the options of a method in a run of that size."""
    special: dict[str, dict[str, Any]] = {
        "federboost": {"trees": rounds, "depth": LEVELS.get(units, 2), "buckets": BUCKETS},
        "fedheonn": {},
        "fedheonn-ensemble": {"estimators": 4},
        "fusion": {
            "local": f"MLP(hidden_layer_sizes=({units},), max_iter=5)",
            "families": ("norm", "uniform"),
            "samples": DRAWN,
        },
        "graffl": {"hidden": f"{units},4", "rounds": 1, "epochs": 1, "trials": rounds, "draws": DRAWS},
    }
    return special.get(name, {"hidden": str(units), "batch": 0, "rounds": rounds})


def sizes(name: str, clients: int, rows: int, features: int, parameters: int, rounds: int) -> Sizes:
    """Return the survey's variables for a run.

    >>> sizes("fedavg", 6, 60, 8, 16, 2).S
    178
    """
    front, back = (features + 1) * parameters, (parameters + 1) * 2
    depth = LEVELS.get(parameters, 2)
    return Sizes(
        clients,
        rows,
        features,
        front + back,
        rounds,
        t=2**depth - 1,
        q=BUCKETS,
        d=4,
        S_C=rows * parameters,
        S_S=front,
        ng=DRAWN,
        k=KEY_BITS,
        alpha=SHORT,
    )


@cache
def run(name: str, clients: int, rows: int, features: int, parameters: int, rounds: int) -> Mapping[str, Any]:
    """Train once and return messages, bytes, CPU time as FedHEONN's authors define it, and who saw what."""
    at = (clients, rows, features, parameters, rounds)
    if at != (*WARM.values(),):
        run(name, **WARM)  # imports and compiling are paid for there, at no size of a table
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=clients * rows)
    values = rng.normal(size=(clients * rows, features)) + labels[:, None]
    federation = Federation.embedded(Table.of(values, labels.astype(str)), clients=clients, test=None)
    method = METHODS.build(name, options(name, parameters, rounds))
    record = Record()
    training = federation.train(
        method,
        protect=protection_of(name),
        events=Events(record),
        record=record,
    )
    cost = training.ledger.summary()
    return {
        "messages": cost["messages"],
        "bytes": cost["bytes_up"] + cost["bytes_down"] + cost["service_bytes"],
        "time": 1000 * cost["training_s"],
        "exposure": record.exposure.summary(),
    }


def protection_of(name: str) -> Any:
    """Return the protection that a method has by itself; Paillier's with a key of 2048 bits."""
    method = METHODS.build(name)
    chosen = "plain" if name in PLAIN else method.default_protection
    keys = {"key_bits": KEY_BITS} if chosen in ("paillier", "ring") else {}
    return PROTECTIONS.build(chosen, {**({} if name in PLAIN else method.default_settings), **keys})
