"""Averaging of networks: mathematics against torch and Flower, limits, and what goes wrong at clients."""

import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tacit import Architecture, Change, ExamplePrivacy, LocalTraining, Stopping, Weighting
from tacit.core.errors import ConfigError, DataError, QuorumError
from tacit.core.events import BudgetSpent, Evaluated, Events, Noted, RoundEnded
from tacit.core.shared import Shared, Total
from tacit.data.files import load
from tacit.data.preparation import Preparation
from tacit.data.schema import Schema
from tacit.data.table import Column, Table
from tacit.engines.holdings import Holdings
from tacit.federation import Federation
from tacit.methods.fedavg import FedAvg
from tacit.methods.fedopt import AdagradStep, AdamStep, FedAdagrad, FedAdam, FedYogi, YogiStep
from tacit.methods.fedprox import FedProx, ProximalTraining
from tacit.methods.homogeneity import HomogeneityWeighting, HWFedAvg, NWFedAvg, concentration
from tacit.models.mlp import MLP
from tacit.models.neural import PREFIX
from tacit.protections.paillier import Paillier
from tacit.protections.plain import Plain
from tests.quick import representatives

SCHEMA = Schema(tuple(Column(f"x{i}") for i in range(4)), "classification", ("a", "b", "c"), ("y",))
UNSCALED = Preparation(scale="none")
SMALL, EQUAL = Architecture(hidden=4), Weighting("equal")
CLIENTS_OPEN = Plain(opens="clients")
CLIENTS_HOLD = Paillier(holder="clients")


@pytest.fixture(scope="module")
def digits():
    table = load("digits").take(np.arange(300))
    return Table.of(table.values / 16.0, table.target)


def split(table, sizes, aside=0):
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    names = [f"c{i + 1}" for i in range(len(sizes))]
    return Holdings(table.take(np.arange(offsets[-1])), offsets, names, np.full(len(sizes), aside))


def learnt(method, holdings, *events, **settings):
    seen = []
    told = Events(lambda number, event: seen.append(event))
    federation = {k: settings.pop(k) for k in ("seed", "quorum") if k in settings}
    settings = {"protect": "plain", **settings}
    training = Federation(holdings, **federation).train(method, preparation=UNSCALED, events=told, **settings)
    return training, seen


def rows(count=40, features=4, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, features)), rng.integers(classes, size=count)


class TestNetworkAgainstTorch:
    @pytest.fixture(params=["relu", "tanh", "sigmoid"])
    def pair(self, request):
        """The same network twice, and a function that carries weights from ours to torch's."""
        torch = pytest.importorskip("torch")
        from tacit.models.torch_network import TorchNetwork

        inner = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "sigmoid": torch.nn.Sigmoid}[request.param]

        def factory(features, outputs):
            sizes = (features, 6, 5, outputs)
            layers = [torch.nn.Linear(a, b) for a, b in pairwise(sizes)]
            return torch.nn.Sequential(layers[0], inner(), layers[1], inner(), layers[2]).double()

        ours, theirs = MLP((4, 6, 5, 3), request.param), TorchNetwork(factory, 4, 3)

        def carried(vector):
            arrays = [a.T if a.ndim == 2 else a for a in ours.named(vector).values()]
            return theirs.flat(dict(zip(theirs.shapes, arrays, strict=True)))

        return ours, theirs, carried

    def test_outputs_and_gradients(self, pair):
        ours, theirs, carried = pair
        weights, (X, y) = ours.initial(np.random.default_rng(1)), rows()
        assert np.allclose(ours.outputs(weights, X), theirs.outputs(carried(weights), X), atol=1e-12)
        mine = carried(ours.gradient(weights, X, y))
        assert np.allclose(mine, theirs.gradient(carried(weights), X, y), atol=1e-12)

    def test_gradients_clipped_row_by_row(self, pair):
        ours, theirs, carried = pair
        weights, (X, y) = ours.initial(np.random.default_rng(1)), rows()
        mine = ours.clipped_gradients(weights, X, y, 0.4)
        assert np.allclose(carried(mine), theirs.clipped_gradients(carried(weights), X, y, 0.4), atol=1e-12)
        each = [ours.gradient(weights, X[[i]], y[[i]]) for i in range(len(y))]
        assert any(np.linalg.norm(g) > 0.4 for g in each)
        cut = [g * min(1.0, 0.4 / np.linalg.norm(g)) for g in each]
        assert np.allclose(mine, np.sum(cut, axis=0), atol=1e-12)

    @pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam"])
    def test_local_training_takes_the_steps_of_torchs_optimisers(self, pair, optimiser):
        torch = pytest.importorskip("torch")
        ours, theirs, carried = pair
        start, (X, y) = ours.initial(np.random.default_rng(1)), rows()
        local = LocalTraining(
            epochs=2, batch=16, rate=0.05, optimiser="adam" if optimiser == "adam" else "sgd"
        )
        if optimiser == "momentum":
            local = replace(local, momentum=0.9)
        mine = local.train(ours, start, X, y, np.random.default_rng(7))
        module = theirs.load(carried(start)).train()
        kinds = {
            "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
            "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
            "adam": lambda p: torch.optim.Adam(p, lr=0.05),
        }
        step, rng = kinds[optimiser](module.parameters()), np.random.default_rng(7)
        for _ in range(2):
            order = rng.permutation(len(y))
            for first in range(0, len(y), 16):
                chosen = order[first : first + 16]
                step.zero_grad()
                outputs = module(torch.from_numpy(X[chosen]))
                torch.nn.functional.cross_entropy(outputs, torch.from_numpy(y[chosen])).backward()
                step.step()
        reached = theirs.flat({name: p.detach().numpy() for name, p in module.named_parameters()})
        assert np.allclose(carried(mine), reached, atol=1e-9)


