"""The cost ledger: messages, bytes, CPU seconds and energy of a run, read from its events alone.

Training time is that of Fontenla-Romero, Guijarro-Berdiñas, Hernández-Pereira and Pérez-Sánchez, "FedHEONN:
Federated and homomorphically encrypted learning method for one-layer neural networks": docs/ledger.md has the
formulas.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit.core import events
from tacit.core.display import Shown
from tacit.core.errors import ConfigError

SECONDS_PER_HOUR = 3600.0
POWERCAP = Path("/sys/class/powercap")
MICROJOULES_PER_WH = 3.6e9
ROUTES = ("coordinator→client", "client→coordinator", "client→client")
COUNTED = ("messages", "bytes_up", "bytes_down", "cpu_s")  # of each client


@dataclass
class _Wave:
    """One wave's line in the ledger; its fields are the keys of ``summary()["waves"]``."""

    wave: int
    complete_rounds: int  # when it began
    step: str = ""
    parties: int = 0
    replies: int = 0
    failures: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    cpu_clients_s: float = 0.0
    cpu_coordinator_s: float = 0.0
    wall_s: float = 0.0


@dataclass(slots=True)
class _Counts:
    """Running totals of a party."""

    messages: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    cpu_s: float = 0.0


class CostLedger(Shown):
    """Adds up what a run cost; subscribe it to the run's events.

    Memory grows with parties, waves and failures, never with the number of replies.
    """

    def __init__(self) -> None:
        self._clients: defaultdict[str, _Counts] = defaultdict(_Counts)
        self._services: defaultdict[str, _Counts] = defaultdict(_Counts)
        self._waves: dict[int, _Wave] = {}
        self._failures: list[dict[str, str]] = []
        self._asks = 0
        self._replies = 0
        self._relays = 0
        self._relayed_bytes = 0
        self._spent: dict[str, dict[str, Any]] = {}  # by whom noise hides: what all of it has cost
        self._complete_rounds = 0
        self._forms: dict[str, int] = {}  # bytes of fields, by how they travelled

    def __call__(self, number: int, event: events.Event) -> None:
        match event:
            case events.WaveStarted():
                wave = self._wave(event.wave)
                wave.step, wave.parties = event.step, event.parties
            case events.Replied():
                self._replied(event)
            case events.Refused():
                wave = self._wave(event.wave)
                wave.failures, wave.replies = wave.failures + 1, max(0, wave.replies - 1)
                self._failures.append({"party": event.party, "step": wave.step, "reason": event.reason})
            case events.Relayed():
                self._relays += event.times
                self._relayed_bytes += event.bytes
            case events.Received():
                self._forms[event.form] = self._forms.get(event.form, 0) + event.bytes
            case events.RoundEnded():
                self._complete_rounds = event.round
            case events.WaveEnded():
                wave = self._wave(event.wave)
                wave.cpu_coordinator_s += event.cpu_s
                wave.wall_s += event.wall_s
            case events.BudgetSpent():
                spent = {"epsilon": event.epsilon, "delta": event.delta, "budget": event.budget}
                self._spent[event.unit] = {**spent, "sums_left": event.left, "unit": event.unit}

    def facts(self) -> dict[str, Any]:
        cost = self.summary()
        names = {"messages": "messages", "bytes up": "bytes_up", "bytes down": "bytes_down"}
        names |= {"CPU seconds": "sum_cpu_s", "Wh": "wh"}
        epsilon = (cost["privacy"] or {}).get("epsilon")
        return {word: cost[name] for word, name in names.items()} | {"epsilon": epsilon}

    def _wave(self, number: int) -> _Wave:
        if number not in self._waves:
            self._waves[number] = _Wave(number, self._complete_rounds)
        return self._waves[number]

    def _replied(self, reply: events.Replied) -> None:
        # A refusal travels back and is a message; silence (a timeout, a lost client) is none.
        answered = reply.failure is None or reply.bytes_up > 0
        party = (self._services if reply.service else self._clients)[reply.party]
        party.messages += 1 + answered
        party.bytes_up += reply.bytes_up
        party.bytes_down += reply.bytes_down
        party.cpu_s += reply.cpu_s
        wave = self._wave(reply.wave)
        wave.bytes_up += reply.bytes_up
        wave.bytes_down += reply.bytes_down
        wave.cpu_clients_s += reply.cpu_s
        self._asks += 1
        self._replies += answered
        if reply.failure is None:
            wave.replies += 1
        else:
            wave.failures += 1
            self._failures.append({"party": reply.party, "step": wave.step, "reason": reply.failure})

    def summary(self, watts: float = 65.0) -> dict[str, Any]:
        """Sum up the run so far, in plain values; 65 W are those of the paper's Intel Core i7-10700."""
        if not (math.isfinite(watts) and watts > 0):
            raise ConfigError(f"watts is {watts}: give a processor's nominal power, above 0, such as 65")
        clients, sent = self._clients, (self._asks, self._replies, self._relays)
        of_each = {name: [getattr(client, name) for client in clients.values()] for name in COUNTED}
        up, down, seconds = (of_each[name] for name in COUNTED[1:])
        slowest, everybody = max(seconds, default=0.0), math.fsum(seconds)
        services = math.fsum(service.cpu_s for service in self._services.values())
        coordinator = math.fsum(wave.cpu_coordinator_s for wave in self._waves.values())
        total = everybody + coordinator + services
        cpu = {"slowest_client": slowest, "clients": everybody, "coordinator": coordinator}
        served = sum(service.bytes_up + service.bytes_down for service in self._services.values())
        client, row = self._spent.get("client"), self._spent.get("row")
        hidden = sum(size for kind, size in self._forms.items() if kind != "plain")
        return {
            "messages": sum(sent),
            "messages_by_route": dict(zip(ROUTES, sent, strict=True)),
            "bytes_up": sum(up),
            "bytes_down": sum(down),
            "bytes_up_per_client": _mean_and_max(up),
            "bytes_down_per_client": _mean_and_max(down),
            "relayed_bytes": self._relayed_bytes,
            "service_bytes": served,
            "bytes_by_form": dict(self._forms),
            # Keys, ciphertexts, masked values, shares and sealed messages, of all bytes.
            "cryptography_share": hidden / max(sum(up) + sum(down) + served, 1),
            "cpu_s": {**cpu, "services": services},
            "training_s": slowest + coordinator + services,
            "sum_cpu_s": total,
            "watts": float(watts),
            "wh": watts * total / SECONDS_PER_HOUR,
            "privacy": {**client, "rows": row} if client and row else client or row,
            "failures": [dict(failure) for failure in self._failures],
            "waves": [asdict(wave) for wave in self._waves.values()],
            "per_client": {"party": list(clients), **of_each},
        }


