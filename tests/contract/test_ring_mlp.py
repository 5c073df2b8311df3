"""The ring protocol as written is gradient descent on the pooled rows; what it leaves open is counted."""

import secrets
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest

from tacit.core.client import strip_prefix
from tacit.core.errors import ConfigError, OpeningError, ProtectionError, QuorumError
from tacit.core.events import Events, Noted, Replied, TotalOpened, WaveStarted
from tacit.core.random import generator
from tacit.crypto.paillier import Packing
from tacit.data.files import load
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.holdings import Holdings
from tacit.engines.sites import site_secret
from tacit.federation import Federation
from tacit.methods.fedavg import FedAvg
from tacit.methods.presets import PFMLP, TwoPhaseMPC
from tacit.methods.ring_mlp import RingMLP, count_alone
from tacit.models.mlp import MLP
from tacit.models.neural import PREFIX
from tacit.protections import PROTECTIONS
from tacit.runs.settings import usual_protection
from tests.conftest import Tap

ROUNDS, SIZES = 3, (60, 90, 50)
BITS = 32
EXACT = [
    PROTECTIONS.build("ring", {"key_bits": 2048, "bits": BITS}),
    PROTECTIONS.build("bfv", {"bits": BITS}),  # the exact lattice scheme: clients open, no server's key
]


@pytest.fixture(scope="module")
def digits():
    table = load("digits").take(np.arange(sum(SIZES)))
    return Table.of(table.values / 16.0, table.target)


def divided(table, sizes=SIZES):
    return Holdings(
        table, np.concatenate([[0], np.cumsum(sizes)]), [f"client-{i + 1}" for i in range(len(sizes))]
    )


def learnt(method, held, protection, **settings):
    prepared = Preparation(scale="none")
    return Federation(held, seed=1).train(
        method, protect=protection, preparation=prepared, min_count=1, **settings
    )


def flat(method, training):
    return method.architecture.build(training.schema).flat(training.model.arrays)


def ring(rounds=ROUNDS, **settings):
    return RingMLP.from_config({"hidden": 6, "rounds": rounds, "rate": 0.5, **settings})


class Central:
    """Full-batch descent by one who has all rows: the mean of the clients' mean gradients, or of all rows."""

    def __init__(self, method, table, sizes=SIZES):
        self.network = MLP((64, 6, 10), "tanh")
        self.method, self.X, self.labels = method, table.values, table.target
        rows = method.weighting.weighting == "rows"
        self.weights = np.repeat(
            np.array([1 / sum(sizes) if rows else 1 / (n * len(sizes)) for n in sizes]), sizes
        )

    def gradient(self, at):
        each = [self.network.gradient(at, self.X[[i]], self.labels[[i]]) for i in range(len(self.labels))]
        return self.weights @ np.array(each)

    def descend(self, start, rounds):
        at, local = start.copy(), self.method.local
        m, v = np.zeros_like(at), np.zeros_like(at)
        for step in range(1, rounds + 1):
            gradient = self.gradient(at) + local.l2 * at
            if local.optimiser == "adam":
                m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
                gradient = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
            else:
                m = gradient = gradient + local.momentum * m
            at = at - local.rate * gradient
            yield at


def first_weights(method, training):
    """The weights that all start from, from the seed that the federation agreed on."""
    network = method.architecture.build(training.schema)
    return network.flat(strip_prefix(PREFIX, method.init(training.schema, training.manifest.rng("init"))))


def after_each_round(held, protection, **settings):
    """The training, and the weights after each of its rounds."""
    kept, method = [], ring(**settings)
    training = learnt(method, held, protection, keep=kept.append)
    if kept[0].shared is None:  # only clients have them
        rounds = range(1, ROUNDS)
        shorter = [flat(method, learnt(ring(each, **settings), held, protection)) for each in rounds]
        return training, [*shorter, flat(method, training)]
    network = method.architecture.build(training.schema)
    return training, [network.flat(strip_prefix(PREFIX, each.shared)) for each in kept]


