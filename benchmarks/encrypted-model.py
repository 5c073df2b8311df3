"""Whole models under encryption: CPU, bytes and memory of one round, encrypting every layer.

The network 561-437-312-6 has 384,138 parameters; Santos et al. ("Exploring Aggregation Strategies for
Federated Learning in National Statistics") encrypted its two outermost layers, for lack of memory. Here all
of it is summed over 8 clients: every client encrypts, the coordinator adds, and whoever holds the key
decrypts (with BFV and CKKS all 8 clients do). Measured is the CPU time of all parties and of the coordinator,
messages and their checks included; training is not.

NVIDIA FLARE 2.9 at 99,330 parameters and 2 clients: 59 bytes a parameter, 0.27 s to encrypt and 0.09 s to
decrypt.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks._harness import Row, alone
from tacit.core.coordinator import Coordinator
from tacit.core.events import Events, Replied
from tacit.core.exposure import COORDINATOR
from tacit.core.layout import Field, Layout
from tacit.core.link import Link
from tacit.core.manifest import Components, Manifest
from tacit.core.marks import apply, contribution
from tacit.core.parallel import one_thread
from tacit.core.random import generator
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.embedded import EmbeddedEngine
from tacit.engines.holdings import Holdings
from tacit.engines.sites import pinned_identity, site_secret
from tacit.ledger.cost import peak_megabytes
from tacit.methods.base import Method
from tacit.models.mlp import MLP
from tacit.protections import PROTECTIONS

WHOLE = MLP((561, 437, 312, 6)).size
FLARE_PARAMETERS, FLARE_BYTES, FLARE_SECONDS = 99_330, 59.0, 0.36


@dataclass(frozen=True)
class Changes(Method):
    """Contributes a change of every parameter, as large as a network's."""

    name = "changes"
    values: int = 1

    def _layout(self, schema):
        return Layout(Field("delta", (self.values,), bound=1.0))

    @contribution(_layout)
    def update(self, party, shared):
        return {"delta": party.rng("change").uniform(-0.1, 0.1, self.values)}

    @apply
    def step(self, total, shared):
        return shared | {"mean": total["delta"] / total.contributors}


def measured(protection: str, values: int, clients: int) -> dict[str, float]:
    """One round: CPU of everybody, upload and CPU of a client, memory, and the error of the mean."""
    components = Components(
        Changes(values),
        PROTECTIONS.build(protection, {}),
        Preparation(scale="none"),
    )
    manifest = Manifest.of("bench", components, min_clients=2, experiment=True)
    table = Table.of(np.arange(clients)[:, None] * 1.0, np.arange(clients) % 2)
    names = [f"client-{index + 1}" for index in range(clients)]
    held = Holdings(table, np.arange(clients + 1), names)
    engine = EmbeddedEngine(held, assemble=lambda _: components, services=components.protection.services)
    told: list[Replied] = []
    events = Events(lambda _, event: told.append(event) if isinstance(event, Replied) else None)
    secret, pinned = site_secret(0, COORDINATOR), partial(pinned_identity, 0)
    link = Link(engine, manifest, components, events, secret=secret, pinned=pinned)
    coordinator = Coordinator(link)
    with one_thread():
        coordinator.enrol()
        coordinator.protection.prepare(1)
        before, started = len(told), time.process_time()
        coordinator.round(components.method.update, components.method.step)
        coordinator.finish()
        cpu = time.process_time() - started
    own = [event for event in told[before:] if event.party == names[-1]]
    drawn = [generator(site_secret(0, name).reveal(), "change").uniform(-0.1, 0.1, values) for name in names]
    error = np.abs(coordinator.peek()["mean"] - np.mean(drawn, axis=0)).max()
    return {
        "cpu": cpu,
        "client_cpu": sum(event.cpu_s for event in own),
        "bytes": sum(event.bytes_up for event in own) / values,
        "mb": peak_megabytes(),
        "error": float(error),
    }


def apart(protection: str, values: int, clients: int) -> dict[str, float]:
    """The same in a process of its own, so that memory is its own."""
    command = alone(__file__, protection, values, clients)
    found = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    result: dict[str, float] = json.loads(found)
    return result


def rows() -> list[Row]:
    runs = [apart("bfv", WHOLE, 8) for _ in range(3)]
    bfv, ckks = min(runs, key=lambda run: run["cpu"]), apart("ckks", WHOLE, 8)
    paillier = apart("paillier", WHOLE, 8)
    small = min((apart("bfv", FLARE_PARAMETERS, 2) for _ in range(3)), key=lambda run: run["client_cpu"])
    what = f"at most; {WHOLE:,} parameters, 8 clients, all parties"
    peak = max(run["mb"] for run in (*runs, paillier))
    return [
        Row(
            "bfv-384k",
            bfv["cpu"],
            "CPU s",
            target=1.3,
            note=f"{what}; {bfv['bytes']:.2f} bytes a parameter up; error of a mean {bfv['error']:.1e}",
        ),
        Row(
            "ckks-384k",
            ckks["cpu"],
            "CPU s",
            note=f"the same by CKKS; {ckks['bytes']:.2f} bytes a parameter up; error {ckks['error']:.1e}",
        ),
        Row(
            "paillier-384k",
            paillier["cpu"],
            "CPU s",
            target=240.0,
            note=f"{what}, 3072-bit keys; error {paillier['error']:.1e}",
        ),
        Row("mb", peak, "MB", target=2000.0, note="at most; the whole process, all parties in it"),
        Row(
            "bfv-99k-bytes",
            small["bytes"],
            "bytes a parameter",
            FLARE_BYTES,
            target=FLARE_BYTES / 9.1,
            note="a client's upload, 9.1 at most; baseline: FLARE 2.9, published settings, measured before",
        ),
        Row(
            "bfv-99k-cpu",
            small["client_cpu"],
            "CPU s",
            FLARE_SECONDS,
            target=8.0,
            note="one client: encrypt and decrypt; baseline: FLARE 2.9, measured before on such a machine",
        ),
    ]


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
