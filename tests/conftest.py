"""What tests of several rooms share: small tables, coordinators on embedded parties, a tap in the wire."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tacit.core.coordinator import Coordinator
from tacit.core.differencing import OpenedTotals
from tacit.core.engine import Reply, read_reply
from tacit.core.errors import MessageError
from tacit.core.events import Event, Events
from tacit.core.exposure import COORDINATOR
from tacit.core.layout import Field, Layout
from tacit.core.link import Link
from tacit.core.manifest import Components, Manifest
from tacit.core.marks import apply, contribution
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.secret import Secret
from tacit.core.shared import Total
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.embedded import EmbeddedEngine
from tacit.engines.holdings import Holdings
from tacit.engines.sites import pinned_identity, site_secret
from tacit.methods.base import Method
from tacit.methods.fedheonn import FedHEONN
from tacit.protections import PROTECTIONS
from tacit.protections.plain import Plain
from tacit.runs.page import drawing
from tests.quick import QUICK, BlankSheet, Mode

# A shell that starts tests in the background lets them ignore Ctrl-C, and all that they start as well.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Thin out examples and drawings if the slow tests are left out too."""
    Mode.quick = config.getoption("markexpr") == QUICK


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with tests on a real federation: they mostly wait while the other worker does the rest."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.fixture(autouse=True)
def few_drawings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing in the quick session but for tests marked ``draws``: most of a small run is drawing."""
    if Mode.quick and request.node.get_closest_marker("draws") is None:
        monkeypatch.setattr(drawing, "Sheet", BlankSheet)


# Settings under which each protection is tested; one that is not named here is tested as it comes.
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "plain": [{}, {"opens": "clients"}],
    "paillier": [{"holder": holder, "key_bits": 2048} for holder in ("key-server", "clients")],
    "ring": [{"key_bits": 2048}],
    "shares": [{}, {"scheme": "additive", "opens": "coordinator"}],
    "committee": [{}, {"opens": "coordinator"}],
    "masked": [{}, {"opens": "clients"}],
    "noised": [{}, {"inner": "masked", "where": "distributed", "clip": 2.0}],
}
VARIANTS = {
    "-".join([name, *(value for value in settings.values() if isinstance(value, str))]): PROTECTIONS.build(
        name, settings
    )
    for name in PROTECTIONS
    for settings in SETTINGS.get(name, [{}])
}
# Whoever promises an error of a percent or more adds noise on purpose: its totals equal no other sum's.
EXACT = [name for name, protection in VARIANTS.items() if protection.promises.precision < 0.01]
GUARDED = [name for name in EXACT if VARIANTS[name].authenticated]


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

    ``rewrite(step, party, message)`` gives the message or bytes that arrive instead, a text for a failure,
    or None to let the reply pass; ``lose(step, party)`` says that an ask never reaches its party;
    ``recall(step, party, call, job)`` gives the call and job that reach it instead; ``sort(step, replies)``
    gives the replies of a wave that arrive, in whatever order and under whatever name.
    """

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.calls: list[tuple[str, bytes]] = []
        self.jobs: list[tuple[str, str, bytes]] = []
        self.replies: list[tuple[str, Reply]] = []
        self.rewrite: Callable[[str, str, Message], Any] = lambda step, party, message: None
        self.lose: Callable[[str, str], bool] = lambda step, party: False
        self.recall: Callable[[str, str, bytes, bytes], Any] = lambda step, party, call, job: None
        self.sort: Callable[[str, list[Reply]], Iterable[Reply]] | None = None

    persistent = False
    workers_mb = 0.0

    def parties(self, role: str = "client") -> Any:
        return self.engine.parties(role)

    def present(self) -> Any:
        return [name for name in self.engine.present() if not self.lose("present", name)]

    def ask(self, call: bytes, jobs: Iterable[tuple[str, bytes]]) -> Iterator[Reply]:
        step = Message.decode(call)["$step"]
        self.calls.append((step, call))
        replies = self._ask(step, call, jobs)
        yield from replies if self.sort is None else self.sort(step, list(replies))

    def _ask(self, step: str, call: bytes, jobs: Iterable[tuple[str, bytes]]) -> Iterator[Reply]:
        for party, job in jobs:
            self.jobs.append((step, party, job))
            if self.lose(step, party):
                yield Reply(party, Message(), "StepError: lost on the way", len(call), 0)
                continue
            for reply in self._reached(party, *(self.recall(step, party, call, job) or (call, job))):
                changed = self.rewrite(step, party, reply.message) if reply.failure is None else None
                if isinstance(changed, str):
                    reply = Reply(party, Message(), changed, reply.bytes_down, 0)
                elif isinstance(changed, bytes):
                    reply = read_reply(party, changed, reply.bytes_down, limit=1 << 30)
                elif changed is not None:
                    reply = Reply(party, changed, None, reply.bytes_down, reply.bytes_up, reply.cpu_s)
                self.replies.append((step, reply))
                yield reply

    def _reached(self, party: str, call: bytes, job: bytes) -> Iterator[Reply]:
        try:
            yield from self.engine.ask(call, [(party, job)])
        except MessageError as error:  # a deployed party says so by itself
            yield Reply(party, Message(), f"MessageError: {error}", len(call), 0)

    def close(self) -> None:
        self.engine.close()


