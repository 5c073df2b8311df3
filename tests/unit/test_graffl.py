"""GRAFFL: what SuffiAE learns, what is drawn and accepted, and the rows that come of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from tacit import Federation, Table
from tacit.core.errors import ConfigError
from tacit.core.events import Events, Noted
from tacit.engines.holdings import holdings_of
from tacit.methods.averaging.architecture import Architecture
from tacit.methods.averaging.example_privacy import ExamplePrivacy
from tacit.methods.graffl import Graffl
from tacit.models.files import load_model
from tacit.models.generator import Generator, Mixtures
from tacit.models.mlp import PULL, SuffiAE
from tacit.models.network import softmax
from tacit.protections import PROTECTIONS
from tacit.protections.plain import Plain


def blobs(rows: int = 240, seed: int = 0) -> Table:
    """Two classes that lie apart, in four columns of other units."""
    rng = np.random.default_rng(seed)
    labels = np.arange(rows) % 2
    values = rng.normal(size=(rows, 2)) * (1.0, 0.5) + np.where(labels, 2.0, -2.0)[:, None]
    values = np.column_stack([values, values @ (1.0, -1.0), values[:, 0]]) * (1.0, 10.0, 1.0, 0.1) + 5.0
    return Table.of(values, np.array(["ill", "well"])[labels])


def train(table: Table, clients: int = 4, sort: bool = False, told: Events | None = None, **settings: object):
    """Train on rows as they lie, or sorted by label, so that clients have one class each."""
    if sort:
        table = table.take(np.argsort(table.target, kind="stable"))
    held = holdings_of(table, np.arange(table.rows) * clients // table.rows, holdout=0.0, seed=0)
    method = Graffl.from_config({"hidden": "3", "rounds": 10, "rate": 0.02, **settings})
    return Federation(held, seed=1).train(method, protect="plain", **({"events": told} if told else {}))


@pytest.fixture(scope="module")
def model() -> Generator:
    return train(blobs(), sort=True).model


def test_the_gradient_is_that_of_both_losses():
    network, rng = SuffiAE(5, (4, 3), 3), np.random.default_rng(0)
    weights, X, labels, counted = (
        network.initial(rng),
        rng.normal(size=(7, 5)),
        np.arange(7) % 3,
        rng.random(7),
    )

    def loss(at):
        shares = softmax(network.outputs(at, X))[np.arange(7), labels]
        left = ((network.decode(at, network.encode(at, X)) - X) ** 2).mean(axis=1)
        return ((PULL / 2 * left - np.log(shares)) * counted).mean()

    steps = 1e-6 * np.eye(network.size)
    found = [(loss(weights + step) - loss(weights - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(network.gradient(weights, X, labels, counted), found, atol=1e-8)


def test_proposals_are_centred_and_the_nearer_the_stronger():
    rng = np.random.default_rng(0)
    factor = np.array([[0.3, 0.0], [0.1, 0.2]])
    one = Mixtures(np.array([0.3, 0.7]), np.array([[0.2, 0.1], [-0.4, 0.0]]), np.stack([factor] * 2))
    many = Mixtures(*(np.repeat(part[None], 20_000, axis=0) for part in one))
    spread = []
    for strength in (8.0, 128.0):
        drawn = many.propose(strength, rng)
        covariances = drawn.factors @ drawn.factors.swapaxes(-1, -2)
        np.testing.assert_allclose(drawn.shares.mean(axis=0), one.shares, atol=0.01)
        np.testing.assert_allclose(drawn.means.mean(axis=0), one.means, atol=0.01)
        np.testing.assert_allclose(covariances.mean(axis=0)[0], factor @ factor.T, atol=0.01)
        spread.append(drawn.means.std(axis=0))
    np.testing.assert_allclose(spread[0] / spread[1], 4.0, rtol=0.05)


def test_points_follow_their_mixture_and_stay_in_the_cube():
    rng = np.random.default_rng(0)
    means, factors = np.array([[-0.5, 0.0], [0.6, 3.0]]), np.stack([0.1 * np.eye(2)] * 2)
    points = Mixtures(np.array([0.25, 0.75]), means, factors).points(10_000, rng)
    first = points[:, 0] < 0
    assert first.mean() == pytest.approx(0.25, abs=0.02) and np.abs(points).max() <= 1
    np.testing.assert_allclose(points[first].mean(axis=0), means[0], atol=0.01)
    np.testing.assert_allclose(points[first].std(axis=0), 0.1, atol=0.01)


@pytest.mark.parametrize("settings", [{}, {"discrepancy": "mmd"}, {"prior": "vague", "trials": 8}])
def test_generated_rows_lie_where_those_of_the_class_do(settings):
    table = blobs()
    model = train(table, sort=True, **settings).model
    for code, label in enumerate(("ill", "well")):
        real, made = table.values[table.target == code], model.sample(500, label)
        found = np.column_stack([made[name].to_numpy() for name in made.column_names[:-1]])
        apart = np.abs(found.mean(axis=0) - real.mean(axis=0)) / table.values.std(axis=0)
        assert apart.max() < 0.3 and set(made["target"].to_pylist()) == {label}


def test_the_draw_that_is_accepted_is_nearest_to_the_pooled_rows():
    table = blobs(120)
    training = train(table, draws=40, quantile=0.025, trials=1, points=400, components=1, prior="vague")
    shared, method = (
        training.outcome.shared,
        Graffl.from_config({"hidden": "3", "draws": 40, "prior": "vague"}),
    )
    network, model = training.model.network, training.model
    X = network.encode(network.flat(model.arrays), model.inputs.matrix(table))[table.target == 0]
    before = shared | {"trial": 0, **_first_prior(shared)}
    points = method._propose(before).choose(slice(None), 0).points(400, np.random.default_rng(9), alike=True)
    energy = [2 * cdist(X, Y).mean() - cdist(Y, Y).mean() for Y in points]
    kept = shared["weights/mixture.means"][0, 0, 0]
    rank = (
        np.argsort(energy)
        .tolist()
        .index(int(np.abs(method._propose(before).means[:, 0, 0] - kept).sum(axis=1).argmin()))
    )
    assert rank < 4


def _first_prior(shared):
    size, unit = shared["weights/mixture.means"].shape[-1], np.arange(3) < int(shared["size"])
    parts = {
        "shares": np.ones((1, 2, 1)),
        "means": np.zeros((1, 2, 1, size)),
        "factors": np.tile(0.5 * np.eye(size) * unit[:, None], (1, 2, 1, 1, 1)),
    }
    return {f"weights/mixture.{name}": part for name, part in parts.items()}


def test_clients_agree_on_the_size_of_summaries():
    table = blobs()
    flat = replace(table, values=table.values[:, :1] * np.array([1.0, 2.0, 3.0, 4.0]))
    shared = train(flat, trials=1, draws=5, rounds=2).outcome.shared
    assert shared["size"] == 1
    assert not shared["weights/layer1.weight"][:, 1:].any() and shared["weights/layer1.weight"][:, 0].all()
    assert not shared["weights/decoder.layer1.weight"][1:].any()
    assert not shared["weights/mixture.factors"][..., 1:, :].any()


def test_rows_have_the_words_and_kinds_of_the_data():
    rng = np.random.default_rng(2)
    table = blobs(120)
    columns = list(table.columns)
    columns[3] = replace(columns[3], kind="category", categories=("no", "yes"))
    values = np.column_stack([table.values[:, :3].round(), rng.integers(0, 2, 120)])
    made = train(
        replace(table, columns=tuple(columns), values=values), trials=1, draws=5, rounds=2
    ).model.sample(50)
    assert made.column_names == ["x0", "x1", "x2", "x3", "target"]
    assert set(made["x3"].to_pylist()) == {"no", "yes"}
    assert str(made["x0"].type) == "double" and set(made["target"].to_pylist()) == {"ill", "well"}


@pytest.mark.parametrize(("protection", "constants"), [("plain", {7.0}), ("masked", {None})])
def test_a_column_that_was_left_out_is_empty_and_one_that_is_constant_stays_so(protection, constants):
    table = blobs(120)
    columns = list(table.columns)
    columns[3] = replace(columns[3], kind="category", categories=("no", "rare", "few", "yes"))
    words = np.where(np.arange(120) < 4, 1, np.where(np.arange(120) < 8, 2, np.arange(120) % 2 * 3))
    table = replace(
        table,
        columns=tuple(columns),
        values=np.column_stack([np.full(120, 7.0), table.values[:, 1:3], words]),
    )
    held = holdings_of(table, np.arange(120) % 4, holdout=0.0, seed=0)
    method = Graffl.from_config({"hidden": "3", "trials": 1, "draws": 5, "rounds": 2})
    made = Federation(held, seed=1).train(method, protect=protection).model.sample(200)
    assert set(made["x0"].to_pylist()) == constants and made["x1"].null_count == 0
    if protection == "masked":  # rare categories were put together: one of them stands for all
        assert len({"rare", "few"} & set(made["x3"].to_pylist())) <= 1


def test_a_sample_repeats_by_its_seed_and_survives_a_file(model, tmp_path):
    assert model.sample(20, seed=3).equals(model.sample(20, seed=3))
    assert not model.sample(20, seed=3).equals(model.sample(20, seed=4))
    again = load_model(model.save(tmp_path / "model.safetensors"))
    assert isinstance(again, Generator) and again.sample(20, "well").equals(model.sample(20, "well"))
    rows = blobs().values[:30]
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


def test_onnx_predicts_the_same_labels(model, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.to_bytes("onnx"))
    rows = blobs(seed=5).values[:40]
    found = session.run(["label"], {f"x{i}": rows[:, i : i + 1] for i in range(4)})[0]
    np.testing.assert_array_equal(found, model.predict(rows))


def test_a_sample_that_cannot_be_is_refused(model):
    with pytest.raises(ConfigError, match="no rows were of a class 'wel': did you mean 'well'"):
        model.sample(3, "wel")
    with pytest.raises(ConfigError, match="rows is 0: give a whole number of at least 1"):
        model.sample(0)
    arrays = {name: array for name, array in model.arrays.items() if not name.startswith("mixture.")}
    with pytest.raises(ConfigError, match="the model has no mixtures yet"):
        Generator(arrays, model.settings, model.inputs).sample(3)


@pytest.mark.parametrize("copied", [True, False])
def test_copies_of_rows_are_found(copied, monkeypatch):
    told: list[Noted] = []
    table, generate = blobs(), Generator.generate

    def copy(self, rows, rng, label=None):
        labels, X = generate(self, rows, rng, label)
        return labels, self.inputs.matrix(table)[:rows] if copied else X

    monkeypatch.setattr(Generator, "generate", copy)
    events = Events(lambda _, event: told.append(event) if isinstance(event, Noted) else None)
    train(table, told=events, trials=1, draws=5, rounds=2)
    (note,) = [each for each in told if each.about == "copies"]
    assert note.level == ("warning" if copied else "info")
    assert f"{200 if copied else 0} times one is within a hundredth" in note.text


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"trials": 0}, "trials is 0: give a whole number of at least 1"),
        ({"points": 0}, "points is 0: give a whole number of at least 1"),
        ({"quantile": 0.0}, "quantile is 0.0: give a share above 0 up to 1"),
        ({"architecture": Architecture("mlp", (4,), "tanh")}, "graffl needs network 'suffiae'"),
        ({"architecture": Architecture("suffiae", (4,), "relu")}, "graffl needs network 'suffiae'"),
        ({"architecture": Architecture("suffiae", (), "tanh")}, "a size of the summary in hidden"),
        ({"privacy": ExamplePrivacy(noise=1.0, epsilon=8.0)}, "distances are summed without noise"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, text):
    with pytest.raises(ConfigError, match=text):
        Graffl(**settings)


def test_noise_on_sums_is_refused():
    reason = Graffl().incompatibility(PROTECTIONS.build("noised"))
    assert reason == "noise would decide which draws are accepted: use masked"
    assert Graffl().incompatibility(PROTECTIONS.build("masked")) is None


# Within training, after it (which no replica holds by itself), between two trials, after both.
@pytest.mark.parametrize(("place", "rounds"), [("coordinator", [1, 2, 3, 4]), ("clients", [1, 3, 4])])
def test_a_stopped_run_goes_on_to_the_same_generator(place, rounds):
    table, kept = blobs(60), []
    held = holdings_of(table, np.arange(60) // 20, holdout=0.0, seed=0)
    method = Graffl.from_config({"hidden": "2", "rounds": 2, "trials": 2, "draws": 6, "points": 3})
    whole = Federation(held, seed=1).train(method, protect=Plain(opens=place), keep=kept.append)
    assert [point.progress["round"] for point in kept] == rounds
    for point in kept:
        resumed = Federation(held, seed=1).train(method, protect=Plain(opens=place), resume=point)
        assert resumed.outcome.digest == whole.outcome.digest
