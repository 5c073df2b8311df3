"""Networks on their way in and out: torch modules, files, ONNX graphs, and what no wire may bring."""

import subprocess
import sys

import numpy as np
import pytest

import tacit
from tacit import Architecture, ExamplePrivacy, LocalTraining
from tacit.core.errors import ConfigError, DataError, TacitError, UnavailableError
from tacit.data.preparation import Preparation
from tacit.data.table import Column, Table
from tacit.federation import Federation
from tacit.methods.fedavg import FedAvg
from tacit.methods.fedheonn import FedHEONN
from tacit.methods.fedopt import FedAdam
from tacit.models.files import load_model
from tacit.models.neural import Neural
from tacit.models.onnx_export import to_onnx
from tests.helpers.onnx_rows import onnx_feed


@pytest.fixture(scope="module")
def federation():
    return Federation.embedded("digits", clients=4, seed=2, test=0.5)


def normalised(features, outputs):
    """A network with batch normalisation, and dropout beside it."""
    nn = pytest.importorskip("torch").nn
    return nn.Sequential(
        nn.Linear(features, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, outputs)
    )


def layered(features, outputs):
    nn = pytest.importorskip("torch").nn
    return nn.Sequential(nn.Linear(features, 12), nn.Tanh(), nn.Linear(12, outputs))


class TestTorch:
    def test_the_small_cnn_learns_digits(self, federation):
        pytest.importorskip("torch")
        model = FedAvg(
            architecture=Architecture(network="cnn"), rounds=3, local=LocalTraining(epochs=3, rate=0.1)
        ).fit(federation, protect="plain")
        assert model.scores(federation.test)["accuracy"] > 0.85

    def test_pictures_are_square(self):
        pytest.importorskip("torch")
        with pytest.raises(ConfigError, match="13 features are no square picture"):
            FedAvg(architecture=Architecture(network="cnn")).fit(Federation.embedded("wine", clients=4))

    def test_any_module_by_its_factory(self, federation):
        method = FedAvg(architecture=Architecture(network=layered), rounds=4, local=LocalTraining(epochs=4))
        assert method.config()["network"].endswith(":layered")
        assert method.fit(federation, protect="plain").scores(federation.test)["accuracy"] > 0.8

    @pytest.mark.parametrize("kind", [FedAvg, FedAdam])
    def test_running_means_are_averaged_plainly_and_counters_stay(self, federation, kind):
        method = kind(architecture=Architecture(network=normalised), rounds=3, local=LocalTraining(epochs=4))
        training = federation.train(method, protect="plain")
        names = set(training.model.arrays)
        assert {"1.running_mean", "1.running_var"} <= names
        assert not any("num_batches" in name for name in names)
        assert (training.model.arrays["1.running_var"] > 0).all()
        assert not np.allclose(training.model.arrays["1.running_var"], 1.0)
        assert training.model.scores(federation.test)["accuracy"] > 0.7
        assert federation.train(method, protect="plain").outcome.digest == training.outcome.digest

    def test_state_over_rows_forbids_privacy_of_examples(self, federation):
        method = FedAvg(
            architecture=Architecture(network=normalised),
            rounds=1,
            privacy=ExamplePrivacy(noise=1.0, epsilon=50.0),
        )
        with pytest.raises(TacitError, match="batch normalisation"):
            federation.train(method, protect="plain")

    def test_privacy_of_examples_works_for_modules_too(self, federation):
        method = FedAvg(
            architecture=Architecture(network=layered),
            rounds=1,
            privacy=ExamplePrivacy(noise=0.6, epsilon=90.0),
        )
        assert not federation.train(method, protect="plain").failures

    def test_a_factory_of_something_else_is_refused(self, federation):
        pytest.importorskip("torch")
        with pytest.raises(ConfigError, match="it must give a torch"):
            federation.train(
                FedAvg(architecture=Architecture(network=lambda features, outputs: 7), rounds=1),
                protect="plain",
            )

    def test_code_never_comes_by_wire(self, federation):
        elsewhere = Federation(federation.holdings, workers=1)
        with pytest.raises(TacitError, match="only what it has installed"):
            elsewhere.train(FedAvg(architecture=Architecture(network=layered), rounds=1), protect="plain")

    def test_a_name_that_nobody_installed_is_refused_with_the_nearest(self, federation):
        with pytest.raises(ConfigError, match="did you mean 'cnn'"):
            federation.train(FedAvg(architecture=Architecture(network="cmn"), rounds=1), protect="plain")

    def test_without_torch_it_says_how_to_get_it(self, monkeypatch, federation):
        monkeypatch.setitem(sys.modules, "torch", None)
        from tacit.models.torch_network import torch_library

        with pytest.raises(UnavailableError, match=r"tacit-fl\[torch\]"):
            torch_library()
        assert FedAvg(rounds=1).fit(federation, protect="plain")


