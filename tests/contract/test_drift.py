"""SCAFFOLD and MIME beside plain NumPy references of their papers' algorithms, and what clients keep."""

from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tacit import Architecture, ExamplePrivacy, LocalTraining, Stopping, Weighting
from tacit.core.client import strip_prefix
from tacit.core.errors import ConfigError
from tacit.core.events import Events, Noted
from tacit.core.manifest import Components, Manifest
from tacit.core.message import Message
from tacit.core.party import Party
from tacit.core.random import generator
from tacit.core.secret import Secret
from tacit.core.shared import Shared
from tacit.core.snapshot import Snapshot
from tacit.data.files import load
from tacit.data.preparation import Preparation
from tacit.data.schema import Schema
from tacit.data.table import Table
from tacit.engines.holdings import Holdings
from tacit.engines.sites import site_secret
from tacit.federation import Federation
from tacit.methods.averaging import aggregation
from tacit.methods.fedavg import FedAvg
from tacit.methods.mime import Mime
from tacit.methods.scaffold import KEPT, OWN, Scaffold
from tacit.models.mlp import MLP
from tacit.models.neural import PREFIX
from tacit.protections.plain import Plain
from tests.conftest import Tap

ROUNDS, SIZES = 3, (50, 40, 30, 20)
UNSCALED, SMALL = Preparation(scale="none"), Architecture(hidden=5, activation="tanh")
LOCAL = LocalTraining(epochs=2, batch=16, rate=0.2)


@pytest.fixture(scope="module")
def held():
    """Clients with few digits each: rows sorted by label."""
    table = load("digits").take(np.arange(sum(SIZES)))
    table = table.take(np.argsort(table.target, kind="stable"))
    names = [f"c{i + 1}" for i in range(len(SIZES))]
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    return Holdings(Table.of(table.values / 16.0, table.target), offsets, names)


def learnt(method, held, **settings):
    return Federation(held, seed=4).train(method, **{"protect": "plain", "preparation": UNSCALED, **settings})


class Reference:
    """The papers' clients and server, with arrays only; batches are drawn as our clients draw them."""

    def __init__(self, held, rounds=ROUNDS):
        self.network, self.rounds = MLP((64, 5, 10), "tanh"), rounds
        self.rows = [held.rows(index) for index in range(len(held.names))]
        self.names = held.names
        kept = []
        learnt(
            FedAvg(rounds=1, architecture=SMALL, local=replace(LOCAL, rate=1e-300)), held, keep=kept.append
        )
        self.x = self.network.flat(strip_prefix(PREFIX, kept[0].shared))

    def gradient(self, w, i, rows=slice(None)):
        """The mean gradient of the cross-entropy of one hidden layer, written out."""
        X, y = self.rows[i].values[rows], self.rows[i].target[rows]
        named = self.network.named(w)
        W1, b1, W2, b2 = named.values()
        hidden = np.tanh(X @ W1 + b1)
        scores = np.exp(hidden @ W2 + b2)
        error = (scores / scores.sum(axis=1, keepdims=True) - np.eye(10)[y]) / len(y)
        back = (error @ W2.T) * (1 - hidden**2)
        parts = X.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)
        return np.concatenate([part.reshape(-1) for part in parts])

    def batches(self, i, number):
        rng = generator(site_secret(4, self.names[i]).reveal(), "descent", number)
        for _ in range(LOCAL.epochs):
            order = rng.permutation(len(self.rows[i].target))
            for first, end in pairwise([*range(0, len(order), LOCAL.batch), len(order)]):
                yield order[first:end]


def scaffold(reference, cohorts, clients=4, start=None, first=0):
    """Algorithm 1 of SCAFFOLD with option II."""
    zero, eta = np.zeros_like(reference.x), LOCAL.rate
    x, c, own = start or (reference.x.copy(), zero, [zero] * 4)
    for number, cohort in enumerate(cohorts, first):
        dy, dc = [], []
        for i in cohort:
            y, steps = x.copy(), 0
            for rows in reference.batches(i, number):
                y -= eta * (reference.gradient(y, i, rows) - own[i] + c)
                steps += 1
            plus = own[i] - c + (x - y) / (steps * eta)
            dy.append(y - x)
            dc.append(plus - own[i])
            own[i] = plus
        x = x + sum(dy) / len(cohort)
        c = c + len(cohort) / clients * (sum(dc) / len(cohort))
    return x, c, own


def mime(reference, lite, eta, beta1=0.9):
    """Algorithm 1 of MIME, and of MimeLite."""
    x, clients = reference.x.copy(), range(len(reference.rows))
    m = np.zeros_like(x)
    for number in range(reference.rounds):
        c, ys = sum(reference.gradient(x, j) for j in clients) / len(clients), []
        for i in clients:
            y = x.copy()
            for rows in reference.batches(i, number):
                g = reference.gradient(y, i, rows)
                if not lite:
                    g = g - reference.gradient(x, i, rows) + c
                y -= eta * ((1 - beta1) * g + beta1 * m)
            ys.append(y)
        m = (1 - beta1) * c + beta1 * m
        x = sum(ys) / len(ys)
    return x, m


