"""A campaign: which tests run a line, and which of the faults they notice.

All lies in ``.mutants``: a copy of the working tree for each worker, which test runs which line, and one line
for every fault that was tried. A campaign that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue

import coverage

from tests.mutants.operators import Mutant, find_mutants

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".mutants"
SOURCES = "src/tacit"
ROOMS = {  # what is tried, by the name under which it is reported
    "core": ("core",),
    "protections": ("protections",),
    "crypto": ("crypto",),
    "standing": ("standing",),
    "scores": ("models/scores.py",),
    "preparation": tuple(
        f"data/{name}.py"
        for name in ("preparation", "agreement", "schema", "cells", "recoding", "noisy_scale")
    ),
}
SECONDS = 60.0  # of tests that a fault has to survive, as they take without it
CALM = ("-n", "0", "-p", "no:randomly", "-p", "no:cacheprovider", "-m", "not slow")


def mutants_of(room: str, count: int | None) -> list[Mutant]:
    """Return faults of a room in an order that looks random and is always the same; the first ``count``."""
    found = []
    for path in _files(room):
        found += find_mutants(path, (ROOT / SOURCES / path).read_text())
    found.sort(key=lambda mutant: sha256(mutant.id.encode()).digest())
    return found[:count]


def _files(room: str) -> Iterator[str]:
    base = ROOT / SOURCES
    for name in ROOMS[room]:
        paths = [base / name] if name.endswith(".py") else sorted((base / name).rglob("*.py"))
        yield from (str(path.relative_to(base)) for path in paths)


@dataclass(frozen=True)
class TestMap:
    """Which tests run a line, and how long each takes."""

    data: coverage.CoverageData
    seconds: Mapping[str, float]

    @classmethod
    def load(cls) -> TestMap:
        """Return the map of the tests as they are: made by a session of its own, and added to as they change.

        Where the code of the product has changed, lines have moved, and all tests run again.
        """
        lines, digests = PLACE / "coverage", PLACE / "digests.json"
        now = _digests()
        before = json.loads(digests.read_text()) if digests.exists() and lines.exists() else {}
        changed = [path for path, digest in now.items() if before.get(path) != digest]
        if any(path.startswith(SOURCES) for path in changed):
            for old in PLACE.glob("times*.xml"):
                old.unlink()
            lines.unlink(missing_ok=True)
            _make_map(lines, [])
        elif chosen := [path for path in changed if Path(path).name.startswith("test_")]:
            _make_map(lines, chosen)
        digests.write_text(json.dumps(now))
        data = coverage.CoverageData(str(lines))
        data.read()
        seconds = {}
        for path in sorted(PLACE.glob("times*.xml")):
            for case in ElementTree.parse(path).getroot().iter("testcase"):  # our own file
                seconds[f"{case.get('classname')}.{case.get('name')}"] = float(case.get("time", 0))
        return cls(data, seconds)

    @cached_property
    def _contexts(self) -> dict[str, dict[int, list[str]]]:
        return {}

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the line of a fault, as many as its seconds allow: fast ones first."""
        path = str(ROOT / SOURCES / mutant.path)
        if path not in self._contexts:
            self._contexts[path] = self.data.contexts_by_lineno(path)
        found = {context.partition("|")[0] for context in self._contexts[path].get(mutant.line, ())} - {""}
        chosen: list[str] = []
        spent = 0.0
        for name in sorted(found, key=lambda name: (self._duration(name), name)):
            spent += self._duration(name)
            if chosen and spent > SECONDS:
                break
            chosen.append(name)
        return chosen

    def _duration(self, test: str) -> float:
        path, _, name = test.partition("::")
        return self.seconds.get(
            f"{path.removesuffix('.py').replace('/', '.')}.{name.replace('::', '.')}", 0.1
        )


def _digests() -> dict[str, str]:
    """Return a digest of every file of the product and of its tests."""
    paths = sorted([*(ROOT / SOURCES).rglob("*.py"), *(ROOT / "tests").rglob("*.py")])
    return {str(path.relative_to(ROOT)): sha256(path.read_bytes()).hexdigest() for path in paths}


def _make_map(lines: Path, chosen: Sequence[str]) -> None:
    """Note which lines the tests of these files run, of all if none are given, and how long each takes."""
    times = PLACE / f"times{len(list(PLACE.glob('times*.xml')))}.xml"
    command = [sys.executable, "-m", "pytest", *chosen, "-n", "2", "-m", "not slow", "--cov=src/tacit"]
    command += ["--cov-context=test", "--cov-append", "--cov-report=", f"--junitxml={times}"]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "COVERAGE_FILE": str(lines)})


class Campaign:
    """Tries faults in copies of the working tree, and remembers what came of each.

    What survived is tried again once tests that run its line were added or changed.
    """

    def __init__(self, workers: int) -> None:
        PLACE.mkdir(exist_ok=True)
        self.tests = TestMap.load()
        self._trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(workers):
            self._trees.put(_copy_tree(PLACE / f"tree-{number}"))
        self._workers = workers
        self._results = PLACE / "results.jsonl"
        self._digests = _digests()
        self.known = self._read()

    def _read(self) -> dict[str, tuple[str, str]]:
        if not self._results.exists():
            return {}
        lines = (json.loads(line) for line in self._results.read_text().splitlines())
        return {line["id"]: (line["outcome"], line["tests"]) for line in lines}

    def run(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, str]]:
        """Return what came of each fault: killed (by which test), survived, or no test runs its line."""
        with ThreadPoolExecutor(self._workers) as pool:
            for mutant, found in zip(mutants, pool.map(self._outcome, mutants), strict=True):
                outcome, tests = found
                if self.known.get(mutant.id) != found:
                    self.known[mutant.id] = found
                    with self._results.open("a") as file:
                        file.write(json.dumps({"id": mutant.id, "outcome": outcome, "tests": tests}) + "\n")
                yield mutant, outcome

    def _outcome(self, mutant: Mutant) -> tuple[str, str]:
        """Return what comes of a fault, and a digest of the tests by which that was found."""
        tests = self.tests.tests_of(mutant)
        files = "".join(self._digests.get(path, "") for path in sorted({t.partition("::")[0] for t in tests}))
        digest = sha256(files.encode()).hexdigest()[:16]
        known, by = self.known.get(mutant.id, ("", ""))
        if known.startswith("killed") or (known and by == digest):
            return known, by
        if not tests:
            return "no test runs this line", digest
        tree = self._trees.get()
        path = tree / SOURCES / mutant.path
        source = path.read_text()
        try:
            path.write_text(mutant.apply(source))
            return _run_tests(tree, tests), digest
        finally:
            path.write_text(source)
            self._trees.put(tree)


def _copy_tree(tree: Path) -> Path:
    """Return a fresh copy of the files that git knows, as they are now."""
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return tree


def _run_tests(tree: Path, tests: Sequence[str]) -> str:
    chosen = tree / ".chosen"
    chosen.write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-x", "--tb=no", "-rfE", *CALM, f"@{chosen}"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=5 * SECONDS
        )
    except subprocess.TimeoutExpired:
        return "killed: it hangs"
    if done.returncode == 0:
        return "survived"
    if done.returncode in (1, 2) or "ImportError while loading conftest" in done.stderr:
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return f"killed: {failed[0][:160] if failed else 'collection fails'}"
    raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
