"""A coordinator that a site has pinned asks for what the site's owner does not accept.

Each kind of limit is overstepped by a little; the control is the same run at a site whose policy allows it.
"""

import importlib
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tacit.core.errors import ConfigError, QuorumError
from tacit.core.manifest import Components
from tacit.data.preparation import Preparation
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import SiteFolder
from tacit.methods import METHODS
from tacit.methods.fedheonn import FedHEONN
from tacit.protections import PROTECTIONS
from tacit.protections.masked import Masked
from tacit.protections.noised import Noised
from tests.helpers.deployed import SiteEngine, coordinator_at, make_folder, make_sites

PARTS = Components(FedHEONN(), Masked(), Preparation())
PRIVATE = METHODS.build(
    "fedavg", {"rounds": 2, "example_noise": 4.0, "example_sampling": 0.5, "weighting": "equal"}
)
UNSCALED = Preparation(scale="none")
ROWS = 12


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """One site with a few rows; tests change its policy."""
    rows = np.random.default_rng(0).normal(size=(ROWS, 2)).round(3), ["yes", "no"] * (ROWS // 2)
    return make_sites(tmp_path_factory.mktemp("sites"), {"north": rows})


def enrol(sites, policy, parts=PARTS, **settings):
    """Let the pinned coordinator enrol a site of that policy."""
    path = sites["north"].path / "site.toml"
    before = path.read_text()
    path.write_text(before[: before.index("[accept]")] + policy.to_toml())
    try:
        coordinator = coordinator_at(
            sites, parts, **{"min_clients": 3, "min_count": 5, **settings}, link={"authenticated": True}
        )
        coordinator.enrol()
    finally:
        path.write_text(before)
    assert coordinator.parties == ("north",)


def test_without_a_policy_a_site_refuses_plain_and_few_clients(sites):
    path = sites["north"].path / "site.toml"
    before = path.read_text()
    path.write_text(before[: before.index("[accept]")])
    try:
        assert SiteFolder(path.parent).policy == Policy()
        for parts, clients, reason in (
            (PARTS._replace(protection=PROTECTIONS.build("plain")), 3, "does not accept protection plain"),
            (PARTS._replace(protection=PROTECTIONS.build("noised")), 3, "does not accept protection noised"),
            (PARTS, 2, "does not accept min_clients = 2, but at least 3"),
        ):
            coordinator = coordinator_at(
                sites, parts, min_clients=clients, min_count=5, link={"authenticated": True}
            )
            with pytest.raises(QuorumError, match=reason):
                coordinator.enrol()
    finally:
        path.write_text(before)


WIDE = Policy(protections=tuple(PROTECTIONS), modes=("sealed", "paper"), rows=1)
DP = PARTS._replace(method=PRIVATE, preparation=UNSCALED)
OVERSTEPS = {
    "methods": (Policy(methods=("fedavg",)), PARTS, "methods = fedheonn, but fedavg: ask for that"),
    "modes": (Policy(), PARTS._replace(method=FedHEONN(mode="paper")), "modes = paper, but sealed"),
    "protections": (Policy(protections=("ckks",)), PARTS, "protections = masked, but ckks"),
    "inner protection": (
        Policy(protections=("noised",)),
        PARTS._replace(
            method=replace(PRIVATE, privacy=replace(PRIVATE.privacy, noise=0.0)), protection=Noised()
        ),
        "protections = plain, but noised",
    ),
    "layers in the clear": (
        Policy(),
        PARTS._replace(method=METHODS.build("fedavg", {"protect_layers": 1})),
        "protect_layers = 1, by which a part of its contribution is seen: set it to 'all'",
    ),
    "weights in the clear": (
        Policy(protections=("masked",)),
        PARTS._replace(method=METHODS.build("hwfedavg", {"expose_weights": True})),
        "expose_weights = True, by which a part of its contribution is seen: set it to False",
    ),
    "min_clients": (Policy(min_clients=4), PARTS, "min_clients = 3, but at least 4"),
    "rows": (Policy(rows=ROWS + 1), PARTS, f"north has fewer than the {ROWS + 1} rows"),
    "epsilon of a run": (Policy(epsilon=0.1), DP, r"epsilon = \d.*, but at most 0.1"),
    "epsilon of all runs": (
        Policy(epsilon_total=0.1),
        DP,
        "accepts an epsilon of 0.1 over all runs, 0 is spent",
    ),
    "no noise": (Policy(epsilon=8.0), PARTS, "this run adds no noise at its clients"),
    "sums without noise": (
        Policy(epsilon=8.0),
        DP._replace(preparation=Preparation()),
        "the sums of this run's preparation and of scores on rows kept aside bear no noise",
    ),
}


@pytest.mark.parametrize(("policy", "parts", "reason"), OVERSTEPS.values(), ids=OVERSTEPS)
def test_what_the_owner_does_not_accept_is_refused(sites, policy, parts, reason):
    enrol(sites, WIDE, parts)  # the control
    with pytest.raises(QuorumError, match=reason) as refusal:
        enrol(sites, policy, parts)
    assert "12" not in str(refusal.value)  # how many rows it has is not told


WEAK = {
    "neighbours": Masked(neighbours=2),
    "active": Masked(active=False),
    "corrupt_share": Masked(corrupt_share=0.0),
    "inside noise": Noised(inner="masked", inner_options={"neighbours": 2}),
}


def test_control_with_two_neighbours_a_lying_coordinator_has_totals_over_three_of_twelve():
    rules = Masked(neighbours=2).rules(12)
    assert rules.most_totals(12, 1.0) == 4 and Masked().rules(12).most_totals(12, 1.0) == 1


@pytest.mark.parametrize("protection", WEAK.values(), ids=WEAK)
def test_a_protection_is_not_made_weaker_by_its_settings(sites, protection):
    with pytest.raises(QuorumError, match=r"does not accept .*: a coordinator that lies could open totals"):
        enrol(sites, WIDE, PARTS._replace(protection=protection))


class Unnamed(FedHEONN):
    """A method that a manifest names by its module and class."""


def test_what_is_not_accepted_by_name_is_not_even_imported(sites, monkeypatch):
    imported = []
    known = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: imported.append(name) or known(name))
    parts, name = PARTS._replace(method=Unnamed()), f"{__name__}:Unnamed"
    with pytest.raises(QuorumError, match=f"does not accept methods = {name}, but fedadagrad"):
        enrol(sites, Policy(), parts)
    assert __name__ not in imported
    enrol(sites, Policy(methods=(name,)), parts)
    assert __name__ in imported


