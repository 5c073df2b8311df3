"""Surveys: methods and protections side by side, measured once and kept."""

import json
import os

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.core.errors import ConfigError, TacitError, UnavailableError
from tacit.methods import METHODS
from tacit.runs import survey as module
from tacit.runs.survey import Needs, _digest, front, list_cells, measure, measure_apart, recommend, survey

TABLES = {"data": {"name": "iris"}, "partition": {"name": "iid", "clients": 4}, "run": {"baselines": False}}


@pytest.fixture
def here(monkeypatch):
    """Cells are measured in this process: starting one takes a second."""
    counted = []

    def apart(tables):
        counted.append(tables["method"]["name"])
        return json.loads(json.dumps(measure(tables)))

    monkeypatch.setattr(module, "measure_apart", apart)
    return counted


def row(method="a", protect="masked", score=0.9, **other):
    cost = {
        "bytes_up": 1.0,
        "bytes_down": 1.0,
        "cpu_s": 1.0,
        "wh": 1.0,
        "hides": True,
        "opens": "coordinator",
    }
    return {"method": method, "protect": protect, "score": score, **cost, **other}


class TestCells:
    def test_default_is_each_methods_own_protection(self):
        cells = list_cells(TABLES, "fedheonn,fedavg", "default", {"fedavg": {"rounds": 2}})
        assert all("protect" not in cell for cell in cells)
        assert cells[1]["method"] == {"name": "fedavg", "rounds": 2}

    def test_all_is_every_registered_method_and_protection(self):
        assert [cell["method"]["name"] for cell in list_cells({}, "all", "default", {})] == METHODS.names()
        protections = [cell["protect"]["name"] for cell in list_cells({}, "fedheonn", "all", {})]
        assert "bfv" in protections
        assert "default" not in protections

    @pytest.mark.parametrize(
        ("methods", "protections", "options", "text"),
        [
            ("fedavgg", "default", {}, "did you mean 'fedavg'"),
            ("", "default", {}, "--methods none: valid"),
            ((), "default", {}, "--methods none: valid"),
            ("fedavg", "maskd", {}, "did you mean 'masked'"),
            ("fedavg", "default", {"fedavgg": {}}, "has no method 'fedavgg'"),
            ("fedavg", "default", {"fedavg": {"roundz": 3}}, "did you mean 'rounds'"),
            (("fedavg", "fedheon"), "default", {}, "did you mean 'fedheonn'"),
        ],
    )
    def test_names_that_nobody_knows_are_refused(self, methods, protections, options, text):
        with pytest.raises(ConfigError, match=text):
            list_cells(TABLES, methods, protections, options)


