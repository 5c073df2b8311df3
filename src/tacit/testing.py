"""Contract checks for methods and protections: those of Tacit, and those that other packages add.

>>> from tacit.protections.plain import Plain
>>> check_protection(Plain(opens="clients"))
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, get_args

import msgspec
import numpy as np

from tacit.core.component import Component
from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, DataError, OpeningError, QuorumError, TacitError
from tacit.core.events import Event, Events, TotalOpened
from tacit.core.layout import Field, Layout
from tacit.core.manifest import Components, Manifest
from tacit.core.marks import apply, contribution
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.pending_sum import PendingSum
from tacit.core.promises import Opening
from tacit.core.protection import Protection, Vector
from tacit.core.shared import Shared, Total
from tacit.data.files import load
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.assembly import assemble
from tacit.engines.holdings import Holdings, holdings_of
from tacit.federation import Federation
from tacit.methods.base import Method
from tacit.protections import PROTECTIONS
from tacit.protections.plain import Plain
from tacit.training import Training

VECTORS = np.random.default_rng(0).uniform(-1, 1, size=(6, 2049))  # of six clients


def check_method(method: Method) -> None:
    """Raise an AssertionError that says which promise a method breaks, if it breaks any.

    It is trained some fifteen times for each of its tasks: give it settings that learn in a moment.
    """
    check_agreement(method, Components(method, Plain(), Preparation()))
    assert method.paper and method.tasks, "it names no paper or no task"
    for task in ("classification", "regression"):
        rows = make_rows(task)
        if task not in method.tasks:
            check_refusal(ConfigError, partial(train, method, divide(rows)), f"{task} is not refused")
            continue
        check_learning(method, rows)
        check_repeatable(method, rows)
        if method.closed_form:
            check_closed_form(method, rows)


def check_protection(protection: Protection) -> None:
    """Raise an AssertionError that says which promise a protection breaks, if it breaks any."""
    check_agreement(protection, Components(_RowSum(), protection, Preparation()))
    check_promises(protection)
    check_shut(protection)
    if not protection.adds_noise:
        check_sums(protection)


def check_refusal(error: type[TacitError], call: Callable[[], Any], text: str) -> None:
    """Check that a call raises such an error."""
    try:
        call()
    except TacitError as raised:
        assert isinstance(raised, error), f"{text}, but fails: {raised}"
    else:
        raise AssertionError(text)


def sent(fields: Mapping[str, Any]) -> Message:
    """Return the fields as another process reads them."""
    return Message.decode(Message(fields).encode())


def check_agreement(component: Component, components: Components) -> None:
    """Check that settings are described, and that whoever reads the manifest builds the same."""
    assert component.summary().endswith("."), "the first line of the class's docstring is no sentence"
    for option in component.options():
        assert option.doc, f"setting '{option.name}' is not described in the class's docstring"
    manifest = Manifest.of("run", components)
    back = Manifest.from_message(sent(manifest.to_message()))
    assert component in assemble(back), "a party that reads the manifest builds other settings"
    assert back.digest == manifest.digest, "the manifest's digest changes when it is sent"


def make_rows(task: str) -> Table:
    """Return irises in random order and other units, with two measurements as targets of a regression."""
    irises = load("iris").take(np.random.default_rng(5).permutation(150))
    values = irises.values * 10.0 ** np.arange(4)
    if task == "classification":
        return Table.of(values, np.array(irises.classes)[irises.target])
    targets = irises.values[:, 2:] / 10 + 0.1  # within what every activation can reach
    return Table.of(values[:, :2], targets, task="regression")


def divide(rows: Table, clients: int = 6, holdout: float = 0.0) -> Holdings:
    """Divide rows among clients of different sizes, in their order."""
    owner = np.sqrt(np.arange(rows.rows) / rows.rows) * clients
    return holdings_of(rows, owner.astype(np.int64), holdout, seed=0)


def train(method: Method, held: Holdings, protection: Protection | None = None, **engine: Any) -> Training:
    """Train, with plain sums unless others are given."""
    return Federation(held, seed=3, **engine).train(method, protect=protection or Plain())


def check_learning(method: Method, rows: Table) -> None:
    """Check that it learns, also under other protections, and without a client of unusable rows."""
    held, plain = divide(rows), train(method, divide(rows)).model
    truth = rows.target if rows.task == "regression" else np.array(rows.classes)[rows.target]
    guess = 0.0 if rows.task == "regression" else np.bincount(rows.target).max() / rows.rows
    assert plain.score(rows.values, truth) > guess, f"it scores no better than a guess, {guess:.3f}"
    for protection in map(PROTECTIONS.build, {method.default_protection, "masked"}):
        trained = partial(train, method, held, protection)
        if protection.incompatibility(method) or method.incompatibility(protection):
            check_refusal(ConfigError, trained, f"{protection.name} is not refused")
            continue
        same = np.mean(trained().model.predict(rows.values) == plain.predict(rows.values)) > 0.9
        lenient = rows.task == "regression" or protection.adds_noise
        assert same or lenient, f"{protection.name} makes a difference to predictions"
    held.table.values[held.offsets[2], 0] = np.nan
    training = train(method, held)
    assert training.failures.keys() == {"client-3"}, f"not only client-3 fails: {training.failures}"
    assert {*training.outcome.holders} == {*held.names} - {"client-3"}, "not all others have the model"


def check_repeatable(method: Method, rows: Table) -> None:
    """Check that one seed gives one model, wherever totals open and parties are written out."""
    held, measure = divide(rows, holdout=0.25), "r2" if rows.task == "regression" else "accuracy"
    before = held.table.values.tobytes(), held.table.target.tobytes()
    first = train(method, held)
    assert before == (held.table.values.tobytes(), held.table.target.tobytes()), "it changes the rows"
    for place in ("coordinator", "clients"):
        warm, cold = (train(method, held, Plain(opens=place), cold=cold) for cold in (False, True))
        if place == "coordinator" or not method.closed_form:  # which may find the same digits another way
            assert warm.outcome.digest == first.outcome.digest, f"one seed, another model at the {place}"
        assert warm.outcome.digest == cold.outcome.digest, "a party's state is lost when it is written out"
        found, expected = ((training.holdout or {})[measure] for training in (warm, first))
        assert np.isclose(found, expected), f"{measure} is another if totals open at the {place}"


def check_closed_form(method: Method, rows: Table) -> None:
    """Check that who holds which rows makes no difference to what clients hold in the end."""
    order = np.argsort(rows.target.reshape(rows.rows, -1)[:, 0], kind="stable")
    divisions = {
        "clients": divide(rows),
        "pooled rows": divide(rows, clients=1),
        "twelve clients": divide(rows, clients=12),
        "sorted rows": divide(rows.take(order)),
    }
    expected: Mapping[str, Any] = {}
    for text, held in divisions.items():
        shared = train(method, held).outcome.shared
        assert shared is not None  # plain totals open at the coordinator
        found = method.view(shared)
        expected = expected or found
        assert found.keys() == expected.keys(), f"{text} give other values"
        for name, value in expected.items():
            a, b = np.asarray(value, dtype=float), np.asarray(found[name], dtype=float)
            close = a.shape == b.shape and np.abs(a - b).max(initial=0) <= 1e-8 * np.abs(a).max(initial=0)
            assert close, f"{text} give another '{name}', which a closed form does not"


@dataclass(frozen=True)
class _RowSum(Method):
    """Sums the first row of each client; ``lost`` ones are missing from the first of the sums."""

    needs_norms: ClassVar[bool] = False

    sums: int = 1
    lost: tuple[str, ...] = ()
    restored: bool = False

    def train(self, coordinator: Coordinator) -> None:
        if self.restored:
            restore_half(coordinator)
        for _ in range(self.sums):
            coordinator.round(self.row, self.keep)

    # Clients come and go between sums, to see that a protection copes: of no family, as gradients are.
    @contribution(lambda self, schema: Layout(Field("row", (schema.features,), bound=1.0)), family=None)
    def row(self, party: Party, shared: Shared) -> dict[str, Any]:
        if party.id in self.lost and "row" not in shared:
            raise DataError("this client is lost")
        return {"row": party.data.values[0]}

    @apply
    def keep(self, total: Total, shared: Shared) -> Shared:
        return shared | {"row": total["row"], "count": total.contributors}

    def model(self, shared: Shared) -> Any:
        return shared["row"], shared["count"]


def restore_half(coordinator: Coordinator) -> None:
    """Restore the protection's half from a snapshot, and let it add contributions one by one."""
    half, earlier = coordinator.components.protection.at_coordinator(coordinator.link), coordinator.protection
    kept = {name: sent(earlier.party_snapshot(name)) for name in coordinator.parties}
    half.restore(sent(earlier.snapshot()), kept)

    def gather(pending: PendingSum) -> Mapping[str, Any]:
        total: Mapping[str, Any] | None = None
        for _, more in half.accepted(pending, len(pending.parties)):
            total = half.add(total, more)
        return total or {}

    vars(half)["gather"] = gather
    coordinator.protection = half


