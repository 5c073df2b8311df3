"""FLOP beside a plain NumPy reference, what of the network travels, and what becomes of clients' heads."""

from itertools import pairwise

import numpy as np
import pytest

from tacit import Architecture, ExamplePrivacy, LocalTraining, Stopping
from tacit.core.errors import ConfigError, DataError, OpeningError, UnavailableError
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
from tacit.methods.fedavg import FedAvg
from tacit.methods.flop import BEFORE, KEPT, OWN, ROUND, SEED, Flop, split
from tacit.models.files import load_model
from tacit.models.heads import fit_layer, solve_layer, sum_layer
from tacit.models.mlp import MLP
from tacit.models.neural import PREFIX
from tacit.protections.plain import Plain

SIZES, ROUNDS = (50, 40, 30, 20), 3
UNSCALED, SMALL = Preparation(scale="none"), Architecture(hidden=5, activation="tanh")
LOCAL = LocalTraining(epochs=2, batch=16, rate=0.2)
LAST = ("layer2.weight", "layer2.bias")


@pytest.fixture(scope="module")
def held():
    """Clients with few digits each: rows sorted by label."""
    table = load("digits").take(np.arange(sum(SIZES)))
    table = table.take(np.argsort(table.target, kind="stable"))
    names = [f"c{i + 1}" for i in range(len(SIZES))]
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    return Holdings(Table.of(table.values / 16.0, table.target), offsets, names)


def flop(**settings):
    return Flop(**{"rounds": ROUNDS, "architecture": SMALL, "local": LOCAL, **settings})


def learnt(method, held, seed=4, **settings):
    return Federation(held, seed=seed).train(
        method, **{"protect": "plain", "preparation": UNSCALED, **settings}
    )


def heads(kept, what=OWN):
    names = kept.progress["names"].decode().split("\n")
    return dict(zip(names, kept.progress[what], strict=True))


def fit(shared, rows):
    """The head in closed form of one client's rows."""
    inputs = np.tanh(rows.values @ shared[PREFIX + "layer1.weight"] + shared[PREFIX + "layer1.bias"])
    fitted = solve_layer(*sum_layer(inputs, rows.target, 10))
    return np.concatenate([fitted[1:].reshape(-1), fitted[0]])


class Reference:
    """Clients with heads of their own, and a server that averages the first layer: arrays only."""

    def __init__(self, held, seed):
        self.network = MLP((64, 5, 10), "tanh")
        first = self.network.named(self.network.initial(np.random.default_rng(seed)))
        self.w, self.heads = [first[f"layer1.{kind}"].copy() for kind in ("weight", "bias")], {}
        self.first, self.held = [first[name] for name in LAST], held

    def round(self, number):
        changes = []
        for index, name in enumerate(self.held.names):
            rows = self.held.rows(index)
            parts = [array.copy() for array in (*self.w, *self.heads.get(name, self.first))]
            rng = generator(site_secret(4, name).reveal(), "descent", number)
            for _ in range(LOCAL.epochs):
                order = rng.permutation(rows.rows)
                for start, end in pairwise([*range(0, rows.rows, LOCAL.batch), rows.rows]):
                    gradient(parts, rows.values[order[start:end]], rows.target[order[start:end]])
            changes.append([rows.rows * (new - old) for new, old in zip(parts, self.w, strict=False)])
            self.heads[name] = parts[2:]
        self.w = [
            w + sum(each) / self.held.table.rows
            for w, each in zip(self.w, zip(*changes, strict=True), strict=True)
        ]


def gradient(parts, X, y):
    """Take one step with the gradient of the cross-entropy of one hidden layer, written out."""
    W1, b1, W2, b2 = parts
    hidden = np.tanh(X @ W1 + b1)
    scores = np.exp(hidden @ W2 + b2)
    error = (scores / scores.sum(axis=1, keepdims=True) - np.eye(10)[y]) / len(y)
    back = (error @ W2.T) * (1 - hidden**2)
    found = X.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)
    for part, slope in zip(parts, found, strict=True):
        part -= LOCAL.rate * slope


