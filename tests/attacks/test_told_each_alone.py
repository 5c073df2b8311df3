"""Another model or schema for each client, told to each alone: the total of a sum is then one client's own.

Masks are bound to what all were asked, and an ask has a second part for one client alone. A coordinator that
moves the model there asks all for the same, and gives the others weights with which they contribute nothing
(Pasquini et al., "Eluding Secure Aggregation in Federated Learning via Model Inconsistency", 2022). A schema
of its own puts the classes of one client where nobody else counts: each total is genuine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tacit.core import contribution as contributing
from tacit.core import steps
from tacit.core.errors import ProtectionError, QuorumError
from tacit.core.layout import Field, Layout
from tacit.core.marks import contribution
from tacit.core.message import Message
from tacit.core.tags import FIELD, ask_context, tagged
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.methods.base import Method
from tacit.protections.ckks import CKKS
from tacit.protections.keys import proved_totals
from tacit.protections.masked import Masked
from tacit.protections.noised import Noised
from tacit.protections.secret_sharing.committee import Committee
from tacit.protections.secret_sharing.shares import Shares
from tests.attacks.malicious import REFUSED
from tests.conftest import divide, quick_keys

VICTIM, CLIENTS, CLASSES = "client-2", 5, ("no", "yes", "-", "--")
APART = [8, 16, 2, 4]  # rows of each class: of four clients, and of one
TABLE = Table.of(
    np.random.default_rng(3).uniform(-1, 1, (6 * CLIENTS, 4)), np.array(["no", "yes", "yes"] * 2 * CLIENTS)
)
every_shared_key = pytest.mark.parametrize(
    "protection", [CKKS(), Shares(), Committee()], ids=["ckks", "shares", "committee"]
)


@dataclass(frozen=True)
class WeightsAndClasses(Method):
    """Rows times a weight that the federation shares, and how many rows have each class."""

    tasks = ("classification",)
    needs_norms = False

    def init(self, schema: Any, rng: Any) -> Mapping[str, Any]:
        return {"weight": 1.0}

    @contribution(lambda self, schema: Layout(Field("vector", (4,), bound=6.0)), family=None, revealed=True)
    def gradient(self, party: Any, shared: Any) -> dict[str, Any]:
        return {"vector": shared["weight"] * party.data.values.sum(axis=0)}

    @contribution(lambda self, schema: Layout(Field("vector", (schema.outputs,), bound=6.0)), revealed=True)
    def classes(self, party: Any, shared: Any) -> dict[str, Any]:
        labels = shared.schema.labels(party.data)
        return {"vector": np.bincount(labels, minlength=shared.schema.outputs).astype(float)}


@pytest.fixture
def enrolled(coordinator_of: Callable[..., Any]) -> Callable[..., Any]:
    """Make a coordinator that has enrolled its clients."""

    def make(protection: Any) -> Any:
        options = {"preparation": Preparation(scale="none"), "min_clients": 3, "experiment": False}
        made = coordinator_of(WeightsAndClasses(), protection, data=divide(TABLE, CLIENTS), **options)
        made.enrol()
        return made

    return make


@pytest.fixture
def lying(enrolled: Callable[..., Any]) -> Callable[..., Any]:
    """Have a coordinator tell each client alone what it should tell all; gives a total that it has."""

    def total_of(protection: Any, name: str, tell: Callable[..., Any], early: bool = True) -> Any:
        made = enrolled(protection)
        made.link.briefing.schema = agreed = replace(made.schema, classes=CLASSES)

        def recall(step: str, party: str, call: bytes, job: bytes) -> Any:
            told, asked, own = tell(party, agreed), Message.decode(call), Message.decode(job).without(FIELD)
            if step != "client.contribute" and not (early and told.keys() & {*asked, *own}):
                return None
            asked = Message({name: value for name, value in asked.items() if name not in told})
            context = ask_context(asked["$serial"], party, hashlib.sha256(asked.encode()).digest())
            channel = made.link.transport.channels[party]
            return asked.encode(), tagged(own | told, channel, *context).encode()

        made.link.transport.engine.recall = recall
        with quick_keys():
            made.protection.prepare(1)
            return made.reveal(getattr(made.components.method, name))["vector"]

    return total_of


def one_model(party: str, schema: Any) -> dict[str, Any]:
    """A weight of zero, but for one client."""
    return {"shared/weight": 1.0 if party == VICTIM else 0.0}


def one_schema(party: str, schema: Any) -> dict[str, Any]:
    """A schema of four classes: the first two have the names of ours, or the last two, for one client."""
    classes = CLASSES[2:] + CLASSES[:2] if party == VICTIM else CLASSES
    return {"schema": replace(schema, classes=classes).to_message().encode()}


class TestMasked:
    @pytest.fixture
    def unbound(self, monkeypatch):
        monkeypatch.setattr(steps, "_bind_asked", lambda party, job, own_fields: party.asked)

    def test_control_another_model(self, lying, unbound):
        found = lying(Masked(), "gradient", one_model)
        np.testing.assert_allclose(found, TABLE.values[6:12].sum(axis=0), atol=1e-7)

    def test_control_another_schema(self, lying, unbound):
        np.testing.assert_allclose(lying(Masked(), "classes", one_schema), APART, atol=1e-7)

    @pytest.mark.parametrize(("name", "tell"), [("gradient", one_model), ("classes", one_schema)])
    def test_masks_do_not_cancel(self, lying, name, tell):
        with pytest.raises(ProtectionError, match="clients were asked different things in sum 1"):
            lying(Masked(), name, tell)


@every_shared_key
class TestWhereClientsOpen:
    def test_control(self, lying, protection, monkeypatch):
        same = SimpleNamespace(sha256=lambda raw: hashlib.sha256(b""))
        monkeypatch.setattr(proved_totals, "hashlib", same)
        np.testing.assert_allclose(lying(protection, "classes", one_schema), APART, atol=1e-7)

    def test_the_total_does_not_prove_itself(self, lying, protection):
        with pytest.raises(QuorumError, match=REFUSED):
            lying(protection, "classes", one_schema)

    def test_a_second_schema_is_refused(self, lying, protection):
        with pytest.raises(QuorumError, match="was told another schema before"):
            lying(protection, "classes", one_schema, early=False)


class TestAgain:
    """Each is asked for something else, then all for the same sum once more: they send what they kept."""

    def total_of(self, made):
        made.protection.prepare(2)
        engine, method = made.link.transport.engine, made.components.method
        pending = made.begin_sum(method.gradient)

        def recall(step, party, call, job):
            told = Message.decode(call) | {"shared/weight": 1.0 if party == VICTIM else 0.0}
            context = ask_context(told["$serial"], party, hashlib.sha256(told.encode()).digest())
            channel, own = made.link.transport.channels[party], Message.decode(job).without(FIELD)
            return told.encode(), tagged(own, channel, *context).encode()

        engine.recall = recall
        with pytest.raises(ProtectionError, match="clients were asked different things in sum 1"):
            made.gather(pending)
        engine.recall = lambda *_: None
        pending.restart()
        total = made.gather(pending)
        layout = Layout(Field("vector", (4,), bound=6.0))
        return made.protection.open({name[6:]: total[name] for name in total if name[:6] == "total/"}, layout)

    @pytest.fixture
    def made(self, enrolled):
        return enrolled(Noised(inner="masked", where="distributed", epsilon=1e6, clip=12.0))

    def test_control(self, made, monkeypatch):
        monkeypatch.setattr(contributing, "_is_again", lambda *_: True)
        np.testing.assert_allclose(self.total_of(made), TABLE.values[6:12].sum(axis=0), atol=0.5)

    def test_it_is_refused(self, made):
        with pytest.raises(
            QuorumError, match="was asked for another contribution, or of other values, in sum 1"
        ):
            self.total_of(made)
