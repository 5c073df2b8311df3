"""Check that a change of the code left the models as they were.

    python benchmarks/_same_models.py record FILE       train every run and write what came out as JSON
    python benchmarks/_same_models.py compare FILE      train every run again; exit 1 if anything differs

Every method is trained on small data under every protection, all parties in this process. What came out is

- a SHA-256 over the names, types, shapes and bytes of the model's arrays: most protections are exact,
  and the same seed gives the same model to the last bit;
- for ``ckks``, whose totals carry noise from the operating system, the largest difference from the same run
  under ``plain``, opened at the clients as well, as a share of the array's largest value, and how much its
  promised precision allows;
- for noise that is meant to be different each time (``noised``, ``example_noise``) only that the run ends;
- for a method that a protection cannot serve, that it is refused.

Only public names are used, so that the same file runs on older trees: put the ``src`` of one on PYTHONPATH.
Digests hold for one kind of processor and one version of numpy, since both may round differently: record
and compare on the same machine. ``--only TEXT`` takes only those runs whose name contains the text.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import platform
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from _model_runs import METHOD_SETTINGS, PROTECTION_SETTINGS, Run, all_runs
from safetensors.numpy import load_file

import tacit
from tacit.methods import METHODS

CLIENTS = 8
PRODUCT_ERROR = 1e-7  # of an encrypted product: what `tacit bench ckks` holds it to
Found = dict[str, Any]

# -- one run -----------------------------------------------------------------------------------------------


def build_protection(name: str) -> Any:
    try:
        registry = importlib.import_module("tacit.protections")
    except ModuleNotFoundError:  # the package's name in version 0.1.0
        registry = importlib.import_module("tacit.sums")
    return registry.PROTECTIONS.build(*PROTECTION_SETTINGS[name])


def build_method(name: str) -> Any:
    return METHODS.build(*METHOD_SETTINGS[name])


def regression_table() -> tacit.Table:
    """Two targets that depend on five features, within the range of the logistic function."""
    rng = np.random.default_rng(7)
    values = rng.normal(size=(160, 5)) * [1.0, 10.0, 0.1, 3.0, 1.0] + 2.0
    signal = (values - values.mean(axis=0)) / values.std(axis=0) @ rng.normal(size=(5, 2))
    return tacit.Table.of(values, 0.2 + 0.6 / (1 + np.exp(-signal)), task="regression")


def make_federation(data: str, seed: int) -> tacit.Federation:
    settings: dict[str, Any] = {"clients": CLIENTS, "seed": seed}
    if data == "regression":
        return tacit.Federation.embedded(regression_table(), **settings)
    if data == "digits":
        return tacit.Federation.embedded("digits", rows=240, **settings)
    if data == "wine-holdout":
        return tacit.Federation.embedded("wine", holdout=0.25, **settings)
    return tacit.Federation.embedded("wine", partition="dirichlet", alpha=1.0, **settings)


def train(run: Run, method: Any, protection: Any) -> Any:
    """Train a run; of one that is continued, other clients go on from what the first ones learnt."""
    if run.data != "wine-continued":
        return make_federation(run.data, run.seed).train(method, protect=protection)
    table = tacit.load("wine")
    order = np.random.default_rng(run.seed).permutation(table.rows)
    first, second = (
        tacit.Federation.of(
            {f"client-{index}": table.take(order[index::CLIENTS]) for index in indices}, seed=run.seed
        )
        for indices in (range(4), range(4, CLIENTS))
    )
    return second.train(method, protect=protection, start=first.train(method, protect=protection))


def model_arrays(training: Any) -> dict[str, np.ndarray]:
    """Return the arrays of the model as its file has them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        training.model.save(path)
        return load_file(path)


def digest(training: Any) -> str:
    """SHA-256 over the model's arrays, and over the scores on held-out rows if there are any."""
    found = hashlib.sha256()
    for name, array in sorted(model_arrays(training).items()):
        found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(array.tobytes())
    if training.holdout is not None:
        found.update(json.dumps(training.holdout, sort_keys=True).encode())
    return found.hexdigest()


@cache
def exact_arrays(run: Run) -> dict[str, np.ndarray]:
    return model_arrays(train(run, build_method(run.method), build_protection(run.protection)))


def largest_difference(training: Any, run: Run) -> float:
    """Return how far the model is from plain's, relative to each array's largest value."""
    found, exact = model_arrays(training), exact_arrays(run._replace(protection="plain-clients"))
    if {name: array.shape for name, array in found.items()} != {n: a.shape for n, a in exact.items()}:
        raise ValueError(f"{run.name}: the arrays have other names or shapes than without encryption")
    return max(
        float(np.abs(found[name] - array).max(initial=0.0) / (np.abs(array).max(initial=0.0) or 1.0))
        for name, array in ((name, array.astype(float)) for name, array in exact.items())
    )


