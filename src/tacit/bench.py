"""Benches: CPU time of ours beside what users have today, measured in the same run.

A bench is a file ``benchmarks/NAME.py`` with a function ``rows()`` that gives :class:`Row` objects. It
lives outside the package because its baselines may have licences that ours must not touch.
"""

import importlib.util
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tacit.core.errors import ConfigError, nearest

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


def peak_megabytes() -> float:
    """Return the peak memory of this process.

    Not ``ru_maxrss`` where there is better: on Linux a process inherits that from the one that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


def folder_of(name: str) -> Path:
    """Find a folder of a checkout: where ``$TACIT_NAME`` says, here, or beside the source tree."""
    variable = f"TACIT_{name.upper()}"
    own = os.environ.get(variable)
    for place in (Path(own) if own else None, Path(name), Path(__file__).parents[2] / name):
        if place is not None and place.is_dir():
            return place
    raise ConfigError(f"no {name}/ folder here: run this in a checkout of Tacit, or set {variable}")


def files_of(name: str) -> list[str]:
    """Name the files in a folder of a checkout, but for those that others import: they begin with _."""
    return sorted(path.stem for path in folder_of(name).glob("*.py") if not path.stem.startswith("_"))


def chosen(name: str) -> list[str]:
    """Return the bench of that name, or every one for "all"."""
    known = files_of("benchmarks")
    if name != "all" and name not in known:
        raise ConfigError(f"unknown bench '{name}': {nearest(name, [*known, 'all'])}")
    return known if name == "all" else [name]


def run_bench(name: str) -> dict[str, Any]:
    """Run one bench, and return the object that ``tacit bench NAME --json`` prints."""
    chosen(name)
    word = f"tacit_bench_{name.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(word, folder_of("benchmarks") / f"{name}.py")
    assert spec and spec.loader
    module = sys.modules[word] = importlib.util.module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    return {"bench": name, "machine": machine(), "results": [row.as_dict() for row in module.rows()]}


def machine() -> dict[str, Any]:
    """Describe the machine on which the numbers were measured."""
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
