"""Choosing the method: a linear network, one with a random layer, or boosted trees, by rows kept aside.

Each is trained under the same protection, on the same rows, of which every client keeps a fifth aside: first
one fifth, then another, until enough rows have been kept aside in all to tell the candidates apart. The one
that does best there, by protected sums of counts, is then trained on all rows. The central test is not looked
at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from tacit.core.errors import ConfigError
from tacit.engines.holdings import Holdings
from tacit.federation import Federation
from tacit.runs.settings import Settings, merged
from tacit.runs.tune import Objective, Progress, Trial, divide, refuse_noise

AUTO = "auto"  # as the name of a method
CANDIDATES: tuple[Mapping[str, Any], ...] = (
    {"name": "fedheonn"},
    {"name": "fedheonn", "hidden": 1000},
    {"name": "federboost", "rate": 0.1, "depth": 5, "columns": 0.5},  # slowly, each round from half of them
    {  # small trees of fine splits, more of them
        "name": "federboost",
        "rate": 0.2,
        "depth": 4,
        "columns": 0.8,
        "trees": 200,
        "lam": 0.0,
        "min_child_weight": 0.1,
        "buckets": 256,
    },
)
ENOUGH = 5000  # rows kept aside, over all trials of a candidate: fewer, and chance chooses among good ones
PROTECTION = "masked"  # unless another is named: all of them learn under it


def choose(tables: Mapping[str, Any], progress: Progress | None = None) -> tuple[Settings, list[Trial]]:
    """Return the settings of a run with the method that does best, and how each did.

    ``tables`` are those of a run, without a method.
    """
    usual = {} if "name" in tables.get("protect", {}) else {"protect": {"name": PROTECTION}}
    given = merged(tables, usual)
    first = Settings.from_tables(merged(given, {"method": CANDIDATES[0]}))
    refuse_noise(first.build_protection(), [])
    trials = try_candidates(given, rotate(divide(first)), progress)
    return Settings.from_tables(merged(given, {"method": best_of(trials)})), trials


def rotate(federation: Federation) -> list[Federation]:
    """Return federations of the same rows in which each client keeps other ones aside in turn.

    As many as it takes to keep ``ENOUGH`` rows aside, at most as many as there are disjoint parts.
    """
    held = federation.holdings
    sizes, kept = np.diff(held.offsets), held.holdout_sizes
    parts = int((sizes[kept > 0] // kept[kept > 0]).min())
    pairs, found = list(zip(held.offsets, held.offsets[1:], kept, strict=False)), [federation]
    for part in range(1, min(parts, -(-ENOUGH // int(kept.sum())))):
        # The rows aside are a client's last ones: bring those before to the end.
        order = [np.roll(np.arange(a, b), part * k) for a, b, k in pairs]
        found.append(copy(federation))
        found[-1].holdings = Holdings(held.table.take(np.concatenate(order)), held.offsets, held.names, kept)
    return found


def try_candidates(
    given: Mapping[str, Any], federations: Sequence[Federation], progress: Progress | None = None
) -> list[Trial]:
    """Train every candidate on each federation, and score it on the rows that clients keep aside there."""
    trials, steps = [], len(CANDIDATES) * len(federations)
    for done, candidate in enumerate(CANDIDATES):
        scores, spent, error = [], 0.0, None
        for part, federation in enumerate(federations):
            if progress:
                progress(done * len(federations) + part, steps, f"trying {describe(candidate)}")
            try:
                settings = Settings.from_tables(merged(given, {"method": candidate}))
                found = Objective(settings, federation)({})
                spent, error = spent + found.cpu_s, found.error
            except ConfigError as refusal:  # this one does not fit the rows or the protection; others may
                error = str(refusal)
            if error is not None:
                break
            scores.append(found.score or 0.0)
        score = None if error else float(np.mean(scores))
        trials.append(Trial(dict(candidate), score, spent, error))
    return trials


def best_of(trials: list[Trial]) -> Mapping[str, Any]:
    """Return the candidate that did best; of equals the first, which is the simplest."""
    scored = [trial for trial in trials if trial.score is not None]
    if not scored:
        raise ConfigError(f"no method could be tried; the first says: {trials[0].error}")
    return max(scored, key=lambda trial: trial.score or 0.0).settings


def describe(candidate: Mapping[str, Any]) -> str:
    """Return a candidate in words."""
    options = ", ".join(f"{name} = {value}" for name, value in candidate.items() if name != "name")
    return f"{candidate['name']} with {options}" if options else str(candidate["name"])


def explain(trials: list[Trial]) -> str:
    """Return in words which method was chosen, and why."""
    ranked = sorted(trials, key=lambda trial: -(trial.score if trial.score is not None else -1e9))
    told = [
        f"{describe(trial.settings)} "
        + (f"cannot be tried: {trial.error}" if trial.score is None else f"{trial.score:.3f}")
        for trial in ranked
    ]
    return f"chosen by accuracy (balanced with class weights) or R² on rows kept aside: {'; '.join(told)}"
