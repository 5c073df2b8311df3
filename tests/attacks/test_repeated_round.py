"""A coordinator says of every round of DP-SGD that it is the first, and averages what it gets.

If the rows of a step follow from the round's number, as they once did, all these rounds have the same sample
and only new noise: the mean tells who is in the sample, while the account says that each round drew anew. The
control draws its coins that way.
"""

from math import comb, log, sqrt
from statistics import NormalDist

import numpy as np
import pytest

from tacit.core.errors import QuorumError
from tacit.core.manifest import Components
from tacit.crypto.accounting import Accountant, Release
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.holdings import SeparateHoldings
from tacit.engines.policy import Policy
from tacit.methods import METHODS
from tacit.methods.averaging.example_privacy import ExamplePrivacy
from tacit.protections.plain import Plain
from tests.helpers.deployed import coordinator_at, make_sites, open_sum

NOISE, SAMPLING = 0.01, 0.5  # little noise, so that a few rounds show which rows were drawn
METHOD = METHODS.build(
    "fedavg",
    {
        "rounds": 6,
        "hidden": (),
        "weighting": "equal",
        "rate": 1e-6,
        "example_noise": NOISE,
        "example_sampling": SAMPLING,
        "example_epsilon": 1e9,
    },
)
PARTS = Components(METHOD, Plain(), Preparation(scale="none"))


def by_number(self, party, number, rounds, epochs):
    """Where coins came from: the site's secret and the number that the coordinator gave."""
    return party.rng("descent", number)


def updates(coordinator, rounds):
    """What the coordinator receives of one client in rounds that it all calls the first."""
    start, heard = coordinator.shared, []
    for _ in range(rounds):
        coordinator.shared = start
        total = open_sum(coordinator, METHOD.update)
        heard.append(
            np.concatenate([np.ravel(value) for _, value in sorted(total.items())]) / METHOD.local.rate
        )
    return np.array(heard)


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """A deployed site with forty rows."""
    rows = np.random.default_rng(0).normal(size=(40, 3)).round(3), ["yes", "no"] * 20
    policy = Policy(protections=("plain",), min_clients=1, rows=1, min_count=1)
    return make_sites(tmp_path_factory.mktemp("sites"), {"north": rows}, policy=policy)


def begin(sites):
    given = {"min_clients": 1, "declared": {"classes": ["no", "yes"]}, "link": {"authenticated": True}}
    coordinator = coordinator_at(sites, PARTS, **given)
    coordinator.enrol()
    return coordinator


# Standard deviation of a mean gradient by the noise of its two steps alone.
BY_NOISE = np.sqrt(2) * NOISE / (SAMPLING * 40)


def test_control_coins_by_number_repeat_the_sample(sites, monkeypatch):
    monkeypatch.setattr(ExamplePrivacy, "begin_round", by_number)
    assert updates(begin(sites), 6).std(axis=0).max() < 3 * BY_NOISE


def test_at_a_site_every_round_draws_anew_and_is_charged(sites):
    coordinator = begin(sites)
    assert updates(coordinator, METHOD.rounds).std(axis=0).max() > 20 * BY_NOISE
    (spent,) = [each for each in sites["north"].ledger.list() if each.run == coordinator.manifest.run]
    assert spent.releases == METHOD.rounds * METHOD.privacy.count_steps(METHOD.local.epochs)
    with pytest.raises(QuorumError, match="is spent after 6 rounds"):
        updates(coordinator, 1)


def test_two_runs_do_not_draw_the_same_rows(sites):
    first, second = (updates(begin(sites), 1) for _ in range(2))
    assert np.abs(first - second).max() > 20 * BY_NOISE


def test_in_an_experiment_every_round_draws_anew_and_can_be_repeated(coordinator_of, held):
    def heard():
        coordinator = coordinator_of(METHOD, data=held, preparation=Preparation(scale="none"))
        coordinator.enrol()
        return updates(coordinator, 3)

    first, again = heard(), heard()
    spread = first.std(axis=0).max()
    assert spread > 10 * np.abs(first - again).max()  # the noise alone differs, from the operating system


@pytest.fixture
def held():
    rng = np.random.default_rng(0)
    return SeparateHoldings({"north": Table.of(rng.normal(size=(40, 3)), np.arange(40) % 2)})


class TestEmpiricalEpsilon:
    """What a threshold on the mean of all rounds shows of one row, beside what the account says."""

    NOISE, SAMPLING, STEPS, ROUNDS, DELTA = 2.0, 0.05, 20, 50, 1e-5

    def accounted(self):
        accountant = Accountant(self.DELTA)
        accountant.add(Release(self.NOISE, "discrete", self.SAMPLING), self.STEPS * self.ROUNDS)
        return accountant.epsilon()

    def shown(self, samples):
        """Return the epsilon that the best threshold proves, if so many of the rounds have their own sample.

        The mean is the row's clipped gradient as often as it was drawn, a binomial number, and noise.
        """
        draws, normal = self.STEPS * samples, NormalDist()
        chances = [
            comb(draws, k) * self.SAMPLING**k * (1 - self.SAMPLING) ** (draws - k) for k in range(draws + 1)
        ]
        deviation = self.NOISE * sqrt(self.STEPS / self.ROUNDS)
        found = []
        for threshold in np.arange(0.5, 8, 0.1):
            right = sum(
                chance * normal.cdf(k / samples / deviation - threshold) for k, chance in enumerate(chances)
            )
            if right > self.DELTA:
                found.append(log((right - self.DELTA) / normal.cdf(-threshold)))
        return max(found)

    def test_control_a_repeated_sample_shows_more_than_the_account_says(self):
        assert self.shown(1) > 3 * self.accounted()

    def test_new_samples_show_less(self):
        assert self.shown(self.ROUNDS) < self.accounted()
