"""Repeating papers: what a table says, where it is written, and FedHEONN's own figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from reproductions import _harness as harness
from reproductions import fedheonn_noise as noise
from reproductions import pfmlp, ring_mlp, two_phase
from reproductions._fedheonn_runs import Data, formula_rounds, measured_rounds, quasi_newton, trained
from reproductions._harness import Cell, Experiment, reproduce_papers
from reproductions._lines import lines, series
from reproductions.fedheonn import experiments
from tacit import checkout
from tacit.checkout import list_files
from tacit.cli.app import names
from tacit.cli.progress import OneBar
from tacit.core.errors import ConfigError, UnavailableError
from tacit.methods import METHODS


def absent(seed: int) -> float:
    raise UnavailableError("the data set <b>x</b> is not on this machine")


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A paper with four figures."""
    cells = [
        Cell({"data": "absent"}, absent, 1.0, (0.0, 2.0)),
        Cell({"data": "good"}, lambda seed: 1.0 + seed, 90.0, (1.0, 2.0)),
        Cell({"data": "bad"}, lambda seed: 1.0, 90.0, (80.0, 100.0)),
        Cell({"data": "new"}, lambda seed: 1.0),
    ]
    table = Experiment("t", "A title", "Somebody, Some paper", "things", {"lam": 0.5}, 2, cells, "A remark")
    papers_here(monkeypatch, [table])


def papers_here(monkeypatch: pytest.MonkeyPatch, tables: list[Experiment]) -> None:
    """Let there be one paper, with these tables, and a book as always."""
    some = SimpleNamespace(experiments=lambda: tables)
    load = harness.load_file
    monkeypatch.setattr(harness, "list_files", lambda kind, name: ["some"])
    monkeypatch.setattr(harness, "load_file", lambda kind, name: some if name == "some" else load(kind, name))


@pytest.mark.usefixtures("paper")
def test_a_table_holds_the_paper_ours_and_whether_they_agree(tmp_path: Path) -> None:
    told: list[Any] = []
    (table,) = reproduce_papers("some", out=tmp_path / "new", progress=lambda *facts: told.append(facts))
    absent_row, good, bad, new = table["rows"]
    assert (good["ours"], good["sd"], good["within"], good["expected"]) == (1.5, 0.5, True, [1.0, 2.0])
    assert (bad["within"], new["within"], new["paper"]) == (False, None, None)
    assert (absent_row["ours"], "not on this machine" in absent_row["note"]) == (None, True)
    assert table["settings"] == {"lam": 0.5, "seeds": 2}
    assert [fact[:2] for fact in told] == [(done, 4) for done in range(4)]
    stored = json.loads((tmp_path / "new" / "t.json").read_text())
    assert stored == table
    page = (tmp_path / "new" / "t.html").read_text()
    assert "A title" in page and "lam 0.5" in page and "1 – 2" in page and "A remark" in page
    assert "<b>" not in page


@pytest.mark.usefixtures("paper")
def test_fewer_seeds(tmp_path: Path) -> None:
    (table,) = reproduce_papers("all", seeds=1, out=tmp_path)
    assert (table["seeds"], table["rows"][1]["ours"]) == (1, 1.0)


def test_what_cannot_be_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'fedheonn'"):
        list_files("reproductions", "fedheon")
    with pytest.raises(ConfigError, match="seeds is 0"):
        reproduce_papers("fedheonn", seeds=0, out=tmp_path)
    (tmp_path / "taken").touch()
    with pytest.raises(UnavailableError, match="taken"):
        reproduce_papers("fedheonn", out=tmp_path / "taken")


