"""Measure our side of ``tacit bench all`` in two trees, in one sitting.

    python benchmarks/_compare.py OLD_TREE NEW_TREE [--only NAME] [--repeats 2] [--full]

Every bench runs in a process of its own with the files of its tree, the two trees by turns, and the least of
all repeats counts. What the benches compare with (Flower, phe, pfl, the published ways) is left out, and the
three rows that take minutes are measured with fewer clients or values unless ``--full`` is given. A row that
seems slower than ``--limit`` is measured again a few times before it is called slower, since one
measurement varies by more than that on a busy machine. Exit code 1 if any row is slower.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

NOT_MEASURED = float("nan")
Rows = dict[str, dict[str, Any]]


# -- in the process of one bench: leave out what is not ours -------------------------------------------------


def load_bench(tree: Path, name: str) -> ModuleType:
    word = f"tacit_bench_{name.replace('-', '_')}"
    sys.path.insert(0, str(tree))  # benches import their harness from it
    spec = importlib.util.spec_from_file_location(word, tree / "benchmarks" / f"{name}.py")
    assert spec and spec.loader
    module = sys.modules[word] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def replace(module: ModuleType, name: str, value: Any) -> None:
    """Replace a name of a bench, which must be there: else a baseline would be measured after all."""
    if not hasattr(module, name):
        sys.exit(f"{module.__file__} has no '{name}': adapt {Path(__file__).name} to it")
    setattr(module, name, value)


def without_phe(module: ModuleType, full: bool) -> None:
    replace(module, "theirs", lambda values: None)


def without_tenseal(module: ModuleType, full: bool) -> None:
    replace(module, "HAS_VECTORS", False)


def without_flower(module: ModuleType, full: bool) -> None:
    """Leave out SecAgg+, and give the seconds from which the growth is made as rows too."""
    replace(module, "flower", lambda neighbours, threshold: None)
    if not full:
        replace(module, "SIZES", (625, 1250))
    masked_sum, rows = module.masked_sum, module.rows
    seconds: dict[int, float] = {}

    def recorded(clients: int, *shape: Any) -> tuple[float, float]:
        found: tuple[float, float] = masked_sum(clients, *shape)
        seconds[clients] = found[0]
        return found

    def all_rows() -> list[Any]:
        found = rows()
        more = [module.Row(f"masked-{n}", s, "s") for n, s in seconds.items() if n in module.SIZES]
        return [*found, *more]

    replace(module, "masked_sum", recorded)
    replace(module, "rows", all_rows)


def without_torch_and_pfl(module: ModuleType, full: bool) -> None:
    replace(module, "torch_loop", lambda X, y: NOT_MEASURED)
    replace(module, "pfl_rounds", lambda X, y: NOT_MEASURED)


def with_fewer_values(module: ModuleType, full: bool) -> None:
    measured_apart = module.apart

    def fewer(protection: str, values: int, *more: Any) -> Any:
        return measured_apart(protection, values // 16 if protection == "paillier" else values, *more)

    if not full:
        replace(module, "apart", fewer)


def without_published(module: ModuleType, full: bool) -> None:
    """Leave out the published way, and the second of the two long runs, which only memory needs."""
    nothing = SimpleNamespace(client_s=NOT_MEASURED, coordinator_s=NOT_MEASURED, upload=NOT_MEASURED)
    replace(module, "Published", lambda federation, schema: nothing)
    clients = [] if full else ["2500"]

    def one_long_run() -> list[Any]:
        command = [sys.executable, str(module.__file__), "iid", *clients]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
        return [
            module.Row("clients-20000-cpu-s", found["cpu"], "s"),
            module.Row("clients-20000-mb", found["mb"], "MB"),
        ]

    replace(module, "many_clients", one_long_run)
    if not full:
        replace(module, "Federation", SimpleNamespace(embedded=_fewer_clients(module.Federation.embedded)))


def _fewer_clients(embedded: Callable[..., Any]) -> Callable[..., Any]:
    def fewer(*data: Any, clients: int, **settings: Any) -> Any:
        return embedded(*data, clients=min(clients, 2500), **settings)

    return fewer


CHANGES: dict[str, Callable[[ModuleType, bool], None]] = {
    "ckks": without_tenseal,
    "encrypted-model": with_fewer_values,
    "fedheonn": without_published,
    "paillier": without_phe,
    "rounds": without_torch_and_pfl,
    "sums": without_flower,
}


def measure_here(tree: Path, name: str, full: bool) -> None:
    """Run one bench in this process, and print its rows as JSON."""
    module = load_bench(tree, name)
    CHANGES.get(name, lambda module, full: None)(module, full)
    rows = [{"name": r.name, "ours": r.ours, "unit": r.unit, "at_least": r.at_least} for r in module.rows()]
    print(json.dumps(rows))


# -- the comparison ----------------------------------------------------------------------------------------


def measure(tree: Path, name: str, full: bool) -> Rows:
    """Rows of one bench of a tree, measured in a process of its own."""
    command = [
        sys.executable,
        __file__,
        str(tree),
        str(tree),
        "--worker",
        name,
        *(["--full"] if full else []),
    ]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tree, check=False)
    if done.returncode:
        sys.exit(f"bench {name} failed in {tree}")
    return {row["name"]: row for row in json.loads(done.stdout.splitlines()[-1])}


def keep_best(known: Rows, more: Rows) -> None:
    for name, row in more.items():
        if name in known:
            best = max if row["at_least"] else min
            row = {**row, "ours": best(row["ours"], known[name]["ours"])}
        known[name] = row


def slowdown(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Return how many times more a row takes after the change; above 1 is worse."""
    worse, better = (before, after) if after["at_least"] else (after, before)
    if not better["ours"]:
        return 1.0 if worse["ours"] == better["ours"] else float("inf")
    return float(worse["ours"] / better["ours"])


