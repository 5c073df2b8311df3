"""Benches: what a row says, which benches there are, and what a bench prints."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks._harness import Row, cpu, machine, run_bench
from tacit.checkout import list_files, load_file
from tacit.core.errors import ConfigError
from tacit.ledger.cost import peak_megabytes


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACIT_BENCHMARKS", str(tmp_path))
    (tmp_path / "speed.py").write_text(
        "from benchmarks._harness import Row\n"
        "def rows():\n"
        "    yield Row('twice', 1.0, 's', baseline=2.0, target=1.5)\n"
        "    yield Row('alone', None, 's', note='cannot be measured here')\n"
    )
    (tmp_path / "_helper.py").write_text("raise RuntimeError('not a bench')\n")
    return tmp_path


@pytest.mark.parametrize(
    ("row", "ratio", "met"),
    [
        (Row("faster", 1.0, "s", baseline=3.0, target=2.0), 3.0, True),
        (Row("slower", 3.0, "s", baseline=3.0, target=2.0), 1.0, False),
        (Row("more", 6.0, "rows/s", baseline=2.0, target=2.0, at_least=True), 3.0, True),
        (Row("at most", 5.0, "µs", target=4.0), None, False),
        (Row("at least", 5.0, "rows/s", target=4.0, at_least=True), None, True),
        (Row("absent", None, "s", baseline=3.0, target=2.0), None, None),
        (Row("no target", 1.0, "s", baseline=3.0), 3.0, None),
        (Row("nothing", 0.0, "s", baseline=3.0), None, None),
    ],
    ids=lambda row: getattr(row, "name", None),
)
def test_ratio_and_target(row: Row, ratio: float | None, met: bool | None) -> None:
    assert (row.ratio, row.met) == (ratio, met)


def test_own_benches_are_found_and_run(own: Path) -> None:
    found = run_bench("speed")
    assert found.keys() == {"bench", "machine", "results"}
    assert [row["ratio"] for row in found["results"]] == [2.0, None]
    assert json.loads(msgspec.json.encode(found)) == found


def test_a_typing_error_names_the_nearest(own: Path) -> None:
    assert list_files("benchmarks") == ["speed"]
    with pytest.raises(ConfigError, match="unknown bench 'sped': did you mean 'speed'"):
        list_files("benchmarks", "sped")
    with pytest.raises(ConfigError, match="did you mean 'speed'"):
        run_bench("sped")


def test_a_folder_that_is_no_checkouts_is_refused(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.checkout.folders_of", lambda kind: [own])
    with pytest.raises(ConfigError, match=r"has no _originals\.py: run this in a checkout of Tacit"):
        load_file("benchmarks", "_originals")


def test_the_benches_of_the_checkout() -> None:
    assert "engine" in list_files("benchmarks")


def test_the_machine_is_described_without_its_name() -> None:
    found = json.dumps(machine())
    assert "python" in found
    assert socket.gethostname() not in found


def test_functions_are_measured_in_turn_and_the_least_is_kept() -> None:
    calls: list[str] = []
    times = cpu(lambda: calls.append("a"), lambda: calls.append("b"), repeats=3)
    assert calls == ["a", "b"] * 3
    assert all(0 <= seconds < 1 for seconds in times)


def test_peak_memory_is_of_the_process_that_asks_not_of_its_parent():
    held = np.ones(1 << 25)  # 256 MB that the child never has
    told = "from tacit.ledger.cost import peak_megabytes; print(peak_megabytes())"
    child = subprocess.run([sys.executable, "-c", told], capture_output=True, check=True, text=True)
    assert 10 < float(child.stdout) < 200 < held.nbytes / 2**20 < peak_megabytes()


def test_peak_memory_of_another_process_is_zero_once_it_has_ended():
    held = "x = bytearray(1 << 26); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        assert 64 < peak_megabytes(child.pid) < 200
        child.kill()
        child.wait()
        assert peak_megabytes(child.pid) == 0