@pytest.mark.parametrize("weighting", ["equal", "rows"])
@pytest.mark.parametrize("protection", EXACT, ids=lambda each: each.name)
def test_every_round_is_full_batch_descent_on_the_pooled_rows(protection, weighting, digits, keys_once):
    method = ring(weighting=weighting)
    with keys_once():
        training, found = after_each_round(divided(digits), protection, weighting=weighting)
    start = first_weights(method, training)
    expected = list(Central(method, digits).descend(start, ROUNDS))
    assert np.abs(expected[-1] - start).max() > 0.05  # it went somewhere
    unit = 0.5 * method.change.limit * 2.0 ** -(BITS - 1) * len(SIZES)  # of fixed point, times the rate
    for rounds, (weights, wanted) in enumerate(zip(found, expected, strict=True), 1):
        assert np.abs(weights - wanted).max() < 3 * rounds * unit


@pytest.mark.parametrize(
    "settings",
    [{"momentum": 0.9, "l2": 0.01}, {"optimiser": "adam", "rate": 0.05, "l2": 0.1, "weighting": "rows"}],
    ids=["momentum", "adam"],
)
def test_optimisers_follow_the_mean_gradient(settings, digits):
    method = ring(**settings)
    training = learnt(method, divided(digits), "plain")
    *_, expected = Central(method, digits).descend(first_weights(method, training), ROUNDS)
    assert np.abs(flat(method, training) - expected).max() < 1e-11


def test_without_more_settings_it_is_fedsgd(digits):
    settings = {"hidden": 6, "activation": "tanh", "rounds": 3, "rate": 0.5, "batch": 0, "weighting": "equal"}
    one, other = (learnt(kind.from_config(settings), divided(digits), "plain") for kind in (RingMLP, FedAvg))
    assert all(
        np.abs(one.model.arrays[name] - other.model.arrays[name]).max() < 1e-12 for name in one.model.arrays
    )


def test_a_batch_is_drawn_anew_in_each_round(digits):
    held, network, drawn = divided(digits), MLP((64, 6, 10), "tanh"), []
    trainings = [learnt(ring(rounds, batch=20), held, "plain") for rounds in (1, 2)]
    first, second = (flat(ring(), training) for training in trainings)
    for number, (at, then) in enumerate([(first_weights(ring(), trainings[0]), first), (first, second)]):
        gradients = []
        for index, name in enumerate(held.names):
            rng, rows = generator(site_secret(1, name).reveal(), "descent", number), held.rows(index)
            chosen = rng.choice(rows.rows, 20, replace=False)
            drawn.append(tuple(chosen))
            gradients.append(network.gradient(at, rows.values[chosen], rows.target[chosen]))
        assert np.abs(then - (at - 0.5 * np.mean(gradients, axis=0))).max() < 1e-12
    assert len(set(drawn)) == 6


def test_memory_of_the_optimiser_survives_the_end_of_a_process(digits):
    """A run that is taken up after its second round goes on with the same momentum."""
    method, kept = ring(momentum=0.9), []
    whole = learnt(method, divided(digits), "plain", keep=kept.append)
    federation = Federation(divided(digits), seed=1)
    again = federation.train(
        method, protect="plain", preparation=Preparation(scale="none"), min_count=1, resume=kept[1]
    )
    assert np.array_equal(flat(method, again), flat(method, whole))


@pytest.fixture
def tapped(monkeypatch):
    """Train where asks for some steps never reach their party; gives the training and all that was told."""
    whole = Federation._engine

    def run(method, held, protection, lose):
        seen = []

        @contextmanager
        def engine(self, manifest, components):
            with whole(self, manifest, components) as inner:
                tap = Tap(inner)
                tap.lose = lose
                yield tap

        monkeypatch.setattr(Federation, "_engine", engine)
        federation = Federation(held, seed=1, quorum=0.5, declared={"classes": list(held.table.classes)})
        told = Events(lambda number, event: seen.append(event))
        prepared = Preparation(scale="none")
        training = federation.train(
            method, protect=protection, preparation=prepared, min_count=1, events=told
        )
        return training, [event for event in seen if isinstance(event, TotalOpened)]

    return run


