"""One client of SplitFed V2 sends what would ruin the part of the network that serves all clients.

What the main server reads of that client is replaced, as if the client had sent it. Without a bound on the
gradients of its part, or with weights from whoever comes first, training runs away for everybody.
"""

import numpy as np
import pytest

from tacit.core.errors import TacitError
from tacit.core.message import Message
from tacit.federation import Federation
from tacit.methods.averaging import part_training
from tacit.methods.splitfed import COPY, SplitFed

EVIL = "client-1"


def far_values(content):
    return content | {"values": content["values"] * 1e6}


def huge_values(content):
    return content | {"values": np.full_like(content["values"], 1e300)}


def own_weights(content):
    made = np.random.default_rng(0).normal(size=content["weights"].shape) if "weights" in content else None
    return content if made is None else content | {"weights": 1e6 * made}


def no_array(content):
    return content | {"values": "nonsense", "weights": "nonsense"}


def run(monkeypatch, attack=None, **settings):
    """Train with one client's letters replaced, and return the accuracy on the test."""
    read = part_training.read_letter

    def replaced(party, name, *more):
        content = read(party, name, *more)
        return attack(content) if attack and name == EVIL else content

    monkeypatch.setattr(part_training, "read_letter", replaced)
    federation = Federation.embedded("digits", clients=5, partition="iid", seed=1)
    method = SplitFed.from_config({"hidden": "32,16", "rounds": 3, "epochs": 2, "variant": "v2", **settings})
    accuracy = federation.train(method, protect="plain").scores["accuracy"]
    monkeypatch.undo()
    return accuracy


def unbounded(monkeypatch):
    """The main server as it would be without a bound."""
    learn = part_training.learn_part
    monkeypatch.setattr(part_training, "learn_part", lambda *told: learn(*told[:-1], bounded=False))


def first_come(monkeypatch):
    """The main server as it would be if whoever comes first chose the weights."""
    monkeypatch.setattr(
        part_training, "most_sent", lambda name, contents: {name: next(iter(contents)).get("weights")}
    )


@pytest.fixture(scope="module", params=["", "layer3"])
def honest(request):
    """A place of the tail, and the accuracy that honest clients reach."""
    with pytest.MonkeyPatch.context() as patch:
        return request.param, run(patch, tail=request.param)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize(
    ("attack", "weaken"), [(far_values, unbounded), (own_weights, first_come)], ids=["values", "weights"]
)
def test_without_the_check_one_client_ruins_training(monkeypatch, attack, weaken):
    weaken(monkeypatch)
    try:
        accuracy = run(monkeypatch, attack)
    except TacitError as error:
        assert "ran away" in str(error)
    else:
        assert accuracy < 0.5


@pytest.mark.parametrize("attack", [far_values, huge_values, own_weights, no_array])
def test_with_it_the_others_go_on_learning(monkeypatch, attack, honest):
    tail, reached = honest
    assert run(monkeypatch, attack, tail=tail) > reached - 0.05
    assert reached > 0.9


def test_the_part_of_all_is_what_most_sent():
    letters = [Message(weights=np.full(3, value)) for value in (7.0, 1.0, 2.0, 1.0)]
    assert part_training.most_sent(COPY, letters)[COPY].tolist() == [1.0] * 3
    assert part_training.most_sent(COPY, [Message(values=np.ones(2))]) == {}