def test_nor_is_what_an_experiment_s_settings_name_which_nobody_signs(sites, monkeypatch):
    path = sites["north"].path / "site.toml"
    before, imported, known = path.read_text(), [], importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: imported.append(name) or known(name))
    rows = {"data": {"name": "iris"}, "partition": {"name": "iid", "clients": 3}}
    chosen = {"method": {"name": "a.module:Class"}, "protect": {"name": "another.module:Class"}}
    engine = SiteEngine({"north": path.parent}, msgspec.json.encode({**rows, **chosen}).decode())
    path.write_text(before.replace("experiment = false", "experiment = true"))
    try:
        with pytest.raises(QuorumError, match=r"manifest \w+… is not signed: ask as the coordinator"):
            parts = PARTS._replace(protection=PROTECTIONS.build("plain"))
            coordinator_at(sites, parts, engine=engine, link={"authenticated": False}).enrol()
    finally:
        path.write_text(before)
    assert not {"a.module", "another.module"} & {*imported}


def test_a_least_count_is_held_to(sites):
    with pytest.raises(QuorumError, match="min_count = 2, but at least 5"):
        enrol(sites, Policy(), min_count=2)


def test_an_experiment_is_refused_by_a_site_with_rows(sites):
    with pytest.raises(QuorumError, match="takes part in no experiments, where models are read"):
        enrol(sites, WIDE, experiment=True)


def test_an_experiment_is_not_carried_out_on_a_site_s_own_rows(sites):
    path = sites["north"].path / "site.toml"
    before = path.read_text()
    path.write_text(before.replace("experiment = false", "experiment = true"))
    try:
        with pytest.raises(QuorumError, match="differ on whether it is an experiment"):
            enrol(sites, WIDE, experiment=True)
    finally:
        path.write_text(before)


