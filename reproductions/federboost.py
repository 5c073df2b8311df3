"""FederBoost: areas under the curve beside scikit-learn and XGBoost, and what a tree costs under protections.

The survey of frameworks counts its messages in section 4.1: every probe of every cut, and every histogram's
bucket, is one of its own. Here all cuts share a sum, and so do all buckets of a level.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from reproductions._harness import Experiment, grid
from tacit.core.errors import UnavailableError
from tacit.core.random import generator
from tacit.data.files import load
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.federation import Federation
from tacit.methods.federboost import FederBoost
from tacit.protections.noised import Noised

CREDIT, CANCER, ADULT = "credit_default", "breast_cancer_diagnostic", "adult"
SLOWLY = f"{CANCER}, 100 trees at a rate of 0.1"  # where the area that was expected is reached
SETTINGS = {CREDIT: (20, 3), CANCER: (20, 3), SLOWLY: (100, 3), ADULT: (100, 6)}  # trees and depth
OURS, SKLEARN, XGBOOST = "federboost, masked", "scikit-learn", "XGBoost hist"
CLIENTS, BUCKETS, FOLDS, RATE = 10, 32, 5, 0.3
RATES = {SLOWLY: 0.1}
KEEP = Preparation(missing="keep")
PROTECTIONS = ("plain", "masked", "bfv", "paillier")
COSTS = {"messages": "messages", "bytes": "kilobytes of a client, up and down", "cpu": "CPU seconds of all"}
EPSILONS = (1.0, 2.0, 4.0, 8.0)
Scores = NDArray[np.float64]


def method(data: str, **more: Any) -> FederBoost:
    """Return the trees of a data set: as many buckets of values as the others have, and one of gaps."""
    (trees, depth), rate = SETTINGS[data], RATES.get(data, RATE)
    return FederBoost(**{"trees": trees, "depth": depth, "buckets": BUCKETS + 1, "rate": rate, **more})


def ours(data: str, rows: Table, test: Table) -> Scores:
    """Return the scores of ten clients' trees, under masked sums."""
    federation = Federation.embedded(rows, test=None, clients=CLIENTS, seed=0)
    model = federation.train(method(data), protect="masked", preparation=KEEP).model
    return np.asarray(model.predict_proba(test)[:, 1])


def by_sklearn(data: str, rows: Table, test: Table) -> Scores:
    """Return the scores of scikit-learn's trees on all rows in one place."""
    trees, depth = SETTINGS[data]
    words = [column.kind == "category" for column in rows.columns]
    model = HistGradientBoostingClassifier(
        max_iter=trees,
        max_depth=depth,
        max_leaf_nodes=None,
        min_samples_leaf=1,
        max_bins=max(BUCKETS, *(len(column.categories) for column in rows.columns)),
        l2_regularization=1.0,
        learning_rate=RATES.get(data, RATE),
        early_stopping=False,
        categorical_features=words,
    )
    return np.asarray(model.fit(rows.values, rows.target).predict_proba(test.values)[:, 1])


def by_xgboost(data: str, rows: Table, test: Table) -> Scores:
    """Return the scores of XGBoost's trees on all rows in one place."""
    try:
        import xgboost
    except ImportError:
        raise UnavailableError("XGBoost is not installed: pip install xgboost") from None
    trees, depth = SETTINGS[data]
    kinds = ["c" if column.kind == "category" else "q" for column in rows.columns]
    told = {"feature_types": kinds, "enable_categorical": True}
    settings = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": depth, "max_bin": BUCKETS}
    settings |= {"eta": RATES.get(data, RATE), "nthread": 1}
    booster = xgboost.train(settings, xgboost.DMatrix(rows.values, rows.target, **told), trees)
    return np.asarray(booster.predict(xgboost.DMatrix(test.values, **told)))


TRAINERS: Mapping[str, Callable[[str, Table, Table], Scores]] = {
    OURS: ours,
    SKLEARN: by_sklearn,
    XGBOOST: by_xgboost,
}


def divisions(data: str, seed: int) -> Iterator[tuple[Table, Table]]:
    """Yield training and test rows: those of the data set, or five folds."""
    table = load(data.partition(",")[0])
    if "split" in table.groups:
        trained = table.groups["split"] == "train"
        yield table.take(np.flatnonzero(trained)), table.take(np.flatnonzero(~trained))
        return
    order = generator(b"public", seed, "folds").permutation(table.rows)
    for fold in range(FOLDS):
        own = np.arange(table.rows) % FOLDS == fold
        yield table.take(np.sort(order[~own])), table.take(np.sort(order[own]))


@lru_cache(maxsize=64)
def area(data: str, model: str, seed: int) -> float:
    """Return the area under the curve, the mean over the folds."""
    found = [
        roc_auc_score(test.target, TRAINERS[model](data, rows, test)) for rows, test in divisions(data, seed)
    ]
    return float(np.mean(found))


def difference(data: str, beside: str, seed: int) -> float:
    """Return by how much our area exceeds another's."""
    return area(data, OURS, seed) - area(data, beside, seed)