@pytest.fixture(scope="module")
def reference(held):
    return Reference(held)


def weights(reference, training):
    return reference.network.flat(strip_prefix(PREFIX, training.outcome.shared))


def test_scaffold_is_the_papers(held, reference):
    training = learnt(Scaffold(rounds=ROUNDS, architecture=SMALL, local=LOCAL), held)
    x, c, _ = scaffold(reference, [range(4)] * ROUNDS)
    assert np.abs(weights(reference, training) - x).max() <= 1e-10
    assert np.abs(training.outcome.shared["control"] - c).max() <= 1e-10
    assert np.abs(x - reference.x).max() > 0.1


@pytest.mark.parametrize("lite", [False, True])
def test_mime_is_the_papers(held, reference, lite):
    local = replace(LOCAL, rate=0.2)
    training = learnt(Mime(rounds=ROUNDS, architecture=SMALL, local=local, lite=lite), held)
    x, m = mime(reference, lite, local.rate)
    assert np.abs(weights(reference, training) - x).max() <= 1e-10
    assert np.abs(training.outcome.shared["frozen/m"] - m).max() <= 1e-10
    assert np.abs(x - reference.x).max() > 0.01


def draw(manifest, number):
    """The two of four clients that a round asks."""
    return sorted(manifest.rng("cohort", number).choice(4, size=2, replace=False).tolist())


def test_who_is_not_asked_keeps_its_control_variate(held, reference):
    method = Scaffold(rounds=5, architecture=SMALL, local=LOCAL, fraction=0.5)
    training = learnt(method, held)
    cohorts = [draw(training.manifest, number) for number in range(5)]
    assert len({*map(tuple, cohorts)}) > 1
    x, c, own = scaffold(reference, cohorts)
    assert np.abs(weights(reference, training) - x).max() <= 1e-10
    assert np.abs(training.outcome.shared["control"] - c).max() <= 1e-10
    assert np.abs(c - np.mean(own, axis=0)).max() <= 1e-12


class TestLost:
    @pytest.fixture
    def train(self, held, monkeypatch):
        """Train where some replies never arrive, though their clients have computed; give asks for steps."""
        whole = Federation._engine

        def run(method, rewrite, lose=lambda step, party: False, protect=None, **settings):
            taps = []

            @contextmanager
            def engine(self, manifest, components):
                with whole(self, manifest, components) as inner:
                    taps.append(Tap(inner))
                    taps[0].rewrite, taps[0].lose = rewrite, lose
                    yield taps[0]

            monkeypatch.setattr(Federation, "_engine", engine)
            declared = {"classes": list(held.table.classes)}
            federation = Federation(held, seed=4, quorum=0.5, declared=declared)
            protect = protect or Plain()
            training = federation.train(method, protect=protect, preparation=UNSCALED, **settings)
            return training, [(step, party) for step, party, _ in taps[0].jobs if step.startswith("method.")]

        return run

    @pytest.mark.parametrize("place", ["coordinator", "clients"])
    def test_who_is_in_no_total_takes_its_control_variate_back(self, train, reference, place):
        asked = []

        def rewrite(step, party, message):
            if step != "client.contribute" or party != "c2":
                return None
            asked.append(step)
            return "StepError: the reply is lost" if len(asked) == 3 else None  # the count, round 1, round 2

        method = Scaffold(rounds=4, architecture=SMALL, local=LOCAL)
        training, steps = train(method, rewrite, protect=Plain(opens=place))
        assert steps == [("method.take_back_variate", "c2")]
        x, _, _ = scaffold(reference, [range(4), (0, 2, 3), range(4), range(4)])
        found = reference.network.flat(training.model.arrays)
        assert np.abs(found - x).max() <= 1e-10

    def test_who_cannot_take_it_back_is_left_out_until_it_can(self, train, reference):
        asked = {"client.contribute": 0, "method.take_back_variate": 0}

        def rewrite(step, party, message):
            if party != "c2" or step not in asked:
                return None
            asked[step] += 1
            lost = {"client.contribute": 2, "method.take_back_variate": 0}[step]
            return "StepError: the reply is lost" if asked[step] == lost else None

        def lose(step, party):
            if step != "method.take_back_variate" or tried:
                return False
            tried.append(party)
            return True

        tried = []
        training, steps = train(Scaffold(rounds=3, architecture=SMALL, local=LOCAL), rewrite, lose)
        assert steps == [("method.take_back_variate", "c2")] * 2
        x, _, _ = scaffold(reference, [(0, 2, 3), (0, 2, 3), range(4)])
        assert np.abs(weights(reference, training) - x).max() <= 1e-10

    def test_who_comes_late_begins_with_a_control_variate_of_zero(self, train, reference):
        contributed = []

        def lose(step, party):
            contributed.extend([party] if (step, party) == ("client.contribute", "c1") else ())
            return party == "c3" and len(contributed) < 2  # the count, and one round

        method = Scaffold(rounds=3, architecture=SMALL, local=LOCAL)
        training, _ = train(method, lambda *_: None, lose)
        assert training.outcome.shared["clients"] == 4
        # The mean of all c_i counts the one that was not there as 0: what the paper has if it was not drawn.
        others = (0, 1, 3)
        x, c, own = scaffold(reference, [others], clients=3)
        x, c, own = scaffold(reference, [range(4)] * 2, start=(x, c * 3 / 4, own), first=1)
        assert np.abs(weights(reference, training) - x).max() <= 1e-10
        assert np.abs(training.outcome.shared["control"] - c).max() <= 1e-10
        assert np.abs(c - np.mean(own, axis=0)).max() <= 1e-12


