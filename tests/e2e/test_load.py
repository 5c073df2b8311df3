"""How much a federation bears: many sites, large messages, thousands of contributions."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tacit.data.table import Table
from tacit.federation import Federation
from tacit.standing import Standing
from tests.helpers.operated import Operated, wait_until

pytest.importorskip("flwr")
pytestmark = [pytest.mark.slow, pytest.mark.operations, pytest.mark.xdist_group("flower")]

SITES = int(os.environ.get("TACIT_SITES", "8"))  # as many as this machine can carry
COLUMNS, HIDDEN = 2_000, 6_250  # 12.5 million weights, 100 MB in double precision
CONTRIBUTIONS, CLIENTS = 2_000, 20


def note(**figures):
    """Write what was measured to the file that TACIT_FIGURES names, if it does."""
    if path := os.environ.get("TACIT_FIGURES"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures) + "\n")


def memory_of(processes):
    """Return the megabytes that processes use, what they share counted once."""
    total = 0
    for number in processes:
        lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def resident():
    """Return the megabytes of this process that are in memory."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line]
    return int(line.split()[1]) / 1024


def test_many_sites(tmp_path):
    names = [f"site-{number:02}" for number in range(SITES)]
    with Operated(tmp_path, names, min_count="1") as fed:
        wait_until("all sites being connected", lambda: fed.online() == names, 600)
        used = sum(memory_of(fed.processes(name)) for name in names) / len(names)
        result = fed.submit(method={"name": "fedheonn"}, run={"min_count": 1, "baselines": False})
    assert result["clients"] == SITES
    assert result["failures"] == []
    waves = result["ledger"]["waves"]
    seconds = sum(wave["wall_s"] for wave in waves) / len(waves)
    note(sites=SITES, megabytes_of_a_site=round(used), seconds_of_a_wave=round(seconds, 1))


def write_wide(path, place, sites):
    rng = np.random.default_rng(place)
    lines = [",".join([*(f"x{column}" for column in range(COLUMNS)), "outcome"])]
    for row in rng.normal(size=(30, COLUMNS)).round(2):
        lines.append(",".join([*map(str, row), "no" if row[0] < 0 else "yes"]))
    path.write_text("\n".join(lines) + "\n")


def model_of(folder):
    return load_file(folder / "model.safetensors")


def test_a_hundred_megabytes_in_a_message(tmp_path):
    """Down and up, between three sites and a coordinator; the model is that of the embedded engine."""
    names, accept = ("north", "south", "west"), {"min_count": "1", "protections": '["plain"]'}
    method = {"name": "fedavg", "rounds": 1, "hidden": HIDDEN, "epochs": 1, "batch": 0}
    tables = {
        "method": method,
        "protect": {"name": "plain"},
        "prepare": {"scale": "none"},
        "run": {"min_count": 1, "min_clients": 3, "baselines": False},
    }
    with Operated(tmp_path, names, write=write_wide, **accept) as fed:
        result = fed.submit(**tables)
        data = {"name": [f"{name}.csv" for name in names], "target": "outcome", "test": 0.0}
        fed.settings("embedded.toml", **{**tables, "data": data})
        embedded = json.loads(fed.tacit("run", "embedded.toml", "--json", "-q", "--out", "embedded"))
    waves = {wave["step"]: wave for wave in result["ledger"]["waves"]}
    sent = waves["client.contribute"]
    note(wave=sent)
    ours, theirs = (model_of(tmp_path / found["folder"]) for found in (result, embedded))
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():  # floats are added here, and their last bits depend on how
        assert np.allclose(ours[name], value, rtol=0, atol=1e-14), name
    assert result["bytes_up"] > 3 * 100e6
    assert result["bytes_down"] > 3 * 100e6


def test_thousands_of_contributions_need_no_more_memory(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(CONTRIBUTIONS * 2, 4))
    target = np.where(values[:, 0] > 0, "yes", "no")
    parts = {f"client-{i:02}": Table.of(values[i::CLIENTS], target[i::CLIENTS]) for i in range(CLIENTS)}
    federation = Federation.of(parts)
    used = {}
    terms = {"protect": "bfv", "min_clients": 3, "founders": 16, "capacity": 2 * CONTRIBUTIONS}
    Standing.start(tmp_path / "state", federation, **terms).close()
    with Standing.open(tmp_path / "state", federation) as standing:
        for number in range(CONTRIBUTIONS):
            first = number // CLIENTS * 2
            standing.add([f"client-{number % CLIENTS:02}"], rows=(first, first + 2))
            if number + 1 in (CONTRIBUTIONS // 10, CONTRIBUTIONS):
                used[number + 1] = resident()
        assert standing.status()["changes"] == CONTRIBUTIONS
        standing.weights()
    note(megabytes_after=used)
    # All clients are in this process, and each remembers what it has brought: some 4 kB a contribution.
    assert used[CONTRIBUTIONS] - used[CONTRIBUTIONS // 10] < 10