def test_papers_of_your_own_are_found_and_may_share_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "reproductions"]:
        monkeypatch.delitem(sys.modules, name)
    own = tmp_path / "own"
    own.mkdir()
    (own / "_shared.py").write_text("NUMBER = 7.0\n")
    (own / "my_paper.py").write_text(
        "from reproductions._shared import NUMBER\n"
        "from reproductions._harness import Cell, Experiment\n"
        "def experiments():\n"
        "    yield Experiment('t', 'T', 'P', 'q', {}, 1, [Cell({'n': 1}, lambda seed: NUMBER)])\n"
    )
    monkeypatch.setenv("TACIT_REPRODUCTIONS", str(own))
    assert list_files("reproductions") == ["my-paper"]
    (table,) = checkout.load_file("reproductions", "_harness").reproduce_papers("my-paper", out=tmp_path)
    assert table["rows"][0]["ours"] == 7.0


def test_outside_a_checkout_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkout, "__file__", str(tmp_path / "lib" / "tacit" / "checkout.py"))
    said = r"no reproductions/ folder here: run this in a checkout of Tacit, or set TACIT_REPRODUCTIONS"
    with pytest.raises(ConfigError, match=said):
        list_files("reproductions")
    with pytest.raises(ConfigError, match=r"no benchmarks/ folder here: .*, or set TACIT_BENCHMARKS"):
        list_files("benchmarks")
    assert names("reproductions") == names("benchmarks") == []
    monkeypatch.undo()
    assert names("reproductions")[-2:] == ["two-phase", "all"]


