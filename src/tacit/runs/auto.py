"""Choosing the method: a linear network, one with a random layer, or boosted trees, by rows kept aside.

Each is trained under the same protection, on the same rows, of which every client keeps a fifth aside: first
one fifth, then another, until enough rows have been kept aside in all to tell the candidates apart. Those
that are clearly behind are not tried again. The one that does best there, by protected sums of counts, is
then trained on all rows. The central test is not looked at.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
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
    {"name": "fedheonn", "hidden": 2000},  # half of it for fewer rows than that
    {"name": "federboost", "rate": 0.1, "depth": 5, "columns": 0.5},  # slowly, each round from half of them
    {  # small trees of fine splits, more of them
        "name": "federboost",
        "rate": 0.2,
        "depth": 5,
        "columns": 0.8,
        "trees": 200,
        "lam": 0.0,
        "min_child_weight": 0.1,
        "buckets": 256,
    },
)
SHARED = ("class_weight",)  # what may be said of the method that is chosen
CLEARLY = 2.0  # standard errors of a difference: who is that far behind is given up
ENOUGH = 5000  # rows kept aside, over all trials of a candidate: fewer, and chance chooses among good ones
PROTECTION = "masked"  # unless another is named: all of them learn under it


def choose(tables: Mapping[str, Any], progress: Progress | None = None) -> tuple[Settings, list[Trial]]:
    """Return the settings of a run with the method that does best, and how each did.

    ``tables`` are those of a run, without a method, or with options that all methods have.
    """
    if own := [name for name in tables.get("method", {}) if name not in SHARED]:
        raise ConfigError(
            f"auto chooses a method with its options: leave out {', '.join(own)}, or name a method"
        )
    usual = {} if "name" in tables.get("protect", {}) else {"protect": {"name": PROTECTION}}
    given = merged(tables, usual)
    first = Settings.from_tables(merged(given, {"method": CANDIDATES[0]}))
    refuse_noise(first.build_protection(), [])
    federations = rotate(divide(first))
    trials = try_candidates(given, federations, progress)
    rows = sum(int(each.holdings.holdout_sizes.sum()) for each in federations)
    return Settings.from_tables(merged(given, {"method": best_of(trials, rows)})), trials


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
    """Train candidates on each federation, and score them on the rows that clients keep aside there.

    A candidate that cannot be trained, or is clearly behind the best one, is not tried on the next.
    """
    held = federations[0].holdings.table.rows
    own = given.get("method", {})
    trials = [Trial({**fit_width(candidate, held), **own}, None, 0.0) for candidate in CANDIDATES]
    rows, done, steps = 0, 0, len(CANDIDATES) * len(federations)
    for part, federation in enumerate(federations):
        rows += int(federation.holdings.holdout_sizes.sum())
        for index, trial in enumerate(trials):
            done += 1
            if trial.error is None:
                if progress:
                    progress(done - 1, steps, f"trying {describe(trial.settings)}")
                trials[index] = try_once(trial, given, federation, part)
        trials = drop_behind(trials, rows, f"clearly behind after {part + 1} of {len(federations)} hold-outs")
    return trials


def fit_width(candidate: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Return a candidate; a random layer of more units than there are rows has half of them."""
    hidden = candidate.get("hidden", 0)
    return {**candidate, "hidden": hidden // 2} if rows < hidden else dict(candidate)


def try_once(trial: Trial, given: Mapping[str, Any], federation: Federation, before: int) -> Trial:
    """Return a trial with its mean score over this federation too, and so many before."""
    try:
        settings = Settings.from_tables(merged(given, {"method": trial.settings}))
        found = Objective(settings, federation, told=True)({})
    except ConfigError as refusal:  # this one does not fit the rows or the protection; others may
        return replace(trial, score=None, error=str(refusal))
    spent = trial.cpu_s + found.cpu_s
    if found.score is None:
        return replace(trial, score=None, cpu_s=spent, error=found.error)
    mean = ((trial.score or 0.0) * before + found.score) / (before + 1)
    return replace(trial, score=mean, cpu_s=spent)


def drop_behind(trials: Sequence[Trial], rows: int, reason: str) -> list[Trial]:
    """Return trials of which those have an error that are clearly behind the best one.

    Scores have the spread of shares of so many ``rows``; of R², which has no such formula, this is a guess.
    """
    scores = np.array([np.nan if trial.error else trial.score for trial in trials], dtype=float)
    if np.isnan(scores).all():
        return list(trials)
    shares = np.clip(scores, 0, 1)
    variances = shares * (1 - shares) / rows
    best = int(np.nanargmax(scores))
    behind = scores[best] - scores > CLEARLY * np.sqrt(variances + variances[best])
    return [replace(trial, error=reason) if far else trial for trial, far in zip(trials, behind, strict=True)]


def best_of(trials: Sequence[Trial], rows: int) -> Mapping[str, Any]:
    """Return the first candidate of those that are at most one of so many rows behind the best one."""
    scored = [(trial.score or 0.0, trial.settings) for trial in trials if trial.error is None]
    if not scored:
        raise ConfigError(f"no method could be tried; the first says: {trials[0].error}")
    least = max(score for score, _ in scored) - 1.5 / rows
    return next(settings for score, settings in scored if score > least)


def describe(candidate: Mapping[str, Any]) -> str:
    """Return a candidate in words."""
    options = ", ".join(f"{name} = {value}" for name, value in candidate.items() if name != "name")
    return f"{candidate['name']} with {options}" if options else str(candidate["name"])


def explain(trials: list[Trial]) -> str:
    """Return in words which method was chosen, and why."""
    ranked = sorted(trials, key=lambda trial: -(trial.score if trial.score is not None else -1e9))
    told, cpu = [], sum(trial.cpu_s for trial in trials)
    for trial in ranked:
        score = "cannot be tried" if trial.score is None else f"{trial.score:.3f}"
        told.append(f"{describe(trial.settings)} {score}{f': {trial.error}' if trial.error else ''}")
    how = "chosen by accuracy (balanced with class weights) or R² on rows kept aside"
    return f"{how}: {'; '.join(told)}. Trials took {cpu:.1f} s of CPU; the ledger is of the last training"