@lru_cache(maxsize=16)
def spent(protect: str, trees: int) -> Mapping[str, float]:
    """Return what a whole training on credit default costs."""
    federation = Federation.embedded(CREDIT, clients=CLIENTS, seed=0)
    training = federation.train(method(CREDIT, trees=trees), protect=protect, preparation=KEEP)
    summary = training.ledger.summary()
    moved = summary["bytes_up_per_client"]["mean"] + summary["bytes_down_per_client"]["mean"]
    return {"messages": summary["messages"], "bytes": moved / 1e3, "cpu": summary["sum_cpu_s"]}


def per_tree(quantity: str, protect: str, seed: int) -> float:
    """Return what a tree costs: the difference of two runs, by the trees that one has more."""
    more = 5
    return (spent(protect, 1 + more)[quantity] - spent(protect, 1)[quantity]) / more


def survey_messages(features: int, rows: int, trees: int, nodes: int) -> float:
    """Return the survey's messages: masks, probes of all cuts, buckets of all nodes, and splits.

    >>> round(survey_messages(23, 21_000, 20, 7))
    257492
    """
    masks, splits = (CLIENTS - 1) ** 2, trees * nodes * (CLIENTS - 1)
    return masks + splits + 2 * features * BUCKETS * log2(rows) * CLIENTS + trees * nodes * BUCKETS * CLIENTS


def whole(quantity: str, seed: int) -> float:
    """Return messages or megabytes of a whole training under masked sums."""
    found = spent("masked", SETTINGS[CREDIT][0])
    return found["messages"] if quantity == "messages" else found["bytes"] * CLIENTS / 1e3


def under_noise(data: str, epsilon: float, seed: int) -> float:
    """Return the area under the curve with noise that hides single rows; 0 stands for none."""
    table = load(data)
    trained = generator(b"public", seed, "split").random(table.rows) < 0.7
    if "split" in table.groups:
        trained = table.groups["split"] == "train"
    rows, test = table.take(np.flatnonzero(trained)), table.take(np.flatnonzero(~trained))
    federation = Federation.embedded(rows, test=None, clients=CLIENTS, seed=seed, quorum=1.0)
    # Few and shallow trees of few buckets: each level is one more sum that shares the budget.
    trees = method(data, trees=15, depth=2, buckets=9)
    protect: Any = "masked"
    if epsilon:
        protect = Noised(epsilon=epsilon, unit="row", where="distributed", inner="masked")
    found = federation.train(trees, protect=protect, preparation=KEEP, min_clients=CLIENTS).model
    return float(roc_auc_score(test.target, found.predict_proba(test)[:, 1]))


def experiments() -> Iterator[Experiment]:
    """Yield the tables of areas, of costs, of messages beside the survey's formula, and of noise."""
    settings = {"clients": CLIENTS, "buckets": BUCKETS, "rate": RATE, "trees, depth": str(SETTINGS)}
    table = partial(Experiment, paper=FederBoost.paper, settings=settings, seeds=1)
    for name, chosen, seeds in (("", (CREDIT, ADULT), 1), ("-cancer", (CANCER, SLOWLY), 10)):
        yield table(
            name=f"federboost-auc{name}",
            title="FederBoost: areas under the curve",
            quantity="area under the ROC curve; mean of five folds, of Adult on its own test rows",
            seeds=seeds,
            cells=grid(
                area,
                {"data": chosen, "model": tuple(TRAINERS)},
                expected=lambda data, model: (
                    (0.992, 1.0) if data in RATES | {CANCER: RATE} and model == OURS else None
                ),
                slow=lambda data, model: data == ADULT,
            ),
            remarks="A seed is a division into folds.",
        )
        yield table(
            name=f"federboost-difference{name}",
            title="FederBoost: area under the curve, less that of others",
            quantity="difference of areas under the ROC curve",
            seeds=seeds,
            cells=grid(
                difference,
                {"data": chosen, "beside": (SKLEARN, XGBOOST)},
                expected=lambda data, beside: (-0.003 if data == ADULT else -0.002, 1.0),
                slow=lambda data, beside: data == ADULT,
            ),
            remarks="A seed is a division into folds.",
        )
    for quantity, text in COSTS.items():
        yield table(
            name=f"federboost-tree-{quantity}",
            title=f"FederBoost: {text} for a tree",
            quantity=text,
            settings={**settings, "data": CREDIT},
            cells=grid(partial(per_tree, quantity), {"protect": PROTECTIONS}, slow=lambda p: p == "paillier"),
        )
    formula = survey_messages(23, 21_000, SETTINGS[CREDIT][0], 2 ** SETTINGS[CREDIT][1] - 1)
    yield table(
        name="federboost-messages",
        title="FederBoost: a whole training beside the survey's formula",
        quantity="messages, and megabytes of all clients",
        settings={**settings, "data": CREDIT},
        cells=grid(
            whole,
            {"quantity": ("messages", "megabytes")},
            paper=lambda quantity: formula if quantity == "messages" else formula * 8 / 1e6,
        ),
        remarks="The survey's messages have a constant size; its megabytes are those of 8 bytes each.",
    )
    yield table(
        name="federboost-noise",
        title="FederBoost: area under the curve with noise that hides single rows",
        quantity="area under the ROC curve",
        settings={"clients": CLIENTS, "trees": 15, "depth": 2, "buckets": 9, "delta": 1e-5},
        seeds=3,
        cells=grid(under_noise, {"data": (CREDIT, ADULT), "epsilon": (0.0, *EPSILONS)}),
        remarks="Epsilon 0 stands for no noise. Settings were chosen by looking at these areas.",
    )