def test_shared_layers_and_heads_are_the_papers(held):
    kept = []
    training = learnt(flop(), held, keep=kept.append)
    shared = training.outcome.shared
    reference = Reference(held, shared[SEED])
    for number in range(ROUNDS):
        reference.round(number)
    assert np.abs(shared[PREFIX + "layer1.weight"] - reference.w[0]).max() <= 1e-12
    assert np.abs(shared[PREFIX + "layer1.bias"] - reference.w[1]).max() <= 1e-12
    for name, own in heads(kept[-1]).items():
        assert (
            np.abs(own - np.concatenate([part.reshape(-1) for part in reference.heads[name]])).max() <= 1e-12
        )


def test_the_last_layer_for_all_is_that_of_the_pooled_rows(held):
    training = learnt(flop(), held)
    network, arrays = training.model.network, training.model.arrays
    inputs = np.tanh(held.table.values @ arrays["layer1.weight"] + arrays["layer1.bias"])
    expected = solve_layer(*sum_layer(inputs, held.table.target, 10))
    for name, value in network.last_layer(expected).items():
        assert np.abs(arrays[name] - value).max() <= 1e-9
    masked = learnt(flop(), held, protect="masked", min_count=1).model.arrays
    assert all(np.abs(masked[name] - arrays[name]).max() <= 1e-4 for name in LAST)


@pytest.mark.parametrize("protect", [Plain(), Plain(opens="clients"), "masked"], ids=str)
def test_nothing_of_a_head_travels(held, protect):
    kept, sent = [], []
    settings = {"protect": protect, "min_count": 1}
    learnt(flop(), held, keep=kept.append, **settings)
    again = learnt(flop(), held, transcript=lambda *told: sent.append(told[-1]), **settings)
    layout = flop().update_layout(again.schema)
    assert [field.name for field in layout.fields] == ["delta/layer1.weight", "delta/layer1.bias", "weight"]
    travelled = b"".join(sent)
    assert again.model.arrays["layer1.weight"].tobytes() in travelled or protect != Plain()
    assert len(heads(kept[-1])) == 4
    for one in kept:
        assert not [name for name, own in heads(one).items() if own.tobytes()[:64] in travelled]
    for index, name in enumerate(held.names if again.outcome.shared is not None else ()):
        party = Party(name, lambda index=index: held.rows(index), site_secret(4, name))
        assert not flop().fit_own(party, Message(), again.outcome.shared)
        assert party.state[OWN].tobytes()[:64] not in travelled


def test_clients_own_hold_outs_are_scored_with_their_own_heads():
    table = load("digits").take(np.arange(600))
    settings = {"rounds": 3, "epochs": 5, "rate": 0.3, "hidden": 16}
    federation = Federation.embedded(
        table, clients=5, partition="label-sorted", holdout=0.3, test=None, seed=1
    )
    training, right = federation.train(Flop.from_config(settings), protect="plain"), []
    for client in range(5):
        own = training.model.fit_head(federation.holdings.rows(client))
        aside = federation.holdings.holdout_rows(client)
        right.extend(own.predict(aside) == training.model.classes_[training.schema.labels(aside)])
    assert training.holdout["accuracy"] == pytest.approx(np.mean(right), abs=1e-12)
    together = federation.train(FedAvg.from_config(settings), protect="plain").holdout["accuracy"]
    assert training.holdout["accuracy"] > 0.9 > together