class TestSurvey:
    def test_measures_every_cell_and_goes_on_where_it_was_stopped(self, here, tmp_path):
        out = str(tmp_path / "survey")
        first = survey(TABLES, "fedheonn", "plain,masked", out=out)
        assert [r["protect"] for r in first["rows"]] == ["plain", "masked"]
        assert first["measure"] == "accuracy"
        again = survey(TABLES, "fedheonn,fedavg", "plain,masked", out=out, options={"fedavg": {"rounds": 1}})
        assert here == ["fedheonn"] * 2 + ["fedavg"] * 2, "what was measured is not measured again"
        kept = {(r["method"], r["protect"]): r["score"] for r in again["rows"]}
        assert {(r["method"], r["protect"]): r["score"] for r in first["rows"]}.items() <= kept.items()
        page = (tmp_path / "survey/survey.html").read_text()
        assert "fedheonn" in page
        assert again["recommendation"].split(":")[0] in page
        assert json.loads((tmp_path / "survey/survey.json").read_text())["rows"] == again["rows"]
        for table in (
            pyarrow.csv.read_csv(tmp_path / "survey/survey.csv"),
            pyarrow.parquet.read_table(tmp_path / "survey/survey.parquet"),
        ):
            assert table["score"].to_pylist() == pytest.approx([r["score"] for r in again["rows"]])

    def test_costs_are_those_of_the_ledger(self, here, tmp_path):
        (found,) = survey(TABLES, "fedheonn", "masked", out=str(tmp_path))["rows"]
        assert found["state"] == "done"
        assert found["hides"]
        assert found["wh"] == pytest.approx(65 * found["cpu_s"] / 3600)
        assert found["cpu_s"] > found["cpu_client_s"] > 0
        assert 50 < found["memory_mb"] < 10_000
        assert any("masked vectors" in text for text in found["exposure"])

    def test_a_damaged_cell_is_measured_again(self, here, tmp_path):
        for damage in ("{}", '{"state": "done"}', "[]", "12", "{"):
            survey(TABLES, "fedheonn", out=str(tmp_path))
            (cell,) = (tmp_path / "cells").iterdir()
            cell.write_text(damage)
            del here[:]
            assert survey(TABLES, "fedheonn", out=str(tmp_path))["rows"][0]["state"] == "done"
            assert here == ["fedheonn"], damage

    def test_what_does_not_go_together_says_why(self, here, tmp_path):
        found = survey(TABLES, "scaffold", "noised", out=str(tmp_path))
        assert found["rows"][0]["state"] == "refused"
        assert "use fedavg" in found["rows"][0]["note"]
        assert found["recommendation"].startswith("No cell has a score")
        assert "What does not go together" in (tmp_path / "survey.html").read_text()

    def test_a_cell_that_fails_is_tried_again_the_next_time(self, monkeypatch, tmp_path):
        asked = []

        def fails(tables):
            asked.append(1)
            return {"method": "fedheonn", "protect": "bfv", "state": "failed", "note": "no memory"}

        monkeypatch.setattr(module, "measure_apart", fails)
        for _ in range(2):
            assert survey(TABLES, "fedheonn", out=str(tmp_path))["rows"][0]["note"] == "no memory"
        assert len(asked) == 2

    def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_measured(self, here, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(UnavailableError, match="choose another with --out"):
            survey(TABLES, "fedheonn", out=str(tmp_path / "file"))
        assert not here


def test_a_process_that_is_killed_is_a_failed_cell(monkeypatch):
    monkeypatch.setattr(module.sys, "executable", "/bin/false")
    found = measure_apart({"method": {"name": "fedavg"}})
    assert (found["state"], found["protect"]) == ("failed", "default")
    assert found["note"] == "its process ended with 1: it said nothing"


def test_the_front_has_nothing_that_another_beats():
    rng = np.random.default_rng(0)
    rows = [row(score=float(a), wh=float(b)) for a, b in rng.random((40, 2))]
    found = front(rows, "wh")
    for one in rows:
        beaten = any(o["score"] >= one["score"] and o["wh"] <= one["wh"] and o is not one for o in rows)
        assert (one in found) == (not beaten)


class TestRecommendation:
    def test_takes_the_cheapest_of_those_that_are_as_good(self):
        rows = [
            row("dear", score=0.905, cpu_s=9.0),
            row("cheap", score=0.9),
            row("bad", score=0.5, cpu_s=0.1),
        ]
        assert recommend(rows).startswith("cheap under masked: score 0.900.")

    def test_plain_sums_only_if_there_is_nothing_else(self):
        open_row = row("shown", "plain", 0.99, hides=False)
        told = recommend([open_row, row(score=0.9)])
        assert told.startswith("a under masked")
        assert "best of all is shown under plain, 0.990" in told
        assert "passed over" in recommend([open_row])

    def test_links_and_trust_are_kept_where_they_are_asked_for(self):
        rows = [row("server"), row("clients", "bfv", 0.9, opens="clients", cpu_s=5.0, bytes_up=1e6)]
        assert recommend(rows, Needs(no_server=True)).startswith("clients under bfv")
        assert recommend(rows, Needs(link=1e3)).startswith("server under masked")
        assert "fits its link: passed over" in recommend(rows, Needs(link=0.5))


def test_the_command_writes_one_object(here, tmp_path, monkeypatch):
    (tmp_path / "all.toml").write_text(
        '[data]\nname = "iris"\n[partition]\nname = "iid"\nclients = 4\n'
        '[survey]\nmethods = "fedheonn,fedavg"\nprotect = "plain"\n[survey.options.fedavg]\nrounds = 1\n'
    )
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["survey", "all.toml", "--json", "-q"])
    found = json.loads(result.stdout)
    assert [(r["method"], r["protect"]) for r in found["rows"]] == [
        ("fedheonn", "plain"),
        ("fedavg", "plain"),
    ]
    shown = CliRunner().invoke(
        app, ["survey", "all.toml", "--protect", "masked", "--methods", "fedheonn", "-q"]
    )
    assert "fedheonn under masked" in shown.stdout
    refused = CliRunner().invoke(app, ["survey", "all.toml", "--methods", "fedhenn"])
    assert refused.exit_code != 0


