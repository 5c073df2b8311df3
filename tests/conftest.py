"""What tests of several rooms share: small tables, desks on embedded parties, a tap in the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tacit.core.desk import Desk
from tacit.core.engine import Reply
from tacit.core.events import Events
from tacit.core.layout import Field, Layout
from tacit.core.manifest import Manifest, Parts
from tacit.core.message import Message
from tacit.core.parts import contribution
from tacit.core.shared import Total
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.embedded import EmbeddedEngine
from tacit.engines.sites import Holdings
from tacit.methods.base import Method
from tacit.methods.fedheonn import FedHEONN
from tacit.sums.plain import Plain


def make_table(task: str = "classification", rows: int = 90, features: int = 3, seed: int = 0) -> Table:
    """Rows from which both a classifier and a regressor learn something; every class occurs often."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, features)) * [10.0**i for i in range(features)] + 5.0
    if task == "classification":
        codes = np.arange(rows) % 3
        values += codes[:, None]
        return Table.of(values, np.array(["blue", "green", "red"])[codes])
    signal = (values - values.mean(axis=0)) / values.std(axis=0) @ rng.normal(size=(features, 2))
    return Table.of(values, 0.2 + 0.6 / (1 + np.exp(-signal)), task="regression")


def divide(table: Table, clients: int, names: list[str] | None = None) -> Holdings:
    """Give each client a stretch of rows, the first ones one more if it does not come out even."""
    sizes = np.full(clients, table.rows // clients)
    sizes[: table.rows % clients] += 1
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Holdings(table, offsets, names or [f"client-{i + 1}" for i in range(clients)])


class Tap:
    """An engine around another one: records what passes, and can change or lose replies.

    ``rewrite(step, party, message)`` gives the message that arrives instead, a text for a failure, or
    None to let the reply pass; ``lose(step, party)`` says that an ask never reaches its party.
    """

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.calls: list[tuple[str, bytes]] = []
        self.jobs: list[tuple[str, str, bytes]] = []
        self.replies: list[tuple[str, Reply]] = []
        self.rewrite: Callable[[str, str, Message], Any] = lambda step, party, message: None
        self.lose: Callable[[str, str], bool] = lambda step, party: False

    def parties(self, role: str = "client") -> Any:
        return self.engine.parties(role)

    def ask(
        self, call: bytes, jobs: Iterable[tuple[str, bytes]], timeout: float | None = None
    ) -> Iterator[Reply]:
        step = Message.decode(call)["$step"]
        self.calls.append((step, call))
        for party, job in jobs:
            self.jobs.append((step, party, job))
            if self.lose(step, party):
                yield Reply(party, Message(), "StepError: lost on the way", len(call), 0)
                continue
            for reply in self.engine.ask(call, [(party, job)], timeout):
                changed = self.rewrite(step, party, reply.message) if reply.failure is None else None
                if isinstance(changed, str):
                    reply = Reply(party, Message(), changed, reply.bytes_down, 0)
                elif changed is not None:
                    reply = Reply(party, changed, None, reply.bytes_down, reply.bytes_up, reply.cpu_s)
                self.replies.append((step, reply))
                yield reply

    def close(self) -> None:
        self.engine.close()


def vectors_method(rows: dict[str, Any], bound: float | None) -> Method:
    """Make a method whose one contribution is a given vector of each client."""

    @dataclass(frozen=True)
    class Vectors(Method):
        def _layout(self, schema: Any) -> Layout:
            return Layout(Field("vector", next(iter(rows.values())).shape, bound))

        @contribution(_layout)
        def vector(self, party: Any, shared: Any) -> dict[str, Any]:
            return {"vector": rows[party.id]}

    return Vectors()


def sum_of(
    protection: Any,
    rows: dict[str, Any],
    *,
    bound: float | None = None,
    lost: tuple[str, ...] = (),
    subscriber: Any = None,
    **settings: Any,
) -> Total:
    """Sum vectors under a protection, each client holding one; some vanish once keys are agreed."""
    parts = Parts(vectors_method(rows, bound), protection, Preparation(scale="none"))
    manifest = Manifest.of("run", parts, **settings)
    table = Table.of(np.arange(len(rows))[:, None] * 1.0, np.zeros(len(rows)), task="regression")
    held = Holdings(table, np.arange(len(rows) + 1), list(rows))
    tap = Tap(EmbeddedEngine(held, assemble=lambda asked: parts))
    desk = Desk(tap, manifest, parts, Events(subscriber) if subscriber else Events())
    desk.enrol()
    protection.prepare(desk, 1)
    tap.lose = lambda step, party: party in lost
    return desk.reveal(parts.method.vector)


@pytest.fixture(scope="session")
def summed() -> Callable[..., Total]:
    return sum_of


@pytest.fixture
def table() -> Table:
    return make_table()


@pytest.fixture
def regression() -> Table:
    return make_table("regression")


@pytest.fixture
def holdings() -> Callable[..., Holdings]:
    return divide


@pytest.fixture
def table_of() -> Callable[..., Table]:
    return make_table


@pytest.fixture
def desk_of(table: Table) -> Iterator[Callable[..., Desk]]:
    """Make desks that have not enrolled yet; their engine is tapped and closed when the test ends."""
    engines: list[Any] = []

    def make(
        method: Any = None,
        protection: Any = None,
        *,
        clients: int = 4,
        data: Holdings | None = None,
        engine: dict[str, Any] | None = None,
        timeout: float | None = None,
        subscriber: Any = None,
        preparation: Preparation | None = None,
        **settings: Any,
    ) -> Desk:
        parts = Parts(method or FedHEONN(), protection or Plain(), preparation or Preparation())
        manifest = Manifest.of("run", parts, **{"experiment": True, **settings})

        def assemble(asked: Manifest) -> Parts:
            return parts

        held = data if data is not None else divide(table, clients)
        embedded = EmbeddedEngine(held, **{"assemble": assemble, **(engine or {})})
        tap = Tap(embedded)
        engines.append(tap)
        events = Events(subscriber) if subscriber else Events()
        return Desk(tap, manifest, parts, events, timeout=timeout)

    yield make
    for tap in engines:
        tap.close()