class TestVanishing:
    """What the protections state under "if a client vanishes", seen in a training."""

    sizes = (50, 60, 40, 50)

    def test_a_hop_of_the_ring_is_left_out_of_that_round_alone(self, digits, tapped, keys_once):
        turns = []

        def lose(step, party):
            turns.extend([party] if (step, party) == ("client.contribute", "client-2") else [])
            return step == "client.contribute" and party == "client-2" and len(turns) == 2

        method = ring(3)
        with keys_once():
            training, opened = tapped(method, divided(digits, self.sizes), EXACT[0], lose)
        assert [event.contributors for event in opened] == [4, 3, 4]
        at = first_weights(method, training)
        there = np.r_[:50, 110:200]
        for rows, sizes in (
            (np.arange(200), self.sizes),
            (there, (50, 40, 50)),
            (np.arange(200), self.sizes),
        ):
            (at,) = Central(method, digits.take(rows), sizes).descend(at, 1)
        assert np.abs(flat(method, training) - at).max() < 1e-7

    def test_without_the_client_that_began_the_ring_the_sum_stops(self, digits, tapped, keys_once):
        with (
            keys_once(),
            pytest.raises(QuorumError, match="client-1 began the ring and did not hand over its total"),
        ):
            tapped(ring(2), divided(digits, self.sizes), EXACT[0], lambda step, party: "hand_over" in step)

    @pytest.mark.parametrize(("vanish", "left"), [(1, 5), (2, 3)])
    def test_a_committee_goes_on_without_a_member_and_is_drawn_anew_without_two(
        self, digits, tapped, vanish, left
    ):
        gone, draws = [], []

        def lose(step, party):
            draws.extend([party] if step.endswith("reveal") else [])
            if not step.endswith("hold") or party in gone or len(gone) == vanish:
                return False
            gone.append(party)
            return True

        method = TwoPhaseMPC.from_config({"hidden": 6, "rounds": 2, "batch": 0, "weighting": "equal"})
        _, opened = tapped(method, divided(digits, (40,) * 5), PROTECTIONS.build("committee"), lose)
        assert [event.contributors for event in opened] == [left, left]
        assert len(draws) == (5 if left == 5 else 5 + 3)

    def test_garbage_in_the_ring_is_found_out_when_the_total_opens(self, digits, monkeypatch, keys_once):
        honest, packed = Packing.pack, []

        def pack(self, values, modulus_bits):
            packed.append(honest(self, values, modulus_bits))
            lies = [secrets.randbits(modulus_bits - 2) for _ in packed[-1]]
            return lies if len(packed) == 2 else packed[-1]  # the second client's

        monkeypatch.setattr(Packing, "pack", pack)
        with keys_once(), pytest.raises(ProtectionError, match="out of range, and its neighbours cannot be"):
            learnt(ring(1), divided(digits), EXACT[0])
        assert len(packed) == 3