def test_after_the_last_round_heads_are_fitted_to_the_shared_layers_as_they_are(held):
    method, training = flop(), learnt(flop(), held)
    shared, rows = training.outcome.shared, held.rows(1)
    party = Party("c2", lambda: rows, site_secret(4, "c2"))
    party.state[OWN] = np.ones(60)
    assert not method.fit_own(party, Message(), shared)
    weight, bias = (shared[PREFIX + name] for name in LAST)
    inputs = np.tanh(rows.values @ shared[PREFIX + "layer1.weight"] + shared[PREFIX + "layer1.bias"])
    fitted = fit_layer(inputs, rows.target, np.vstack([bias, weight]))
    assert np.array_equal(party.state[OWN], np.concatenate([fitted[1:].reshape(-1), fitted[0]]))
    own, expected = method.model_at(party, shared), training.model.fit_head(rows)
    assert np.abs(own.outputs(rows.values) - expected.outputs(rows.values)).max() <= 1e-9
    deep = flop(share=1, architecture=Architecture(hidden=(8, 6)))
    shared = learnt(deep, held).outcome.shared
    party.state[OWN] = before = np.linspace(-1, 1, 8 * 6 + 6 + 6 * 10 + 10)
    deep.fit_own(party, Message(), shared)
    # Only the last layer is fitted, behind the others.
    assert np.array_equal(party.state[OWN][:54], before[:54])
    assert not np.array_equal(party.state[OWN][54:], before[54:])
    arrays = deep.model_at(party, shared).arrays
    inputs = rows.values
    for layer in ("layer1", "layer2"):
        inputs = np.maximum(inputs @ arrays[f"{layer}.weight"] + arrays[f"{layer}.bias"], 0)
    common = np.vstack([shared[PREFIX + "layer3.bias"], shared[PREFIX + "layer3.weight"]])
    assert np.abs(arrays["layer3.weight"] - fit_layer(inputs, rows.target, common)[1:]).max() <= 1e-9


class TestOwnLayer:
    """A client's own last layer, from the one for all."""

    @pytest.fixture
    def rows(self):
        rng = np.random.default_rng(3)
        inputs = rng.normal(size=(40, 12))
        return inputs, (inputs[:, :3] + rng.normal(size=(40, 3))).argmax(axis=1), rng.normal(size=(13, 3))

    @pytest.mark.parametrize("weighted", [False, True])
    def test_it_is_the_best_when_each_row_is_left_out_in_turn(self, rows, weighted):
        inputs, labels, common = rows
        weights = np.random.default_rng(4).uniform(0.5, 2, 40) if weighted else np.ones(40)
        x = np.hstack([np.ones((40, 1)), inputs])
        wanted = np.where(labels[:, None] == np.arange(3), 1, -1) * np.log(19)
        scale = np.trace(x.T @ (x * weights[:, None])) / 13 / weights.sum()

        def solve(chosen, start, penalty):
            left = x[chosen].T * weights[chosen]
            gram = left @ x[chosen] + penalty * np.eye(13)
            return start + np.linalg.solve(gram, left @ (wanted[chosen] - x[chosen] @ start))

        errors = {}
        for start in (common, 0 * common):
            for penalty in scale * 4.0 ** np.arange(9):
                out = [wanted[i] - x[i] @ solve(np.arange(40) != i, start, penalty) for i in range(40)]
                found = solve(np.arange(40) >= 0, start, penalty)
                errors[(weights[:, None] * np.square(out)).sum()] = found
        fitted = fit_layer(inputs, labels, common, weights if weighted else None)
        assert np.abs(fitted - errors[min(errors)]).max() <= 1e-9

    def test_rows_like_those_of_all_stay_near_the_layer_for_all_and_others_do_not(self):
        rng = np.random.default_rng(5)
        inputs, mix = rng.normal(size=(4030, 20)), rng.normal(size=(20, 4))
        labels = (inputs @ mix + 3 * rng.normal(size=(4030, 4))).argmax(axis=1)
        common, few = solve_layer(*sum_layer(inputs[:4000], labels[:4000], 4)), slice(4000, None)
        alike = fit_layer(inputs[few], labels[few], common)
        other = fit_layer(inputs[few], (labels[few] + 1) % 4, common)
        own = solve_layer(*sum_layer(inputs[few], labels[few], 4))
        near, far, alone = (np.abs(layer - common).max() for layer in (alike, other, own))
        assert near < 0.1 * far
        assert near < 0.1 * alone

    def test_a_layer_for_all_that_says_nothing_is_left_aside(self, rows):
        inputs, labels, _ = rows
        wrong = 100 * np.random.default_rng(6).normal(size=(13, 3))
        nothing = np.zeros((13, 3))
        assert np.array_equal(fit_layer(inputs, labels, wrong), fit_layer(inputs, labels, nothing))


