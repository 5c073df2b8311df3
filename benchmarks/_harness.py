"""Benches: CPU time of ours beside what users have today, measured in the same run.

A bench is a file ``NAME.py`` of this folder, with a function ``rows()`` that gives :class:`Row` objects. It
lives outside the package because its baselines may have licences that ours must not touch.
"""

import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tacit.checkout import list_files, load_file

COLUMNS = ("name", "ours", "baseline", "unit", "ratio", "target", "met", "note")


class Row(msgspec.Struct):
    """One measurement.

    ``ratio`` says how many times better ours is than the baseline; ``target`` is met by a ratio at
    least that large or, where there is no baseline, by ``ours`` at most that large (``at_least``: at
    least).
    """

    name: str
    ours: float | None
    unit: str
    baseline: float | None = None
    target: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times better than the baseline."""
        if self.baseline is None or not self.ours:
            return None
        return self.ours / self.baseline if self.at_least else self.baseline / self.ours

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if it could not be measured or there is none."""
        if self.target is None or self.ours is None:
            return None
        if self.ratio is not None:
            return self.ratio >= self.target
        return self.ours >= self.target if self.at_least else self.ours <= self.target

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return {name: getattr(self, name) for name in COLUMNS}


def cpu(*functions: Callable[[], Any], repeats: int = 5) -> list[float]:
    """Return the CPU seconds of each function: interleaved, the least of several repeats.

    >>> fast, slow = cpu(lambda: sum(range(100)), lambda: sum(range(100_000)), repeats=3)
    >>> fast < slow
    True
    """
    best = [float("inf")] * len(functions)
    for _ in range(repeats):
        for index, function in enumerate(functions):
            started = time.process_time()
            function()
            best[index] = min(best[index], time.process_time() - started)
    return best


ALONE = (
    "import runpy, sys; sys.path.insert(0, sys.argv[1]); del sys.argv[:2]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


def alone(file: str, *words: object) -> list[str]:
    """Return the command that runs a bench's file in a process of its own, where it finds this file too."""
    return [sys.executable, "-c", ALONE, str(Path(file).resolve().parents[1]), file, *map(str, words)]


def run_bench(name: str) -> dict[str, Any]:
    """Run one bench, and return the object that ``tacit bench NAME --json`` prints."""
    list_files("benchmarks", name)
    rows = load_file("benchmarks", name).rows()
    return {"bench": name, "machine": machine(), "results": [row.as_dict() for row in rows]}


def machine() -> dict[str, Any]:
    """Describe the machine on which the numbers were measured."""
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
