"""Report and comparison as a real browser shows them: no errors, and the numbers of ``result.json``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tacit.runs.page.scores import OTHERS, SHARES, WAYS, scores_of, write

pytestmark = pytest.mark.draws
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium, as .ci/run does"
)


class Page(HTMLParser):
    """The tables, headings, cards and drawings of a document as a browser has it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.rows: list[list[str]] = []
        self.cards: dict[str, str] = {}
        self.drawings: list[str] = []
        self._into: list[str] = []
        self._name = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._into.append(tag)
        if tag == "svg":
            self.drawings.append(dict(attributes).get("aria-label") or "")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._into:
            while self._into.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        where = self._into[-1] if self._into else ""
        if where in ("td", "th"):
            self.rows[-1][-1] += data
        elif where == "h2":
            self.headings.append(data)
        elif where == "span":
            self._name = data
        elif where == "strong":
            self.cards[self._name] = data


def shown(path: Path, home: Path) -> tuple[Page, list[str]]:
    """Open a page; return it as it stands after loading, and what its console said."""
    assert CHROMIUM is not None
    words = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        f"--user-data-dir={home}",
    ]
    done = subprocess.run(
        [CHROMIUM, *words, "--dump-dom", path.absolute().as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return Page(done.stdout), re.findall(r"CONSOLE[:(].*", done.stderr)


@needs_chromium
def test_the_console_is_listened_to(tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text("<!doctype html><title>x</title><script>nothing.there()</script>")
    _, said = shown(page, tmp_path / "home")
    assert any("nothing is not defined" in line for line in said)


@needs_chromium
def test_a_report_shows_the_numbers_of_its_result_without_errors(tacit, tmp_path: Path) -> None:
    tacit(
        "run", "--data", "iris", "--clients", 4, "--partition", "iid", "--holdout", 0.4, "--protect", "plain"
    )
    (folder,) = (tmp_path / "runs").iterdir()
    result = json.loads((folder / "result.json").read_text())
    page, said = shown(folder / "report.html", tmp_path / "home")
    assert said == []
    named = {"How well it does", "Site by site", "Class by class", "How sure it is", "What it looks at"}
    assert named <= {*page.headings}
    ways = {WAYS[way]: scores_of(result, way) for way in WAYS}
    assert [*ways] in [row[1:] for row in page.rows]
    for name, title in (SHARES | OTHERS).items():
        if name in ways["federated"]:
            cells = [write(name, scores.get(name)) for scores in ways.values()]
            assert [title, *cells] in page.rows, title
    assert page.cards["Accuracy"] == write("accuracy", result["accuracy"])
    assert page.cards["Messages"] == f"{result['messages']:,}"
    column, fall = next(iter(result["importance"].items()))
    (row,) = (row for row in page.rows if row[0] == column and len(row) == 2)
    assert float(row[1]) == pytest.approx(fall, rel=1e-2)
    assert len(page.drawings) >= 8
    assert all(page.drawings)


@needs_chromium
def test_a_regression_shows_its_errors_and_two_runs_compare(tacit, csv, tmp_path: Path) -> None:
    path = csv(label="{y:.3f}")
    words = ("run", "--data", path, "--task", "regression", "--activation", "linear", "--partition", "iid")
    for seed in (0, 1):
        said = tacit(*words, "--clients", 3, "--protect", "plain", "--no-baselines", "--seed", seed)
        assert said.code == 0, said.err
    first, second = (path.name for path in sorted((tmp_path / "runs").iterdir()))
    page, said = shown(tmp_path / "runs" / first / "report.html", tmp_path / "home")
    assert said == []
    assert {"Where it errs", "What it looks at"} <= {*page.headings}
    assert {"Predicted against true targets", "Errors"} <= {*page.drawings}
    found = tacit("compare", first, second, "--to", "two.html", "--json").json
    page, said = shown(tmp_path / "two.html", tmp_path / "home")
    assert said == []
    assert ["", first, second] in page.rows
    row = next(row for row in page.rows if row[0] == "R²")
    shown_values = [float(cell.removesuffix(" ★").replace("−", "-")) for cell in row[1:]]
    assert shown_values == pytest.approx(found["scores"]["r2"]["values"], abs=1e-4)
