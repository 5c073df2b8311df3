"""What a wave costs on Flower, and whose part it is: ``python benchmarks/_flower_wave.py [--sites 3]``.

A SuperLink and sites on loopback; a masked training of some rounds. Seconds of the wall are told as they
were, whatever else the machine did; beside them stand CPU seconds of each kind of process, and what a process
would cost that is started for each message, as Flower's own SuperNodes do.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from examples.federation import LocalFederation, processes_of
from tacit.deploy.launch import launch
from tacit.deploy.processes import environment_of
from tacit.runs.settings import Settings

TICKS = os.sysconf("SC_CLK_TCK")
KINDS = {
    "tacit.deploy.superlink": "SuperLink",
    "tacit.deploy.node": "nodes",
    "tacit.deploy.worker": "workers",
}


def cpu(home: Path) -> dict[str, float]:
    """CPU seconds so far, by kind of process; "here" is the coordinator's half of the run."""
    used = dict.fromkeys(KINDS.values(), 0.0)
    for number in processes_of(home / "flower"):
        words = Path(f"/proc/{number}/cmdline").read_text().split("\0")
        kind = next((KINDS[word] for word in words if word in KINDS), None)
        if kind:
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            used[kind] += (int(fields[11]) + int(fields[12])) / TICKS
    here = resource.getrusage(resource.RUSAGE_SELF)
    return {**used, "coordinator": here.ru_utime + here.ru_stime}


def a_process(code: str) -> dict[str, float]:
    """Wall and CPU seconds of a process that only imports something."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = environment_of(Path(tempfile.gettempdir()))
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": time.perf_counter() - started, "cpu_s": spent}


def measure(sites: int, rounds: int) -> dict[str, Any]:
    names = [f"client-{number + 1}" for number in range(sites)]
    with tempfile.TemporaryDirectory() as folder, LocalFederation(Path(folder, "home"), names) as federation:
        tables: dict[str, Any] = {
            "data": {"name": "digits"},
            "protect": {"name": "masked"},
            "partition": {"name": "iid", "clients": sites},
            "run": {"out": folder, "engine": "flower", "baselines": False},
            "flower": {"coordinator": str(federation.coordinator)},
        }
        found: dict[str, Any] = {}
        for name, many in (("first", 1), ("second", rounds)):
            method = {"name": "fedavg", "rounds": many}
            before = cpu(federation.home)
            result = launch(Settings.from_tables({**tables, "method": method})).result
            after, engine = cpu(federation.home), result["engine"]
            walls = sorted(wave["wall_s"] for wave in result["ledger"]["waves"][1:])
            waves = engine["waves"]
            found[name] = {
                "waves": waves,
                "mean_s": (engine["sites_s"] + engine["way_s"]) / waves,
                "median_s": walls[len(walls) // 2],
                "at_the_slowest_site_s": engine["sites_s"] / waves,
                "on_the_way_s": engine["way_s"] / waves,
                "cpu_s": {kind: (after[kind] - before[kind]) / waves for kind in after},
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    found = {
        "load": os.getloadavg()[0],
        "a wave": measure(given.sites, given.rounds),
        "a process": a_process("pass"),
        "a process that imports Flower's app": a_process("import flwr.supernode.runtime.run_clientapp"),
        "a process that imports Tacit, and what a step needs": a_process(
            "import tacit.deploy.worker; from tacit.methods import METHODS; METHODS.get('fedavg')"
        ),
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
