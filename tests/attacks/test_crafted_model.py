"""Weights that a coordinator crafts so that one total of gradients shows rows.

Fowl et al., "Robbing the Fed" (2022): all hidden units measure the same combination of the features, each
against another threshold, and count the same for the output. The gradients of two neighbouring units then
differ by the rows between their thresholds; where that is one row, the difference of the weights over that of
the bias is the row. The model is the same for all clients, so masks cancel, and nothing is wrong with the
total: no protection of the sum helps. What helps is that the coordinator does not choose the model.
"""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from tacit.core.message import Message
from tacit.core.shared import Shared
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.methods.compatibility import MODEL_SENT, warnings_for_pair
from tacit.methods.fedavg import FedAvg
from tacit.methods.fedheonn import FedHEONN
from tacit.models.neural import PREFIX
from tacit.protections.bfv import BFV
from tacit.protections.ckks import CKKS
from tacit.protections.masked import Masked
from tests.conftest import divide

ROWS, FEATURES, UNITS, CLIENTS = 60, 5, 256, 6
WEIGHT, BIAS, OUT = (f"{PREFIX}{name}" for name in ("layer1.weight", "layer1.bias", "layer2.weight"))


@pytest.fixture
def federation(coordinator_of):
    """A coordinator of six clients with ten rows each, and the rows."""
    rng = np.random.default_rng(3)
    table = Table.of(rng.normal(size=(ROWS, FEATURES)), np.array(["no", "yes"])[np.arange(ROWS) % 2])
    method = FedAvg.from_config(
        {"hidden": (UNITS,), "rounds": 1, "batch": 0, "weighting": "equal", "rate": 1.0}
    )
    options = {"data": divide(table, CLIENTS), "preparation": Preparation(scale="none"), "min_clients": 3}

    def make(protection, method=method):
        made = coordinator_of(method, protection, **options)
        made.enrol()
        made.protection.prepare(2)
        return made, table.values.astype(float)

    return make


def crafted(shared):
    """The shared values with weights that tell rows apart by the sum of their features."""
    thresholds = np.linspace(-7.0, 7.0, UNITS)
    values = {WEIGHT: np.ones((FEATURES, UNITS)), BIAS: -thresholds, OUT: np.tile([1e-3, -1e-3], (UNITS, 1))}
    return Shared(shared.schema, {**shared, **values})


def rows_in(weights, bias):
    """Rows that the difference of neighbouring units' gradients gives, if there is just one between them."""
    above, least = np.abs(np.diff(bias)), 1e-6
    single = np.flatnonzero(above > least)
    return np.array([np.diff(weights, axis=1)[:, k] / np.diff(bias)[k] for k in single])


def found(rows, truth):
    """How many of the true rows were found, to three digits."""
    distance = np.abs(rows[:, None] - truth[None]).max(axis=2)
    return int((distance.min(axis=0) < 1e-3).sum())


def test_under_masked_one_total_shows_rows(federation):
    coordinator, truth = federation(Masked())
    coordinator.shared = before = crafted(coordinator.shared)
    method = coordinator.components.method
    coordinator.round(method.update, method.step)
    change = {name: coordinator.shared[name] - before[name] for name in (WEIGHT, BIAS)}
    assert found(rows_in(change[WEIGHT], change[BIAS]), truth) > ROWS / 2


def outcome(coordinator, attacks):
    """Digest of what clients hold after a round; the coordinator puts its own weights on every ask."""
    method, briefing, schema = coordinator.components.method, coordinator.link.briefing, coordinator.schema
    weights = crafted(Shared(schema, method.init(schema, coordinator.manifest.rng("init"))))
    write = briefing.write

    def lying(parties, step):
        fields, own = write(parties, step)
        return {**fields, **{f"shared/{name}": value for name, value in weights.items()}}, own

    with mock.patch.object(briefing, "write", lying if attacks else write):
        coordinator.round(method.update, method.step)
    return coordinator.finish().digest


def test_where_clients_open_totals_they_take_no_model_from_it(federation):
    honest, attacked = (outcome(federation(BFV())[0], attacks) for attacks in (False, True))
    assert honest == attacked


@pytest.mark.parametrize("visible", [False, True], ids=["summed", "in the clear"])
def test_a_field_beside_the_total_replaces_no_sum(federation, visible):
    """Control: a layer that travels in the clear is added up by the coordinator, and so its to choose."""
    layers = "layer2" if visible else "all"
    method = FedAvg.from_config({"hidden": (8,), "rounds": 1, "weighting": "equal", "protect_layers": layers})
    coordinator, _ = federation(CKKS(), method)
    coordinator.round(method.update, method.step)
    log, chosen = coordinator.link.briefing.log, np.full((FEATURES, 8), 0.5)
    log[0] = Message({**Message.decode(log[0]), "clear/delta/layer1.weight": 6 * chosen}).encode()
    coordinator.finish()
    start = method.init(coordinator.schema, coordinator.manifest.rng("init"))
    party = coordinator.link.transport.engine.engine._sites.party("client-1")
    assert np.allclose(party.state[f"shared/{WEIGHT}"], start[WEIGHT] + chosen) == visible


def test_the_coordinators_choice_of_the_model_is_said_aloud():
    for protection, loud in ((Masked(), True), (BFV(), False), (CKKS(), False)):
        texts = warnings_for_pair(FedAvg(), protection)
        assert (MODEL_SENT in texts) is loud
        assert not warnings_for_pair(FedHEONN(), protection)
    assert "bfv" in MODEL_SENT
    assert "shares" in MODEL_SENT
