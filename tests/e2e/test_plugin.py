"""A method and a protection from another package: installed, checked, run from the command line, reported."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tacit.core.errors import QuorumError
from tacit.federation import Federation
from tacit.methods import METHODS
from tacit.protections import PROTECTIONS
from tacit.testing import check_method, check_protection

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"
KEY = "TACIT_PADS_KEY"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the package is installed, from a copy: building leaves files behind."""
    source, target = (tmp_path_factory.mktemp(name) for name in ("source", "site"))
    shutil.copytree(PLUGIN, source, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.egg-info", "build"))
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *offline, "--target", target, source]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(autouse=True)
def plugin(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the package on the path, and its key in the environment."""
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv(KEY, "a secret that all clients know")
    yield
    for name in [name for name in sys.modules if name.startswith("tacit_toys")]:
        del sys.modules[name]


def test_both_are_registered_and_keep_what_they_have_to_keep() -> None:
    assert "class-means" in METHODS.names()
    assert "pads" in PROTECTIONS.names()
    check_method(METHODS.build("class-means"))
    check_protection(PROTECTIONS.build("pads"))


def test_the_command_runs_them_lists_them_and_reports(tacit, tmp_path: Path) -> None:
    words = ["--data", "iris", "--clients", 6, "--method", "class-means", "--protect", "pads"]
    assert tacit("run", *words, "--no-baselines", "--json").json["accuracy"] > 0.7
    said = tacit("exposure").out
    assert "The coordinator received ciphertexts of every client, which it cannot open" in said
    (report,) = tmp_path.rglob("report.html")
    page = report.read_text(encoding="utf-8")
    assert "class-means" in page
    assert "a toy, whose messages are not authenticated" in page
    assert "Nearest class mean" in tacit("methods").out
    listed = " ".join(tacit("protections", "pads").out.split())  # whatever the width of the terminal
    assert "the coordinator with any one client opens every contribution" in listed


def test_each_goes_with_what_tacit_has() -> None:
    federation = Federation.embedded("iris", clients=6)
    for method, protect in (("fedheonn", "pads"), ("fedavg", "pads"), ("class-means", "ckks")):
        training = federation.train(method, protect=protect)
        assert training.model.scores(federation.test)["accuracy"] > 0.6


def test_without_a_key_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY)
    with pytest.raises(QuorumError, match=f"set {KEY} at each site"):
        Federation.embedded("iris", clients=6).train("class-means", protect="pads")
