"""`--method auto`: methods tried on rows kept aside, the best trained on all."""

import json

import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.core.errors import ConfigError
from tacit.runs import auto
from tacit.runs.auto import choose, explain

TABLES = {"data": {"name": "wine"}, "partition": {"name": "iid", "clients": 4}, "run": {"baselines": False}}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    linear = {"name": "fedheonn"}
    monkeypatch.setattr(auto, "CANDIDATES", ({**linear, "lam": 1e5}, linear, {"name": "fedavg", "rounds": 1}))


def test_the_best_on_rows_kept_aside_is_taken():
    settings, trials = choose(TABLES)
    assert settings.method == {"name": "fedheonn"}
    assert settings.protect == {"name": "masked"}
    assert settings.data.holdout == 0, "the run that follows learns from all rows"
    assert [trial.settings["name"] for trial in trials] == ["fedheonn", "fedheonn", "fedavg"]
    assert trials[1].score == max(trial.score for trial in trials)
    assert explain(trials).startswith(
        "chosen by accuracy (balanced with class weights) or R² on rows kept aside: fedheonn "
    )


def test_the_test_rows_decide_nothing(monkeypatch):
    """Labels of the central test may be anything: what is chosen is the same."""
    from tacit.models.predictor import Predictor

    def scores(self, table):
        raise AssertionError("the central test was looked at")

    monkeypatch.setattr(Predictor, "scores", scores)
    assert choose(TABLES)[0].method == {"name": "fedheonn"}


def test_a_method_that_does_not_fit_is_passed_over(monkeypatch):
    monkeypatch.setattr(auto, "CANDIDATES", ({"name": "mime"}, {"name": "fedheonn"}))
    settings, trials = choose({**TABLES, "protect": {"name": "bfv"}})
    assert settings.protect == {"name": "bfv"}
    monkeypatch.setattr(auto, "CANDIDATES", ({"name": "fedheonn"}, {"name": "scaffold", "collapse": 0.5}))
    settings, trials = choose(TABLES)
    assert settings.method["name"] == "fedheonn"
    assert "cannot be tried: " in explain(trials)


def test_those_clearly_behind_are_not_tried_again(monkeypatch):
    """One round of averaging loses by far; equals and those that rows cannot tell apart go on."""
    tried, once = [], auto.try_once
    monkeypatch.setattr(
        auto, "try_once", lambda trial, *rest: tried.append(trial.settings) or once(trial, *rest)
    )
    linear = {"name": "fedheonn"}
    poor = {"name": "fedavg", "rounds": 1}
    monkeypatch.setattr(auto, "CANDIDATES", (linear, poor, {**linear, "lam": 0.0099}))
    settings, trials = choose(TABLES)
    assert [tried.count(dict(candidate)) for candidate in auto.CANDIDATES] == [5, 1, 5]
    assert settings.method in (linear, auto.CANDIDATES[2])
    assert "clearly behind after 1 of 5 hold-outs" in explain(trials)


def test_what_is_clear_depends_on_the_rows():
    trials = [auto.Trial({"name": str(score)}, score, 0.0) for score in (0.9, 0.85, 0.5)]
    for rows, left in ((4, 3), (100, 2), (10_000, 1)):
        found = auto.drop_behind(trials, rows, "behind")
        assert [trial.error for trial in found] == [None] * left + ["behind"] * (3 - left)
    failed = auto.Trial({"name": "other"}, None, 0.0, "does not fit")
    assert auto.drop_behind([failed], 10, "behind") == [failed]
    with pytest.raises(ConfigError, match="the first says: does not fit"):
        auto.best_of([failed], 10)


def test_a_candidate_that_was_given_up_is_not_chosen():
    """Not even if the hold-outs after it were harder, and the best one ended below it."""
    trials = [auto.Trial({"name": "ahead"}, 0.6, 0.0), auto.Trial({"name": "behind"}, 0.7, 0.0, "behind")]
    assert auto.best_of(trials, 10_000) == {"name": "ahead"}


def test_a_single_row_does_not_decide():
    trials = [auto.Trial({"name": str(right)}, right / 390, 0.0) for right in (381, 382, 383)]
    assert auto.best_of(trials, 390) == {"name": "382"}
    assert auto.best_of(trials[:1] + trials[2:], 390) == {"name": "383"}
    assert auto.best_of([*trials[:1], auto.Trial({"name": "other"}, 381 / 390 + 1e-15, 0.0)], 390) == {
        "name": "381"
    }


def test_a_random_layer_is_narrower_where_rows_are_few():
    wide = {"name": "fedheonn", "hidden": 2000}
    assert auto.fit_width(wide, 2000) == wide
    assert auto.fit_width(wide, 1999) == {**wide, "hidden": 1000}
    assert auto.fit_width({"name": "fedheonn"}, 10) == {"name": "fedheonn"}


def test_noise_is_refused_before_a_budget_is_spent():
    with pytest.raises(ConfigError, match="would spend its privacy budget anew"):
        choose({**TABLES, "protect": {"name": "noised", "unit": "row"}})


def test_the_command_says_why(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["run", "--method", "auto", "--data", "wine", "--clients", "4", "--no-baselines", "--json", "-q"]
    found = json.loads(CliRunner().invoke(app, words).stdout)
    assert found["method"] == "fedheonn"
    (folder,) = (tmp_path / "runs").iterdir()
    notes = json.loads((folder / "result.json").read_text())["notes"]
    assert any(note["about"] == "method" and "rows kept aside" in note["text"] for note in notes)
    (tmp_path / "auto.toml").write_text(
        '[method]\nname = "auto"\n[data]\nname = "iris"\n[partition]\nname = "iid"\nclients = 4\n'
    )
    assert CliRunner().invoke(app, ["run", "auto.toml", "--no-baselines", "-q"]).exit_code == 0


@pytest.mark.parametrize("words", ["--hidden 20", "--lam nan", "--rounds 3"])
def test_options_that_a_trial_would_not_have_are_refused(words):
    told = ["run", "--method", "auto", "--data", "iris", "--clients", "3", "--json", *words.split()]
    ended = CliRunner().invoke(app, told)
    assert ended.exit_code == 2
    with pytest.raises(ConfigError, match="leave out lamda, or name a method"):
        choose({**TABLES, "method": {"lamda": 7}})


def test_class_weights_are_those_of_every_candidate(monkeypatch):
    monkeypatch.setattr(auto, "CANDIDATES", ({"name": "fedheonn"}, {"name": "fedheonn", "hidden": 20}))
    settings, trials = choose({**TABLES, "method": {"class_weight": "balanced"}})
    assert all(trial.settings["class_weight"] == "balanced" for trial in trials)
    assert settings.method["class_weight"] == "balanced"


def test_commands_that_need_a_method_say_that_auto_is_none():
    ended = CliRunner().invoke(app, ["plan", "--method", "auto", "--data", "iris", "--json"])
    assert ended.exit_code == 2
    assert "--method auto is for `tacit run`" in json.loads(ended.stdout)["error"]["text"]
