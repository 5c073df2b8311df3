"""What every method has to keep, run over the registry: a new one is tested the day it is there."""

import numpy as np
import pytest

from tacit.core.errors import ConfigError
from tacit.core.manifest import Components, Manifest
from tacit.core.marks import Mark
from tacit.core.message import Message
from tacit.data.preparation import Preparation
from tacit.engines.assembly import assemble
from tacit.engines.holdings import Holdings
from tacit.federation import Federation
from tacit.methods import METHODS
from tacit.models.scores import TARGET_SCORES
from tacit.protections import PROTECTIONS
from tacit.protections.plain import Plain
from tacit.testing import check_method
from tests.quick import representatives

PRESETS = ("pfmlp", "p2p-mpc", "two-phase-mpc")  # FedAvg but for their usual protection
QUICK = [name for name in METHODS if name not in PRESETS]
CASES = [
    pytest.param(name, task, marks=[pytest.mark.slow] if name in PRESETS else [])
    for name in METHODS
    for task in METHODS.get(name).tasks
]
CLOSED = [
    (name, task) for name in METHODS for task in METHODS.get(name).tasks if METHODS.get(name).closed_form
]
CLIENTS = 6

every_method = pytest.mark.parametrize(("name", "task"), CASES)
every_closed_form = pytest.mark.parametrize(("name", "task"), CLOSED)


@pytest.fixture
def setting(name, task, table_of):
    """A method in a setting that learns in a moment, and rows for its task."""
    return METHODS.get(name).tiny(), table_of(task)


