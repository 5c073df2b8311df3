"""Boosted trees: predictions of hand-made trees, their files, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.core.errors import ConfigError, DataError
from tacit.data.inputs import Inputs
from tacit.data.schema import Schema
from tacit.data.table import Column, Table
from tacit.models.files import load_model
from tacit.models.trees import BoostedTrees
from tests.helpers.grown import random_trees

COLUMNS = (Column("age"), Column("colour", "category", categories=("blue", "green", "red")))
BINARY = Schema(COLUMNS, "classification", ("no", "yes"), ("bought",))
TARGETS = Schema(COLUMNS, "regression", (), ("price", "weight"))


def hand_made(**changed: Any) -> dict[str, Any]:
    """Two trees: age < 30 (missing: right), right of it colour in {green, red} (missing: left); one leaf."""
    arrays = {
        "feature": [0, -1, 1, -1, -1, -1],
        "threshold": [30.0, 0, 0, 0, 0, 0],
        "default_left": [0, 0, 1, 0, 0, 0],
        "left": [1, -1, 3, -1, -1, -1],
        "right": [2, -1, 4, -1, -1, -1],
        "category_row": [-1, -1, 0, -1, -1, -1],
        "categories": [[0, 1, 1]],
        "value": [0.0, -2.0, 0.0, 0.5, 3.0, 0.25],
        "gain": [10.0, 0, 4.0, 0, 0, 0],
        "cover": [8.0, 3.0, 5.0, 2.0, 3.0, 8.0],
        "tree_start": [0, 5, 6],
        "tree_output": [0, 0],
        "base": [1.0],
    }
    return arrays | changed


ROWS = np.array([[29.9, "red"], [30.0, "red"], [31.0, "blue"], [None, None], [None, "green"]], dtype=object)
MARGINS = np.array([-0.75, 4.25, 1.75, 1.75, 4.25])


def model(schema: Schema = BINARY, loss: str = "logistic", **changed: Any) -> BoostedTrees:
    return BoostedTrees(hand_made(**changed), loss, Inputs(schema, {}))


def test_rows_fall_into_the_leaves_that_splits_say():
    found = model()
    assert found.outputs(ROWS)[:, 0].tolist() == MARGINS.tolist()
    assert (found.depth, found.trees) == (2, 2)
    expected = 1 / (1 + np.exp(-MARGINS))
    np.testing.assert_allclose(found.predict_proba(ROWS), np.column_stack([1 - expected, expected]))
    assert found.predict(ROWS).tolist() == ["no", "yes", "yes", "yes", "yes"]


def test_numbers_are_compared_as_32_bit_floats():
    threshold = np.float32(0.1)  # above the 64-bit 0.1
    found = model(threshold=[threshold, 0, 0, 0, 0, 0])
    rows = np.array([[0.1, "red"], [np.nextafter(threshold, np.float32(0)), "red"]], dtype=object)
    assert found.outputs(rows)[:, 0].tolist() == [4.25, -0.75]


def test_softmax_has_a_margin_for_each_class():
    schema = Schema(COLUMNS, "classification", ("a", "b", "c"), ("kind",))
    found = model(schema, "softmax", base=[0.0, 0.5, 1.0], tree_output=[2, 1])
    margins = np.column_stack([np.zeros(5), np.full(5, 0.75), MARGINS - 0.25])
    shares = np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.predict_proba(ROWS), shares)
    assert found.predict(ROWS).tolist() == ["b", "c", "c", "c", "c"]


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_a_regression_predicts_each_target(loss):
    found = model(TARGETS, loss, base=[1.0, -1.0], tree_output=[0, 1])
    margins = np.column_stack([MARGINS - 0.25, np.full(5, -0.75)])
    expected = np.exp(margins) if loss == "poisson" else margins
    np.testing.assert_allclose(found.predict(ROWS), expected)
    table = Table("t", COLUMNS, np.array([[20.0, 0], [40.0, 1]]), expected[:2], "regression", (), ("p", "w"))
    assert found.scores(table)["mse"] == pytest.approx(0.0, abs=1e-30)
    counts = [found.counts(table.take([i])) for i in range(2)]
    assert found.counts(table)["square"] == pytest.approx(counts[0]["square"] + counts[1]["square"])
    assert found.counts(table)["count"] == 2


def test_counts_of_a_classifier_are_those_of_its_probabilities():
    table = Table(
        "t", COLUMNS, np.array([[20.0, 0], [40.0, 1], [25.0, 2]]), np.array([1, 0, 0]), classes=("no", "yes")
    )
    assert model().counts(table)["confusion"].tolist() == [[1, 1], [1, 0]]
    assert model().scores(table)["accuracy"] == pytest.approx(1 / 3)


def test_categories_are_translated_and_small_ones_put_together():
    own = Column("colour", "category", categories=("red", "violet", "blue"))  # another order, one unknown
    table = Table(
        "t",
        (own, Column("age")),
        np.array([[0, 1.0], [1, 2.0], [2, 3.0], [np.nan, np.nan]]),
        np.zeros(4, int),
    )
    found = Inputs(BINARY, {}).columns(table, lenient=True)
    np.testing.assert_array_equal(
        found, np.array([[1, 2], [2, np.nan], [3, 0], [np.nan, np.nan]], np.float32)
    )
    with pytest.raises(DataError, match="holds a value that nobody agreed on"):
        Inputs(BINARY, {}).columns(table)
    # age is left out; blue counts as green, as do unseen words; a missing one as red
    cells = np.array([-1, 2, 2, 3, -1, 1, -1, 2])
    found = Inputs(BINARY, {"cells": cells}).columns(table, lenient=True)
    np.testing.assert_array_equal(found, [[0, 2], [0, 1], [0, 1], [0, 2]])
    # blue is left out: as if missing
    cells = np.array([0, -1, 2, 3, -1, -1, -1, -1])
    found = Inputs(BINARY, {"cells": cells}).columns(table, lenient=True)[:, 1]
    np.testing.assert_array_equal(found, [2, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39])
def test_numbers_beyond_32_bit_floats_are_refused(value):
    table = Table("t", COLUMNS, np.array([[value, 0.0]]), np.zeros(1, int))
    with pytest.raises(DataError, match=r"column 'age' holds values that are infinite or beyond ±3.4e38"):
        Inputs(BINARY, {}).columns(table)


def test_blocks_of_rows_give_what_single_rows_give(monkeypatch):
    found, rows = random_trees("softmax", trees=30, depth=4)
    whole = found.outputs(rows)
    monkeypatch.setattr("tacit.models.trees.BLOCK", 64)
    np.testing.assert_array_equal(found.outputs(rows), whole)


def test_a_file_gives_the_same_model_and_the_same_bytes(tmp_path):
    found, rows = random_trees("softmax")
    loaded = load_model(found.save(tmp_path / "model.safetensors"))
    assert isinstance(loaded, BoostedTrees)
    np.testing.assert_array_equal(loaded.predict_proba(rows), found.predict_proba(rows))
    assert loaded.to_bytes("safetensors") == found.to_bytes("safetensors")


def test_importances_are_totals_over_splits():
    found = model()
    assert found.importances() == {"age": 10.0, "colour": 4.0}
    assert found.importances("cover") == {"age": 8.0, "colour": 5.0}
    with pytest.raises(ConfigError, match="unknown importance 'gian'"):
        found.importances("gian")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"left": [0, -1, 3, -1, -1, -1]}, "a child does not come after its parent"),
        ({"right": [2, -1, 5, -1, -1, -1]}, "a child does not come after its parent in the same tree"),
        ({"feature": [2, -1, 1, -1, -1, -1]}, "a split is at a column that is not among 2"),
        ({"feature": [1, -1, 1, -1, -1, -1]}, "'category_row' and 'categories' do not fit"),
        ({"category_row": [-1, -1, 1, -1, -1, -1]}, "'category_row' and 'categories' do not fit"),
        ({"category_row": [-1, 0, 0, -1, -1, -1]}, "'category_row' and 'categories' do not fit"),
        ({"categories": [[0, 1]]}, "'category_row' and 'categories' do not fit"),
        ({"value": [0.0, np.nan, 0.0, 0.5, 3.0, 0.25]}, "a number is not finite"),
        ({"tree_start": [0, 6, 6]}, "'tree_start' does not rise from 0 to the number of nodes"),
        ({"tree_output": [0, 1]}, "'tree_output' names an output that is not among 1"),
        ({"base": [0.0, 0.0]}, r"'base' has shape \(2,\), not \(1,\)"),
        ({"gain": [0.0]}, r"'gain' has shape \(1,\), not \(6,\)"),
    ],
)
def test_arrays_that_are_no_trees_are_refused(changed, reason):
    with pytest.raises(DataError, match=f"the model is damaged: {reason}"):
        model(**changed)


@pytest.mark.parametrize(("schema", "loss"), [(BINARY, "squared"), (TARGETS, "logistic"), (BINARY, "hinge")])
def test_a_loss_that_does_not_fit_the_task_is_refused(schema, loss):
    with pytest.raises(DataError, match=f"loss '{loss}' does not fit"):
        model(schema, loss)