class TestNewClients:
    def test_who_is_drawn_late_begins_with_a_fitted_head(self, held):
        kept = []
        learnt(flop(fraction=0.5, rounds=4), held, keep=kept.append)
        late = {*heads(kept[-1])} - {*heads(kept[0])}
        assert late
        for name in late:
            number = next(number for number, one in enumerate(kept) if name in heads(one))
            assert heads(kept[number], ROUND)[name] == number
            fitted = fit(kept[number - 1].shared, held.rows(held.names.index(name)))
            assert np.abs(heads(kept[number], BEFORE)[name] - fitted).max() <= 1e-9

    def test_without_fit_heads_it_begins_with_the_seed(self, held):
        kept = []
        shared = learnt(flop(fraction=0.5, fit_heads=False), held, keep=kept.append).outcome.shared
        assert not {PREFIX + name for name in LAST} & {*shared}
        network = MLP((64, 5, 10), "tanh")
        first = network.named(network.initial(np.random.default_rng(shared[SEED])))
        began = np.concatenate([first[name].reshape(-1) for name in LAST])
        assert np.array_equal(kept[0].progress[BEFORE][0], began)

    def test_a_model_gets_a_head_for_new_rows_in_one_step(self, held, tmp_path):
        model = learnt(flop(), held).model
        rows = held.table.take(np.flatnonzero(held.table.target < 3))
        own = model.fit_head(rows)
        assert own.score(rows.values, rows.target) > 0.9
        assert np.array_equal(own.arrays["layer1.weight"], model.arrays["layer1.weight"])
        assert not np.array_equal(own.arrays["layer2.weight"], model.arrays["layer2.weight"])
        back = load_model(own.save(tmp_path / "own.safetensors"))
        assert np.array_equal(back.predict_proba(rows.values), own.predict_proba(rows.values))

    def test_the_head_of_one_class_predicts_that_class(self, held):
        rows = held.table.take(np.flatnonzero(held.table.target == 4))
        assert {*learnt(flop(), held).model.fit_head(rows).predict(held.table.values).tolist()} == {4}

    def test_a_regression_fits_targets_in_their_own_units(self):
        try:
            table = load("carbon_nanotubes").take(np.arange(400))
        except UnavailableError:
            pytest.skip("carbon_nanotubes is not on this machine")
        federation = Federation.embedded(table, clients=4, test=0.25, seed=2)
        model = federation.train(
            Flop.from_config({"rounds": 3, "epochs": 3, "hidden": 16}), protect="plain"
        ).model
        test = federation.test
        assert model.score(test.values, test.target) > 0.8
        assert model.fit_head(table).score(test.values, test.target) > 0.8


