"""A coordinator that does not follow the protocol: it has clients open what it likes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any
from unittest import mock

from tacit.core.coordinator import Coordinator
from tacit.core.layout import Field, Layout
from tacit.core.marks import apply, contribution
from tacit.core.values import Blob
from tacit.methods.base import Method
from tacit.protections.keys.proved_totals import ProvedTotals, add_tags
from tacit.protections.paillier.halves import PaillierCoordinator
from tests.conftest import quick_keys

REFUSED = "does not open this total"  # in the same words, whatever is wrong with it


@dataclass(frozen=True)
class PrivateAndScores(Method):
    """One contribution that stays at the clients, and one of the same layout that the coordinator gets."""

    needs_norms = False

    def _layout(self, schema: Any) -> Layout:
        return Layout(Field("vector", (schema.features,), bound=1.0))

    @contribution(_layout)
    def private(self, party: Any, shared: Any) -> dict[str, Any]:
        return {"vector": party.data.values[0]}

    @contribution(_layout, revealed=True)
    def scores(self, party: Any, shared: Any) -> dict[str, Any]:
        return {"vector": party.data.values[0] / 2}

    @apply
    def keep(self, total: Any, shared: Any) -> Any:
        return shared | {"vector": total["vector"]}


class Malicious:
    """What such a coordinator does with its clients, each of which holds one row."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.rows: dict[str, Any] = {}  # of each client, to compare with
        with quick_keys():
            coordinator.enrol()
            coordinator.protection.prepare(1)

    def gathered(self, name: str) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]]]:
        """Form a sum; return what it would have opened, and what each client sent."""
        coordinator, tap = self.coordinator, self.coordinator.link.transport.engine
        before = len(tap.replies)
        with quick_keys():
            entry = coordinator.gather(coordinator.begin_sum(getattr(coordinator.components.method, name)))
        sent = [reply for step, reply in tap.replies[before:] if step == "client.contribute"]
        return entry, {reply.party: reply.message for reply in sent}

    def named(self, *names: str) -> dict[str, Any]:
        """Claim that a total is over these clients."""
        return {"in_total": self.coordinator.link.briefing.roll.mark(names), "contributors": len(names)}

    def disclosed(self, entry: Mapping[str, Any], by: str = "client-1") -> Any:
        """Have a client open a total and hand it over; returns it, or the reason why not."""
        failures: dict[str, str] = {}
        with quick_keys():
            wave = self.coordinator.link.wave("client.disclose_total", (by,), entry, failures=failures)
            replies = list(wave)
        return replies[0].message["vector"] if replies else failures[by]

    def added(self, *parts: Mapping[str, Any]) -> dict[str, Any]:
        """Add up what clients sent, as often as it is given, to the fields of a total."""
        half = self.coordinator.protection
        if isinstance(half, PaillierCoordinator):
            from tacit.crypto.paillier import PublicKey, add_blobs

            key = PublicKey.from_bytes(half.public)
            cipher = reduce(
                lambda one, two: add_blobs(key, one, two), [part["cipher"].data for part in parts]
            )
            return {"total/cipher": Blob("cipher", cipher), "total/tag": add_tags(*parts)}
        total: Mapping[str, Any] = reduce(half.add, parts[1:], half.add(None, parts[0]))
        return {f"total/{name}": value for name, value in total.items()}


@contextmanager
def unchecked() -> Iterator[None]:
    """Let clients open totals without their proof, as they did once."""
    with mock.patch.object(ProvedTotals, "check", lambda *_, **__: None):
        yield
