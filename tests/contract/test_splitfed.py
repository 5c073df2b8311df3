"""SplitFed against FedAvg, its roles, its noise, and what it refuses."""

import numpy as np
import pytest

from tacit.core.errors import ConfigError, QuorumError
from tacit.core.events import BudgetSpent, Events, Received, Replied
from tacit.data.files import load
from tacit.data.partition import split
from tacit.data.preparation import Preparation
from tacit.data.table import Table
from tacit.engines.holdings import holdings_of
from tacit.federation import Federation
from tacit.methods.fedavg import FedAvg
from tacit.methods.splitfed import MAIN_SERVER, SplitFed
from tacit.models.network import cut_network
from tacit.models.neural import network_of
from tacit.protections import PROTECTIONS
from tacit.protections.plain import Plain

SETTINGS = {"hidden": "8,6", "rounds": 2, "batch": 20, "rate": 0.05, "optimiser": "adam", "epochs": 2}


@pytest.fixture(scope="module")
def held():
    """Three clients of different sizes, whose rows tell their class."""
    rng = np.random.default_rng(0)
    target = rng.integers(0, 3, 90)
    values = rng.normal(size=(90, 4)) + 2 * np.eye(3, 4)[target]
    table = Table.of(values, np.array(["a", "b", "c"])[target])
    return holdings_of(table, np.repeat([0, 1, 2], [20, 30, 40]), holdout=0.0, seed=0)


def train(held, protect=None, events=None, kind=SplitFed, quorum=0.8, **settings):
    method = kind.from_config({**SETTINGS, **settings})
    return Federation(held, seed=1, quorum=quorum).train(method, protect=protect or Plain(), events=events)


def difference(one, other):
    return max(np.abs(array - other.arrays[name]).max() for name, array in one.arrays.items())


@pytest.mark.parametrize("settings", [{"cut": "layer3"}, {"cut": "layer2"}, {}, {"tail": "layer3"}])
def test_v1_is_fedavg_wherever_the_network_is_cut(held, settings):
    split, whole = train(held, **settings).model, train(held, kind=FedAvg).model
    assert difference(split, whole) < 1e-6


def test_v1_is_fedavg_for_rows_that_count_by_class_and_under_masks(held):
    settings = {"class_weight": "balanced", "weighting": "equal"}
    split = train(held, PROTECTIONS.build("masked"), **settings).model
    assert difference(split, train(held, kind=FedAvg, **settings).model) < 1e-6


@pytest.mark.parametrize("tail", ["", "layer3"])
def test_v2_moves_one_part_for_all_clients(held, tail):
    trained = train(held, variant="v2", tail=tail, rounds=4)
    assert difference(trained.model, train(held, kind=FedAvg, rounds=4).model) > 1e-3
    assert trained.model.score(held.table.values, np.array(["a", "b", "c"])[held.table.target]) > 0.8


def test_the_coordinator_relays_sealed_letters_and_reads_none(held):
    told = []
    train(held, events=Events(lambda _, event: told.append(event)))
    seen = [event for event in told if isinstance(event, Received) and event.step == "method.advance"]
    letters = [event for event in seen if event.receiver == "coordinator" and event.what == "letter"]
    assert letters and {event.kind for event in letters} == {"sealed"}
    plain = {event.what for event in seen if event.receiver == "coordinator" and event.kind == "plain"}
    assert plain == {"batches"}
    served = [event for event in told if isinstance(event, Replied) and event.party == MAIN_SERVER]
    assert served and all(event.service for event in served)


def test_the_exposure_report_tells_that_the_main_server_reads_letters_and_no_totals(held):
    rows = [row for row in train(held).exposure.summary() if row["who"] == MAIN_SERVER]
    assert [row["openable"] for row in rows if row["class"] == "sealed"] == [True]
    assert {row["class"] for row in rows} == {"sealed", "public"}


def test_all_clients_have_one_wave_for_a_batch(held):
    told = []
    train(held, rounds=1, epochs=1, events=Events(lambda _, event: told.append(event)))
    waves = {}
    for event in told:
        if isinstance(event, Replied) and not event.service:
            waves.setdefault(event.wave, set()).add(event.party)
    # 20, 30 and 40 rows in batches of 20: one, two and two, and a last wave that closes the round.
    batches = list(waves.values())[-5:-2]
    assert [len(names) for names in batches] == [3, 3, 3]


def test_smashed_data_with_noise_are_accounted_for(held):
    told = []
    settings = {"smashed_noise": 20.0, "smashed_clip": 5.0, "epochs": 1}
    trained = train(held, events=Events(lambda _, event: told.append(event)), **settings)
    spent = [event.epsilon for event in told if isinstance(event, BudgetSpent)]
    assert len(spent) == 2 and 0 < spent[0] < spent[1] < 8
    assert difference(trained.model, train(held, epochs=1).model) > 1e-3
    tailed = SplitFed.from_config({**SETTINGS, **settings, "tail": "layer3"})
    assert tailed.budget.noise == pytest.approx(20 / 2 / 2**0.5)
    assert tailed.own_epsilon == np.inf


