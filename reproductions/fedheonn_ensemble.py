"""The ensemble of one-layer networks: table II (accuracy) and figure 2 (time) of its paper."""

import dataclasses
import time
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from reproductions._harness import Cell, Experiment, grid
from reproductions._lines import plot
from tacit.core.parallel import one_thread
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.core.shared import Shared, Total
from tacit.data.files import load
from tacit.data.table import Column, Table
from tacit.federation import Federation
from tacit.methods.base import Method
from tacit.methods.ensemble import FedHEONNEnsemble
from tacit.methods.fedheonn import FedHEONN

FOLDS = 10
CLIENTS = 4
DRAWS = 10  # of features, among which clients' hold-outs choose where there are few estimators
HOLDOUT = 0.2

# Data set, encoding of categories, base and ensemble with the paper's hyper-parameters, the paper's
# accuracies, and the ranges expected of ours.
Row = tuple[str, str, FedHEONN, FedHEONNEnsemble, tuple[float, float], tuple[Any, Any]]
Voters = partial(FedHEONNEnsemble, vote="majority")  # as in the paper
OBESITY_VOTERS = Voters(50, 0.4, 0.8, lam=0.01, activation="softplus")
OBESITY = (FedHEONN(0.1, "softplus"), OBESITY_VOTERS, (74.61, 81.38))
SKIN = (FedHEONN(0.0), Voters(2, 0.05, 1.0, lam=0.0), (92.51, 92.54))
ORHD = (FedHEONN(0.1), Voters(96, 0.1, 0.75), (93.39, 94.51))
DRY_BEAN = (FedHEONN(), Voters(2, 0.5, 0.9, replace_samples=True), (90.07, 90.61))
TABLE_2: tuple[Row, ...] = (
    ("obesity_levels", "one-hot", *OBESITY, ((72.5, 77.0), (77.5, 84.0))),
    ("obesity_levels", "ordinal", *OBESITY, ((72.5, 77.0), (78.5, 84.0))),
    ("digits", "–", *ORHD, ((93.0, 94.2), (94.0, 95.5))),
    ("optdigits", "–", *ORHD, ((93.0, 94.0), (92.8, 94.5))),
    ("dry_bean", "–", *DRY_BEAN, ((90.0, 90.6), (90.2, 91.2))),
    ("skin_segmentation", "–", *SKIN, ((92.3, 92.7), (92.3, 92.8))),
)


@cache
def rows_of(data: str, encoding: str) -> Table:
    """Load a data set, with its categories as numbers 0, 1, 2, … if the encoding is ordinal."""
    table = load(data)
    if encoding != "ordinal":
        return table
    columns = tuple(Column(column.name) for column in table.columns)
    return dataclasses.replace(table, values=np.asarray(table.values, dtype=np.float64), columns=columns)


def cross_validated(method: Method, data: str, encoding: str, seed: int, draws: int = 1) -> float:
    """Return the mean accuracy in per cent over ten folds drawn by class, each learnt by four clients.

    With several draws of the features, each fold takes the one that is best on rows which its clients keep
    aside; the fold's test rows are looked at once, with a model that then learnt from all other rows.
    """
    from sklearn.model_selection import StratifiedKFold

    table = rows_of(data, encoding)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(table.values, table.target)
    found = []
    for fold, (learnt, tested) in enumerate(folds):
        # Patches are drawn anew for every fold: with two estimators much depends on which features these got.
        place = FOLDS * seed + fold
        known, chosen = table.take(learnt), method
        if draws > 1:
            aside = _federation(known, place, HOLDOUT)
            tried = [dataclasses.replace(method, draw=draw) for draw in range(draws)]  # type: ignore[call-arg]
            chosen = max(tried, key=partial(_aside, aside))
        model = _federation(known, place).train(chosen, protect="plain").model
        found.append(model.scores(table.take(tested))["accuracy"])
    return 100.0 * float(np.mean(found))


def by_patch(data: str, features: float, samples: float, seed: int) -> float:
    """Return the mean accuracy in per cent of 96 networks on patches of a size."""
    return cross_validated(Voters(96, samples, features), data, "–", seed)


def _federation(table: Table, seed: int, holdout: float = 0.0) -> Federation:
    classes = list(table.classes)
    return Federation.embedded(table, clients=CLIENTS, test=None, holdout=holdout, seed=seed, classes=classes)


def _aside(federation: Federation, method: Method) -> float:
    """Return the accuracy on the rows that clients keep aside."""
    scores = federation.train(method, protect="plain").holdout
    assert scores is not None
    return float(scores["accuracy"])


# -- figure 2 ------------------------------------------------------------------------------------------


def phase_seconds(data: str, clients: int, estimators: int, processes: int, phase: str, seed: int) -> float:
    """Return the wall-clock seconds of a phase in mode paper: slowest fit, all merges or all solutions."""
    return _phases(data, clients, estimators, processes, seed)[phase]


