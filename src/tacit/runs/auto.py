"""Choosing the method: a linear network, one with a random layer, or boosted trees, by rows kept aside.

Each is trained under the same protection, on the same rows, of which every client keeps a fifth aside; the
one that does best there, by a protected sum of counts, is then trained on all rows. The central test is not
looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tacit.core.errors import ConfigError
from tacit.federation import Federation
from tacit.runs.settings import Settings, merged
from tacit.runs.tune import Objective, Progress, Trial, divide, refuse_noise

AUTO = "auto"  # as the name of a method
CANDIDATES: tuple[Mapping[str, Any], ...] = (
    {"name": "fedheonn"},
    {"name": "fedheonn", "hidden": 1000},
    {"name": "federboost", "rate": 0.1, "columns": 0.5},  # slowly, each round from half of the columns
    {
        "name": "federboost",
        "depth": 4,
        "lam": 0.0,
        "buckets": 256,
    },  # quickly, with small trees of fine splits
)
PROTECTION = "masked"  # unless another is named: all of them learn under it


def choose(tables: Mapping[str, Any], progress: Progress | None = None) -> tuple[Settings, list[Trial]]:
    """Return the settings of a run with the method that does best, and how each did.

    ``tables`` are those of a run, without a method.
    """
    usual = {} if "name" in tables.get("protect", {}) else {"protect": {"name": PROTECTION}}
    given = merged(tables, usual)
    first = Settings.from_tables(merged(given, {"method": CANDIDATES[0]}))
    refuse_noise(first.build_protection(), [])
    trials = try_candidates(given, divide(first), progress)
    return Settings.from_tables(merged(given, {"method": best_of(trials)})), trials


def try_candidates(
    given: Mapping[str, Any], federation: Federation, progress: Progress | None = None
) -> list[Trial]:
    """Train every candidate on a federation, and score it on the rows that clients keep aside."""
    trials = []
    for done, candidate in enumerate(CANDIDATES):
        if progress:
            progress(done, len(CANDIDATES), f"trying {describe(candidate)}")
        try:
            objective = Objective(Settings.from_tables(merged(given, {"method": candidate})), federation)
            found = objective({})
        except ConfigError as error:  # this one does not fit the rows or the protection; others may
            found = Trial({}, None, 0.0, str(error))
        trials.append(replace(found, settings=dict(candidate)))
    return trials


def best_of(trials: list[Trial]) -> Mapping[str, Any]:
    """Return the candidate that did best; of equals the first, which is the simplest."""
    scored = [trial for trial in trials if trial.score is not None]
    if not scored:
        raise ConfigError(f"no method could be tried; the first says: {trials[0].error}")
    return max(scored, key=lambda trial: trial.score or 0.0).settings


def describe(candidate: Mapping[str, Any]) -> str:
    """Return a candidate in words.

    >>> describe({"name": "fedheonn", "hidden": 1000})
    'fedheonn with hidden = 1000'
    """
    options = ", ".join(f"{name} = {value}" for name, value in candidate.items() if name != "name")
    return f"{candidate['name']} with {options}" if options else str(candidate["name"])


def explain(trials: list[Trial]) -> str:
    """Return in words which method was chosen, and why.

    >>> explain([Trial({"name": "fedheonn"}, 0.8, 1.0), Trial({"name": "fusion"}, 0.97, 2.0)])
    'chosen by accuracy (balanced with class weights) or R² on rows kept aside: fusion 0.970; fedheonn 0.800'
    """
    ranked = sorted(trials, key=lambda trial: -(trial.score if trial.score is not None else -1e9))
    told = [
        f"{describe(trial.settings)} "
        + (f"cannot be tried: {trial.error}" if trial.score is None else f"{trial.score:.3f}")
        for trial in ranked
    ]
    return f"chosen by accuracy (balanced with class weights) or R² on rows kept aside: {'; '.join(told)}"