class TestLeak:
    def table(self):
        """Rows in which feature 0 is zero but at the first client, and feature 1 everywhere."""
        values = np.random.default_rng(0).normal(size=(60, 4))
        values[:, 1] = 0.0
        values[20:, 0] = 0.0
        return Table.of(values, (np.arange(60) % 3 > 0).astype(int))

    def notes(self, protection, **settings):
        found = []
        events = Events(lambda number, event: found.append(event))
        method = RingMLP.from_config({"rounds": 2, "initialisation": "zeros", **settings})
        learnt(method, divided(self.table(), (20, 20, 20)), protection, events=events)
        return [event for event in found if isinstance(event, Noted) and event.about == "gradients"]

    @pytest.mark.parametrize("protection", ["plain", "bfv"])
    def test_gradients_of_a_single_client_are_counted(self, protection):
        notes = self.notes(protection, watch=True)
        # Two weights of feature 0, of ten parameters; p = 1 - (2 * 1 + 6 * 3) / 30.
        expected = 10 * 3 * (1 / 3) ** 2 * (2 / 3)
        assert [note.text.partition(";")[0] for note in notes] == [
            f"round {number}: 2 of 10 parameters have the gradient of a single client, which the total shows"
            for number in (1, 2)
        ]
        assert all(note.text.endswith(f"there would be {expected:.1f}") for note in notes)
        assert {note.level for note in notes} == {"warning"}

    def test_nothing_is_counted_unless_that_was_agreed(self):
        assert self.notes("plain") == []
        method = RingMLP()
        with pytest.raises(OpeningError, match="client-1 counts no gradients: watch is off, as agreed"):
            method.activity(mock.Mock(id="client-1"), None)

    def test_the_formula_is_the_papers(self):
        active = np.random.default_rng(0).binomial(5, 0.3, size=200_000).astype(float)
        alone, expected = count_alone(active, 5)
        assert expected == pytest.approx(200_000 * 5 * 0.7**4 * 0.3, rel=0.01)
        assert alone == pytest.approx(expected, rel=0.01)

    def test_noise_leaves_nothing_to_count(self):
        method = RingMLP(watch=True)
        with pytest.raises(
            ConfigError, match="nobody can count gradients of a single client: leave watch out"
        ):
            learnt(method, divided(self.table(), (20, 20, 20)), "noised")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"epochs": 2}, "epochs is 2: a round is one step: set rounds instead"),
        ({"l2": -1.0}, "l2 is -1.0: give a number of at least 0"),
        (
            {"example_noise": 1.0},
            "example_noise is 1.0: a step is common to all clients: use fedavg, or protect with noised",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, text):
    with pytest.raises(ConfigError, match=text):
        RingMLP.from_config(settings)


def test_two_clients_are_too_few_for_the_ring(digits):
    with pytest.raises(ConfigError, match="2 clients"):
        Federation(divided(digits, (100, 100)), seed=1).train(ring())


class TestPresets:
    @pytest.mark.parametrize(
        ("name", "protection"),
        [("ring-mlp", "ring"), ("p2p-mpc", "shares"), ("two-phase-mpc", "committee")],
    )
    def test_each_has_the_protection_of_its_paper(self, name, protection):
        assert usual_protection({"name": name}) == {"name": protection}

    def test_another_protection_has_its_own_settings(self):
        assert usual_protection({"name": "pfmlp"}, {"name": "masked"}) == {"name": "masked"}
        assert usual_protection({"name": "pfmlp"}) == {"name": "paillier", "holder": "in-turn"}

    def test_each_sum_of_pfmlp_has_another_clients_key(self, digits, keys_once):
        seen = []
        method = PFMLP.from_config({"hidden": 6, "rounds": 3, "batch": 0, "weighting": "equal"})
        protection = PROTECTIONS.build("paillier", {**method.default_settings, "key_bits": 2048})
        with keys_once():
            learnt(
                method, divided(digits), protection, events=Events(lambda number, event: seen.append(event))
            )
        waves = [event.wave for event in seen if isinstance(event, WaveStarted) and "make_keys" in event.step]
        makers = [event.party for event in seen if isinstance(event, Replied) and event.wave in waves]
        assert makers == ["client-1", "client-2", "client-3"]

    @pytest.mark.parametrize("randomness", ["djn", "short-alpha"])
    def test_encryption_changes_nothing_but_the_last_digits(self, randomness, digits, keys_once):
        method = PFMLP.from_config({"hidden": 6, "rounds": 3, "epochs": 2, "batch": 0})
        settings = {"holder": "in-turn", "key_bits": 2048, "randomness": randomness}
        with keys_once():
            one = learnt(method, divided(digits), PROTECTIONS.build("paillier", settings))
        other = learnt(method, divided(digits), "plain")
        assert np.abs(flat(method, one) - flat(method, other)).max() < 1e-7

    def test_its_promises_name_who_opens_everything_and_the_way_out(self):
        promises = PROTECTIONS.build("paillier", PFMLP.default_settings).promises
        assert promises.collusion == "the coordinator and any one client together open every contribution"
        assert any("'masked' hides it from that pair, too" in warning for warning in promises.warnings)