@cache
def _phases(data: str, clients: int, estimators: int, processes: int, seed: int) -> dict[str, float]:
    table = rows_of(data, "–")
    method = Voters(estimators, 0.5, 0.75, mode="paper", processes=processes)
    federation = Federation.embedded(table, clients=clients, test=None, partition="iid", seed=seed)
    training = federation.train(FedHEONN(mode="paper"), protect="plain")
    known: Mapping[str, Any] = training.outcome.shared or {}
    scale = {name: known[name] for name in ("centre", "spread", "constant", "norms")}
    schema = training.schema
    shared = Shared(schema, {**method.init(schema, np.random.default_rng(seed)), **scale})
    with one_thread():
        fits, pieces = [], []
        for index in range(clients):
            rows = partial(federation.holdings.rows, index)
            party = Party(f"client-{index}", rows, Secret(bytes([index + 1] * 32)))
            started = time.perf_counter()
            pieces.append(method.terms(party, shared))
            fits.append(time.perf_counter() - started)
        started = time.perf_counter()
        merged = {"m": sum(piece["m"] for piece in pieces)}
        merged["factor"] = method.fold("factor", [piece["factor"] for piece in pieces])
        aggregated = time.perf_counter()
        method.solve(Total(merged, clients), shared)
        solved = time.perf_counter()
    return {"fit": max(fits), "aggregation": aggregated - started, "solution": solved - aggregated}


def experiments() -> Iterator[Experiment]:
    """Yield table II, how its digits depend on the size of the patch, and figure 2."""
    table = partial(Experiment, paper=FedHEONNEnsemble.paper)
    yield table(
        name="fedheonn-ensemble-accuracy",
        title="FedHEONN-ensemble: ten-fold accuracy of ensemble and base model",
        quantity="accuracy, per cent, mean over ten folds",
        settings={"folds": FOLDS, "clients": CLIENTS, "scale": "standard", "protect": "plain"},
        seeds=30,  # two estimators, as for Dry Bean, depend much on which features they drew
        cells=[
            Cell(
                {"data": data, "categories": encoding, "model": model},
                partial(cross_validated, method, data, encoding),
                paper[index],
                expected[index],
            )
            for data, encoding, base, ensemble, paper, expected in TABLE_2
            for index, (model, method) in enumerate((("base", base), ("ensemble", ensemble)))
        ]
        + [
            Cell(
                {"data": "dry_bean", "categories": "–", "model": f"ensemble, best of {DRAWS} draws"},
                partial(cross_validated, DRY_BEAN[1], "dry_bean", "–", draws=DRAWS),
                DRY_BEAN[2][1],
                (90.4, 91.2),
            )
        ],
        remarks=(
            "The paper chose its hyper-parameters on the folds that it reports; ours are the paper's, and "
            f"seeds draw folds and patches anew. 'best of {DRAWS} draws' takes the features that are best on "
            "rows which the clients keep aside, as `tacit tune --try draw=…` does. The paper's ORHD are the "
            "1,797 'digits' that its code loads, not the 5,620 'optdigits' of its table (docs/ensemble.md). "
            "MiniBooNE is not at hand."
        ),
    )
    yield table(
        name="fedheonn-ensemble-patches",
        title="FedHEONN-ensemble: ten-fold accuracy by size of the patch, on 1,797 and 5,620 digits",
        quantity="accuracy, per cent, mean over ten folds",
        settings={"folds": FOLDS, "clients": CLIENTS, "estimators": 96, "lam": 0.001, "protect": "plain"},
        seeds=10,
        cells=grid(
            by_patch,
            {
                "data": ("digits", "optdigits"),
                "features": (0.5, 0.75, 1.0),
                "samples": (0.01, 0.02, 0.05, 0.1, 0.3, 1.0),
            },
            paper=lambda _, *shares: ORHD[2][1] if shares == (0.75, 0.1) else None,
            slow=lambda data, features, samples: samples > 0.1,
        ),
        remarks=(
            "Both sets reach 93.4 or more without an ensemble; with one, only the 1,797 come near the "
            "paper's 94.51."
        ),
        drawings=plot("Accuracy by size of the patch", "per cent", "samples", "data", "features", log="x"),
    )
    yield table(
        name="fedheonn-ensemble-time",
        title="FedHEONN-ensemble: time of fit, aggregation and solution, in one process and in two",
        quantity="wall-clock seconds: slowest client's fit, all merges, all solutions",
        settings={"samples": 0.5, "features": 0.75, "mode": "paper"},
        seeds=3,
        cells=grid(
            phase_seconds,
            {
                "data": ("optdigits", "synthetic-miniboone"),
                "clients": (4, 16),
                "estimators": (8, 32, 96),
                "processes": (1, 2),
                "phase": ("fit", "aggregation", "solution"),
            },
        ),
        remarks=(
            "The paper shows curves without numbers: with a process for each core, fit and aggregation "
            "gained and the solution did not. Encryption is left out: it is one vector for all estimators. "
            "Wall-clock time on a busy machine says little."
        ),
    )