def vectors_method(rows: Mapping[str, Any], bound: float | Mapping[str, float | None] | None) -> Method:
    """Make a method whose one contribution is a given vector of each client, or several by name."""
    bounds = bound if isinstance(bound, Mapping) else {"vector": bound}

    def named(row: Any) -> dict[str, Any]:
        return dict(row) if isinstance(row, Mapping) else {"vector": row}

    shapes = {name: np.shape(array) for name, array in named(next(iter(rows.values()))).items()}

    @dataclass(frozen=True)
    class Vectors(Method):
        def _layout(self, schema: Any) -> Layout:
            return Layout(*(Field(name, shape, bounds[name]) for name, shape in shapes.items()))

        # As if they were new ones whenever something was learnt.
        @contribution(_layout, family=None, revealed=True)
        def vector(self, party: Any, shared: Any) -> dict[str, Any]:
            return named(rows[party.id])

        @apply
        def keep(self, total: Any, shared: Any) -> Any:
            return shared | dict(total)

    return Vectors()


@cache
def _paillier_key(bits: int, randomness: Any) -> Any:
    from tacit.crypto.paillier.private import make_keys

    return make_keys(bits, randomness=randomness)


_PRIVATE: dict[bytes, Any] = {}


@contextmanager
def quick_keys() -> Iterator[None]:
    """Make Paillier keys once per process, for tests of which they are not the subject."""
    from tacit.crypto.paillier import PrivateKey

    read = PrivateKey.from_secret

    def from_secret(secret: Secret) -> Any:
        raw = secret.reveal()
        if raw not in _PRIVATE:
            _PRIVATE[raw] = read(secret)
        return _PRIVATE[raw]

    def make_keys(bits: int, randomness: str = "djn") -> Any:
        return _paillier_key(bits, randomness)

    with (
        mock.patch("tacit.protections.paillier.make_keys", make_keys),
        mock.patch("tacit.crypto.paillier.make_keys", make_keys),
        mock.patch.object(PrivateKey, "from_secret", from_secret),
    ):
        yield