class Comparison:
    """The best figures of one bench so far, before and after."""

    def __init__(self, trees: tuple[Path, Path], name: str, full: bool) -> None:
        self.trees, self.name, self.full = trees, name, full
        self.found: tuple[Rows, Rows] = ({}, {})
        self.repeats = 0

    def repeat(self) -> None:
        """Measure both trees once; who comes first changes."""
        print(f"bench {self.name}, repeat {self.repeats + 1}", file=sys.stderr, flush=True)
        for index in (0, 1) if self.repeats % 2 == 0 else (1, 0):
            keep_best(self.found[index], measure(self.trees[index], self.name, self.full))
        self.repeats += 1

    def slower(self, limit: float) -> list[str]:
        before, after = self.found
        common = [name for name in before if name in after]
        return [name for name in common if not slowdown(before[name], after[name]) <= limit]

    def print_rows(self, limit: float) -> None:
        before, after = self.found
        for name in {**before, **after}:
            title = f"{self.name}/{name}"
            if name not in before or name not in after:
                print(f"{title:<42}only {'before' if name in before else 'after'}")
                continue
            figures = f"{before[name]['ours']:>14.5g} {after[name]['ours']:>14.5g} {after[name]['unit']:<18}"
            ratio = slowdown(before[name], after[name])
            print(f"{title:<42}{figures}{ratio:>6.2f}{'' if ratio <= limit else '  SLOWER'}")


def compare(given: argparse.Namespace) -> int:
    trees = (given.old.resolve(), given.new.resolve())
    known = [path.stem for path in (trees[1] / "benchmarks").glob("*.py") if not path.stem.startswith("_")]
    comparisons = [
        Comparison(trees, name, given.full) for name in sorted(known) if not given.only or name in given.only
    ]
    for _ in range(given.repeats):
        for comparison in comparisons:
            comparison.repeat()
    for _ in range(given.again):
        for comparison in comparisons:
            if comparison.slower(given.limit):
                comparison.repeat()
    print(f"{'row':<42}{'before':>14} {'after':>14} {'unit':<18}{'ratio':>6}")
    for comparison in comparisons:
        comparison.print_rows(given.limit)
    slower = [f"{each.name}/{name}" for each in comparisons for name in each.slower(given.limit)]
    print(
        f"\n{len(slower)} rows slower than {given.limit:g} times before" + "".join(f"\n  {s}" for s in slower)
    )
    return int(bool(slower))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--only", action="append", help="a bench; may be given several times")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--again", type=int, default=3, help="further repeats of benches that seem slower")
    parser.add_argument("--limit", type=float, default=1.10)
    parser.add_argument("--full", action="store_true", help="real sizes: about 15 minutes for one repeat")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        measure_here(given.old, given.worker, given.full)
        return 0
    return compare(given)


if __name__ == "__main__":
    sys.exit(main())