class TestServersAgainstFlower:
    """The same client updates, three rounds: ours, and Flower's own strategies without a network."""

    SIZES = (30, 10, 20)

    def flower(self, strategy, arrays, rounds):
        from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays

        reached = arrays
        for number, changes in enumerate(rounds, 1):
            results = [
                (
                    None,
                    FitRes(
                        Status(Code.OK, ""),
                        ndarrays_to_parameters([w + d for w, d in zip(reached, change, strict=True)]),
                        size,
                        {},
                    ),
                )
                for change, size in zip(changes, self.SIZES, strict=True)
            ]
            parameters, _ = strategy.aggregate_fit(number, results, [])
            reached = parameters_to_ndarrays(parameters)
        return reached

    @pytest.mark.parametrize(
        ("method", "strategy", "settings"),
        [
            (FedAvg(), "FedAvg", {}),
            (
                FedAdagrad(server=AdagradStep(eta=0.1, tau=1e-3, v0=0.0)),
                "FedAdagrad",
                {"eta": 0.1, "tau": 1e-3},
            ),
            (
                FedAdam(server=AdamStep(eta=0.1, beta1=0.9, tau=1e-3, bias_correction=True)),
                "FedAdam",
                {"eta": 0.1, "tau": 1e-3},
            ),
            (FedYogi(server=YogiStep(eta=0.01, beta1=0.9, tau=1e-3)), "FedYogi", {"eta": 0.01, "tau": 1e-3}),
        ],
        ids=["fedavg", "fedadagrad", "fedadam", "fedyogi"],
    )
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_three_rounds(self, method, strategy, settings):
        flwr = pytest.importorskip("flwr.server.strategy")
        from flwr.common import ndarrays_to_parameters

        network = method.architecture.build(SCHEMA)
        shared = Shared(SCHEMA, method.init(SCHEMA, np.random.default_rng(0)))
        start = [np.array(shared[PREFIX + name]) for name in network.shapes]
        rng = np.random.default_rng(1)
        rounds = [
            [[rng.normal(scale=0.1, size=w.shape) for w in start] for _ in self.SIZES] for _ in range(3)
        ]
        if strategy != "FedAvg":
            settings = {**settings, "initial_parameters": ndarrays_to_parameters(start)}
        theirs = self.flower(getattr(flwr, strategy)(**settings), start, rounds)
        scale = np.linalg.norm(self.SIZES)
        for changes in rounds:
            shares = [size / scale for size in self.SIZES]
            total = {
                f"delta/{name}": sum(u * change[i] for u, change in zip(shares, changes, strict=True))
                for i, name in enumerate(network.shapes)
            }
            shared = method.step(Total({**total, "weight": sum(shares)}, 3), shared)
        for name, array in zip(network.shapes, theirs, strict=True):
            assert np.abs(shared[PREFIX + name] - array).max() < 1e-6
        assert np.abs(theirs[0] - start[0]).max() > 1e-3

    def test_papers_adam_is_not_flowers(self):
        shared = Shared(SCHEMA, FedAdam().init(SCHEMA, np.random.default_rng(0)))
        total = {
            f"delta/{name}": np.full(shape, 0.1)
            for name, shape in Architecture().build(SCHEMA).shapes.items()
        }
        with_it, without = (
            FedAdam(server=AdamStep(bias_correction=way)).step(Total({**total, "weight": 1.0}, 3), shared)[
                PREFIX + "layer1.bias"
            ]
            for way in (True, False)
        )
        assert np.abs(with_it - without).max() > 1e-3

    def test_the_papers_start_of_v_is_tau_squared(self):
        method = FedYogi(server=YogiStep(v0=1.0, tau=0.1, eta=1.0))
        shared = Shared(SCHEMA, method.init(SCHEMA, np.random.default_rng(0)))
        total = {
            f"delta/{name}": np.full(shape, 0.2)
            for name, shape in method.architecture.build(SCHEMA).shapes.items()
        }
        stepped = method.step(Total({**total, "weight": 1.0}, 3), shared)
        assert np.allclose(stepped["v/layer1.bias"], 0.01 + 0.01 * 0.04)