class Scene:
    """Clients with a vector each under a protection; all that anyone received and all events are kept.

    Parameters
    ----------
    rows : mapping
        Vector of each client, or its named vectors.
    bound : float, mapping or None
        Bound of the vectors; None if they have none.
    engine : mapping
        Settings of the embedded engine.
    settings
        Of the manifest.
    """

    def __init__(
        self,
        protection: Any,
        rows: Mapping[str, Any],
        *,
        bound: float | Mapping[str, float | None] | None = 1.0,
        engine: Mapping[str, Any] | None = None,
        subscriber: Any = None,
        **settings: Any,
    ) -> None:
        self.protection, self.rows = protection, rows
        self.components = Components(vectors_method(rows, bound), protection, Preparation(scale="none"))
        manifest = Manifest.of("run", self.components, **settings)
        table = Table.of(np.arange(len(rows))[:, None] * 1.0, np.zeros(len(rows)), task="regression")
        held = Holdings(table, np.arange(len(rows) + 1), list(rows))
        services = {"assemble": lambda asked: self.components, "services": protection.services}
        self.embedded = EmbeddedEngine(held, **{**services, **(engine or {})})
        self.tap = Tap(self.embedded)
        self.heard: list[tuple[str, str, str, bytes]] = []
        self.told: list[Event] = []
        events = Events(lambda number, event: self.told.append(event))
        if subscriber:
            events.subscribe(subscriber)
        self.coordinator = Coordinator(
            Link(
                self.tap,
                manifest,
                self.components,
                events,
                secret=site_secret(0, COORDINATOR),
                pinned=partial(pinned_identity, 0),
                transcript=lambda *received: self.heard.append(received),
            )
        )

    def begin(self) -> Scene:
        """Enrol, and agree on keys."""
        with quick_keys():
            self.coordinator.enrol()
            self.coordinator.protection.prepare(1)
        return self

    def total(self, lost: Iterable[str] = ()) -> Total:
        """Sum the vectors, as if they were new ones each time; some clients do not answer."""
        self.coordinator.link.opened_totals = OpenedTotals()
        self.tap.lose = lambda step, party: party in lost
        with quick_keys(), mock.patch("tacit.core.client.check_own"):
            return self.coordinator.reveal(self.components.method.vector)

    def round(self) -> tuple[str, ...]:
        """Sum the vectors and keep the total, wherever it opens; gives who contributed."""
        with quick_keys():
            return self.coordinator.round(self.components.method.vector, self.components.method.keep)

    def finish(self) -> None:
        """Let every client adopt what was kept."""
        with quick_keys():
            self.coordinator.finish()

    def site(self, name: str) -> Party:
        """A party, with all that it holds."""
        return self.embedded._sites.party(name)

    def expected(self, without: Iterable[str] = ()) -> Any:
        """The sum that numpy gives."""
        return np.sum([row for name, row in self.rows.items() if name not in without], axis=0)

    def received(self, *receivers: str) -> list[bytes]:
        """All that some parties received, as bytes."""
        return [raw for receiver, _, _, raw in self.heard if receiver in receivers]

    def told_of(self, kind: type[Event]) -> list[Any]:
        """Events of a kind."""
        return [event for event in self.told if isinstance(event, kind)]


def sum_of(
    protection: Any,
    rows: Mapping[str, Any],
    *,
    bound: float | Mapping[str, float | None] | None = None,
    lost: tuple[str, ...] = (),
    **settings: Any,
) -> Total:
    """Sum vectors under a protection, each client holding one; some vanish once keys are agreed."""
    return Scene(protection, rows, bound=bound, **settings).begin().total(lost)


@pytest.fixture(scope="session", params=EXACT)
def protection(request: pytest.FixtureRequest) -> Any:
    """Every registered protection whose totals are sums, with every setting that changes its promises."""
    return VARIANTS[request.param]


@pytest.fixture(scope="session", params=VARIANTS)
def any_protection(request: pytest.FixtureRequest) -> Any:
    """Every registered protection, those that add noise among them."""
    return VARIANTS[request.param]


@pytest.fixture(scope="session")
def protections() -> list[Any]:
    return list(VARIANTS.values())


@pytest.fixture(scope="session", params=GUARDED)
def guarded(request: pytest.FixtureRequest) -> Any:
    """Every protection with keys."""
    return VARIANTS[request.param]


@pytest.fixture(scope="session")
def scene_of() -> Callable[..., Scene]:
    return Scene


@pytest.fixture(scope="session")
def keys_once() -> Any:
    """A context in which Paillier keys are made once per process."""
    return quick_keys


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


@pytest.fixture(scope="session")
def table_of() -> Callable[..., Table]:
    return make_table


@pytest.fixture
def coordinator_of(table: Table) -> Iterator[Callable[..., Coordinator]]:
    """Make coordinators that have not enrolled yet; their engine is tapped and closed when the test ends."""
    engines: list[Any] = []

    def make(
        method: Any = None,
        protection: Any = None,
        *,
        clients: int = 4,
        data: Holdings | None = None,
        engine: dict[str, Any] | None = None,
        subscriber: Any = None,
        preparation: Preparation | None = None,
        **settings: Any,
    ) -> Coordinator:
        components = Components(method or FedHEONN(), protection or Plain(), preparation or Preparation())
        manifest = Manifest.of("run", components, **{"experiment": True, **settings})

        def assemble(asked: Manifest) -> Components:
            return components

        held = data if data is not None else divide(table, clients)
        services = components.protection.services
        embedded = EmbeddedEngine(held, **{"assemble": assemble, "services": services, **(engine or {})})
        tap = Tap(embedded)
        engines.append(tap)
        events = Events(subscriber) if subscriber else Events()
        return Coordinator(
            Link(
                tap,
                manifest,
                components,
                events,
                secret=site_secret(0, COORDINATOR),
                pinned=partial(pinned_identity, 0),
            )
        )

    yield make
    for tap in engines:
        tap.close()
