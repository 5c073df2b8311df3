"""A coordinator spends a site's epsilon in many runs, each of them within its own budget.

Two runs are two releases about the same rows. The control is a site without a limit over runs, which answers
as often as it is asked; the account that it keeps shows what that cost.
"""

import multiprocessing
import os
import signal
import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from tacit.core.errors import DataError, ProtectionError, QuorumError, UnavailableError
from tacit.core.manifest import Components
from tacit.core.party import Charge
from tacit.crypto.accounting import Accountant, Release
from tacit.data.preparation import Preparation
from tacit.deploy.launch import encode_settings
from tacit.engines.epsilon import EpsilonLedger
from tacit.engines.policy import Policy
from tacit.engines.sitefolder import SiteFolder
from tacit.engines.store import PartyStore
from tacit.methods import METHODS
from tacit.methods.averaging import example_privacy
from tacit.methods.fedheonn import FedHEONN
from tacit.models.neural import PREFIX
from tacit.protections.noised import Noised
from tacit.protections.plain import Plain
from tacit.runs.settings import OWN_ROWS, Settings
from tests.helpers.deployed import coordinator_at, engine_of, make_sites, open_sum

SETTINGS = {
    "rounds": 2,
    "hidden": (),
    "weighting": "equal",
    "example_noise": 4.0,
    "example_sampling": 0.5,
    "rate": 1e-6,
}
METHOD = METHODS.build("fedavg", SETTINGS)
PARTS = Components(METHOD, Plain(), Preparation(scale="none"))
COST = METHOD.own_epsilon
STEPS = 2  # of a round
READ = PartyStore._read
OPEN = Policy(protections=("plain", "noised"), min_clients=1, rows=1, min_count=1)


def sites_of(home, **policy):
    rows = np.random.default_rng(0).normal(size=(20, 2)).round(3), ["yes", "no"] * 10
    return make_sites(home, {"north": rows}, policy=replace(OPEN, **policy))


def begin(sites, parts=PARTS, **settings):
    """Let the pinned coordinator enrol the site."""
    given = {"min_clients": 1, "declared": {"classes": ["no", "yes"]}, **settings}
    coordinator = coordinator_at(sites, parts, link={"authenticated": True}, **given)
    coordinator.enrol()
    return coordinator


def train(sites):
    coordinator = begin(sites)
    for _ in range(METHOD.rounds):
        coordinator.round(METHOD.update, METHOD.step)


def ledger_of(sites):
    return SiteFolder(sites["north"].path).ledger


def test_control_without_a_limit_epsilon_grows_with_every_run(tmp_path):
    sites = sites_of(tmp_path)
    for _ in range(3):
        train(sites)
    spent = ledger_of(sites).list()
    assert [each.releases for each in spent] == [METHOD.rounds * STEPS] * 3
    assert ledger_of(sites).total() == pytest.approx(3 * COST)
    expected = Accountant(1e-5)
    expected.add(Release(4.0, "discrete", 0.5), METHOD.rounds * STEPS)
    assert spent[0].epsilon == expected.epsilon()


def test_a_run_that_does_not_fit_into_the_rest_is_refused(tmp_path):
    sites = sites_of(tmp_path, epsilon_total=2.5 * COST)
    train(sites)
    train(sites)
    with pytest.raises(QuorumError, match=r"over all runs, .* is spent, and this run may cost"):
        begin(sites)


def test_two_runs_at_once_do_not_share_the_rest(tmp_path):
    """Both fit when they enrol; what they spend is counted as it is spent."""
    sites = sites_of(tmp_path, epsilon_total=1.2 * COST)
    one, other = begin(sites), begin(sites)
    for _ in range(METHOD.rounds):
        one.round(METHOD.update, METHOD.step)
    with pytest.raises(QuorumError, match=r"over all runs is accepted here: .* is spent"):
        other.round(METHOD.update, METHOD.step)
    assert ledger_of(sites).total() <= 1.2 * COST