def test_rows_are_counted_whatever_the_site_is_asked_to_be(sites):
    """A coordinator enrols a client as if it were a service, which has no rows to count."""
    coordinator = coordinator_at(sites, PARTS, min_clients=3, min_count=5, link={"authenticated": True})
    failures = {}
    call = coordinator._enrolment._invitation()
    path = sites["north"].path / "site.toml"
    before = path.read_text()
    path.write_text(before.replace("rows = 10", f"rows = {ROWS + 1}"))
    try:
        list(coordinator.link.transport.wave("client.enrol_service", ("north",), call, failures=failures))
    finally:
        path.write_text(before)
    assert f"fewer than the {ROWS + 1} rows" in failures["north"]


class TestWords:
    @pytest.mark.parametrize(
        ("settings", "reason"),
        [
            ({"methods": ("fedheon",)}, "methods names 'fedheon': did you mean 'fedheonn'"),
            ({"protections": ("cks",)}, "protections names 'cks': did you mean 'ckks'"),
            ({"min_clients": 0}, "min_clients is 0: give a whole number of at least 1"),
            ({"epsilon": -1.0}, "epsilon is -1.0: give a number above 0"),
            ({"epsilon_total": float("nan")}, "epsilon_total is nan: give a number above 0"),
            ({"operators": ("north",)}, "operators names 'north': give identities"),
        ],
    )
    def test_a_policy_that_cannot_be_meant_is_refused(self, settings, reason):
        with pytest.raises(ConfigError, match=reason):
            Policy(**settings)

    def test_a_typing_error_is_named(self, sites):
        path = sites["north"].path / "site.toml"
        before = path.read_text()
        try:
            path.write_text(before + "min_client = 5\n")
            with pytest.raises(ConfigError, match=r"\[accept\] .* no key 'min_client': did you mean 'min_cl"):
                SiteFolder(path.parent)
            path.write_text("accept = 3\n" + before[: before.index("[accept]")])
            with pytest.raises(ConfigError, match=r"accept is 3 .*: write it as a table"):
                SiteFolder(path.parent)
        finally:
            path.write_text(before)

    @pytest.mark.parametrize("policy", [Policy(), WIDE, Policy(methods=(), epsilon=2.0, epsilon_total=9.0)])
    def test_a_policy_that_is_written_is_read_back(self, tmp_path: Path, policy):
        assert make_folder(tmp_path / "north", policy).policy == policy


class TestStanding:
    """A step of standing federations takes rows of the coordinator's choice, before anything is counted."""

    def one_row(self, home, min_count=5):
        rows = np.random.default_rng(0).normal(size=(ROWS, 2)).round(3), ["yes", "no"] * (ROWS // 2)
        held = make_sites(
            home, {"north": rows}, policy=Policy(protections=("plain",), min_clients=1, min_count=1)
        )
        parts = PARTS._replace(protection=PROTECTIONS.build("plain"), preparation=UNSCALED)
        coordinator = coordinator_at(
            held, parts, min_clients=1, min_count=min_count, link={"authenticated": True}
        )
        coordinator.enrol()
        coordinator.shared = coordinator.shared | {"norms": np.full(3, 4.0)}
        call = {"component": "method", "contribution": "terms", "sum": 1, "rows": (3, 4)}
        call |= {"id": "a", "sign": 1.0, "accepted": ()}
        failures, north = {}, ("north",)
        wave = coordinator.link.wave("client.change_contribution", north, call, failures=failures)
        return [reply.message["vector"] for reply in wave], rows[0][3], failures

    def test_control(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tacit.deploy.standing.STANDING", ())
        (gram,), row, _ = self.one_row(tmp_path, min_count=1)  # or the client asks for the count first
        np.testing.assert_allclose(gram[1:3] / gram[0], row)

    def test_a_deployed_site_has_no_part_in_them(self, tmp_path):
        found, _, failures = self.one_row(tmp_path)
        assert not found
        assert "north is part of no standing federation" in failures["north"]