class TestGoingOn:
    @pytest.mark.parametrize("protect", [Plain(), Plain(opens="clients"), "masked"], ids=str)
    def test_it_ends_with_the_same_bits_wherever_it_was_stopped(self, held, protect):
        method, kept = flop(rounds=4, fraction=0.75), []
        whole = learnt(method, held, protect=protect, min_count=1, keep=kept.append)
        for point in kept[1:]:
            read = Snapshot.from_message(Message.decode(point.to_message().encode()), Schema.from_message)
            later = []
            resumed = learnt(method, held, protect=protect, min_count=1, resume=read, keep=later.append)
            for name, array in whole.model.arrays.items():
                assert np.array_equal(resumed.model.arrays[name], array), name
            for one in later[-1:]:
                assert np.array_equal(one.progress[OWN], kept[-1].progress[OWN])

    def test_without_their_heads_it_would_be_another_model(self, held):
        method, kept = flop(), []
        whole = learnt(method, held, keep=kept.append)
        known = {name: value for name, value in kept[1].progress.items() if name not in (*KEPT, "names")}
        point = Snapshot(**{**vars(kept[1]), "progress": known})
        assert learnt(method, held, resume=point).outcome.digest != whole.outcome.digest

    def test_other_clients_go_on_with_heads_of_their_own_rows(self, held):
        early, kept = learnt(flop(), held), []
        later = learnt(flop(), held, start=early, keep=kept.append)
        assert later.outcome.shared["round"] == 2 * ROUNDS
        for index, name in enumerate(held.names):
            fitted = fit(early.outcome.shared, held.rows(index))
            assert np.abs(heads(kept[0], BEFORE)[name] - fitted).max() <= 1e-9

    def test_a_round_that_is_asked_for_again_begins_as_it_began(self, held):
        method = flop()
        training = learnt(method, held)
        shared = training.outcome.shared | {"round": 5}
        party = Party("c1", lambda: held.rows(0), site_secret(4, "c1"))
        once, own = method.update(party, shared), party.state[OWN]
        twice = method.update(party, shared)
        assert all(np.array_equal(once[name], twice[name]) for name in once)
        assert np.array_equal(party.state[OWN], own)
        thrice = method.update(party, shared | {"round": 6})
        assert not np.array_equal(thrice["delta/layer1.weight"], once["delta/layer1.weight"])

    def test_a_deployed_site_shows_its_head_to_nobody(self):
        method = flop()
        party = Party("c1", dict, Secret(bytes(32)))
        manifest = Manifest.of("run", Components(method, Plain(), UNSCALED), experiment=False)
        party.state.update({"manifest": manifest.to_message().encode(), OWN: np.ones(3)})
        with pytest.raises(ConfigError, match="c1 keeps head, head_before, head_round at its site"):
            method.swap_kept(party, Message({OWN: np.zeros(3)}), Shared(None, {}))
        assert party.state[OWN].all()

    def test_a_total_that_must_not_open_leaves_the_model_without_a_last_layer(self, held, monkeypatch):
        from tacit.core.coordinator import Coordinator
        from tacit.core.errors import DifferencingError

        form = Coordinator._form_total

        def refuse(self, contribution, *more):
            if contribution.__name__ == "head_sums":
                raise DifferencingError("one client less")
            return form(self, contribution, *more)

        monkeypatch.setattr(Coordinator, "_form_total", refuse)
        told = []
        training = learnt(flop(), held, events=Events(lambda _, event: told.append(event)))
        texts = [event.text for event in told if isinstance(event, Noted) and event.about == "head"]
        assert texts == [
            "there is no last layer for all, only clients' own heads are trained: one client less"
        ]
        assert PREFIX + LAST[0] not in training.outcome.shared


class TestShare:
    NETWORK = MLP((6, 5, 4, 3, 2))

    @pytest.mark.parametrize(
        ("share", "shared"),
        [
            (-1, ["layer1", "layer2", "layer3"]),
            (2, ["layer1", "layer2"]),
            ("layer1", ["layer1"]),
            ("layer[12]", ["layer1", "layer2"]),
            ("layer2, layer1", ["layer1", "layer2"]),
        ],
    )
    def test_layers_by_number_and_by_name(self, share, shared):
        common, private = split(self.NETWORK, share)
        assert common.layers() == shared
        assert [*common.layers(), *private.layers()] == self.NETWORK.layers()

    @pytest.mark.parametrize(
        ("share", "text"),
        [
            ("conv*", "share: no layer is called 'conv*'"),
            ("layer1,laier2", "share: no layer is called 'laier2': did you mean 'layer2'"),
            (0, "share is 0: nothing is learnt together; share some of the layers layer1, layer2"),
            (4, "share is 4: nothing is left to keep; share some of the layers layer1, layer2"),
            ("layer*", "share is 'layer*': nothing is left to keep"),
            ("layer1,layer3", "share is 'layer1,layer3': 'layer2', before 'layer3', is left out: share both"),
        ],
    )
    def test_what_cannot_be_shared(self, held, share, text):
        method = flop(share=share, architecture=Architecture(hidden=(5, 4, 3)))
        with pytest.raises(ConfigError) as refused:
            learnt(method, held)
        assert str(refused.value).startswith(text)

    def test_several_private_layers(self, held):
        kept = []
        method = flop(share=1, architecture=Architecture(hidden=(8, 6)))
        training = learnt(method, held, keep=kept.append)
        assert len(kept[-1].progress[OWN][0]) == 8 * 6 + 6 + 6 * 10 + 10
        assert PREFIX + "layer2.weight" not in training.outcome.shared
        assert training.model.score(held.table.values, held.table.target) > 0.4