def _mean_and_max(counts: Sequence[int]) -> dict[str, float]:
    return {"mean": sum(counts) / len(counts) if counts else 0.0, "max": max(counts, default=0)}


def peak_megabytes(process: int | None = None) -> float:
    """Return the peak memory of this process or, on Linux, of another one; 0 if that has ended.

    Not ``ru_maxrss`` where there is better: on Linux a process inherits that from the one that started it.
    """
    status = Path(f"/proc/{process or 'self'}/status")
    if status.exists():
        peak = next((line for line in status.read_text().splitlines() if line.startswith("VmHWM:")), "- 0")
        return int(peak.split()[1]) / 1024
    if process is not None:
        return 0.0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


class Meter:
    """Linux' own meters of energy, powercap, where they may be read: they count all that runs here."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        # A package's name has one number; its cores and memory are parts of it, and have two.
        self._meters = [path for path in sorted(folder.glob("*-rapl:*")) if path.name.count(":") == 1]
        self._first = [self._read(path, "energy_uj") for path in self._meters]

    @staticmethod
    def _read(path: Path, name: str) -> int | None:
        try:
            return int((path / name).read_text())
        except (OSError, ValueError):
            return None

    def watt_hours(self) -> float | None:
        """Return the watt-hours since the beginning; None without a meter that can be read."""
        spent = 0
        for path, first in zip(self._meters, self._first, strict=True):
            now, limit = self._read(path, "energy_uj"), self._read(path, "max_energy_range_uj")
            if first is None or now is None or (now < first and limit is None):
                return None
            spent += now - first + (0 if now >= first else limit or 0)  # a meter starts again at its limit
        return spent / MICROJOULES_PER_WH if self._meters else None
