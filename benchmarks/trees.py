"""Boosted trees: FederBoost on Adult, copied twenty times, beside XGBoost's `hist`, each on one thread.

A hundred trees of depth 6, 64 buckets. Ours is a whole training: reading rows, agreeing on buckets, growing.
Theirs is making a DMatrix and training. Then the same trees of ten clients, under masked sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tacit
from benchmarks._harness import Row, cpu
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.holdings import Holdings
from tacit.federation import Federation
from tacit.methods.federboost import FederBoost
from tacit.training import Training

COPIES, TREES, CLIENTS, BUCKETS = 20, 100, 10, 64


def theirs(rows: Table) -> Callable[[], Any] | None:
    """The same training by XGBoost; None where it is not installed."""
    try:
        import xgboost
    except ImportError:
        return None
    kinds = ["q" if column.kind == "number" else "c" for column in rows.columns]
    settings = {
        "objective": "binary:logistic",
        "tree_method": "hist",
        "max_depth": 6,
        "eta": 0.3,
        "nthread": 1,
    }
    settings |= {"max_bin": BUCKETS - 1}

    def train() -> Any:
        data = xgboost.QuantileDMatrix(
            rows.values,
            rows.target,
            feature_types=kinds,
            enable_categorical=True,
            max_bin=BUCKETS - 1,
            nthread=1,
        )
        return xgboost.train(settings, data, TREES)

    return train


def ours(rows: Table, clients: int, protection: str, found: dict[str, Training]) -> Callable[[], None]:
    """A whole training; what it gives is kept by the name of its protection."""
    offsets = np.linspace(0, rows.rows, clients + 1).astype(np.int64)
    held = Holdings(rows, offsets, [f"client-{i + 1}" for i in range(clients)])

    def train() -> None:
        method = FederBoost(trees=TREES, depth=6, buckets=BUCKETS)
        settings = {"protect": protection, "preparation": Preparation(missing="keep")}
        found[protection] = Federation(held, seed=0).train(method, **settings)

    return train


def rows() -> list[Row]:
    one = tacit.load("adult")
    copied = one.take(np.tile(np.flatnonzero(one.groups["split"] == "train"), COPIES))
    found: dict[str, Training] = {}
    baseline = theirs(copied)
    jobs = [ours(copied, 1, "plain", found), ours(copied, CLIENTS, "masked", found)]
    plain, masked, *other = cpu(*jobs, *([baseline] if baseline else []), repeats=1)  # of many seconds each
    sent = found["masked"].ledger.summary()
    note = f"{copied.rows:,} rows, {TREES} trees of depth 6, {BUCKETS} buckets"
    beside = f"{note}; " + ("baseline XGBoost hist" if baseline else "XGBoost is not installed")
    return [
        Row(
            "train",
            plain,
            "CPU s",
            baseline=other[0] if other else None,
            target=0.5 if other else None,
            note=beside,
        ),
        Row(
            "masked",
            masked,
            "CPU s",
            baseline=plain,
            target=0.5,
            note=f"{note}; {CLIENTS} clients; baseline: train",
        ),
        Row(
            "bytes-up",
            sent["bytes_up"] / CLIENTS / TREES,
            "bytes/tree",
            note=f"of a client under masked; {note}",
        ),
        Row(
            "bytes-down", sent["bytes_down"] / CLIENTS / TREES, "bytes/tree", note="of a client under masked"
        ),
    ]