def test_noise_of_clients_is_counted_too(tmp_path):
    method = METHODS.build("fedavg", {**SETTINGS, "example_noise": 0.0})
    noised = Noised(where="distributed", epsilon=1.0, colluding=0)
    parts = Components(method, noised, Preparation(scale="none"))
    sites = sites_of(tmp_path, epsilon_total=1.5)
    coordinator = begin(sites, parts)
    coordinator.protection.prepare(2)
    coordinator.round(method.update, method.step)
    (spent,) = ledger_of(sites).list()
    assert (spent.unit, spent.releases) == ("client", 1)
    assert 0 < spent.epsilon < 1.0
    coordinator.round(method.update, method.step)
    assert 0.9 < ledger_of(sites).total() <= 1.0
    with pytest.raises(QuorumError, match="this run may cost 1: ask for less"):
        begin(sites, parts)


def test_noise_of_rows_is_counted_sum_by_sum_the_preparation_s_too(tmp_path):
    parts = Components(
        FedHEONN(), Noised(where="distributed", epsilon=1.0, unit="row", colluding=0), Preparation()
    )
    sites = sites_of(tmp_path, epsilon_total=1.5)
    coordinator = begin(sites, parts)
    coordinator.protection.prepare(10)
    preparation, counted = parts.preparation, []
    coordinator.round(preparation.magnitudes, preparation.apply_magnitudes)
    counted += ledger_of(sites).list()
    with pytest.raises(ProtectionError, match="nothing bounds what a single row brings to moments"):
        coordinator.round(preparation.moments, preparation.apply_moments)
    coordinator.round(preparation.noisy_moments, preparation.apply_noisy_moments)
    counted += ledger_of(sites).list()
    with pytest.raises(DataError, match="the noise is larger"):  # twenty rows teach nothing
        coordinator.round(parts.method.noisy_terms, parts.method.solve_noisy)
    counted += ledger_of(sites).list()
    assert [(spent.unit, spent.releases) for spent in counted] == [("row", 1), ("row", 2), ("row", 10)]
    assert 0.99 < ledger_of(sites).total() <= 1.0
    with pytest.raises(QuorumError, match="this run may cost 1: ask for less"):
        begin(sites, parts)


def test_noise_that_the_coordinator_adds_is_no_noise_of_the_site(tmp_path):
    parts = PARTS._replace(
        method=METHODS.build("fedavg", {**SETTINGS, "example_noise": 0.0}), protection=Noised()
    )
    with pytest.raises(QuorumError, match="adds no noise at its clients"):
        begin(sites_of(tmp_path, epsilon=8.0), parts)


def test_no_sum_without_noise_is_had_beside_it(tmp_path):
    coordinator = begin(sites_of(tmp_path, epsilon=8.0))
    with pytest.raises(QuorumError, match="limits epsilon: it contributes to no sum of the preparation"):
        coordinator.round(PARTS.preparation.moments, PARTS.preparation.apply_moments)


def moments_by_a_job(coordinator):
    """Ask for a sum of the preparation in words that only the site's own part of the ask has."""
    failures, job = {}, {"component": "preparation", "contribution": "moments"}
    link = coordinator.link
    heard = list(link.wave("client.contribute", ("north",), {"sum": 50}, {"north": job}, failures=failures))
    return heard, failures