def sum_rows(
    protection: Protection, rows: Vector, method: _RowSum, quorum: float = 0.5, **options: Any
) -> Any:
    """Return the total over a row of each client, and its contributors; no total of a refused sum opens."""
    table = Table.of(rows, np.zeros(len(rows)), task="regression")
    held = holdings_of(table, np.arange(len(rows)), holdout=0.0, seed=0)
    told: list[Event] = []
    options |= {
        "preparation": Preparation(scale="none"),
        "min_count": 1,  # a row of each client is all there is
        "events": Events(lambda _, event: told.append(event)),
    }
    try:
        return Federation(held, quorum=quorum, cold=True).train(method, protect=protection, **options).model
    except TacitError:
        assert not any(isinstance(event, TotalOpened) for event in told), "a total opens and is refused later"
        raise


def check_promises(protection: Protection) -> None:
    """Check that promises are complete, sensible, and plain data."""
    promises = protection.promises
    assert promises.opens == protection.opens in get_args(Opening), "where do totals open?"
    assert {"coordinator", "client"} <= promises.sees.keys(), "what do coordinator and client see?"
    texts = [*promises.sees.values(), *promises.keys.values(), promises.collusion, promises.dropout]
    assert all(text in ("none", "nothing") or len(text.split()) >= 2 for text in texts), "a promise is empty"
    words = (*promises.keys, *promises.sees, *promises.warnings)
    assert all(isinstance(word, str) and word for word in words), "a name or a warning is empty"
    assert 0 <= promises.precision < (100 if protection.adds_noise else 0.01), "a precision without sense"
    assert 0 < promises.bytes_per_value < 10_000, f"{promises.bytes_per_value} bytes a value"
    described = promises.as_dict()
    assert msgspec.json.decode(msgspec.json.encode(described)).keys() == described.keys(), "no plain data"
    if "in the clear" in promises.sees["coordinator"]:
        assert any("in the clear" in text for text in promises.warnings), "no warning of what is in the clear"
    assert promises.single or protection.min_contributions(1) >= 2, "it would open a single contribution"


