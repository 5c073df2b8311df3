"""Runs of neural methods through the command: going on after a kill, scores by round, every format."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.conftest import MAIN, Tacit

SMALL = (
    "--data",
    "digits",
    "--rows",
    300,
    "--clients",
    4,
    "--partition",
    "iid",
    "--hidden",
    8,
    "--no-baselines",
)


def killed(folder: Path, *words: object) -> Path:
    """Start a run, kill it without warning once it has a checkpoint, and give its folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "run", *map(str, words), "-q"], cwd=folder, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 30
    while not (found := list(folder.glob("runs/*/checkpoint.bin"))):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return found[0].parent


@pytest.mark.parametrize(
    ("method", "protect"),
    [
        ("fedavg", "masked"),
        pytest.param("fedadam", "plain", marks=pytest.mark.slow),
        pytest.param("fedyogi", "shares", marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_goes_on_to_the_same_model(
    tacit: Tacit, tmp_path: Path, protect: str, method: str
) -> None:
    words = ("--method", method, "--protect", protect, "--rounds", 60, *SMALL)
    folder = killed(tmp_path, *words)
    assert not (folder / "result.json").exists()
    resumed = tacit("resume", "latest", "--json").json
    assert resumed["run"] == folder.name
    whole = tacit("run", *words, "--json").json
    assert resumed["model"] == whole["model"]
    done = json.loads((folder / "result.json").read_text())
    assert [entry["round"] for entry in done["rounds"]] == list(range(1, 61))
    assert not (folder / "checkpoint.bin").exists()
    one, other = ((Path(run["folder"]) / "model.safetensors").read_bytes() for run in (resumed, whole))
    assert one == other


def test_what_cannot_go_on_says_why(tacit: Tacit) -> None:
    said = tacit("resume", "latest", "--json")
    assert said.code == 2
    assert "methods with rounds" in said.json["error"]["text"]
    run = tacit("run", "--method", "fedavg", "--rounds", 1, *SMALL, "--json").json["run"]
    said = tacit("resume", run, "--json")
    assert said.code == 2
    assert "finished runs have none" in said.json["error"]["text"]


def test_a_damaged_checkpoint_is_refused(tacit: Tacit, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "x"
    folder.mkdir(parents=True)
    (folder / "checkpoint.bin").write_bytes(b"half of it")
    said = tacit("resume", "x", "--json")
    assert said.code == 2
    assert "cannot be read" in said.json["error"]["text"]


def test_scores_by_round_are_in_result_and_report(tacit: Tacit) -> None:
    said = tacit("run", "--method", "fedavg", "--rounds", 3, *SMALL, "--json").json
    folder = Path(said["folder"])
    rounds = json.loads((folder / "result.json").read_text())["rounds"]
    assert [entry["round"] for entry in rounds] == [1, 2, 3]
    assert rounds[-1]["accuracy"] == pytest.approx(said["accuracy"])
    assert "Round by round" in (folder / "report.html").read_text()


@pytest.mark.draws
def test_accuracy_against_epsilon_is_in_the_report(tacit: Tacit) -> None:
    words = ("--example-noise", 0.8, "--example-sampling", 0.5, "--example-epsilon", 60)
    said = tacit("run", "--method", "fedavg", "--rounds", 2, *words, *SMALL, "--json").json
    folder = Path(said["folder"])
    rounds = json.loads((folder / "result.json").read_text())["rounds"]
    spent = [entry["epsilon_rows"] for entry in rounds]
    assert 0 < spent[0] < spent[1] <= 60
    assert not any("epsilon" in entry for entry in rounds)
    page = (folder / "report.html").read_text()
    assert "epsilon for one row" in page
    assert "epsilon for one client" not in page


@pytest.mark.draws
def test_two_kinds_of_noise_have_a_curve_each(tacit: Tacit) -> None:
    words = ("--example-noise", 0.8, "--example-sampling", 0.5, "--example-epsilon", 60)
    noised = ("--protect", "noised", "--epsilon", 50, "--weighting", "equal", "--scale", "none")
    said = tacit("run", "--method", "fedavg", "--rounds", 2, *words, *noised, *SMALL, "--json").json
    folder = Path(said["folder"])
    result = json.loads((folder / "result.json").read_text())
    for key, last in (
        ("epsilon", result["ledger"]["privacy"]),
        ("epsilon_rows", result["ledger"]["privacy"]["rows"]),
    ):
        spent = [entry[key] for entry in result["rounds"]]
        assert 0 < spent[0] < spent[1] == last["epsilon"]
    page = (folder / "report.html").read_text()
    assert "epsilon for one row" in page
    assert "epsilon for one client" in page


def test_layers_in_the_clear_are_in_the_exposure(tacit: Tacit) -> None:
    words = ("--method", "fedavg", "--rounds", 1, "--protect", "masked", "--protect-layers", 1)
    tacit("run", *words, *SMALL, "--json")
    said = tacit("exposure").out
    assert "delta/layer1.weight" in said.split("\n")[1]
    assert "layer2" not in said.split("\n")[1]


@pytest.mark.parametrize("kind", ["safetensors", "onnx"])
def test_export(tacit: Tacit, tmp_path: Path, kind: str) -> None:
    if kind == "onnx":
        runtime = pytest.importorskip("onnxruntime")
    tacit("run", "--method", "fedavg", "--rounds", 1, *SMALL, "--json")
    said = tacit("export", "--format", kind, "--to", "model.out", "--json").json
    raw = (tmp_path / "model.out").read_bytes()
    assert said["bytes"] == len(raw)
    if kind == "onnx":
        session = runtime.InferenceSession(raw, providers=["CPUExecutionProvider"])
        feed = {each.name: np.zeros((2, 1)) for each in session.get_inputs()}
        assert len(feed) == 64 and session.run(["label"], feed)[0].shape == (2,)