def test_neither_import_nor_plain_training_needs_torch():
    script = (
        "import sys, tacit; f = tacit.Federation.embedded('iris', clients=3); "
        "f.train('fedavg'); assert 'torch' not in sys.modules and 'onnx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


class TestFiles:
    @pytest.fixture(params=["mlp", "cnn", "heonn"])
    def model(self, request, federation):
        if request.param == "heonn":
            return FedHEONN().fit(federation, protect="plain")
        if request.param == "cnn":
            pytest.importorskip("torch")
        return FedAvg(
            architecture=Architecture(network=request.param, hidden="9,7", activation="tanh"), rounds=1
        ).fit(federation, protect="plain")

    def test_safetensors(self, model, tmp_path, federation):
        rows = federation.test.values
        back = load_model(model.save(tmp_path / "model.safetensors"))
        assert type(back) is type(model)
        assert np.array_equal(back.predict_proba(rows), model.predict_proba(rows))

    def test_a_model_of_a_private_factory_is_read_with_that_factory(self, federation, tmp_path):
        model = FedAvg(architecture=Architecture(network=layered), rounds=1).fit(federation, protect="plain")
        path = model.save(tmp_path / "model.safetensors")
        with pytest.raises(ConfigError, match="give that factory"):
            load_model(path)
        back = load_model(path, layered)
        assert np.array_equal(back.predict(federation.test.values), model.predict(federation.test.values))

    def test_another_format_is_refused(self, tmp_path):
        from safetensors.numpy import save_file

        save_file({"x": np.zeros(1)}, tmp_path / "x.safetensors", {"tacit": '{"format": "tacit-forest-9"}'})
        with pytest.raises(DataError, match="tacit-forest-9"):
            load_model(tmp_path / "x.safetensors")

    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
    def test_onnx_takes_raw_rows(self, model, federation):
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(to_onnx(model), providers=["CPUExecutionProvider"])
        rows = federation.test.values.astype(float)
        probabilities, label = session.run(["probabilities", "label"], onnx_feed(model, rows))
        exact = isinstance(model, Neural) and model.settings["network"] == "cnn"
        assert np.allclose(probabilities, model.predict_proba(rows), atol=1e-5 if exact else 1e-12)
        assert np.array_equal(label, model.predict(rows))

    @pytest.mark.parametrize("method", [FedAvg(rounds=2), FedHEONN()], ids=["fedavg", "fedheonn"])
    def test_onnx_prepares_categories_and_gaps(self, method):
        runtime = pytest.importorskip("onnxruntime")
        rng = np.random.default_rng(0)
        colours = np.array(["blue", "green", "red"], dtype=object)[rng.integers(3, size=60)]
        numbers = rng.normal(size=60)
        numbers[::7] = np.nan
        target = np.where((colours == "red") ^ (np.nan_to_num(numbers) > 0), "yes", "no")
        codes = np.array([sorted(set(colours)).index(c) for c in colours], dtype=float)
        columns = (Column("x"), Column("colour", "category", categories=("blue", "green", "red")))
        table = Table(
            "t",
            columns,
            np.column_stack([numbers, codes]),
            (target == "yes").astype(int),
            "classification",
            ("no", "yes"),
            ("y",),
        )
        federation = Federation.embedded(table, clients=3, test=None)
        model = federation.train(method, preparation=Preparation(missing="mean"), protect="plain").model
        session = runtime.InferenceSession(to_onnx(model), providers=["CPUExecutionProvider"])
        rows = np.column_stack([numbers.astype(object), colours])
        rows[3, 1] = None
        found = session.run(["probabilities"], onnx_feed(model, rows))[0]
        assert np.allclose(found, model.predict_proba(rows), atol=1e-12)

    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
    def test_onnx_of_a_torch_regression_gives_targets_in_their_own_units(self, regression):
        runtime = pytest.importorskip("onnxruntime")
        pytest.importorskip("torch")
        method = FedAvg(architecture=Architecture(network=layered), rounds=1)
        model = method.fit(Federation.embedded(regression, clients=3), protect="plain")
        session = runtime.InferenceSession(to_onnx(model), providers=["CPUExecutionProvider"])
        (found,) = session.run(["targets"], onnx_feed(model, regression.values))
        assert np.allclose(found, model.predict(regression.values), rtol=1e-5)

    def test_onnx_of_a_regression(self, regression):
        runtime = pytest.importorskip("onnxruntime")
        model = tacit.FedHEONN(activation="linear").fit(Federation.embedded(regression, clients=3))
        session = runtime.InferenceSession(to_onnx(model), providers=["CPUExecutionProvider"])
        found = session.run(["targets"], onnx_feed(model, regression.values))[0]
        assert np.allclose(found, model.predict(regression.values), atol=1e-12)
