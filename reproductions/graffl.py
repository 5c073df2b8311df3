"""GRAFFL: what generated rows add to those of one client, against the rows of all.

Clients are skewed by class. A classifier of scikit-learn learns from the rows of one client alone, from these
and generated ones, and from all rows pooled, and is tested on real rows that nobody trained on. The paper's
own tables are of other data; what is repeated is their order: local < local + generated, near pooled.
"""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score

from reproductions._harness import Experiment, grid
from tacit.federation import Federation
from tacit.methods.graffl import Graffl
from tacit.models.generator import Generator

COMMON: Mapping[str, Any] = {"hidden": "64,24", "rounds": 30, "points": 50}
DIVISION: Mapping[str, Any] = {"partition": "dirichlet", "alpha": 0.3}
TIMES = 3  # so many rows are generated for each real one
CLIENTS = {"breast_cancer": 5, "digits": 10}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "as by default": {},
    "MMD": {"discrepancy": "mmd"},
    "one trial": {"trials": 1},
    "vague prior": {"prior": "vague"},
    "nothing rejected": {"trials": 1, "draws": 1, "quantile": 1.0},
}
SETTINGS = ("local only", "local + generated", "generated only", "pooled")
SCORES = ("F1", "AUROC")
NEAR = ("generated to real", "real to real")


@cache
def trained(data: str, way: str, seed: int) -> tuple[Federation, Generator]:
    """Return a federation of skewed clients, and the generator that it learnt."""
    federation = Federation.embedded(data, clients=CLIENTS[data], seed=seed, **DIVISION)
    model = federation.train(Graffl.from_config({**COMMON, **WAYS[way]}), protect="plain").model
    assert isinstance(model, Generator)
    return federation, model


def judge(X: Any, labels: Any, test: Any, truth: Any, classes: int) -> tuple[float, float]:
    """Return macro F1 and AUROC (one against the rest) of a logistic regression; of one class, a constant."""
    shares = np.zeros((len(truth), classes))
    if len(np.unique(labels)) == 1:
        shares[:, labels[0]] = 1.0
    else:
        model = LogisticRegression(max_iter=500).fit(X, labels)
        shares[:, model.classes_] = model.predict_proba(test)
    area = shares[:, 1] if classes == 2 else shares
    auroc = roc_auc_score(truth, area, multi_class="ovr", labels=range(classes))
    return float(f1_score(truth, shares.argmax(axis=1), average="macro")), float(auroc)


@cache
def scores(data: str, way: str, seed: int) -> dict[str, tuple[float, float]]:
    """Return F1 and AUROC of each setting, the mean over clients where each learns by itself."""
    federation, model = trained(data, way, seed)
    held, schema = federation.holdings, model.schema
    assert federation.test is not None
    X, labels = model.inputs.matrix(held.table), schema.labels(held.table)
    test = model.inputs.matrix(federation.test), schema.labels(federation.test), len(schema.classes)
    made, made_X = model.generate(TIMES * len(X), np.random.default_rng(seed))
    own = [slice(*ends) for ends in zip(held.offsets, held.offsets[1:], strict=False) if ends[0] < ends[1]]
    alone = [judge(X[one], labels[one], *test) for one in own]
    more = [judge(np.vstack([X[one], made_X]), np.append(labels[one], made), *test) for one in own]
    found = [alone, more, [judge(made_X, made, *test)], [judge(X, labels, *test)]]
    means = (np.mean(each, axis=0) for each in found)
    return {name: (float(f1), float(auroc)) for name, (f1, auroc) in zip(SETTINGS, means, strict=True)}


def score(data: str, setting: str, measure: str, seed: int, way: str = "as by default") -> float:
    """Return one score."""
    return scores(data, way, seed)[setting][SCORES.index(measure)]


def score_way(data: str, way: str, seed: int) -> float:
    """Return the F1 of local and generated rows."""
    return score(data, "local + generated", "F1", seed, way)


def distance(data: str, which: str, seed: int) -> float:
    """Return the median distance to the nearest real row, of generated rows or of other real ones."""
    federation, model = trained(data, "as by default", seed)
    X = model.inputs.matrix(federation.holdings.table)
    if which == "generated to real":
        made = model.generate(len(X), np.random.default_rng(seed))[1]
        return float(np.median(cdist(made, X).min(axis=1)))
    return float(np.median(np.partition(cdist(X, X), 1, axis=1)[:, 1]))


def experiments() -> Iterator[Experiment]:
    """Yield the scores, those of other settings, and distances to the nearest row."""
    table = partial(
        Experiment, paper=Graffl.paper, settings={**COMMON, **DIVISION, "clients": CLIENTS}, seeds=5
    )
    measured = "test score of a logistic regression"
    yield table(
        name="graffl-scores",
        title="GRAFFL: local rows, local and generated ones, all rows",
        quantity=measured,
        cells=grid(
            score,
            {"data": CLIENTS, "rows": SETTINGS, "measure": SCORES},
            expected=lambda data, rows, measure: (0.92, 1.0) if rows == "local + generated" else None,
        ),
        remarks=f"{TIMES} rows are generated for each real one. Of local rows: the mean over clients.",
    )
    yield table(
        name="graffl-settings",
        title="GRAFFL: what prior, rejection and discrepancy bring",
        quantity=f"{measured}: F1, local + generated",
        cells=grid(score_way, {"data": CLIENTS, "way": WAYS}, slow=True),
        remarks="Where nothing is rejected, rows are of the prior: what the protected moments give.",
    )
    yield table(
        name="graffl-copies",
        title="GRAFFL: distance to the nearest real row",
        quantity="median distance in units of the features' spreads",
        cells=grid(distance, {"data": CLIENTS, "rows": NEAR}),
        remarks="Copies would lie much nearer to real rows than these to each other.",
    )
