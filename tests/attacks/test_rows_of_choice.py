"""A coordinator asks a deployed site for a contribution of some of its rows, as standing federations may.

Two totals over the same clients, for one of which a client is asked for one row more, differ by that row:
neither the number of contributions nor their names tell. The control is a site that answers such asks.
"""

import numpy as np
import pytest

from tacit.core.errors import QuorumError
from tacit.core.manifest import Components
from tacit.data.preparation import Preparation
from tacit.deploy import answer as answering
from tacit.methods.fedheonn import FedHEONN
from tacit.protections.masked import Masked
from tests.helpers.deployed import coordinator_at, make_sites

CLIENTS = ("north", "south", "west")
PARTS = Components(FedHEONN(activation="linear"), Masked(), Preparation(scale="none"))


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    rng = np.random.default_rng(0)
    rows = {name: (rng.normal(size=(20, 2)).round(3), ["yes", "no"] * 10) for name in CLIENTS}
    return make_sites(tmp_path_factory.mktemp("sites"), rows)


def begin(sites):
    """Enrol, count small cells and agree on a scale, as every run does."""
    given = {"declared": {"classes": ["no", "yes"]}, "link": {"authenticated": True}}
    coordinator = coordinator_at(sites, PARTS, min_clients=3, min_count=5, quorum=1.0, **given)
    coordinator.enrol()
    coordinator.protection.prepare(4)
    coordinator.parties = PARTS.preparation.count_cells(coordinator)
    coordinator.parties = PARTS.preparation.train(coordinator)
    return coordinator


def total(coordinator, rows):
    """The total of the clients' terms, of which each has as many of its first rows as it is asked for."""
    jobs = {
        name: {"id": f"{name} {stop}", "sign": 1.0, "accepted": (), "rows": (0, stop)}
        for name, stop in rows.items()
    }
    pending = coordinator.begin_sum(PARTS.method.terms, step="client.change_contribution", jobs=jobs)
    return coordinator._open(pending, coordinator.gather(pending))


def test_control_a_site_that_answers_gives_a_row_away(sites, monkeypatch):
    monkeypatch.setattr(answering, "_check_enrolled", lambda *given: None)
    coordinator = begin(sites)
    few, more = (total(coordinator, {"north": stop, "south": 9, "west": 9}) for stop in (4, 5))
    line = (more["gram"] - few["gram"]).ravel()[:3]  # of one row: 1, x0, x1, in units that all know
    norms = np.sqrt(coordinator.shared["norms"])
    row = np.loadtxt(sites["north"].path.with_suffix(".csv"), delimiter=",", skiprows=1, usecols=(0, 1))[4]
    found = line / line[0] * norms / norms[0]
    np.testing.assert_allclose(found[1:], row, atol=1e-3)


def test_a_deployed_site_contributes_all_its_rows_or_none(sites):
    coordinator = begin(sites)
    with pytest.raises(QuorumError, match="is part of no standing federation: it contributes all its rows"):
        total(coordinator, {"north": 4, "south": 9, "west": 9})
