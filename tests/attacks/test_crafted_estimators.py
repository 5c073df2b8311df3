"""A client of Fusion Learning, or whoever wrote a model file, crafts the estimator that others read.

Native code walks trees without any check, and NumPy makes as much room as shapes ask for: what would crash,
stop or fill the reader is refused while it is read, before anything is predicted.
"""

from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from tacit.core.errors import ConfigError
from tacit.data.schema import Schema
from tacit.data.table import Column
from tacit.methods.fusion import Columns, Fusion, _pack
from tacit.models import estimator
from tacit.models.estimator import _plain, fit_estimator
from tacit.models.marginals import Marginal

RNG = np.random.default_rng(1)
X, Y = RNG.normal(size=(60, 2)), RNG.integers(0, 2, 60)
SCHEMA = Schema((Column("a"), Column("b")), "classification", ("n", "y"), ("t",))
LEAVES = {"threshold": np.full(3, 9.0), "classes": np.array([2]), "values": np.zeros((3, 1, 2))}


def fitted(text: str) -> dict:
    return msgspec.msgpack.decode(fit_estimator(text, X, Y, np.random.default_rng(0)))


def grown(left, right, **others) -> dict:
    """A tree of three nodes: what a client would send of it."""
    parts = {"left": left, "right": right, "feature": np.zeros(3, np.int64), **LEAVES, **others}
    raw = fitted("DecisionTree")
    raw["estimator"][1]["tree_"] = {"tree": [_plain(part) for part in parts.values()]}
    return raw


def refused(raw: dict) -> str | None:
    return Fusion(samples=20).flaw("model", _pack(msgspec.msgpack.encode(raw)), SCHEMA)


def test_control_a_tree_of_three_nodes_is_taken():
    leaf = np.array([1, -1, -1]), np.array([2, -1, -1])
    assert refused(grown(*leaf)) is None


@pytest.mark.parametrize(
    "crafted",
    [
        # Of a list one item was compared, and all became addresses.
        lambda: grown([2**40, 1, 2**40], np.array([1, 2, 1])),
        # 1.5 is behind node 1, and becomes 1: a node below itself.
        lambda: grown(np.array([1.0, 1.5, -1.0]), np.array([2.0, 2.0, -1.0])),
        # No node at all: native code begins at the first.
        lambda: grown(
            *[np.zeros(0, np.int64)] * 2,
            feature=np.zeros(0, np.int64),
            threshold=np.zeros(0),
            values=np.zeros((0, 1, 2)),
        ),
    ],
    ids=["list", "fraction", "empty"],
)
def test_a_tree_that_would_leave_its_nodes_is_refused_while_it_is_read(crafted):
    with pytest.raises((ValueError, KeyError)):
        estimator._restored(crafted(), 2)


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        # Layers of no bytes, and of a width that fills the memory.
        ("MLP(max_iter=2)", {"coefs_": [np.zeros((2, 0)), np.zeros((0, 2**40))]}),
        ("MLP(max_iter=2)", {"intercepts_": [np.zeros(2**20, bool)] * 3}),
        ("RandomForest(n_estimators=1)", {"n_classes_": 2**40}),
        ("RandomForest(n_estimators=1)", {"n_classes_": [4000] * 4000}),
        ("RandomForest(n_estimators=1)", {"n_classes_": [2**62] * 4}),
    ],
)
def test_what_asks_for_all_memory_is_refused_while_it_is_read(text, changes):
    raw = fitted(text)
    raw["estimator"][1].update({name: _plain(value) for name, value in changes.items()})
    with pytest.raises(ValueError, match=r"widest|more than"):
        estimator._restored(raw, 2)


def test_labels_of_another_shape_do_not_stop_the_run():
    raw = fitted("LogisticRegression")
    raw["estimator"][1]["classes_"] = _plain(np.array([[0, 1], [1, 0]]))
    assert refused(raw) == "labels no rows"


def test_values_that_estimators_do_not_take_are_refused():
    columns = Columns([Marginal("norm", [1e39, 1.0])] * 2, [])
    assert Fusion().flaw("distributions", _pack(msgspec.msgpack.encode(columns)), SCHEMA)


@pytest.mark.parametrize(
    ("text", "attribute"),
    [("HuberRegressor", "outliers_"), ("RandomForest(oob_score=True, n_estimators=30)", "oob_")],
)
def test_nothing_of_single_rows_travels(text, attribute):
    """Fitted estimators keep which rows were outliers, and what others' trees say of each row."""
    targets = X[:, :1] if "Huber" in text else Y
    raw = fit_estimator(text, X, targets, np.random.default_rng(0))
    told = str(msgspec.msgpack.decode(raw))
    assert attribute not in told.replace("oob_score", "")


def test_a_layer_that_nobody_would_read_is_refused_where_it_is_fitted():
    with pytest.raises(ConfigError, match="does not travel"):
        fit_estimator("MLP(hidden_layer_sizes=(5000,), max_iter=1)", X, Y, np.random.default_rng(0))


def test_huge_targets_are_cut():
    found = SimpleNamespace(predict=lambda rows: np.full(len(rows), np.inf))
    model = estimator.Estimator.__new__(estimator.Estimator)
    model.estimator = found
    schema = SimpleNamespace(task="regression", outputs=1)
    model.inputs = SimpleNamespace(schema=schema)
    assert (estimator.Estimator.label(model, np.zeros((3, 1))) <= estimator.HUGE).all()