def test_control_the_rule_on_asks_is_what_refuses_such_a_job(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.core.steps._merge", lambda call, job: call | job)
    (reply,), _ = moments_by_a_job(begin(sites_of(tmp_path, epsilon=8.0)))
    assert reply.message["vector"][0] == 20  # the site's rows, without noise


def test_nor_by_a_job_that_says_which_sum_it_is(tmp_path):
    heard, failures = moments_by_a_job(begin(sites_of(tmp_path, epsilon=8.0)))
    assert not heard
    assert "a job may not replace what all were asked: ['component', 'contribution']" in failures["north"]


class TestScores:
    """Scores of a model that the coordinator sends, on rows that the site keeps aside, bear no noise."""

    def begin(self, sites, parts=PARTS):
        settings = Settings.from_tables({"data": {"name": OWN_ROWS, "holdout": 0.5}})
        engine = replace(engine_of(sites), settings=encode_settings(settings))
        return begin(sites, parts, engine=engine, declared={"classes": ["no", "yes"], "holdout": 0.5})

    def test_control_without_a_limit_they_are_told(self, tmp_path):
        sites = sites_of(tmp_path)
        assert open_sum(self.begin(sites), METHOD.hold_out)["rows"] == 10
        assert not ledger_of(sites).list()

    def test_with_a_limit_no_rows_are_kept_aside(self, tmp_path):
        with pytest.raises(QuorumError, match=r"scores on rows kept aside bear no noise: .* holdout = 0"):
            self.begin(sites_of(tmp_path, epsilon=8.0))

    def test_unless_the_protection_adds_noise_to_every_sum(self, tmp_path):
        method = METHODS.build("fedavg", {**SETTINGS, "example_noise": 0.0})
        noised = Noised(where="distributed", epsilon=1.0, colluding=0)
        sites = sites_of(tmp_path, epsilon=8.0)
        coordinator = self.begin(sites, Components(method, noised, Preparation(scale="none")))
        coordinator.protection.prepare(1)
        open_sum(coordinator, method.hold_out)
        assert [each.releases for each in ledger_of(sites).list()] == [1]


def killed_within_the_step(path, call, job, settings):
    """In a process of its own: the power fails once the noise is to be drawn."""
    from tacit.deploy.answer import answer

    example_privacy.add_noise = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
    answer(SiteFolder(path), settings, call, job, None)


def test_a_step_that_was_killed_is_counted_and_the_run_ends_in_time(tmp_path):
    sites = sites_of(tmp_path, epsilon_total=2.5 * COST)
    coordinator = begin(sites)
    engine, hand_over = coordinator.link.transport.engine, type(coordinator.link.transport.engine).ask
    for killed in (1, 2):  # as many as the run has rounds

        def kill(call, jobs):
            for name, job in jobs:
                given = (engine.paths[name], call, job, engine.settings)
                process = multiprocessing.get_context("fork").Process(
                    target=killed_within_the_step, args=given
                )
                process.start()
                process.join()
                assert process.exitcode == -signal.SIGKILL
            return iter(())

        engine.ask = kill
        with pytest.raises(QuorumError, match="no reply came"):
            coordinator.round(METHOD.update, METHOD.step)
        assert [spent.releases for spent in ledger_of(sites).list()] == [killed * STEPS]
    engine.ask = lambda *given: hand_over(engine, *given)
    with pytest.raises(QuorumError, match="it allows 4 releases with noise, 4 were made and 2 more"):
        coordinator.round(METHOD.update, METHOD.step)
    assert ledger_of(sites).total() == pytest.approx(COST)
    train(sites)
    with pytest.raises(QuorumError, match="over all runs"):
        begin(sites)


def test_a_step_that_fails_after_its_noise_is_counted(tmp_path):
    """Whether a model makes the noisy gradient overflow is an answer about the rows, too."""
    sites = sites_of(tmp_path)
    coordinator = begin(sites)
    weights = {name: value for name, value in coordinator.shared.items() if name.startswith(PREFIX)}
    coordinator.shared |= {name: np.full_like(value, np.nan) for name, value in weights.items()}
    for _ in range(METHOD.rounds):
        with pytest.raises(QuorumError, match="local training ran away"):
            coordinator.round(METHOD.update, METHOD.step)
    with pytest.raises(QuorumError, match="it allows 4 releases with noise, 4 were made"):
        coordinator.round(METHOD.update, METHOD.step)


def forgets_whole_runs(monkeypatch):
    """Let stores forget that there was a run at all, as the state of an old backup has."""
    monkeypatch.setattr(PartyStore, "_read", lambda *given: READ(*given) and False)


def test_a_run_that_the_site_has_forgotten_has_spent_its_budget(tmp_path, monkeypatch):
    """The same signed manifest enrols the site once more: the account of epsilon is kept elsewhere."""
    monkeypatch.setattr("tacit.engines.store.KEPT_RUNS", 1)
    forgets_whole_runs(monkeypatch)
    sites = sites_of(tmp_path)
    for _ in range(2):
        coordinator = begin(sites, run="again")
        with pytest.raises(QuorumError, match=r"it allows 4 releases|is spent after 2 rounds"):
            for _ in range(METHOD.rounds + 1):
                coordinator.round(METHOD.update, METHOD.step)
        later = begin(sites, run="later")
        assert SiteFolder(sites["north"].path).store.runs() == [later.manifest.digest]
    assert ledger_of(sites).total() == pytest.approx(COST)


def test_an_invitation_to_a_run_of_long_ago_is_refused(tmp_path, monkeypatch):
    """Whoever has recorded it would have the site enrol once more, and forget the runs of today."""
    monkeypatch.setattr("tacit.engines.store.KEPT_RUNS", 1)
    sites = sites_of(tmp_path)
    begin(sites, run="again")
    today = begin(sites, run="today")
    for _ in range(3):
        with pytest.raises(QuorumError, match=r"took part in run \w+… and has forgotten it.*start a new one"):
            begin(sites, run="again")
    assert SiteFolder(sites["north"].path).store.runs() == [today.manifest.digest]
    today.round(METHOD.update, METHOD.step)
    with monkeypatch.context() as control:
        forgets_whole_runs(control)
        begin(sites, run="again")
    with pytest.raises(QuorumError, match="has forgotten it"):
        today.round(METHOD.update, METHOD.step)


class TestLedger:
    CHARGE = Charge("row", 1.0, 0.1, 1e-5, 5, 10)

    def test_attempts_at_a_run_share_its_budget(self, tmp_path):
        for run in range(2):
            EpsilonLedger(tmp_path / "epsilon.db").charge("terms", f"attempt {run}", self.CHARGE)
        with pytest.raises(
            ProtectionError, match="it allows 10 releases with noise, 10 were made and 5 more"
        ):
            EpsilonLedger(tmp_path / "epsilon.db").charge("terms", "attempt 2", self.CHARGE)

    def test_what_is_refused_is_not_charged(self, tmp_path):
        ledger = EpsilonLedger(tmp_path / "epsilon.db")
        with pytest.raises(ProtectionError, match="over all runs is accepted here"):
            ledger.charge("terms", "run", self.CHARGE, limit=0.01)
        assert ledger.list() == []
        assert ledger.total() == 0

    def test_it_agrees_with_dp_accounting(self, tmp_path):
        import dp_accounting
        from dp_accounting import rdp

        ledger = EpsilonLedger(tmp_path / "epsilon.db")
        for _ in range(2):
            ledger.charge("terms", "run", self.CHARGE)
        event = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.0))
        accountant = rdp.RdpAccountant(range(2, 257)).compose(event, 10)
        assert ledger.total() == pytest.approx(accountant.get_epsilon(1e-5), rel=0.01)

    def test_only_its_owner_can_read_it(self, tmp_path):
        ledger = EpsilonLedger(tmp_path / "epsilon.db")
        ledger.charge("terms", "run", self.CHARGE)
        assert ledger.path.stat().st_mode & 0o077 == 0

    def test_a_damaged_account_stops_the_step(self, tmp_path):
        ledger = EpsilonLedger(tmp_path / "epsilon.db")
        ledger.path.write_bytes(b"no database" * 100)
        with pytest.raises(UnavailableError, match=r"account epsilon\.db cannot be used"):
            ledger.charge("terms", "run", self.CHARGE)
        with pytest.raises(sqlite3.DatabaseError):
            sqlite3.connect(ledger.path).execute("SELECT * FROM spent")