def spread(table, order="as it is"):
    """Give rows to clients: as they lie, or drawn at random."""
    rows = np.arange(table.rows)
    if order == "random":
        rows = np.random.default_rng(5).permutation(table.rows)
    # Sizes differ, as they do among hospitals.
    weights = np.arange(1, CLIENTS + 1)
    offsets = np.concatenate([[0], np.cumsum(weights) * table.rows // weights.sum()])
    return Holdings(table.take(rows), offsets, [f"client-{i + 1}" for i in range(CLIENTS)])


def train(method, holdings, protect=None, **settings):
    return Federation(holdings, seed=3, **settings).train(method, protect=protect or Plain())


def viewed(method, holdings):
    """What the clients hold in the end, by name."""
    return dict(method.view(train(method, holdings).outcome.shared))


def assert_close(one, other):
    """Each array agrees to eight digits of its largest value."""
    assert one.keys() == other.keys()
    for name in one:
        a, b = np.asarray(one[name], dtype=float), np.asarray(other[name], dtype=float)
        assert a.shape == b.shape, name
        assert np.abs(a - b).max(initial=0.0) <= 1e-8 * np.abs(a).max(initial=0.0), name


@pytest.mark.parametrize("name", representatives(METHODS, *QUICK))
def test_it_keeps_what_every_method_has_to_keep(name, keys_once):
    with keys_once():
        check_method(METHODS.get(name).tiny())


@every_closed_form
class TestClosedForm:
    def test_names_and_order_of_clients_make_no_difference(self, setting):
        method, table = setting
        plain = spread(table)
        turned = plain.part(np.arange(CLIENTS)[::-1])
        turned.names = tuple(f"site {letter}" for letter in "uvwxyz")
        assert_close(viewed(method, plain), viewed(method, turned))


def test_two_runs_of_the_same_seed_have_names_of_their_own(table):
    one, other = (train(METHODS.get("fedheonn")(), spread(table)) for _ in range(2))
    assert one.outcome.digest == other.outcome.digest
    assert one.manifest.run != other.manifest.run


@every_method
class TestRepeatable:
    def test_worker_processes_learn_the_same_as_this_one(self, setting):
        method, table = setting
        here = train(method, spread(table))
        assert train(method, spread(table), workers=2).outcome.digest == here.outcome.digest

    def test_it_makes_no_difference_where_totals_open(self, setting):
        method, table = setting
        one, other = (
            train(method, spread(table), Plain(opens=place)) for place in ("coordinator", "clients")
        )
        assert other.outcome.shared is None
        if one.outcome.digest != other.outcome.digest:
            # Where all digits are kept and the coordinator opens, one sum may serve scale and weights.
            assert method.closed_form
            np.testing.assert_allclose(one.model.weights, other.model.weights, rtol=1e-9, atol=1e-12)
        found, expected = (each.model.predict(table.values[:5]) for each in (other, one))
        if table.task == "classification":
            assert np.array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-9)

    def test_a_federated_evaluation_counts_the_same_wherever_totals_open(self, setting):
        method, table = setting
        scores = []
        for place in ("coordinator", "clients"):
            holdings = spread(table, "random")
            holdings.holdout_sizes = np.maximum(1, np.diff(holdings.offsets) // 4)
            scores.append(train(method, holdings, Plain(opens=place)).holdout)
        if method.closed_form and table.task == "regression":  # one sum may serve scale and weights
            scores = [
                {name: pytest.approx(score[name], rel=1e-9) for name in TARGET_SCORES} for score in scores
            ]
            scores[1] = {name: value.expected for name, value in scores[1].items()}
        assert scores[0] == scores[1]
        assert len(scores[0]) > 0


@every_method
class TestManners:
    def test_settings_survive_the_manifest(self, name, task):
        method = METHODS.get(name)()
        manifest = Manifest.of("run", Components(method, Plain(), Preparation()))
        back = Manifest.from_message(Message.decode(manifest.to_message().encode()))
        assert assemble(back).method == method
        assert back.digest == manifest.digest

    def test_contributions_have_layouts_that_fit_them(self, setting):
        method, table = setting
        training = train(method, spread(table))
        marks = {
            n: getattr(getattr(method, n), "tacit", None) for n in dir(type(method)) if not n.startswith("_")
        }
        laid_out = {n: m for n, m in marks.items() if isinstance(m, Mark) and m.kind == "contribution"}
        assert "evaluation" in laid_out
        sizes = {name: mark.layout(method, training.schema).size for name, mark in laid_out.items()}
        assert sizes["evaluation"] > 0
        assert max(size for name, size in sizes.items() if name != "evaluation") > 0


@pytest.mark.parametrize("name", list(METHODS))
def test_a_task_that_it_cannot_learn_is_refused_before_anything_is_summed(name, table_of):
    method = METHODS.get(name)
    for task in {"classification", "regression"} - set(method.tasks):
        with pytest.raises(ConfigError, match=f"cannot learn {task}"):
            train(method.tiny(), spread(table_of(task)))
    assert set(method.tasks) <= {"classification", "regression"}
    assert len(method.tasks) >= 1


@pytest.mark.parametrize("name", representatives(METHODS, *QUICK, "p2p-mpc", "two-phase-mpc"))
def test_it_is_protected_unless_told_otherwise(name, table_of, keys_once):
    method = METHODS.get(name).tiny()
    federation = Federation(spread(table_of(method.tasks[0])), seed=3)
    if method.incompatibility(PROTECTIONS.build("masked")):  # no sum hides what it sends: it has to say so
        assert method.default_protection == "plain"
        assert method.reveals["coordinator"]
        assert method.warnings_for(True)
        return
    with keys_once():
        training = federation.train(method)
    assert training.manifest.components["protection"]["name"] == method.default_protection != "plain"


@pytest.mark.parametrize("name", representatives(METHODS, "fedheonn", "fedavg"))
def test_every_protection_serves_it_or_says_beforehand_why_not(name, any_protection, table_of, keys_once):
    method = METHODS.get(name).tiny()
    table = table_of(method.tasks[0])
    if reason := any_protection.incompatibility(method) or method.incompatibility(any_protection):
        assert len(reason.split()) >= 5
        with pytest.raises(ConfigError, match=f"cannot protect {name}: "):
            train(method, spread(table, "random"), any_protection)
        return
    with keys_once():
        try:
            training = train(method, spread(table, "random"), any_protection)
        except ConfigError as refused:  # known with the schema: noise that hides one of so few clients
            assert any_protection.adds_noise and f"cannot protect {name}: the noise that hides" in str(
                refused
            )
            return
    assert len(training.outcome.holders) == CLIENTS
    if any_protection.promises.precision < 0.01:  # else it adds noise, and predicts what it will
        plain = train(method, spread(table, "random")).model.predict(table.values)
        assert np.mean(training.model.predict(table.values) == plain) > 0.9 or table.task == "regression"