class TestRefusals:
    @pytest.mark.parametrize(
        ("make", "text"),
        [
            (
                lambda: Flop(stopping=Stopping(collapse=0.1)),
                "collapse is 0.1: clients do not take back their heads: give 0",
            ),
            (
                lambda: Flop(privacy=ExamplePrivacy(noise=1.0)),
                "fit_heads is True: heads are fitted without noise, which example_epsilon does not cover: "
                "give false",
            ),
        ],
    )
    def test_what_makes_no_sense(self, make, text):
        with pytest.raises(ConfigError) as refused:
            make()
        assert str(refused.value) == text

    def test_noise_on_sums_that_have_no_bound(self, held):
        with pytest.raises(ConfigError, match="nothing bounds the sums that last layers are fitted from"):
            learnt(flop(), held, protect="noised")

    def test_heads_are_summed_only_if_that_was_agreed(self, held):
        party = Party("c1", lambda: held.rows(0), site_secret(4, "c1"))
        with pytest.raises(OpeningError, match="no fit_heads was agreed: c1 does not sum"):
            flop(fit_heads=False).head_sums(party, Shared(None, {}))

    def test_a_head_that_runs_away_is_not_kept(self, held):
        method = flop(local=LocalTraining(rate=1e300), fit_heads=False)
        with pytest.raises(Exception, match="local training ran away") as refused:
            learnt(method, held)
        assert isinstance(refused.value.__cause__, DataError | None)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


class TestTorch:
    def named(self, torch, normal=False):
        nn = torch.nn

        class Net(nn.Module):
            def __init__(self, features, outputs):
                super().__init__()
                self.conv1 = nn.Conv2d(1, 3, 3, padding=1)
                self.conv2 = nn.Conv2d(3, 4, 3, stride=2)
                self.norm = nn.BatchNorm1d(36) if normal else nn.Identity()
                self.fc = nn.Linear(36, outputs)

            def forward(self, X):
                found = torch.relu(self.conv2(torch.relu(self.conv1(X.reshape(-1, 1, 8, 8)))))
                return self.fc(self.norm(found.flatten(1)))

        return Net

    def test_layers_of_a_module_by_pattern(self, torch, held, tmp_path):
        kept = []
        architecture = Architecture(network=self.named(torch))
        method = flop(
            architecture=architecture, share="conv*", local=LocalTraining(optimiser="adam", rate=0.01)
        )
        training = learnt(method, held, keep=kept.append)
        assert [name.removeprefix(PREFIX) for name in kept[-1].shared if name.startswith(PREFIX)] == [
            "conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"
        ]  # fmt: skip
        assert kept[-1].progress[OWN].shape == (4, 370)
        assert training.model.score(held.table.values, held.table.target) > 0.6
        back = load_model(training.model.save(tmp_path / "m.safetensors"), self.named(torch))
        assert np.array_equal(back.outputs(held.table.values), training.model.outputs(held.table.values))

    @pytest.mark.parametrize(("share", "averaged"), [("conv*", False), ("conv*,norm", True)])
    def test_running_means_stay_with_their_layer(self, torch, held, share, averaged):
        method = flop(
            architecture=Architecture(network=self.named(torch, normal=True)), share=share, rounds=2
        )
        shared = learnt(method, held).outcome.shared
        assert (PREFIX + "norm.running_mean" in shared) == averaged

    def test_inputs_of_the_last_layer_give_the_outputs(self, torch, held):
        model = learnt(flop(architecture=Architecture(network="cnn"), rounds=1), held).model
        network, X = model.network, held.table.values
        weights = network.flat(model.arrays)
        last = network.last_inputs(weights, X) @ model.arrays["7.weight"].T + model.arrays["7.bias"]
        assert np.abs(last - network.outputs(weights, X)).max() < 1e-4
        assert network.last_width == 512

    def test_a_module_that_ends_otherwise(self, torch, held):
        nn = torch.nn
        ends = {
            "2": lambda f, o: nn.Sequential(
                nn.Linear(f, o), nn.Unflatten(1, (1, 1, o)), nn.Conv2d(1, 1, 1), nn.Flatten()
            ),
            "1": lambda f, o: nn.Sequential(nn.Linear(f, 4), nn.Linear(4, o, bias=False)),
        }
        for name, factory in ends.items():
            with pytest.raises(ConfigError, match=f"'{name}' is no linear layer with a bias, as heads are"):
                learnt(flop(architecture=Architecture(network=factory)), held)
            learnt(flop(architecture=Architecture(network=factory), fit_heads=False, rounds=1), held)
