"""A model file that was damaged or tampered with: it loads as it was, or is refused in our words.

Every byte of a small file is changed, and the file is cut at every place.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from tacit import Federation, FedHEONN, Table
from tacit.core.errors import DataError, TacitError
from tacit.data.table import Column
from tacit.methods import METHODS
from tacit.models.files import load_model
from tests.quick import Mode, representatives

SCHEMA = '{"columns":[{"name":"a"}],"task":"classification","classes":["n","y"],"target_names":["t"]}'
MODELS = {
    "one layer": FedHEONN(),
    "random layer": FedHEONN(hidden=2),
    "ensemble": METHODS.build("fedheonn-ensemble", {"estimators": 2}),
    "network": METHODS.build("fedavg", {"hidden": 2, "rounds": 1}),
    "trees": METHODS.build("federboost", {"trees": 1, "depth": 2, "buckets": 4}),
}


def table() -> Table:
    rng = np.random.default_rng(3)
    columns = (Column("a"), Column("w", "category", categories=("x", "y")))
    values = np.column_stack([rng.normal(size=40), np.arange(40) % 2])
    return Table("t", columns, values, np.arange(40) // 2 % 2, classes=("n", "y"))


@pytest.fixture(params=representatives(MODELS, "one layer", "network"))
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    tables = {f"site-{i}": table().take(slice(i, None, 4)) for i in range(4)}
    return Federation.of(tables).train(MODELS[request.param], protect="plain").model.save(tmp_path / "model")


def outputs(path: Path) -> np.ndarray:
    return np.asarray(load_model(path).outputs(table()))


def assert_same_or_refused(path: Path, truth: np.ndarray) -> bool:
    """Whether it was refused."""
    try:
        found = outputs(path)
    except TacitError as error:
        assert isinstance(error, DataError), error
        return True
    np.testing.assert_array_equal(found, truth)
    return False


def test_a_changed_byte_is_noticed_or_changes_nothing(saved):
    raw, truth = saved.read_bytes(), outputs(saved)
    rng = np.random.default_rng(0)
    refused = 0
    for place in range(0, len(raw), 3 if Mode.quick else 1):
        damaged = bytearray(raw)
        damaged[place] ^= int(rng.integers(1, 256))
        saved.write_bytes(damaged)
        refused += assert_same_or_refused(saved, truth)
    assert refused > 0.9 * len(raw) / (3 if Mode.quick else 1)


def test_a_file_that_was_cut_is_refused(saved):
    raw = saved.read_bytes()
    for end in range(0, len(raw), 7):
        saved.write_bytes(raw[:end])
        with pytest.raises(DataError, match="is not a model that can be read"):
            load_model(saved)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({}, {"activation": "linear"}),
        ({"weights": np.zeros(3)}, {}),
        ({"weights": np.zeros((4, 2))}, {"activation": "linear", "layer": "tanh"}),
        ({"weights": np.zeros((4, 2)), "centre": np.zeros(9)}, {"activation": "linear"}),
    ],
)
def test_a_file_without_what_a_model_needs_is_refused(tmp_path, tensors, words):
    """A file of an earlier release has no digest: what is missing in it was a KeyError."""
    said = {"format": "tacit-one-layer-1", "schema": SCHEMA, **words}
    save_file(tensors, tmp_path / "model", {"tacit": msgspec.json.encode(said).decode()})
    with pytest.raises(DataError, match=r"damaged|has shape"):
        load_model(tmp_path / "model")


@pytest.mark.parametrize(
    ("words", "tensor", "reason"),
    [
        ({"format": "tacit-one-layer-1"}, "F8_E4M3", "is not a model that can be read: module 'numpy'"),
        ({"format": "tacit-network-1", "network": '{"hidden": 2}'}, "U8", "is damaged: KeyError: 'network'"),
    ],
)
def test_a_crafted_file_is_refused(tmp_path, words, tensor, reason):
    """Of a type that numpy does not have, or of a network without its name."""
    tacit = msgspec.json.encode({"schema": SCHEMA, **words}).decode()
    tensors = {"weights": {"dtype": tensor, "shape": [8], "data_offsets": [0, 8]}}
    header = msgspec.json.encode({"__metadata__": {"tacit": tacit}, **tensors})
    (tmp_path / "model").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(DataError, match=reason):
        load_model(tmp_path / "model")


CRAFTED = {
    "one layer": ({"activation": "no such"}, {}),
    "ensemble": ({"activation": "no such"}, {}),
    "network": ({}, {"constant": np.array([10**12] * 3)}),
    "trees": ({"loss": "squared"}, {}),
}


@pytest.mark.parametrize("saved", CRAFTED, indirect=True)
def test_parts_that_do_not_fit_together_are_refused_when_a_file_is_read(saved, request):
    """A stranger leaves the digest out: each part can be read, and the first prediction ended in KeyError."""
    with safe_open(saved, framework="numpy") as file:
        said = msgspec.json.decode(file.metadata()["tacit"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del said["digest"]
    words, odd = CRAFTED[request.node.callspec.params["saved"]]
    for more, arrays, fine in (({}, {}, True), (words, odd, False)):
        save_file({**tensors, **arrays}, saved, {"tacit": msgspec.json.encode({**said, **more}).decode()})
        if fine:
            load_model(saved)
            continue
        with pytest.raises(DataError, match=r"is damaged|unknown"):
            load_model(saved)
