"""Tuning: by protected counts over held-out rows, never the test set; nothing is tried twice."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from unittest import mock

import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.core.errors import ConfigError
from tacit.federation import Federation
from tacit.runs.job import execute
from tacit.runs.settings import Settings
from tacit.runs.tune import Objective, Range, Trial, tune


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings.from_tables(
        {
            "data": {"name": "wine"},
            "partition": {"name": "label-sorted", "clients": 6},
            "method": {"name": "fedheonn-ensemble", "estimators": 5, "vote": "majority"},
            "protect": {"name": "plain"},
            "run": {"out": str(tmp_path), "baselines": False},
        }
    )


def test_every_combination_is_scored_and_the_best_can_be_run(settings):
    result = tune(settings, {"samples": [0.1, 0.5], "lam": [1e-3, 1e6]})
    assert [t["settings"] for t in result["trials"]] == [
        {"samples": s, "lam": lam} for s in (0.1, 0.5) for lam in (1e-3, 1e6)
    ]
    assert result["score"] == max(t["score"] for t in result["trials"]) > 0.8
    assert result["best"]["lam"] == 1e-3
    written = Settings.from_tables(tomllib.loads(Path(result["file"]).read_text()))
    assert written == dataclasses.replace(settings, method={**settings.method, **result["best"]})
    assert execute(written).result["accuracy"] > 0.8


def test_the_test_set_is_never_looked_at(settings):
    made, real = [], Federation.embedded.__func__

    def poisoned(cls, *args, **options):
        federation = real(cls, *args, **options)
        federation.test = None  # whoever asks for it fails
        made.append(federation)
        return federation

    with mock.patch.object(Federation, "embedded", classmethod(poisoned)):
        one = tune(settings, {"lam": [1e-3, 1.0]})
    assert len(made) == 1
    assert one["trials"] and [t["score"] for t in one["trials"]] == [
        t["score"] for t in tune(settings, {"lam": [1e-3, 1.0]})["trials"]
    ]


def test_the_score_is_that_of_the_federated_evaluation(settings):
    held = dataclasses.replace(settings, data=dataclasses.replace(settings.data, holdout=0.2))
    result = tune(settings, {"lam": [0.01]})
    direct = execute(dataclasses.replace(held, method={**settings.method, "lam": 0.01})).result
    assert result["score"] == direct["scores"]["clients' own hold-outs"]["accuracy"]


def test_with_class_weights_it_goes_by_balanced_accuracy(settings):
    weighted = dataclasses.replace(settings, method={**settings.method, "class_weight": "balanced"})
    result = tune(weighted, {"lam": [0.01]})
    assert result["objective"] == "balanced_accuracy"
    held = dataclasses.replace(weighted, data=dataclasses.replace(settings.data, holdout=0.2))
    direct = execute(dataclasses.replace(held, method={**weighted.method, "lam": 0.01})).result
    assert result["score"] == direct["scores"]["clients' own hold-outs"]["balanced_accuracy"]


def test_nothing_is_trained_twice_and_the_scale_is_agreed_once(settings):
    trained, waves, train = [], [], Federation.train

    def counted(self, *args, **options):
        training = train(self, *args, **options)
        trained.append(options["start"] is not None)
        waves.append(training.ledger.summary()["messages"])
        return training

    with mock.patch.object(Federation, "train", counted):
        tune(settings, {"lam": [0.1, 1.0, 0.1]})
    assert trained == [False, True]
    assert waves[1] < waves[0]


def test_a_scale_taken_over_gives_the_same_model(settings):
    from tacit.runs.experiment import build_federation

    held = dataclasses.replace(settings, data=dataclasses.replace(settings.data, holdout=0.2))
    fresh, used = (Objective(held, build_federation(held)) for _ in range(2))
    used({"lam": 1.0})
    assert used({"lam": 0.1}).score == fresh({"lam": 0.1}).score


def test_optuna_draws_from_ranges_and_repeats_itself(settings):
    space = {"lam": Range(1e-4, 10.0), "estimators": Range(2, 6), "vote": ["majority", "mean"]}
    one, two = (tune(settings, space, search="optuna", trials=5) for _ in range(2))
    assert [t["settings"] for t in one["trials"]] == [t["settings"] for t in two["trials"]]
    drawn = [t["settings"] for t in one["trials"]]
    assert all(1e-4 <= d["lam"] <= 10 and 2 <= d["estimators"] <= 6 for d in drawn)
    assert len({d["lam"] for d in drawn}) > 1


@pytest.mark.parametrize(
    ("option", "axis", "fits"),
    [
        ("lam", Range(0, 1), lambda drawn: any(0 < value < 1 for value in drawn)),
        ("lam", Range(1, 1000), lambda drawn: any(value % 1 for value in drawn) and min(drawn) < 100),
        ("hidden", Range(2, 2000), lambda drawn: all(isinstance(v, int) for v in drawn) and min(drawn) < 30),
        ("rank", Range(2, 5), lambda drawn: all(isinstance(value, int) for value in drawn)),
        ("folds", Range(2.0, 5.0), lambda drawn: all(isinstance(value, int) for value in drawn)),
    ],
    ids=["float", "float by ratios", "int by ratios", "optional int", "int with ends as floats"],
)
def test_a_range_is_drawn_as_the_options_type_asks(settings, option, axis, fits):
    mode = "paper" if option == "rank" else "sealed"
    method = {"name": "fedheonn", "mode": mode}
    drawn = []

    def recorded(self, chosen):
        drawn.append(chosen[option])
        self.trials.append(Trial(dict(chosen), 0.5, 0.0))
        return self.trials[-1]

    with mock.patch.object(Objective, "__call__", recorded):
        tune(dataclasses.replace(settings, method=method), {option: axis}, search="optuna", trials=12)
    assert fits(drawn), drawn


def test_a_score_of_zero_is_listed_above_one_that_is_missing(settings, tmp_path):
    scores = {0.1: None, 0.2: -0.5, 0.3: 0.0, 0.4: 0.9}

    def known(self, chosen):
        self.trials.append(Trial(dict(chosen), scores[chosen["lam"]], 0.0))
        return self.trials[-1]

    words = ["tune", "--data", "wine", "--clients", "4", "--try", "lam=0.1,0.2,0.3,0.4", "--quiet"]
    with mock.patch.object(Objective, "__call__", known):
        done = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    places = [done.stdout.index(f"0.{digit} ") for digit in (4, 3, 2, 1)]
    assert places == sorted(places), done.stdout


def test_a_search_without_rows_aside_is_refused_before_anything_is_trained(settings):
    many = dataclasses.replace(settings, partition={"name": "iid", "clients": 60})
    with (
        mock.patch.object(Federation, "train", side_effect=AssertionError),
        pytest.raises(ConfigError, match=r"no client keeps rows aside.*Raise holdout, or have fewer clients"),
    ):
        tune(many, {"lam": [0.1]})


def test_a_trial_that_cannot_be_trained_says_why_and_the_search_goes_on(settings):
    result = tune(settings, {"max_memory": [5, 100]})
    assert "a row has 13" in result["trials"][0]["error"]
    assert result["best"] == {"max_memory": 100}
    with pytest.raises(ConfigError, match=r"no trial could be trained.*a row has 13"):
        tune(settings, {"max_memory": [5]})


def test_under_a_protection_that_opens_at_clients(settings):
    sealed = dataclasses.replace(settings, protect={"name": "shares"})
    plain = tune(settings, {"samples": [1.0], "lam": [0.01]})
    assert tune(sealed, {"samples": [1.0], "lam": [0.01]})["score"] == pytest.approx(plain["score"])


@pytest.mark.parametrize(
    ("space", "options", "words"),
    [
        ({}, {}, "nothing to tune"),
        ({"lm": [1]}, {}, "did you mean 'lam'"),
        ({"lam": [-1.0]}, {}, "lam is -1"),
        ({"lam": Range(0.1, 1.0)}, {}, "is a range"),
        ({"lam": [0.1]}, {"search": "random"}, "unknown search 'random'"),
        ({"lam": [0.1]}, {"trials": 0}, "trials is 0"),
        (
            {"lam": [float(i) for i in range(101)], "estimators": list(range(1, 102))},
            {},
            "10,201 combinations",
        ),
    ],
)
def test_bad_searches_are_refused_before_anything_is_trained(settings, space, options, words):
    with (
        mock.patch.object(Federation, "train", side_effect=AssertionError),
        pytest.raises(ConfigError, match=words),
    ):
        tune(settings, space, **options)


def test_a_privacy_budget_is_not_spent_on_trials(settings):
    with pytest.raises(ConfigError, match="budget anew"):
        tune(dataclasses.replace(settings, protect={"name": "noised"}), {"lam": [0.1]})
    for given, tried in (({"example_noise": 1.0}, {"rate": [0.1]}), ({}, {"example_noise": [1.0]})):
        private = {"name": "fedavg", "weighting": "equal", **given}
        with pytest.raises(ConfigError, match="every trial with noise would spend its privacy budget anew"):
            tune(dataclasses.replace(settings, method=private), tried)


def test_the_command_gives_one_json_object(tmp_path):
    words = ["tune", "--data", "wine", "--clients", "4", "--try", "lam=0.01,1", "--no-baselines", "--json"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert done.exit_code == 0
    result = json.loads(done.stdout)
    assert len(result["trials"]) == 2
    assert result["best"]["lam"] in (0.01, 1)
    wrong = CliRunner().invoke(app, ["tune", "--data", "wine", "--try", "lam", "--json"])
    assert wrong.exit_code == 2
    assert "--try OPTION=VALUE" in json.loads(wrong.stdout)["error"]["text"]