def check_shut(protection: Protection) -> None:
    """Check that no total opens below the quorum, over fewer than agreed, or of a single client."""
    lossy = _RowSum(lost=("client-1", "client-4"))
    for quorum, least, error in ((0.8, 3, QuorumError), (0.2, 5, OpeningError)):
        call = partial(sum_rows, protection, VECTORS[:, :7], lossy, quorum, min_clients=least)
        check_refusal(error, call, f"4 of 6 are summed at a quorum of {quorum} and min_clients = {least}")
    if not protection.promises.single:
        alone = partial(sum_rows, protection, VECTORS[:1, :7], _RowSum(), min_clients=1)
        check_refusal(TacitError, alone, "a single client is summed, and promises.single is False")


def check_sums(protection: Protection) -> None:
    """Check that totals are sums of what was contributed, as exact as promised."""
    six, extremes = VECTORS[:, :7], np.array([[0.0, 1.0, -1.0, (-1.0) ** i] for i in range(6)])
    lost = ("client-1", "client-2", "client-3")
    beyond = six + 5.0 * (np.arange(6) == 2)[:, None]
    cases = {
        "values at their bounds": (extremes, extremes, _RowSum()),
        "one value": (VECTORS[:3, :1], VECTORS[:3, :1], _RowSum()),
        "many values": (VECTORS[:4], VECTORS[:4], _RowSum()),
        "a value beyond its bound": (beyond, np.delete(six, 2, axis=0), _RowSum()),
        "half of the clients are lost": (six, six[3:], _RowSum(lost=lost)),
        "a lost client comes back": (six, six, _RowSum(sums=2, lost=lost[:1])),
    }
    if protection.promises.single:
        cases["a single client"] = (six[:1], six[:1], _RowSum())
    if protection.incremental:
        cases["a restored coordinator"] = (six, six, _RowSum(restored=True))
    for text, (rows, summed, method) in cases.items():
        total, count = sum_rows(protection, rows, method)
        assert count == len(summed), f"{text}: a total over {count} contributions, not {len(summed)}"
        allowed = count * (protection.promises.precision + count * np.finfo(float).eps)
        error = np.abs(total - summed.sum(axis=0)).max()
        assert error <= allowed, f"{text}: a total is wrong by {error:g}, promised are {allowed:g}"