@pytest.mark.parametrize(
    ("words", "methods", "protections"),
    [
        ("--method fedavg --rounds 3", [{"name": "fedavg", "rounds": 3}], [None]),
        (
            "--methods fedavg,fedprox --rounds 3 --protect masked",
            [{"name": "fedavg", "rounds": 3}, {"name": "fedprox", "rounds": 3}],
            [{"name": "masked"}],
        ),
        (
            "--methods fedheonn --protect noised,plain --epsilon 3",
            [{"name": "fedheonn"}],
            [{"name": "noised", "epsilon": 3}, {"name": "plain", "epsilon": 3}],
        ),
    ],
)
def test_options_are_those_of_the_first_that_is_named(words, methods, protections, tmp_path, monkeypatch):
    """Of others too, which refuse what they do not know."""
    asked = []
    monkeypatch.setattr(module, "measure_apart", lambda cell: asked.append(cell) or measure(cell))
    told = ["survey", "--data", "iris", "--clients", "4", "--out", str(tmp_path), "-q", "--jobs", "1"]
    assert CliRunner().invoke(app, [*told, *words.split()]).exit_code == 0
    assert [(cell["method"], cell.get("protect")) for cell in asked] == [
        (method, protection) for method in methods for protection in protections
    ]


def test_named_tables_of_a_file_are_for_cells_of_that_name(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "measure_apart", lambda cell: asked.append(cell) or measure(cell))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text(
        '[data]\nname = "iris"\n[partition]\nname = "iid"\nclients = 4\n'
        '[method]\nname = "fedheonn"\nhidden = 7\n[protect]\nname = "masked"\nbits = 30\n'
    )
    words = ["survey", "a.toml", "--methods", "fedavg,fedheonn", "--protect", "plain,masked", "-q"]
    assert CliRunner().invoke(app, [*words, "--jobs", "1"]).exit_code == 0
    assert [cell["method"] for cell in asked] == [{"name": "fedavg"}] * 2 + [
        {"name": "fedheonn", "hidden": 7}
    ] * 2
    assert [cell["protect"] for cell in asked] == [{"name": "plain"}, {"name": "masked", "bits": 30}] * 2
    told = CliRunner().invoke(app, ["survey", "--methods", "", "--json"])
    assert "--methods none" in json.loads(told.stdout)["error"]["text"]


def test_method_and_methods_are_the_same(here):
    words = ["survey", "--method", "fedavg", "--methods", "fedheonn", "--json"]
    assert "give one of them" in json.loads(CliRunner().invoke(app, words).stdout)["error"]["text"]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ('[survey]\nmethod = "fedavg"', "did you mean 'methods'"),
        ("[survey]\nmethods = 3", "methods = 3"),
        ("[survey]\noptions = 3", "options = 3"),
        ("[survey.options]\nfedavg = 3", "fedavg"),
        ("survey = 3", "write it as a table"),
    ],
)
def test_a_table_with_a_typing_error_is_refused_at_once(here, tmp_path, monkeypatch, lines, text):
    (tmp_path / "all.toml").write_text(lines)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["survey", "all.toml", "--data", "iris", "--json", "-q"])
    found = json.loads(result.stdout)["error"]
    assert (found["type"], found["exit_code"]) == ("ConfigError", 2)
    assert text in found["text"]
    assert not here


@pytest.mark.parametrize("flag", ["--jobs", "--link"])
def test_less_than_nothing_is_refused(here, flag):
    assert CliRunner().invoke(app, ["survey", flag, "-1"]).exit_code == 2
    assert not here


def test_rows_that_cannot_be_read_are_refused_before_anything_is_measured(tmp_path):
    with pytest.raises(TacitError, match="none"):
        survey({"data": {"name": str(tmp_path / "none.csv")}}, "fedheonn", out=str(tmp_path / "survey"))
    assert not (tmp_path / "survey").exists()


@pytest.mark.parametrize("named", ["file", "list", "folder", "at home"])
def test_a_file_that_was_written_anew_is_another_cell(named, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "rows.csv"
    given = {"file": str(file), "list": [str(file)], "folder": str(tmp_path), "at home": "~/rows.csv"}[named]
    names = set()
    for second in (1, 1, 2):
        file.write_text("x,target")
        os.utime(file, (second, second))
        os.utime(tmp_path, (1, 1))
        names.add(_digest({"data": {"name": given}}))
    assert len(names) == 2
