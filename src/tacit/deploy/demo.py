"""Two trainings on a Flower federation of this machine, each beside the same one on the embedded engine."""

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tacit.core.events import Subscriber
from tacit.deploy.launch import launch
from tacit.deploy.local import LocalFederation
from tacit.runs.job import execute
from tacit.runs.settings import Settings

CLIENTS = 3
JOBS: tuple[dict[str, Any], ...] = (
    {"data": {"name": "breast_cancer"}, "method": {"name": "fedheonn"}},
    {"data": {"name": "digits"}, "method": {"name": "fedavg", "rounds": 2}, "protect": {"name": "masked"}},
)


def demonstrate(
    out: str,
    *,
    seed: int = 0,
    home: Path | None = None,
    tell: Callable[[str], None],
    subscriber: Subscriber,
) -> dict[str, Any]:
    """Start a federation, train on it, compare with the embedded engine, and stop all that was started.

    ``home`` is an empty folder for the federation's keys, databases and logs, by default a temporary one.
    ``tell`` is told in words what happens; ``subscriber`` gets every event of the trainings on Flower.
    """
    started = time.perf_counter()
    temporary = tempfile.TemporaryDirectory(prefix="tacit-federation-", ignore_cleanup_errors=True)
    with nullcontext(home) if home else temporary as folder, _on_term():
        names = [f"client-{index + 1}" for index in range(CLIENTS)]
        tell(f"starting a SuperLink and {CLIENTS} SuperNodes on loopback, with TLS and node keys")
        with LocalFederation(Path(folder), names) as federation:
            tell(f"they answer, {time.perf_counter() - started:.0f} s after the start")
            same = {"partition": {"name": "iid", "clients": CLIENTS}, "run": {"seed": seed, "out": out}}
            runs = [_compared({**job, **same}, federation, tell, subscriber) for job in JOBS]
            tell("stopping all that was started")
    return {"runs": runs, "seconds": time.perf_counter() - started}


def _compared(
    tables: dict[str, Any],
    federation: LocalFederation,
    tell: Callable[[str], None],
    subscriber: Subscriber,
) -> dict[str, Any]:
    """Run one job on both engines, and return both results."""
    settings = Settings.from_tables(tables)
    words = f"{settings.method['name']} on {settings.data.name}, {settings.protect['name']}"
    tell(f"{words}: on the embedded engine")
    started = time.perf_counter()
    embedded = execute(settings).result
    between = time.perf_counter()
    tell(f"{words}: on Flower")
    on_flower = {
        **tables,
        "run": {**tables["run"], "engine": "flower"},
        "flower": {"coordinator": str(federation.coordinator)},
    }
    flower = launch(Settings.from_tables(on_flower), subscriber).result
    return {
        "title": words,
        "embedded": {**embedded, "wall_s": between - started},
        "flower": {**flower, "wall_s": time.perf_counter() - between},
        "same_model": embedded["model"] == flower["model"],
    }


@contextmanager
def _on_term() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that what was started is stopped."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