class TestGoingOn:
    @pytest.mark.parametrize("protect", [Plain(), Plain(opens="clients"), "masked"])
    @pytest.mark.parametrize("kind", [Scaffold, Mime])
    def test_it_ends_with_the_same_bits_wherever_it_was_stopped(self, held, protect, kind):
        method, kept = kind(rounds=4, architecture=SMALL, local=LOCAL, fraction=0.75), []
        whole = learnt(method, held, protect=protect, keep=kept.append)
        for point in kept[1:3]:
            written = Message.decode(point.to_message().encode())
            read = Snapshot.from_message(written, Schema.from_message)
            assert (OWN in read.progress) == (kind is Scaffold)
            resumed = learnt(method, held, protect=protect, resume=read)
            for name, array in whole.model.arrays.items():
                assert np.array_equal(resumed.model.arrays[name], array), name

    def test_without_their_control_variates_it_would_be_another_model(self, held):
        method, kept = Scaffold(rounds=3, architecture=SMALL, local=LOCAL), []
        whole = learnt(method, held, keep=kept.append)
        known = {name: value for name, value in kept[1].progress.items() if name not in (*KEPT, "names")}
        lost = learnt(method, held, resume=replace(kept[1], progress=known))
        assert lost.outcome.digest != whole.outcome.digest

    def test_other_clients_begin_anew(self, held):
        method = Scaffold(rounds=2, architecture=SMALL, local=LOCAL)
        early = learnt(method, held)
        begun = method.continue_from(early.outcome.shared)
        assert not begun["control"].any()
        assert begun["clients"] == 0
        assert learnt(method, held, start=early).outcome.shared["round"] == 4

    def test_a_deployed_site_shows_its_state_to_nobody(self, held):
        method = Scaffold(rounds=1, architecture=SMALL)
        components = Components(method, Plain(), UNSCALED)
        party = Party("c1", dict, Secret(bytes(32)))
        party.state["manifest"] = Manifest.of("run", components, experiment=False).to_message().encode()
        party.state[OWN] = np.ones(3)
        message = Message({OWN: np.zeros(3), "round": 0})
        with pytest.raises(ConfigError, match="c1 keeps control, control_before, control_round at its site"):
            method.swap_kept(party, message, Shared(None, {}))
        method.take_back_variate(party, message, Shared(None, {}))
        assert party.state[OWN].all()


class TestRefusals:
    @pytest.mark.parametrize(
        ("make", "text"),
        [
            (
                lambda: Scaffold(weighting=Weighting("rows")),
                "weighting is rows: c is a plain mean over the clients: give 'equal'",
            ),
            (
                lambda: Scaffold(stopping=Stopping(collapse=0.1)),
                "collapse is 0.1: clients do not take back their control variates: give 0",
            ),
            (
                lambda: Mime(local=LocalTraining(optimiser="adam")),
                "optimiser is adam: clients follow the base optimiser: set beta1 instead",
            ),
            (
                lambda: Mime(privacy=ExamplePrivacy(noise=1.0)),
                "example_noise is 1.0: no epsilon covers gradients over all rows, which are summed here: "
                "give 0, or use fedavg",
            ),
        ],
    )
    def test_what_makes_no_sense(self, make, text):
        with pytest.raises(ConfigError) as refused:
            make()
        assert str(refused.value) == text

    def test_noise_on_control_variates(self, held):
        with pytest.raises(ConfigError, match=r"noise and clipping part c from the mean of c_i: use fedavg"):
            learnt(Scaffold(), held, protect="noised")

    def test_a_gradient_beyond_its_limit_is_scaled_down_and_c_stays_the_mean(
        self, held, reference, monkeypatch
    ):
        monkeypatch.setattr(aggregation, "MOST_GRADIENT", 1e-3)
        method = Scaffold(rounds=2, architecture=SMALL, local=LOCAL)
        kept, seen = [], []
        told = Events(lambda number, event: seen.append(event))
        shared = learnt(method, held, keep=kept.append, events=told).outcome.shared
        own = kept[-1].progress[OWN]
        assert np.abs(shared["control"] - np.mean(own, axis=0)).max() <= 1e-15
        assert 0 < np.abs(shared["control"]).max() <= 2e-3
        assert any("exceeded the limit of 0.001" in event.text for event in seen if isinstance(event, Noted))
