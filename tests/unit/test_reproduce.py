"""Repeating papers: what a table says, where it is written, and FedHEONN's own figures."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tacit.core.errors import ConfigError, UnavailableError
from tacit.reproduce import harness
from tacit.reproduce.fedheonn import accuracy, experiments
from tacit.reproduce.harness import Cell, Experiment, papers, reproduce_papers


def absent(seed: int) -> float:
    raise UnavailableError("the data set <b>x</b> is not on this machine")


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A paper with four figures."""
    cells = [
        Cell({"data": "absent"}, 1.0, (0.0, 2.0), absent),
        Cell({"data": "good"}, 90.0, (1.0, 2.0), lambda seed: 1.0 + seed),
        Cell({"data": "bad"}, 90.0, (80.0, 100.0), lambda seed: 1.0),
        Cell({"data": "new"}, None, None, lambda seed: 1.0),
    ]
    table = Experiment("t", "A title", "Somebody, Some paper", "things", {"lam": 0.5}, 2, cells, "A remark")
    monkeypatch.setattr(harness, "PAPERS", {"some": "some.module"})
    monkeypatch.setattr(harness, "import_module", lambda _: SimpleNamespace(experiments=lambda: [table]))


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
        papers("fedheon")
    with pytest.raises(ConfigError, match="seeds is 0"):
        reproduce_papers("fedheonn", seeds=0, out=tmp_path)
    (tmp_path / "taken").touch()
    with pytest.raises(UnavailableError, match="taken"):
        reproduce_papers("fedheonn", out=tmp_path / "taken")


def test_fedheonn_has_a_figure_for_every_setting() -> None:
    (table,) = experiments()
    settings = [tuple(cell.settings.values()) for cell in table.cells]
    assert len(set(settings)) == len(settings) == 13
    assert ("dry_bean", 2000, "label-sorted") in settings
    assert all(cell.expected is not None for cell in table.cells)
    assert {cell.paper for cell in table.cells} == {90.43, 92.56, None}


def test_fedheonn_on_digits_is_the_same_for_any_division_and_within_the_range() -> None:
    (table,) = experiments()
    found = [cell.measure(0) for cell in table.cells if cell.settings["data"] == "digits"]
    assert len(found) == 3
    assert max(found) - min(found) < 1e-9
    assert found[0] == accuracy("digits", 5, "iid", 0) > 90


def test_figures_stand_in_the_page_of_their_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.reproduce.curves import curves

    drawn: list[int] = []

    def figures(seeds: int) -> dict[str, str]:
        drawn.append(seeds)
        return {"F1 <by> round": curves({"fedavg": [0.5, 0.9], "fedyogi": [0.4, 0.8]}, "round", "F1")}

    cells = [Cell({"data": "good"}, None, None, lambda seed: 1.0)]
    table = Experiment("t", "A title", "A paper", "things", {}, 3, cells, figures=figures)
    monkeypatch.setattr(harness, "PAPERS", {"some": "some.module"})
    monkeypatch.setattr(harness, "import_module", lambda _: SimpleNamespace(experiments=lambda: [table]))
    reproduce_papers("some", out=tmp_path)
    page = (tmp_path / "t.html").read_text()
    assert drawn == [3]
    assert page.count("<svg") == 1
    assert "F1 &lt;by&gt; round" in page and "fedyogi" in page


@pytest.mark.parametrize("name", ["aggregation", "fedavg"])
def test_tables_have_names_of_their_own_and_rows_that_differ(name: str) -> None:
    tables = list(harness._experiments(name))
    assert len({table.name for table in tables}) == len(tables) >= 4
    for table in tables:
        rows = [tuple(cell.settings.items()) for cell in table.cells]
        assert len(set(rows)) == len(rows) > 0


def test_a_round_of_activities(monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.reproduce import aggregation

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
