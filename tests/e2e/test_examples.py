"""What README, docs and examples show is what happens."""

from __future__ import annotations

import ast
import pkgutil
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tacit.protections import PROTECTIONS
from tests.unit.test_documented_code import PAGES, blocks

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("quickstart.py", "accuracy 0.939, 3103 messages"),
        pytest.param("hospitals.py", "five hospitals: accuracy", marks=pytest.mark.slow),
        pytest.param("scikit_learn.py", "same predictions: True", marks=pytest.mark.slow),
    ],
)
def test_examples(tmp_path: Path, name: str, word: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert word in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_readme_shows_the_first_example() -> None:
    (shown,) = blocks(ROOT / "README.md", "python")
    assert (ROOT / "examples" / "quickstart.py").read_text().endswith(shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_no_place_of_the_developers(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"\.\./shared|/work/|/root/|/home/|\bsession\b", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:|mailto:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda p: p.name
)
def test_names_of_ours_that_a_page_tells_are_there(page: Path) -> None:
    for name in set(re.findall(r"`(tacit(?:\.\w+)+)`", page.read_text(encoding="utf-8"))):
        assert pkgutil.resolve_name(name) is not None


def test_the_picture_of_the_rooms_shows_those_of_the_import_contract() -> None:
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rooms = [layer.removeprefix("tacit.") for layer in contract["layers"] if not layer.startswith("(")]
    drawn = re.findall(r"monospace\)\">(\w+)</text>", (ROOT / "docs" / "rooms.svg").read_text())
    assert drawn == rooms


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_that_follow_from_the_code_are_up_to_date(page: Path) -> None:
    """If this fails, run ``python docs/generate.py``."""
    text = page.read_text(encoding="utf-8")
    assert runpy.run_path(str(ROOT / "docs" / "generate.py"))["generate"](text) == text


def test_every_adversary_and_protection_has_a_test() -> None:
    """And a test that is there: the table of SECURITY.md names one for each pair."""
    table = tomllib.loads((ROOT / "docs" / "adversaries.toml").read_text(encoding="utf-8"))
    assert len(table) == 6
    for adversary, part in table.items():
        assert part["cells"].keys() == {*PROTECTIONS.classes.values()}, adversary
        for _, _, test in part["cells"].values():
            path, *names = test.split("::")
            inside: Any = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            for name in names:
                (inside,) = [node for node in inside.body if getattr(node, "name", "") == name]


def test_pages_show_every_promise_and_name_every_component() -> None:
    from tacit.cli.promises import described

    for part in described():
        page = (ROOT / "docs" / f"{part['name']}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# {part['name']}\n")
        assert f"<!-- generated: cost {part['name']} -->\n\n| `--protect` |" in page
        assert f"<!-- generated: promises {part['name']} -->" in page
        for other in part["variants"]:
            words = " ".join(f"{key}={value}" for key, value in other["settings"].items())
            assert f"<!-- generated: promises {part['name']} {words} -->" in page
    for name, region in (
        ("README.md", "protections brief"),
        ("SECURITY.md", "protections"),
        ("docs/cli.md", "methods"),
    ):
        assert f"<!-- generated: {region} -->" in (ROOT / name).read_text(encoding="utf-8")


def test_pages_name_every_exposure_class_and_every_option() -> None:
    from typing import get_args

    from tacit.core.values import BlobKind
    from tacit.protections import PROTECTIONS

    page = (ROOT / "docs" / "exposure.md").read_text(encoding="utf-8")
    for kind in ("plain", "aggregate", *get_args(BlobKind)):
        assert f"| `{kind}` |" in page
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name in PROTECTIONS:
        for option in PROTECTIONS.get(name).options():
            assert f"| `{option.name}` |" in page, (name, option.name)