class TestLimits:
    def test_fedsgd_is_one_step_on_the_pooled_rows(self, digits):
        method = FedAvg(local=LocalTraining(batch=0, rate=0.5), rounds=3, architecture=Architecture(hidden=6))
        spread, pooled = (split(digits, sizes) for sizes in ((120, 50, 130), (300,)))
        one, other = (learnt(method, held)[0].model.arrays for held in (spread, pooled))
        assert all(np.allclose(one[name], other[name], atol=1e-12) for name in one)

    def test_without_pull_fedprox_is_fedavg(self, digits):
        held, settings = split(digits, (100, 100, 100)), {"rounds": 2, "architecture": SMALL}
        one, other = (
            learnt(m, held)[0].outcome.digest
            for m in (FedAvg(**settings), FedProx(local=ProximalTraining(mu=0.0), **settings))
        )
        assert one == other

    def test_the_stronger_the_pull_the_nearer_clients_stay(self):
        network, (X, y) = MLP((4, 5, 3)), rows()
        start = network.initial(np.random.default_rng(0))
        moved = []
        for mu in (0.0, 1.0, 100.0):
            local = ProximalTraining(mu=mu, rate=0.005, epochs=50, batch=0)
            pull = local.pull_towards(start)
            reached = local.train(network, start, X, y, np.random.default_rng(0), correct=pull)
            moved.append(np.linalg.norm(reached - start))
        assert moved[0] > moved[1] > 5 * moved[2] > 0

    def test_equal_weighting_is_the_mean_of_the_clients(self, digits):
        held = split(digits, (20, 200))
        method = FedAvg(
            rounds=1,
            architecture=SMALL,
            weighting=EQUAL,
            local=LocalTraining(batch=0),
        )
        both = learnt(method, held, min_clients=1)[0].model.arrays
        single = [learnt(method, held.part(np.array([i])), min_clients=1)[0].model.arrays for i in (0, 1)]
        for name in both:
            assert np.allclose(both[name], (single[0][name] + single[1][name]) / 2, atol=1e-12)

    def test_a_fraction_of_the_clients_takes_part(self, digits):
        held = split(digits, (30,) * 10)
        _, seen = learnt(FedAvg(rounds=4, architecture=SMALL, fraction=0.3), held)
        asked = [
            e.contributors for e in seen if getattr(e, "contribution", "") == "update" and hasattr(e, "at")
        ]
        assert asked == [3, 3, 3, 3]

    def test_no_cohort_is_too_small_to_open(self, digits):
        held = split(digits, (30,) * 10)
        _, seen = learnt(FedAvg(rounds=1, architecture=SMALL, fraction=0.1), held, protect="masked")
        assert [
            e.contributors for e in seen if getattr(e, "contribution", "") == "update" and hasattr(e, "at")
        ] == [3]


