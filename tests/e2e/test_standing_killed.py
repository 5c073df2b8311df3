"""A coordinator that is killed at any instant loses nothing it acknowledged, and counts nothing twice."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tacit.protections import PROTECTIONS
from tacit.standing import Standing
from tacit.standing.book import Book
from tests.quick import representatives

HELPERS = Path(__file__).parents[1] / "helpers"
KILLS = 25
LEAVING = ("client-01:all", "client-02:all", "client-05:all")
SINGLE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@pytest.fixture(scope="module")
def worker():
    """The process that works; give it a folder, and perhaps how many seconds until it is killed."""
    process = subprocess.Popen(
        [sys.executable, str(HELPERS / "standing_worker.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **SINGLE},
    )
    assert process.stdout.readline() == "ready\n"

    def work(folder, seconds=float("inf")):
        process.stdin.write(f"{seconds} {folder}\n")
        process.stdin.flush()
        said = []
        while (line := process.stdout.readline().strip()) != "gone":
            assert line, "the worker itself ended"
            said.append(line)
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


@pytest.mark.parametrize("name", representatives(["plain", "ckks", "masked"], "masked"))
def test_killed_at_random_instants(name, worker, federation, tmp_path):
    protect = PROTECTIONS.build(name)
    for path in ("killed", "undisturbed"):
        Standing.start(tmp_path / path, federation, protect=protect, min_clients=3, founders=4).close()
    started = time.perf_counter()
    expected = worker(tmp_path / "undisturbed")
    longest = time.perf_counter() - started
    assert expected[-1] == "done"

    rng = np.random.default_rng()  # another instant in every test run; the result must always be the same
    acknowledged, kills = [], 0
    while "done" not in acknowledged:
        # At first early, so that there are many kills; later ones let it get further, so that it ends.
        seconds = float(rng.uniform(0, longest)) * (0.3 + kills / KILLS) if kills < KILLS else float("inf")
        acknowledged += worker(tmp_path / "killed", seconds)
        kills += 1
        lines = kept(tmp_path / "killed")
        for said in (line for line in acknowledged if line != "done"):
            sign, name_of = said[0], said[1:]
            assert name_of in lines
            if sign == "-" or name_of not in LEAVING:
                assert lines[name_of] == (sign == "+")
    assert kills > 1, "it was never killed: make the plan longer"
    assert kept(tmp_path / "killed") == kept(tmp_path / "undisturbed")

    models = []
    for path in ("killed", "undisturbed"):
        with Standing.open(tmp_path / path, federation) as standing:
            assert standing.status()["changes"] == 14  # eleven came, three went: nothing was counted twice
            models.append(standing.weights().weights)
    assert np.abs(models[0] - models[1]).max() <= (1e-6 if name == "ckks" else 1e-8)


def kept(folder):
    """Which contributions are in the total, and which were withdrawn."""
    book = Book(folder / "coordinator.db")
    try:
        return {line.id: line.present for line in book.contributions()}
    finally:
        book.close()