def test_a_budget_that_allows_no_round_is_refused(held):
    with pytest.raises(ConfigError, match="one round costs epsilon"):
        train(held, smashed_noise=0.5)


def test_a_client_that_is_lost_in_a_batch_goes_on_with_the_next(held, monkeypatch):
    whole, calls = SplitFed.advance, []

    def failing(self, party, message, shared):
        calls.append(party.id)
        if party.id == "client-2" and message["batch"] == 1:
            raise RuntimeError("lost")
        return whole(self, party, message, shared)

    failing.__dict__.update(whole.__dict__)
    failing.__name__ = "advance"
    monkeypatch.setattr(SplitFed, "advance", failing)
    trained = train(held, quorum=0.6)
    assert trained.failures.keys() == {"client-2"}
    assert set(trained.outcome.holders) == {"client-1", "client-2", "client-3"}
    monkeypatch.undo()
    assert 0 < difference(trained.model, train(held).model) < 1


def test_too_few_clients_in_a_batch_stop_the_run(held, monkeypatch):
    def failing(self, party, message, shared):
        raise RuntimeError("lost")

    failing.__dict__.update(SplitFed.advance.__dict__)
    monkeypatch.setattr(SplitFed, "advance", failing)
    with pytest.raises(QuorumError, match="advance: 0 of 3 clients"):
        train(held)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"cut": "layer4"}, "no layer is called 'layer4'"),
        ({"tail": "head"}, "no layer is called 'head'"),
        ({"cut": "layer2", "tail": "layer3"}, "tail = 'layer3' leaves nothing after 'layer2'"),
        ({"smashed_noise": -1.0}, "smashed_noise"),
        ({"smashed_clip": 0.0}, "smashed_clip"),
        ({"example_noise": 1.0}, "set smashed_noise for smashed data"),
    ],
)
def test_bad_settings_are_refused(held, settings, text):
    with pytest.raises(ConfigError, match=text):
        train(held, **settings)


def test_noise_on_sums_serves_v1_only(held):
    with pytest.raises(ConfigError, match="in v2 a client moves what others contribute"):
        train(held, PROTECTIONS.build("noised"), variant="v2", weighting="equal")
    assert SplitFed.from_config({"weighting": "equal"}).incompatibility(PROTECTIONS.build("noised")) is None


def test_noise_on_updates_is_accounted_for_beside_that_on_smashed_data(held):
    noised = PROTECTIONS.build("noised", {"epsilon": 4.0})
    settings = {"weighting": "equal", "epochs": 1, "smashed_noise": 20.0, "smashed_clip": 5.0}
    found = train(held, noised, **settings).ledger.summary()["privacy"]
    assert (found["unit"], found["budget"], found["sums_left"]) == ("client", 4.0, 0)
    assert found["epsilon"] == pytest.approx(4.0, abs=0.01)
    alone = train(held, **settings).ledger.summary()["privacy"]
    assert found["rows"] == alone and (alone["unit"], alone["budget"]) == ("row", 8.0)
    assert 0.5 < alone["epsilon"] < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["v1", "v2"])
def test_both_come_near_to_central_training_after_the_same_epochs(variant):
    training, test = split(load("fashion_mnist"), "split", 0)
    settings = {
        "hidden": "64,32",
        "rounds": 8,
        "batch": 32,
        "optimiser": "adam",
        "rate": 0.002,
        "limit": 10.0,
    }
    found = []
    for clients, method in (
        (1, FedAvg.from_config(settings)),
        (5, SplitFed.from_config({**settings, "variant": variant})),
    ):
        drawn = np.random.default_rng(0).choice(training.rows, 10_000, replace=False)
        rows = training.take(np.sort(drawn))
        table = Table.of(rows.values / 255, np.array(rows.classes)[rows.target])
        federation = Federation.embedded(table, test=None, clients=clients, partition="iid", seed=0)
        model = federation.train(method, protect="plain", preparation=Preparation(scale="none")).model
        found.append(model.score(test.values / 255, np.array(test.classes)[test.target]))
    assert found[1] > found[0] - 0.02


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch")

    def test_a_cut_network_is_fedavg_as_well(self):
        rng = np.random.default_rng(0)
        target = np.arange(24) % 2
        values = rng.normal(size=(24, 16)) + target[:, None]
        held = holdings_of(Table.of(values, target.astype(str)), np.arange(24) % 3, holdout=0.0, seed=0)
        given = {"network": "cnn", "rounds": 1, "rate": 0.05, "batch": 4, "optimiser": "sgd"}
        whole = train(held, kind=FedAvg, **given).model
        for more in ({"cut": "2"}, {"cut": "7"}, {"cut": "4", "tail": "7"}):
            if more.get("tail"):
                with pytest.raises(ConfigError, match="nothing is trained in 5, 6"):
                    train(held, **given, **more)
                continue
            assert difference(train(held, **given, **more).model, whole) < 1e-6

    def test_a_module_that_is_no_sequence_is_refused(self, torch):
        class Odd(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.one = torch.nn.Linear(2, 2)

        with pytest.raises(ConfigError, match=r"Odd cannot be cut: make it a torch\.nn\.Sequential"):
            cut_network(network_of(lambda features, outputs: Odd(), 2, 2), "one", "")