class TestHomogeneity:
    COUNTS = np.full((8, 6), 10.0)

    def weights(self, method, counts):
        """Normalised W_i of clients with these class counts."""
        shares = counts.sum(axis=0) / counts.sum()
        shared = Shared(replace(SCHEMA, classes=tuple(range(6))), {"class_shares": shares})
        labels = [np.repeat(np.arange(6), row.astype(int)) for row in counts]
        raw = np.array([method.weighting.weigh(own, shared) for own in labels])
        return raw / raw.sum()

    def papers(self, counts, inverse=False, by_size=True):
        """W_i by the paper's own formulas, one after the other."""
        sizes, shares = counts.sum(axis=1), counts.sum(axis=0) / counts.sum()
        p = counts / sizes[:, None]
        tilde = (p**2 @ shares) / (p**2 @ shares).sum()
        w = (1 / tilde) / (1 / tilde).sum()
        W = (sizes / sizes.sum()) * w if by_size else w
        W = W / W.sum()
        return (1 / W) / (1 / W).sum() if inverse else W

    @pytest.mark.parametrize("by_size", [True, False])
    @pytest.mark.parametrize(("kind", "inverse"), [(HWFedAvg, False), (NWFedAvg, True)])
    def test_weights_are_the_papers(self, kind, inverse, by_size):
        counts = np.random.default_rng(0).integers(1, 50, size=(8, 6)).astype(float)
        found = self.weights(kind.from_config({"by_size": by_size}), counts)
        assert np.allclose(found, self.papers(counts, inverse, by_size), atol=1e-12)

    def test_six_skewed_and_two_balanced_clients(self):
        counts = np.full((8, 6), 10.0)
        counts[6:] = 100 / 6  # floats will do for the formulas
        for i in range(6):
            counts[i] = 10.0
            counts[i, i] = 50.0
        high, low = self.papers(counts), self.papers(counts, inverse=True)
        assert np.allclose(high, [0.1042] * 6 + [0.1875] * 2, atol=1e-3)
        assert np.allclose(low, [0.1406] * 6 + [0.0781] * 2, atol=1e-3)

    def test_nobody_is_told_a_weight_unless_asked_for(self, digits):
        heard = {}
        for exposed in (False, True):
            method = HWFedAvg(
                rounds=1,
                architecture=SMALL,
                weighting=HomogeneityWeighting(expose_weights=exposed),
            )
            names = [field.name for field in method.update_layout(SCHEMA).clear]
            heard[exposed] = names
            training, seen = learnt(method, split(digits, (100, 100, 100)), protect="masked")
            plain = [e for e in seen if getattr(e, "kind", "") == "plain" and e.contribution == "update"]
            assert bool(plain) is exposed
            assert not training.failures
        assert heard == {False: [], True: ["weight"]}

    def test_exposed_or_not_the_model_is_the_same(self, digits):
        held = split(digits, (150, 100, 50))
        one, other = (
            learnt(
                HWFedAvg(
                    rounds=2,
                    architecture=SMALL,
                    weighting=HomogeneityWeighting(expose_weights=way),
                ),
                held,
            )[0].model.arrays
            for way in (True, False)
        )
        assert all(np.allclose(one[name], other[name], atol=1e-12) for name in one)

    def skewed(self, digits):
        """Two even clients, and one that holds a single digit."""
        order = np.argsort(digits.target == 3, kind="stable")
        threes = int((digits.target == 3).sum())
        sizes = ((300 - threes) // 2, 300 - threes - (300 - threes) // 2, threes)
        return split(digits.take(order), sizes)

    def test_excluded_clients_change_nothing(self, digits):
        held = self.skewed(digits)
        method = HWFedAvg(
            rounds=2,
            architecture=SMALL,
            weighting=HomogeneityWeighting(heterogeneous="exclude"),
        )
        arrays = learnt(method, held)[0].model.arrays
        # With the same shares of classes, the two even clients alone give the same model.
        other = HWFedAvg(rounds=2, architecture=SMALL)
        everybody = learnt(other, held)[0].model.arrays
        assert any(np.abs(arrays[n] - everybody[n]).max() > 1e-3 for n in arrays)
        shares = np.bincount(held.table.target) / held.table.rows
        own = np.bincount(held.rows(2).target, minlength=10).astype(float)
        assert concentration(own, shares) > 1.5 * shares @ shares**2

    def test_subsampling_keeps_at_most_a_fair_share_of_each_class(self, digits):
        held = self.skewed(digits)
        method = HWFedAvg(weighting=HomogeneityWeighting(heterogeneous="subsample"))
        shares = np.full(10, 0.1)
        schema = replace(SCHEMA, classes=tuple(range(10)))

        class Someone:
            def rng(self, *label):
                return np.random.default_rng(len(label))

        labels = held.rows(2).target
        shared = Shared(schema, {"class_shares": shares, "round": 0})
        kept = method.weighting.choose_rows(Someone(), shared, labels)
        assert len(kept) == int(np.ceil(0.1 * len(labels)))
        training, _ = learnt(replace(method, rounds=2, architecture=SMALL), held)
        assert not training.failures

    def test_everybody_excluded_leaves_the_weights(self, digits):
        order = np.argsort(digits.target, kind="stable")
        held = split(digits.take(order), (30,) * 10)
        method = HWFedAvg(
            rounds=2,
            architecture=SMALL,
            weighting=HomogeneityWeighting(heterogeneous="exclude", threshold=1.0),
        )
        first = learnt(replace(method, rounds=1), held)[0].model.arrays
        assert all(np.array_equal(first[n], a) for n, a in learnt(method, held)[0].model.arrays.items())


class TestLayers:
    @pytest.mark.parametrize(
        ("choice", "clear"),
        [
            ("all", set()),
            (1, {"layer1", "layer2"}),
            ("2", {"layer1"}),
            ("first-and-last", {"layer2"}),
            ("layer2", {"layer1", "layer3"}),
            (r"layer[12], layer3\.bias", {"layer3"}),
        ],
    )
    def test_the_rest_travels_in_the_clear(self, choice, clear):
        choice = int(choice) if choice == "2" else choice
        layout = FedAvg(
            architecture=Architecture(hidden=(4, 3)), change=Change(protect_layers=choice)
        ).update_layout(SCHEMA)
        assert {f.name.split("/")[1].split(".")[0] for f in layout.clear} == clear
        assert {f.name for f in layout.fields} | {f.name for f in layout.clear} == {
            f"delta/layer{i}.{kind}" for i in (1, 2, 3) for kind in ("weight", "bias")
        } | {"weight"}

    @pytest.mark.parametrize("choice", [0, 4, "layer9", "(", ""])
    def test_a_choice_that_fits_nothing_is_refused_before_anything_is_summed(self, digits, choice):
        method = FedAvg(architecture=Architecture(hidden=(4, 3)), change=Change(protect_layers=choice))
        with pytest.raises(ConfigError, match=r"layers|layer|expression"):
            learnt(method, split(digits, (100, 100, 100)))

    def test_the_model_does_not_depend_on_it_and_the_exposure_does(self, digits):
        held = split(digits, (100, 100, 100))
        settings = {"rounds": 2, "architecture": SMALL}
        (one, _), (other, seen) = (
            learnt(FedAvg(change=Change(protect_layers=k), **settings), held, protect="masked")
            for k in ("all", 1)
        )
        for name, array in one.model.arrays.items():
            assert np.allclose(array, other.model.arrays[name], atol=1e-7)
        plain = {e.what for e in seen if getattr(e, "kind", "") == "plain" and e.contribution == "update"}
        assert any("layer1.weight" in what for what in plain)
        assert not any("layer2.weight" in what for what in plain)


class TestClientsGoneWrong:
    """A client refuses itself and is reported; the round goes on without it."""

    def spoilt(self, digits, how):
        table = Table.of(digits.values.copy(), digits.target)
        table.values[:50] = how(table.values[:50])
        return split(table, (50, 80, 80, 90))

    def test_an_update_that_is_no_number(self, digits):
        held = self.spoilt(digits, lambda rows: rows * 1e200)
        training, _ = learnt(FedAvg(rounds=2, architecture=SMALL), held, quorum=0.7)
        assert "ran away" in training.failures["c1"]
        assert training.failures.keys() == {"c1"}
        assert all(np.isfinite(array).all() for array in training.model.arrays.values())

    def test_an_update_of_absurd_size(self, digits):
        held = self.spoilt(digits, lambda rows: rows * 1e7)
        training, _ = learnt(FedAvg(rounds=1, architecture=SMALL), held, quorum=0.7)
        assert "more than 1000" in training.failures["c1"]

    def test_beyond_the_limit_it_is_scaled_down_and_said_so(self, digits):
        held = split(digits, (100, 100, 100))
        training, seen = learnt(FedAvg(rounds=1, architecture=SMALL, change=Change(limit=0.01)), held)
        assert not training.failures
        notes = [e for e in seen if isinstance(e, Noted) and "scaled down" in e.text]
        assert {note.about for note in notes} == {"c1", "c2", "c3"}
        free, _ = learnt(FedAvg(rounds=1, architecture=SMALL), held)
        start, _ = learnt(FedAvg(rounds=1, architecture=SMALL, local=LocalTraining(rate=1e-12)), held)
        moved = max(np.abs(a - start.model.arrays[n]).max() for n, a in training.model.arrays.items())
        assert 0.003 < moved <= 0.01 + 1e-9
        assert max(np.abs(a - start.model.arrays[n]).max() for n, a in free.model.arrays.items()) > 0.01

    def test_too_many_of_them_stop_the_run(self, digits):
        held = self.spoilt(digits, lambda rows: rows * 1e200)
        with pytest.raises(QuorumError, match="c1: DataError: local training ran away"):
            learnt(FedAvg(rounds=1, architecture=SMALL), held, quorum=0.9)

    @pytest.mark.parametrize(
        ("forged", "reason"),
        [
            (lambda a: a * np.nan, "NaN"),
            (lambda a: a[:-1], "shape"),
            (lambda a: a + 50.0, "exceeds its bound of 1"),
        ],
        ids=["nan", "shape", "norm"],
    )
    def test_where_updates_are_visible_the_coordinator_checks_them_too(
        self, coordinator_of, digits, forged, reason
    ):
        method = FedAvg(rounds=1, architecture=SMALL, change=Change(protect_layers=1))
        held = split(digits, (100, 100, 100))
        coordinator = coordinator_of(method, Plain(), data=held, preparation=UNSCALED, quorum=0.6)

        def rewrite(step, party, message):
            if step == "client.contribute" and party == "c2" and "clear/delta/layer1.weight" in message:
                return message | {"clear/delta/layer1.weight": forged(message["clear/delta/layer1.weight"])}
            return None

        coordinator.enrol()
        coordinator.link.transport.engine.rewrite = rewrite
        method.train(coordinator)
        assert reason in coordinator.failures["c2"]
        assert coordinator.failures.keys() == {"c2"}

    def test_who_misses_the_deadline_is_left_out_of_the_round(self, digits, monkeypatch):
        def slow(self, party, shared, labels):
            time.sleep(60.0 if party.id == "c2" and "scale" in shared else 0.0)
            return slice(None)

        monkeypatch.setattr(Weighting, "choose_rows", slow)
        federation = Federation(split(digits, (100, 100, 100)), timeout=3.0, quorum=0.6)
        training = federation.train(
            FedAvg(rounds=1, architecture=SMALL), preparation=UNSCALED, protect="plain"
        )
        assert "StepTimeoutError" in training.failures["c2"]
        assert training.outcome.shared["round"] == 1


class TestWatch:
    @pytest.fixture
    def held(self, digits):
        held = split(digits, (100, 100, 100))
        held.holdout_sizes = np.array([30, 30, 30])
        return held

    @pytest.mark.parametrize("place", ["coordinator", "clients"])
    def test_training_stops_when_nothing_gets_better(self, held, place):
        method = FedAvg(
            rounds=30,
            architecture=SMALL,
            local=LocalTraining(rate=1e-300),
            stopping=Stopping(patience=2),
        )
        training, seen = learnt(method, held, protect=Plain(opens=place))
        judged = [e for e in seen if isinstance(e, Evaluated) and e.model.startswith("round")]
        assert len(judged) == 3
        assert any("training ends" in e.text for e in seen if isinstance(e, Noted))
        assert training.holdout is not None

    @pytest.mark.parametrize("place", ["coordinator", "clients"])
    @pytest.mark.parametrize("kind", [FedAvg, FedAdam])
    def test_a_round_that_ruins_the_model_is_taken_back(self, held, place, kind, monkeypatch):
        good = kind(
            rounds=6,
            local=LocalTraining(epochs=8, rate=0.3),
            architecture=Architecture(hidden=8),
            stopping=Stopping(collapse=0.2),
        )
        fine = learnt(good, held)[0].model.arrays
        server = type(good.server)
        move = server.move

        def ruined(self, mean, shared, network):
            result = move(self, mean, shared, network)
            if shared["round"] == 5:
                return {n: np.zeros_like(a) if n.startswith(PREFIX) else a for n, a in result.items()}
            return result

        monkeypatch.setattr(server, "move", ruined)
        training, seen = learnt(good, held, protect=Plain(opens=place))
        assert [e.text[:21] for e in seen if isinstance(e, Noted)].count("round 6 is taken back") == 1
        shorter = learnt(replace(good, rounds=5), held)[0].model.arrays
        assert all(np.array_equal(a, shorter[n]) for n, a in training.model.arrays.items())
        assert any(not np.array_equal(a, fine[n]) for n, a in training.model.arrays.items())

    def test_a_resumed_run_remembers_what_was_best(self, held):
        method = FedAvg(
            rounds=6,
            architecture=SMALL,
            local=LocalTraining(rate=1e-300),
            stopping=Stopping(patience=4),
        )
        kept = []
        whole, _ = learnt(method, held, keep=kept.append)
        resumed, seen = learnt(method, held, resume=kept[1])
        assert resumed.outcome.shared["round"] == whole.outcome.shared["round"] == 5
        assert any("training ends with 5" in e.text for e in seen if isinstance(e, Noted))

    def test_without_hold_outs_it_says_what_is_missing(self, digits):
        with pytest.raises(ConfigError, match="set holdout"):
            learnt(
                FedAvg(rounds=2, architecture=SMALL, stopping=Stopping(patience=1)),
                split(digits, (100, 100, 100)),
            )


class TestPrivacyOfExamples:
    METHOD = FedAvg(
        rounds=8,
        architecture=SMALL,
        privacy=ExamplePrivacy(noise=1.2, sampling=0.2, epsilon=6.0),
    )

    def test_training_stops_at_its_budget(self, digits):
        training, seen = learnt(self.METHOD, split(digits, (100, 100, 100)))
        allowed = self.METHOD.privacy.count_affordable_rounds(self.METHOD.rounds, self.METHOD.local.epochs)
        assert 1 < allowed < 8
        spent = [e for e in seen if isinstance(e, BudgetSpent)]
        assert len(spent) == allowed
        assert spent[-1].left == 0
        assert training.outcome.shared["round"] == allowed
        epsilons = [e.epsilon for e in spent]
        assert epsilons == sorted(epsilons)
        assert epsilons[-1] <= 6.0 < self.METHOD.privacy.compute_epsilon(allowed + 1, epochs=1)

    def test_a_client_counts_for_itself(self, coordinator_of, digits):
        method = replace(self.METHOD, weighting=EQUAL)
        coordinator = coordinator_of(method, data=split(digits, (100, 100, 100)), preparation=UNSCALED)
        coordinator.enrol()
        for _ in range(method.privacy.count_affordable_rounds(method.rounds, method.local.epochs)):
            coordinator.round(method.update, method.step)
        coordinator.shared = coordinator.shared | {"round": 0}  # a coordinator that lies about how far it is
        with pytest.raises(QuorumError, match="budget of 6 for each row is spent"):
            coordinator.round(method.update, method.step)

    def test_a_budget_below_one_round_is_refused_beforehand(self, digits):
        with pytest.raises(ConfigError, match="one round costs epsilon"):
            learnt(
                replace(self.METHOD, privacy=replace(self.METHOD.privacy, epsilon=0.01)),
                split(digits, (100, 100, 100)),
            )

    def test_the_noise_has_the_size_that_is_accounted_for(self):
        network = MLP((4, 3), initialisation="zeros")
        X, y = np.zeros((10, 4)), np.zeros(10, dtype=np.int64)
        privacy = ExamplePrivacy(sampling=0.5, clip=2.0, noise=3.0)
        local = LocalTraining(rate=1.0)
        steps = [
            local.train(network, np.zeros(15), X, y, np.random.default_rng(i), privacy)[:12]
            for i in range(400)
        ]
        # Weights of zero inputs have no gradient: two steps of noise move them, each over 0.5 · 10 rows.
        assert np.std(steps) == pytest.approx(np.sqrt(2) * 3.0 * 2.0 / 5.0, rel=0.05)

    @pytest.mark.parametrize("kind", [HWFedAvg, NWFedAvg])
    def test_weights_that_follow_from_labels_are_refused(self, kind):
        with pytest.raises(ConfigError, match="would not cover"):
            kind(privacy=ExamplePrivacy(noise=1.0))

    def test_more_noise_costs_less(self):
        noisier = replace(self.METHOD.privacy, noise=2.0)
        assert noisier.compute_epsilon(5, epochs=1) < self.METHOD.privacy.compute_epsilon(5, epochs=1)


class TestPrivacyOfClients:
    def test_noise_around_sums_spends_its_budget_round_by_round(self, digits):
        from tacit.protections.noised import Noised

        held = split(digits, (30,) * 10)
        method = FedAvg(rounds=3, architecture=SMALL, weighting=EQUAL)
        training, seen = learnt(method, held, protect=Noised(epsilon=8.0, clip=0.5))
        spent = [e.epsilon for e in seen if isinstance(e, BudgetSpent)]
        assert len(spent) == 3
        assert spent == sorted(spent)
        assert spent[-1] <= 8.0
        assert not training.failures

    def test_with_many_clients_it_still_learns(self, digits):
        from tacit.protections.noised import Noised

        table = digits.take(np.tile(np.arange(300), 10))
        held = split(table, (3,) * 1000)
        method = FedAvg(
            rounds=6,
            architecture=Architecture(hidden=()),
            local=LocalTraining(epochs=5, rate=0.5, batch=0),
            weighting=EQUAL,
        )
        training, _ = learnt(method, held, protect=Noised(epsilon=8.0, clip=1.0))
        assert training.model.score(digits.values, digits.target) > 0.6

    def test_weights_do_not_bear_noise(self, digits):
        with pytest.raises(ConfigError, match="weighting = 'equal'"):
            learnt(FedAvg(), split(digits, (100, 100, 100)), protect="noised")


class TestGoingOn:
    @pytest.mark.parametrize(
        "protect", ["plain", "masked", "ring", "committee", "shares", "ckks", CLIENTS_OPEN, CLIENTS_HOLD]
    )
    @pytest.mark.parametrize("kind", representatives([FedAvg, FedYogi, HWFedAvg], FedYogi))
    def test_a_resumed_run_ends_with_the_same_bits(self, digits, protect, kind, keys_once):
        held = split(digits, (120, 100, 80))
        method = kind(rounds=4, architecture=SMALL, fraction=1.0)
        with keys_once():
            kept = []
            whole, _ = learnt(method, held, protect=protect, keep=kept.append)
            assert [point.progress["round"] for point in kept] == [1, 2, 3, 4]
            resumed, _ = learnt(method, held, protect=protect, resume=kept[1])
        if protect == "ckks":
            theirs = resumed.model.arrays
            assert all(np.allclose(a, theirs[n], atol=1e-6) for n, a in whole.model.arrays.items())
        else:
            assert resumed.outcome.digest == whole.outcome.digest

    @pytest.mark.parametrize("place", ["coordinator", "clients"])
    def test_it_may_be_stopped_again_and_again(self, digits, place):
        held = split(digits, (80, 70, 60, 50, 40))
        method = FedAvg(rounds=5, architecture=SMALL, fraction=0.6)  # not everybody has opened every total
        protect, kept = Plain(opens=place), []
        whole, _ = learnt(method, held, protect=protect, keep=kept.append)
        for attempt in range(1, 5):
            point = kept[0]
            kept.clear()
            resumed, _ = learnt(method, held, protect=protect, keep=kept.append, resume=point)
            assert resumed.manifest.attempt == attempt
            assert resumed.outcome.digest == whole.outcome.digest

    @pytest.mark.parametrize("place", ["coordinator", "clients"])
    def test_a_round_that_was_taken_back_stays_taken_back(self, digits, place):
        held = split(digits, (100, 100, 100), aside=20)
        method = FedAvg(
            rounds=6,
            architecture=SMALL,
            local=LocalTraining(epochs=4, rate=0.9),
            change=Change(limit=5.0),
            stopping=Stopping(collapse=1e-9),
        )
        kept = []
        whole, seen = learnt(method, held, protect=Plain(opens=place), keep=kept.append)
        assert any("is taken back" in event.text for event in seen if isinstance(event, Noted))
        for point in kept:
            resumed, _ = learnt(method, held, protect=Plain(opens=place), resume=point)
            assert resumed.outcome.digest == whole.outcome.digest

    def test_what_ended_early_does_not_begin_again(self, digits):
        held = split(digits, (100, 100, 100), aside=20)
        method = FedAvg(
            rounds=6,
            architecture=SMALL,
            local=LocalTraining(rate=1e-300),
            stopping=Stopping(patience=2),
        )
        kept = []
        whole, _ = learnt(method, held, keep=kept.append)
        assert kept[-1].progress["over"]
        resumed, _ = learnt(method, held, resume=kept[-1])
        assert resumed.outcome.shared["round"] == whole.outcome.shared["round"] < 6

    def test_reading_the_model_is_no_traffic(self, digits):
        held = split(digits, (100, 100, 100))
        protect = Plain(opens="clients")
        kept = []
        read, _ = learnt(FedAvg(rounds=4, architecture=SMALL), held, protect=protect, keep=kept.append)
        unread, _ = learnt(FedAvg(rounds=4, architecture=SMALL), held, protect=protect)
        ours, theirs = (t.ledger.summary() for t in (read, unread))
        assert len(kept) == 4
        for name in ("messages", "bytes_down"):
            assert ours[name] == theirs[name]
        assert ours["bytes_up"] == pytest.approx(theirs["bytes_up"], abs=200)  # CPU seconds vary in length

    def test_clients_that_join_later_go_on_from_what_was_learnt(self, digits):
        first = split(digits.take(np.arange(150)), (50, 50, 50))
        method = FedAvg(rounds=5, local=LocalTraining(epochs=5), architecture=Architecture(hidden=8))
        early, _ = learnt(method, first)
        later = split(digits.take(np.arange(150, 300)), (50, 50, 50))
        joined, _ = learnt(method, later, start=early)
        assert joined.outcome.shared["round"] == 10
        assert joined.model.scores(digits)["accuracy"] > early.model.scores(digits)["accuracy"]

    def test_what_was_open_at_the_coordinator_alone_does_not_go_on_there(self, digits):
        held, kept = split(digits, (100, 100, 100)), []
        method = FedAvg(rounds=2, architecture=SMALL)
        learnt(method, held, keep=kept.append)
        with pytest.raises(ConfigError, match="opened its totals at the clients"):
            learnt(method, held, resume=replace(kept[0], shared=None))

    def test_every_round_that_ends_is_told_once(self, digits):
        _, seen = learnt(FedAvg(rounds=3, architecture=SMALL), split(digits, (100, 100, 100)))
        assert [event.round for event in seen if isinstance(event, RoundEnded)] == [1, 2, 3]

    def test_other_columns_do_not_go_on(self, digits):
        kept = []
        method = FedAvg(rounds=2, architecture=SMALL)
        learnt(method, split(digits, (100, 100, 100)), keep=kept.append)
        narrow = Table.of(digits.values[:, :50], digits.target)
        with pytest.raises(DataError, match="bring the same columns"):
            learnt(method, split(narrow, (100, 100, 100)), resume=kept[0])

    def test_a_noised_run_goes_on_within_its_budget(self, digits):
        from tacit.protections.noised import Noised

        held = split(digits, (30,) * 10)
        method = FedAvg(rounds=6, architecture=SMALL, weighting=EQUAL)
        kept = []
        learnt(method, held, protect=Noised(epsilon=8.0, clip=0.5), keep=kept.append)
        assert [point.sums for point in kept] == [1, 2, 3, 4, 5, 6]
        resumed, seen = learnt(method, held, protect=Noised(epsilon=8.0, clip=0.5), resume=kept[1])
        # Of the round that was under way a total may have been opened: it counts, so the last one is missing.
        assert resumed.outcome.shared["round"] == 5
        spent = [event for event in seen if isinstance(event, BudgetSpent)]
        assert [event.left for event in spent] == [2, 1, 0]
        assert spent[-1].epsilon <= 8.0
        assert any("training ends here" in event.text for event in seen if isinstance(event, Noted))

    def test_rows_are_as_private_in_a_run_that_was_stopped(self, digits):
        held, method = split(digits, (100, 100, 100)), TestPrivacyOfExamples.METHOD
        kept, allowed = [], method.privacy.count_affordable_rounds(method.rounds, method.local.epochs)
        learnt(method, held, keep=kept.append)
        resumed, seen = learnt(method, held, resume=kept[0])
        spent = [event.epsilon for event in seen if isinstance(event, BudgetSpent)]
        assert resumed.outcome.shared["round"] == allowed - 1  # one round was computed twice
        assert spent[0] == method.privacy.compute_epsilon(3, epochs=1)
        assert spent[-1] == method.privacy.compute_epsilon(allowed, epochs=1) <= method.privacy.epsilon


class TestSettings:
    @pytest.mark.parametrize(
        "settings",
        [
            {"rounds": 0},
            {"epochs": 0},
            {"batch": -1},
            {"fraction": 0.0},
            {"rate": -0.1},
            {"rate": float("nan")},
            {"momentum": 1.0},
            {"limit": 0.0},
            {"hidden": "a,b"},
            {"activation": "softsign"},
            {"initialisation": "ones"},
            {"optimiser": "lbfgs"},
            {"weighting": "size"},
            {"patience": -1},
            {"collapse": 1.0},
            {"example_noise": -1.0},
            {"example_delta": 1.0},
            {"network": 7},
        ],
        ids=lambda settings: next(iter(settings)),
    )
    def test_what_cannot_work_is_refused(self, settings):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            FedAvg.from_config(settings)

    def test_sizes_may_be_written_in_every_way(self):
        ways = [Architecture(hidden=hidden).build(SCHEMA).sizes for hidden in ("5,4", (5, 4), [5, 4])]
        assert ways == [(4, 5, 4, 3)] * 3

    def test_weights_of_absurd_number_are_refused(self, digits):
        with pytest.raises(ConfigError, match="over 100,000,000"):
            learnt(FedAvg(architecture=Architecture(hidden=100_000_000)), split(digits, (100, 100, 100)))

    def test_zeros_random_and_he(self):
        zeros, random, he = (
            Architecture(initialisation=way, hidden=200).build(SCHEMA).initial(np.random.default_rng(0))
            for way in ("zeros", "random", "he")
        )
        assert not zeros.any()
        assert np.std(random[:800]) == pytest.approx(0.1, rel=0.1)
        assert np.std(he[:800]) == pytest.approx(np.sqrt(2 / 4), rel=0.1)
