"""Processes that are killed at any instant lose nothing they acknowledged, and count nothing twice.

``kill -9`` of real processes, again and again: of a standing federation while contributions come and go, and
of ``tacit run`` and ``tacit resume``. What is there in the end is what an undisturbed process leaves.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tacit.protections import PROTECTIONS
from tacit.standing import Standing
from tacit.standing.book import Book
from tests.quick import Mode, representatives

HELPERS = Path(__file__).parents[1] / "helpers"
# By protection; 112 of a standing federation and 25 of runs, times this.
SCALE = float(os.environ.get("TACIT_KILLS", "1"))
STANDING = {"plain": 40, "bfv": 30, "masked": 42}
RUNS = {"plain": 13, "masked": 12}
QUICK = 3
LEAVING = ("client-01:all", "client-02:all", "client-05:all")
SINGLE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
JOB = """
[method]
name = "fedavg"
rounds = 12
hidden = 4
[data]
name = "iris"
[partition]
name = "iid"
clients = 5
[protect]
name = "{protect}"
[run]
baselines = false
"""


def kills_of(kinds, name):
    return QUICK if Mode.quick else round(kinds[name] * SCALE)


@pytest.fixture(scope="module")
def worker():
    """The process that works; say what on which folder, and perhaps how many seconds until it is killed."""
    process = subprocess.Popen(
        [sys.executable, str(HELPERS / "standing_worker.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **SINGLE},
    )
    assert process.stdout.readline() == "ready\n"

    def work(what, folder, seconds=float("inf")):
        process.stdin.write(f"{seconds} {what} {folder}\n")
        process.stdin.flush()
        said = []
        while (line := process.stdout.readline().strip()) != "gone":
            assert line, "the worker itself ended"
            said.append(line)
        assert "failed" not in said, "it ended with an error"
        return said

    yield work
    process.stdin.close()
    process.wait(timeout=30)
    process.stdout.close()


@pytest.fixture(scope="module")
def federation():
    sys.path.insert(0, str(HELPERS))
    try:
        from standing_worker import federation

        return federation()
    finally:
        sys.path.remove(str(HELPERS))


def instants(longest):
    """Seconds to live: at first few, so that there are many kills; more later, so that it comes to an end."""
    rng = np.random.default_rng()  # another instant in every test run; the result must always be the same
    for kills in range(1000):
        yield float(rng.uniform(0, longest)) * (0.3 + kills / 12)


@pytest.mark.parametrize("name", representatives(STANDING, "masked"))
def test_a_standing_federation(name, worker, federation, tmp_path):
    protect, wanted, kills = PROTECTIONS.build(name), kills_of(STANDING, name), 0
    Standing.start(tmp_path / "fresh", federation, protect=protect, min_clients=3, founders=4).close()
    shutil.copytree(tmp_path / "fresh", tmp_path / "undisturbed")
    started = time.perf_counter()
    expected = worker("change", tmp_path / "undisturbed")
    longest = time.perf_counter() - started
    assert expected[-1] == "done"
    with Standing.open(tmp_path / "undisturbed", federation) as standing:
        weights = standing.weights().weights
    while kills < wanted:
        shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        shutil.copytree(tmp_path / "fresh", tmp_path / "killed")
        acknowledged, lives = [], instants(longest)
        while "done" not in acknowledged:
            seconds = next(lives) if kills < wanted else float("inf")
            said = worker("change", tmp_path / "killed", seconds)
            kills += "killed" in said
            acknowledged += [line for line in said if line != "killed"]
            check_acknowledged(acknowledged, kept(tmp_path / "killed"))
        assert kept(tmp_path / "killed") == kept(tmp_path / "undisturbed")
        with Standing.open(tmp_path / "killed", federation) as standing:
            assert standing.status()["changes"] == 14  # eleven came, three went: nothing was counted twice
            found = standing.weights().weights
        assert np.abs(found - weights).max() <= (1e-6 if name == "bfv" else 1e-8)
    assert kills >= wanted


def check_acknowledged(acknowledged, lines):
    for said in (line for line in acknowledged if line != "done"):
        sign, name = said[0], said[1:]
        assert name in lines
        if sign == "-" or name not in LEAVING:
            assert lines[name] == (sign == "+")


def kept(folder):
    """Which contributions are in the total, and which were withdrawn."""
    book = Book(folder / "coordinator.db")
    try:
        return {line.id: line.present for line in book.contributions()}
    finally:
        book.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_runs_that_go_on(name, worker, tmp_path):
    wanted, kills, resumed = kills_of(RUNS, name), 0, 0
    whole = prepared(tmp_path / "undisturbed", name)
    started = time.perf_counter()
    assert worker("run", whole) == ["run 0", "done"]
    longest = time.perf_counter() - started
    (expected,) = results(whole)
    while kills < wanted:
        shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        folder, said, lives = prepared(tmp_path / "killed", name), [], instants(longest)
        while "done" not in said:
            seconds = next(lives) if kills < wanted else float("inf")
            said = worker("run", folder, seconds)
            kills += "killed" in said
            resumed += "resume 0" in said
        assert said in (["run 0", "done"], ["resume 0", "done"])
        *_, found = results(folder)
        assert found["model"] == expected["model"]
        assert [entry["round"] for entry in found["rounds"]] == list(range(1, 13))
        assert found["rounds"] == expected["rounds"]
        assert not list(folder.glob("runs/*/checkpoint.bin"))
    assert kills >= wanted
    assert resumed, "none went on: it was killed too early or too late"


def prepared(folder, protect):
    folder.mkdir()
    (folder / "job.toml").write_text(JOB.format(protect=protect))
    return folder


def results(folder):
    """Results of runs that came to an end; every line of their events can be read."""
    for events in folder.glob("runs/*/events.jsonl"):
        whole = events.read_bytes()[: events.read_bytes().rfind(b"\n") + 1]
        assert all(json.loads(line) for line in whole.splitlines())
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/result.json"))]
    assert not [result["error"] for result in found if "error" in result]
    return found