def allowed_difference(run: Run) -> float:
    """Return what ckks promises: a share of the bound for each client, or so much of a product."""
    if (
        METHOD_SETTINGS[run.method][1].get("mode") == "paper"
    ):  # the coordinator multiplies the total before it opens
        return PRODUCT_ERROR
    return CLIENTS * float(build_protection(run.protection).promises.precision)


def outcome(run: Run) -> Found:
    """Return what is recorded of a run."""
    method, protection = build_method(run.method), build_protection(run.protection)
    try:
        training = train(run, method, protection)
    except tacit.TacitError as error:
        if type(error).__name__ == "ConfigError":
            return {"refused": True}
        raise
    if "noise" in f"{run.method} {run.protection}":
        return {"ended": True}
    if run.protection.startswith("ckks"):
        return {"difference": largest_difference(training, run), "allowed": allowed_difference(run)}
    return {"digest": digest(training)}


# -- the table ---------------------------------------------------------------------------------------------


def fault(before: Found | None, after: Found | None) -> str | None:
    """Return what is wrong with a run after the change, if anything is."""
    if before is None or after is None:
        return "only before" if after is None else "only after"
    if "failed" in after:
        return str(after["failed"])
    if before.keys() != after.keys():
        return f"{_shown(before)} before, {_shown(after)} after"
    if "difference" in after:
        if after["allowed"] != before["allowed"]:
            return f"{before['allowed']:.1e} was promised before, {after['allowed']:.1e} after"
        if after["difference"] > after["allowed"]:
            return f"differs by {after['difference']:.1e} from plain, promised is {after['allowed']:.1e}"
        return None
    return None if before == after else f"{_shown(before)} before, {_shown(after)} after"


def _shown(found: Found) -> str:
    if "digest" in found:
        return f"digest {found['digest'][:12]}"
    if "difference" in found:
        return f"differs by {found['difference']:.0e}, at most {found['allowed']:.0e}"
    return str(found.get("failed") or ", ".join(found))


def machine() -> dict[str, str]:
    return {
        "processor": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def train_all(only: str) -> dict[str, Found]:
    """Train all runs whose name contains a text, and tell of each on stderr."""
    print(f"training with {Path(tacit.__file__).parent}", file=sys.stderr)
    found: dict[str, Found] = {}
    for run in all_runs():
        if only not in run.name:
            continue
        started = time.perf_counter()
        try:
            found[run.name] = outcome(run)
        except Exception as error:  # noqa: BLE001  # one run that fails must not hide what the others give
            found[run.name] = {"failed": f"{type(error).__name__}: {error}"}
        seconds = time.perf_counter() - started
        print(f"{seconds:6.2f} s  {run.name}: {_shown(found[run.name])}", file=sys.stderr, flush=True)
    return found


def count_kinds(found: dict[str, Found]) -> str:
    kinds = ("digest", "difference", "ended", "refused", "failed")
    counts = {kind: sum(kind in each for each in found.values()) for kind in kinds}
    return (
        f"{len(found)} runs: {counts['digest']} digests, {counts['difference']} beside plain, "
        f"{counts['ended']} with noise, {counts['refused']} refused, {counts['failed']} failed"
    )


def record(path: Path, only: str) -> int:
    found = train_all(only)
    path.write_text(json.dumps({"machine": machine(), "models": found}, indent=1) + "\n")
    print(f"{path}: {count_kinds(found)}")
    return int(any("failed" in each for each in found.values()))


def compare(path: Path, only: str) -> int:
    known = json.loads(path.read_text())
    if known["machine"] != machine():
        print(f"recorded on {known['machine']}, this is {machine()}: digests may differ for that reason")
    before = {name: each for name, each in known["models"].items() if only in name}
    after = train_all(only)
    faults = {name: fault(before.get(name), after.get(name)) for name in {**before, **after}}
    wrong = {name: text for name, text in faults.items() if text}
    for name, text in wrong.items():
        print(f"{name}: {text}")
    print(f"{count_kinds(after)}; {len(wrong)} differ")
    return int(bool(wrong))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="take only runs whose name contains this")
    given = parser.parse_args()
    return (record if given.command == "record" else compare)(given.file, given.only)


if __name__ == "__main__":
    sys.exit(main())