@pytest.mark.parametrize("kind", ["reproductions", "benchmarks"])
def test_every_file_can_be_loaded_from_anywhere(kind: str, tmp_path: Path) -> None:
    """By the command, whose path of modules has no checkout on it, as that of the tests has."""
    code = f"[checkout.load_file({kind!r}, name) for name in checkout.list_files({kind!r})]"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    root = Path(checkout.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", f"from tacit import checkout; {code}"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("paper")
def test_a_quick_look_leaves_out_what_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(seed: int) -> float:
        raise AssertionError("a slow row was measured")

    drawn: list[Any] = []

    def drawings(rows: Any) -> dict[str, str]:
        drawn.extend(rows)
        return {"a <caption>": "<svg>the drawing</svg>"}

    cells = [Cell({"n": 1}, float), Cell({"n": 2}, never, slow=True)]
    tables = [
        Experiment("t", "T", "P", "q", {}, 3, cells, drawings=drawings),
        Experiment("u", "U", "P", "q", {}, 3, cells[1:]),
    ]
    papers_here(monkeypatch, tables)
    (table,) = reproduce_papers("some", quick=True, out=tmp_path)
    assert (table["seeds"], [row["n"] for row in table["rows"]]) == (1, [1])
    assert drawn == table["rows"]
    page = (tmp_path / "t.html").read_text()
    assert "<svg>the drawing</svg>" in page and "a &lt;caption&gt;" in page


def test_a_quick_look_shows_what_took_long_and_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [Cell({"n": 1}, float), Cell({"n": 2}, float, slow=True)]
    papers_here(monkeypatch, [Experiment("t", "T", "P", "q", {}, 3, cells)])
    for seeds, quick, fresh, shown in ((None, True, False, 1), (1, False, False, 2), (None, True, False, 2)):
        (table,) = reproduce_papers("some", out=tmp_path, seeds=seeds, quick=quick, fresh=fresh)
        assert len(table["rows"]) == shown
    (table,) = reproduce_papers("some", out=tmp_path, quick=True, fresh=True)
    assert len(table["rows"]) == 1


def test_what_does_not_fit_into_memory_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from reproductions import fedheonn_higgs as higgs

    monkeypatch.setattr(higgs, "_free_memory", lambda: 8.0)
    (table,) = reproduce_papers("fedheonn-higgs", out=tmp_path)
    assert all("take 16 GB of memory, and 8 are free" in row["note"] for row in table["rows"])
    monkeypatch.undo()
    assert higgs._free_memory() > 0


class TestFedHEONN:
    tables: ClassVar[dict[str, Experiment]] = {table.name: table for table in experiments()}

    def test_every_figure_and_table_has_its_rows_once(self) -> None:
        names = ["accuracy", "time", "cpu", "energy", "tables", "rounds"]
        assert list(self.tables) == [f"fedheonn-{name}" for name in names]
        for table in self.tables.values():
            settings = [tuple(cell.settings.items()) for cell in table.cells]
            assert len(set(settings)) == len(settings)
        shown = {tuple(cell.settings.values()) for cell in self.tables["fedheonn-accuracy"].cells}
        for data, partition, protect in product(
            ("dry_bean ×10", "skin_segmentation"), ("iid", "label-sorted"), ("plain", "bfv")
        ):
            assert (data, 20_000, partition, protect) in shown

    def test_digits_are_the_same_for_any_division_and_within_the_range(self) -> None:
        cells = [c for c in self.tables["fedheonn-accuracy"].cells if c.settings["data"] == "digits"]
        found = [cell.measure(0) for cell in cells]
        assert len(found) == 5
        assert max(found) - min(found) < 1e-9
        low, high = cells[0].expected or (0.0, 0.0)
        assert low <= found[0] <= high

    def test_equation_16_gives_the_papers_thirteen_rounds(self) -> None:
        assert formula_rounds(Data("iris"), 5, 4, 0.5, 0) == pytest.approx((4 + 1) / 0.5)
        # Four or five training rows each, and fifty features: the rows decide.
        assert formula_rounds(Data("synthetic-miniboone"), 20_000, 50, 1.0, 0) == pytest.approx(
            91_044 / 20_000 + 1
        )

    def test_measured_rounds_are_bytes_over_bytes(self) -> None:
        iris = Data("iris")
        run = trained(iris, 6, "iid", "plain", 0, "paper")
        assert run["weights"] > 5 * 3 * 8 and run["upload"] > (5 * 5 + 5 * 3) * 8
        once = measured_rounds(iris, 6, "paper", "plain", 1.0, 0)
        assert once == pytest.approx(run["upload"] / run["weights"])
        assert measured_rounds(iris, 6, "paper", "plain", 0.25, 0) == pytest.approx(4 * once)

    def test_cost_follows_the_ledger(self) -> None:
        run = trained(Data("iris"), 6, "iid", "plain", 0)
        assert 0 < run["training_s"] < run["sum_cpu_s"]
        assert run["wh"] == pytest.approx(65 * run["sum_cpu_s"] / 3600)

    def test_a_quasi_newton_network_learns_the_same_rows(self) -> None:
        assert quasi_newton(Data("iris"), 0) > 90


@pytest.mark.draws
def test_lines_are_drawn_from_measured_rows_only() -> None:
    rows = [{"n": n, "data": "a<b", "ours": value} for n, value in ((1, 0.5), (10, 0.75), (100, None))]
    named = series(rows, "n", "data")
    assert named == {"a<b": [(1, 0.5), (10, 0.75)]}
    svg = lines(named, "clients", "accuracy", log="xy")
    assert svg.startswith("<svg") and "a&lt;b" in svg


@pytest.mark.parametrize("name", ["aggregation", "drift", "fedavg", "ring-mlp", "splitfed", "two-phase"])
def test_tables_have_names_of_their_own_and_rows_that_differ(name: str) -> None:
    tables = list(checkout.load_file("reproductions", name).experiments())
    assert len({table.name for table in tables}) == len(tables) >= 4
    for table in tables:
        rows = [tuple(cell.settings.items()) for cell in table.cells]
        assert len(set(rows)) == len(rows) > 0


def test_a_round_of_activities() -> None:
    from reproductions import aggregation

    try:
        aggregation.federation("majority-even", 200, 0)
    except UnavailableError:
        pytest.skip("har_recomputed is not on this machine")
    one, other = (
        aggregation.course("hwfedavg", "majority-even", 200, 0, hidden="8", rounds=2, protect=protect)
        for protect in ("plain", "masked")
    )
    assert len(one) == len(other) == 2
    assert one[-1]["f1"] == pytest.approx(other[-1]["f1"], abs=0.002)
    assert other[-1]["cpu_s"] > 0


def test_weights_of_clients(tmp_path: Path) -> None:
    from reproductions._client_weights import client_weights

    table = harness.measured(client_weights(), 1, tmp_path, lambda text: None)
    found = {(row["strategy"], row["client"]): row["ours"] for row in table["rows"]}
    if None in found.values():
        pytest.skip("har_recomputed is not on this machine")
    for strategy, sign in (("hwfedavg", 1), ("nwfedavg", -1)):
        shares = [found[strategy, client] for client in range(1, 9)]
        assert sum(shares) == pytest.approx(1, abs=1e-3)
        skewed, even = shares[:6], shares[6:]
        assert all(sign * (one - other) > 0 for one in even for other in skewed)
    assert "figure 1" in Path(table["html"]).read_text() and "figure 2" in Path(table["html"]).read_text()


class TestNoise:
    @pytest.mark.slow
    @pytest.mark.parametrize("data", ["dry_bean", "skin_segmentation"])
    def test_at_an_epsilon_of_one_it_is_within_three_points_of_no_noise(self, data: str) -> None:
        try:
            plain = [noise.accuracy(data, 20, "row", None, seed) for seed in range(5)]
        except (ConfigError, UnavailableError):
            pytest.skip(f"{data} is not on this machine")
        private = [noise.accuracy(data, 20, "row", 1.0, seed) for seed in range(5)]
        assert np.mean(plain) - np.mean(private) < 3.0

    def test_the_table_has_a_cell_for_every_epsilon(self) -> None:
        rows, clients = noise.experiments()
        found = {(cell.settings["data"], cell.settings["epsilon"]): cell for cell in rows.cells}
        assert {epsilon for _, epsilon in found} == {"no noise", *noise.EPSILONS}
        assert found["dry_bean", 1.0].expected == (pytest.approx(87.43), 100.0)
        assert found["dry_bean", 2.0].expected is None
        assert all(cell.slow for cell in clients.cells)
        assert noise.accuracy("digits", 4, "row", 1e6, 0) > noise.accuracy("digits", 4, "row", None, 0) - 3.0


class TestRing:
    def test_rows_and_parameters_are_those_of_tables_1_and_2(self) -> None:
        table = next(iter(ring_mlp.experiments()))
        assert [cell.measure(0) for cell in table.cells] == [cell.paper for cell in table.cells]
        assert len(table.cells) == 10 + 3
        for number, (_, clients, _) in ring_mlp.SCENARIOS.items():
            assert len(ring_mlp.PUBLISHED[number, "local"]) == len(ring_mlp.MEASURES) + clients

    def test_equation_3_is_fitted_to_what_was_measured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def epoch(number: int, key_bits: int, seed: int) -> float:
            _, clients, parameters = ring_mlp.SCENARIOS[number]
            return parameters * (0.002 * clients + 0.0005 * (clients - 1))

        monkeypatch.setattr(ring_mlp, "epoch", epoch)
        for number in ring_mlp.SCENARIOS:
            assert ring_mlp.fitted(number, 2048, 0) == pytest.approx(epoch(number, 2048, 0))

    def test_all_clients_of_the_protocol_have_one_model_and_local_ones_differ(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ring_mlp, "ROUNDS", 20)
        common = [ring_mlp.of_client(1, "tuned", client, 90) for client in range(1, 6)]
        local = [ring_mlp.of_client(1, "local", client, 90) for client in range(1, 6)]
        assert len(set(common)) == 1 < len(set(local))
        assert ring_mlp.mean(1, "tuned", "accuracy", 90) == common[0] > max(local)
        wrong = np.mean([ring_mlp.failures(1, "tuned", label, 90) for label in range(10)])
        assert wrong == pytest.approx(1 - ring_mlp.mean(1, "tuned", "recall", 90))


def test_packed_values_take_a_fraction_of_stock_paillier() -> None:
    ours, improved, stock = (pfmlp.spent(name, 1024, 0) for name in ("ours", "improved", "stock"))
    assert 10 * ours < improved < stock  # measured: 22, 349 and 2,655 µs
    names = [table.name for table in pfmlp.experiments()]
    assert names == ["pfmlp-accuracy", "pfmlp-time"]


def test_messages_of_peer_to_peer_and_two_phase_are_those_that_were_sent() -> None:
    assert two_phase.figure("messages", "p2p-mpc", 8, 0) == 15 * 2 * 8 * 7 == two_phase.survey("p2p-mpc", 8)
    assert two_phase.figure("messages", "two-phase-mpc", 8, 0) == 15 * 2 * 3 * 7 + 2 * 8
    assert two_phase.figure("messages", two_phase.PUBLISHED, 16, 0) == 1470


class TestBook:
    """What stands for every table and figure of the papers."""

    def written(self, out, name, within=True):
        row = {"data": "digits", "paper": 0.9, "ours": 0.91, "within": within}
        absent = {"data": "higgs", "paper": 0.6, "ours": None, "note": "tacit data fetch higgs"}
        table = {"name": name, "title": name, "remarks": "of its rate", "rows": [row, absent]}
        (out / f"{name}.json").write_text(json.dumps(table))

    def test_entries_follow_from_the_tables_that_are_there(self, tmp_path):
        write_book = harness.load_file("reproductions", "_book").write_book
        assert write_book(tmp_path)["counts"]["done"] == 0
        self.written(tmp_path, "fedheonn-ensemble-accuracy")
        self.written(tmp_path, "ring-mlp-time", within=False)
        book = write_book(tmp_path)
        states = {(entry["paper"][:8], entry["item"]): entry["state"] for entry in book["entries"]}
        assert states["Efficien", "table II"] == "done"
        assert states["Training", "figure 9"] == "differs"
        differs = next(entry for entry in book["entries"] if entry["state"] == "differs")
        assert (differs["outside"], differs["absent"]) == (1, 1)
        assert differs["why"] == "of its rate tacit data fetch higgs"
        assert states["Efficien", "figure 1"] == "not repeated"
        assert states["FedHEONN", "figure 2"] == "not measured"
        assert states["Training", "table 3"] == "not measured"
        assert sum(book["counts"].values()) == len(book["entries"]) == 46
        assert all(entry["why"] or entry["state"] != "not repeated" for entry in book["entries"])
        page = (tmp_path / "index.html").read_text()
        assert "+0.01" in page
        assert json.loads((tmp_path / "reproduction.json").read_text()) == book

    def test_what_has_no_data_here_and_what_is_known_to_differ_are_told_apart(self, tmp_path):
        absent = {"data": "higgs", "paper": 60, "ours": None, "note": "tacit data fetch higgs"}
        table = {"name": "fedheonn-rounds", "title": "t", "remarks": "", "rows": [absent]}
        (tmp_path / "fedheonn-rounds.json").write_text(json.dumps(table))
        self.written(tmp_path, "ring-mlp-scores")
        self.written(tmp_path, "fedheonn-tables")
        entries = harness.load_file("reproductions", "_book").write_book(tmp_path)["entries"]
        found = {(one["paper"][:8], one["item"]): one for one in entries}
        assert found["FedHEONN", "figure 7"]["state"] == "not possible here"
        assert found["FedHEONN", "figure 7"]["why"] == "tacit data fetch higgs"
        assert found["FedHEONN", "table 3"]["state"] == "not measured", "the rows are of other data"
        assert found["FedHEONN", "table 4"]["state"] == "not possible here"
        assert found["Training", "table 3"]["state"] == "differs"
        assert "one model" in found["Training", "table 3"]["why"]

    def test_every_table_that_is_named_can_be_made(self):
        contents = harness.folders_of("reproductions")[0] / "contents.toml"
        files = [checkout.load_file("reproductions", name) for name in list_files("reproductions")]
        made = [each for file in files for each in file.experiments()]
        rows_of = harness.load_file("reproductions", "_book")._rows_of
        for item in (
            each for paper in tomllib.loads(contents.read_text())["paper"] for each in paper["items"]
        ):
            for name in item.get("tables", []):
                tables = [each for each in made if each.name.startswith(name)]
                assert any(rows_of(item, [cell.settings for cell in each.cells]) for each in tables), name

    def test_a_table_of_which_something_is_expected_says_what_may_differ(self):
        files = [checkout.load_file("reproductions", name) for name in list_files("reproductions")]
        for table in (each for file in files for each in file.experiments()):
            assert table.remarks or not any(cell.expected for cell in table.cells), table.name

    def test_rows_are_kept_and_measured_again_only_if_asked(self, tmp_path, monkeypatch):
        asked = []
        cell = Cell({"data": "x"}, lambda seed: asked.append(seed) or 1.0)
        experiment = Experiment("kept", "T", "P", "q", {}, 2, [cell])
        (tmp_path / "rows").mkdir()
        for fresh, times in ((False, 2), (False, 2), (True, 4)):
            table = harness.measured(experiment, None, tmp_path, lambda text: None, fresh=fresh)
            assert table["rows"][0]["ours"] == 1.0
            assert len(asked) == times
        two, told = replace(experiment, cells=[cell, replace(cell, settings={"data": "y"})]), []
        papers_here(monkeypatch, [two])
        harness.reproduce_papers("some", out=tmp_path, progress=lambda *facts: told.append(facts))
        assert told == [(0, 1, "kept: data y")], "what is kept takes no time, and is not counted"
        harness.measured(experiment, 3, tmp_path, lambda text: None)
        assert asked[6:] == [2], "the seeds that are kept count"
        (row, _) = (tmp_path / "rows").iterdir()
        for damage in ("{", "[null]", '"12"', "[true]", "[NaN]", "[1e999]", '{"7": 1.0}', "[[1.0]]", "7"):
            row.write_text(damage)
            del asked[:]
            harness.measured(two, None, tmp_path, lambda text: None)
            assert asked == [0, 1], f"measured again: {damage}"


class TestSurvey:
    """The survey's formulas, and what a small run counts."""

    def test_every_framework_is_a_method_and_formulas_are_those_of_the_survey(self):
        frameworks = harness.load_file("reproductions", "_survey_formulas")
        assert {*frameworks.FRAMEWORKS} <= {*METHODS.names()}
        sizes = frameworks.Sizes(C=16, n=10, M=4, S=650, R=15)
        counted = {
            name: [formula(sizes) for _, formula in framework.messages.values()]
            for name, framework in frameworks.FRAMEWORKS.items()
        }
        assert (counted["p2p-mpc"], counted["two-phase-mpc"]) == ([7200], [1530, 1470])
        assert (counted["fedavg"], counted["pfmlp"]) == ([480], [4 * 240 + 16, 3 * 240 + 16])

    def test_a_round_of_classic_learning_has_the_survey_s_messages(self):
        survey = harness.load_file("reproductions", "survey")
        assert survey.round_messages("fedavg", 0) == 2 * survey.BASE["clients"]
        assert survey.seen_alone("fedavg", 0) > 0


def test_without_a_terminal_progress_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with OneBar(quiet=False) as bar:
        bar(0, 4, "first")
        bar(1, 4, "second")  # not half a minute later
        bar._told, bar._began = bar._told - 60, bar._began - 60
        bar(2, 4, "third")
    told = [line for line in capsys.readouterr().err.splitlines() if line]
    assert told[0] == "0 of 4: first"
    assert len(told) == 2
    assert told[1].startswith("2 of 4, ")
    assert told[1].endswith(" left: third")
    with OneBar(quiet=False) as bar:
        bar(0, 4, "")
    assert capsys.readouterr().err.split("\n")[0] == "0 of 4"
