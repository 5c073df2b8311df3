"""Overhead of the embedded engine: CPU per ask and reply of 1 kB, memory with 20,000 clients."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np

from benchmarks._harness import Row, alone
from tacit.core.coordinator import Coordinator
from tacit.core.events import Events
from tacit.core.link import Link
from tacit.core.manifest import Components, Manifest
from tacit.core.marks import step
from tacit.core.message import Message
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.embedded import EmbeddedEngine
from tacit.engines.holdings import holdings_of
from tacit.federation import Federation
from tacit.ledger.cost import CostLedger, peak_megabytes
from tacit.methods.base import Method
from tacit.protections.plain import Plain


@dataclass(frozen=True)
class Echo(Method):
    """Sends back what it got."""

    name = "echo"

    @step
    def echo(self, party, message, shared):
        return Message(payload=message["payload"])


def desk_of(clients: int) -> Coordinator:
    table = Table.of(np.zeros((clients, 2)), np.arange(clients) % 2)
    holdings = holdings_of(table, np.arange(clients), 0.0, 0)
    components = Components(Echo(), Plain(), Preparation(scale="none"))
    manifest = Manifest.of("bench", components, experiment=True)
    engine = EmbeddedEngine(holdings, assemble=lambda _: components)
    coordinator = Coordinator(Link(engine, manifest, components))
    coordinator.enrol()
    return coordinator


def ask_microseconds(clients: int = 2_000, repeats: int = 7) -> float:
    """CPU per ask and reply, the payload of 1 kB different for each party, in both directions."""
    coordinator = desk_of(clients)
    payload = np.arange(128.0)
    jobs = {party: {"payload": payload} for party in coordinator.parties}
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        count = sum(1 for _ in coordinator.ask(coordinator.components.method.echo, jobs=jobs))
        best = min(best, time.process_time() - started)
        assert count == clients
    return best / clients * 1e6


def peak_of(clients: int) -> float:
    """Peak memory of a process that asks so many clients three times."""
    coordinator = desk_of(clients)
    payload = np.arange(128.0)
    for _ in range(3):
        for _reply in coordinator.ask(coordinator.components.method.echo, common={"payload": payload}):
            pass
    return peak_megabytes()


def ledger_share(clients: int = 20_000, repeats: int = 3) -> float:
    """CPU of the cost ledger over that of a run: one round of FedHEONN under plain sums, two rows a client.

    The events of the run are kept, and handed to a ledger by itself. A run with more rows, waves of more
    work or a protection has the same events and a smaller share.
    """
    federation, kept = Federation.embedded("synthetic-susy", clients=clients, rows=3 * clients), []
    started = time.process_time()
    federation.train("fedheonn", protect="plain", events=Events(lambda *event: kept.append(event)))
    whole, best = time.process_time() - started, float("inf")
    for _ in range(repeats):
        ledger, started = CostLedger(), time.process_time()
        for number, event in kept:
            ledger(number, event)
        ledger.summary()
        best = min(best, time.process_time() - started)
    return 100 * best / whole


def rows() -> list[Row]:
    command = alone(__file__, "peak", 20000)
    peak = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return [
        Row("ask-cpu-us", ask_microseconds(), "µs", target=60.0, note="at most; ask and reply of 1 kB each"),
        Row("peak-mb-20000", peak, "MB", target=2000.0, note="at most; whole process, imports included"),
        Row("ledger-cpu-percent", ledger_share(), "%", target=3.0, note="at most; run of 20,000 clients"),
    ]


if __name__ == "__main__":
    print(json.dumps(peak_of(int(sys.argv[2]))))
