"""Federated preparation equals what pooled data would give, without pooling it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from tacit import Federation, FedHEONN, Plain, Preparation, Table
from tacit.core.errors import DataError, QuorumError, SchemaError
from tacit.core.shared import Shared, Total
from tacit.data.agreement import check_rows, introduce
from tacit.data.arrow import to_table
from tacit.data.inputs import Inputs, Recoding
from tacit.data.preparation import image_of, value_of
from tacit.data.schema import Schema
from tacit.data.table import Column


def federation_of(*tables: Table, **settings) -> Federation:
    return Federation.of({f"site {i}": table for i, table in enumerate(tables)}, **settings)


def halves(values, target) -> list[Table]:
    table = Table.of(values, target)
    return [table.take(slice(0, len(values) // 3)), table.take(slice(len(values) // 3, None))]


def prepared(preparation: Preparation, tables: list[Table], protect="plain") -> np.ndarray:
    training = federation_of(*tables, declared={"classes": [0, 1]}).train(
        FedHEONN(), preparation=preparation, protect=protect
    )
    inputs: Inputs = training.model.inputs
    return np.concatenate([inputs.matrix(table) for table in tables])


VALUES = np.random.default_rng(0).normal(loc=[0, 50, -3], scale=[1, 7, 1e-3], size=(40, 3))
TARGET = np.arange(40) % 2


@pytest.mark.parametrize("opens", ["coordinator", "clients"])
def test_standardising_equals_that_of_pooled_rows(opens):
    found = prepared(Preparation(), halves(VALUES, TARGET), Plain(opens=opens))
    np.testing.assert_allclose(found, StandardScaler().fit_transform(VALUES), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("opens", ["coordinator", "clients"])
def test_min_max_equals_that_of_pooled_rows_to_single_precision(opens):
    found = prepared(Preparation(scale="minmax"), halves(VALUES, TARGET), Plain(opens=opens))
    np.testing.assert_allclose(found, MinMaxScaler().fit_transform(VALUES), atol=1e-3)
    np.testing.assert_allclose(found[:, :2], MinMaxScaler().fit_transform(VALUES)[:, :2], atol=2e-6)
    assert found.min() >= 0 and found.max() <= 1


def test_no_scaling_leaves_numbers_alone():
    np.testing.assert_array_equal(prepared(Preparation(scale="none"), halves(VALUES, TARGET)), VALUES)


@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_a_constant_column_becomes_zero_and_changes_nothing(scale):
    constant = np.column_stack([VALUES, np.full(40, 0.1), np.full(40, -1e9)])
    found = prepared(Preparation(scale=scale), halves(constant, TARGET))
    np.testing.assert_array_equal(found[:, 3:], 0.0)


def test_a_column_constant_at_each_client_but_not_over_all_is_kept():
    first = Table.of(np.column_stack([VALUES[:20, 0], np.zeros(20)]), TARGET[:20])
    second = Table.of(np.column_stack([VALUES[20:, 0], np.ones(20)]), TARGET[20:])
    np.testing.assert_allclose(np.abs(prepared(Preparation(), [first, second])[:, 1]), 1.0)


def with_gaps() -> np.ndarray:
    values = VALUES.copy()
    values[3, 0] = values[30, 0] = values[7, 1] = np.nan
    return values


def test_missing_numbers_are_refused_by_column_and_never_byvalue_of():
    with pytest.raises(QuorumError) as caught:
        prepared(Preparation(), halves(with_gaps(), TARGET))
    text = str(caught.value)
    assert "column 'x0' holds missing values" in text and "site 0" in text
    assert "row 3" not in text  # which row it is stays at the site


@pytest.mark.parametrize("scale", ["standard", "minmax", "none"])
def test_missing_numbers_become_the_mean_of_the_federation(scale):
    values = with_gaps()
    found = prepared(Preparation(scale=scale, missing="mean"), halves(values, TARGET))
    filled = np.where(np.isnan(values), np.nanmean(values, axis=0), values)
    if scale == "standard":
        # The spread is that of the values which are there.
        expected = (filled - np.nanmean(values, axis=0)) / np.nanstd(values, axis=0)
    else:
        expected = MinMaxScaler().fit_transform(filled) if scale == "minmax" else filled
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-3 if scale == "minmax" else 1e-9)


def test_a_feature_that_nobody_has_a_value_for_is_zero():
    values = np.column_stack([VALUES, np.full(40, np.nan)])
    for scale in ("standard", "minmax"):
        found = prepared(Preparation(scale=scale, missing="mean"), halves(values, TARGET))
        np.testing.assert_array_equal(found[:, 3], 0.0)


@pytest.mark.parametrize("missing", ["refuse", "mean"])
def test_infinite_values_are_always_refused(missing):
    values = VALUES.copy()
    values[5, 2] = np.inf
    with pytest.raises(QuorumError, match="column 'x2' holds infinite values"):
        prepared(Preparation(missing=missing), halves(values, TARGET))


def test_a_client_without_rows_is_refused_by_name():
    table = Table.of(VALUES, TARGET)
    with pytest.raises(QuorumError, match="site 1: DataError: site 1 has no rows"):
        federation_of(table, table.take(slice(0, 0))).train(FedHEONN(), protect="plain")


@given(arrays.arrays(np.float32, 20, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
@settings(max_examples=50, deadline=None)
def test_the_image_of_float32_keeps_order_and_comes_back(values):
    image = image_of(values.astype(np.float64), np.inf)
    assert image.min() >= 0 and image.max() < 2**32
    np.testing.assert_array_equal(value_of(image), values)
    np.testing.assert_array_equal(np.argsort(value_of(np.sort(image)), kind="stable"), np.arange(20))


def test_numbers_beyond_single_precision_cannot_be_min_max_scaled():
    values = VALUES.copy()
    values[0, 0] = 1e300
    with pytest.raises(DataError, match="range of float32"):
        prepared(Preparation(scale="minmax"), halves(values, TARGET))


# -- schema ------------------------------------------------------------------------------------------


def tabled(names, values=VALUES, target=TARGET, **kind) -> Table:
    return Table.of(values, target, names=names, **kind)


@pytest.mark.parametrize(
    ("odd", "complaint"),
    [
        (tabled(["a", "B", "c"]), "site 2: the others call column 'B' 'b': rename it"),
        (tabled(["a", "b"], VALUES[:, :2]), "site 2: there is no column 'c', which the others have"),
        (tabled("abcd", np.ones((40, 4))), "site 2: the others have no column 'd'"),
        (tabled("abc", target=np.arange(40.0), task="regression"), "site 2: task regression"),
    ],
)
def test_a_mismatch_names_the_client_and_the_column(odd, complaint):
    good = tabled("abc")
    with pytest.raises(SchemaError, match=complaint.replace(";", ".")):
        federation_of(good, good, odd).train(FedHEONN(), protect="plain")


@pytest.mark.parametrize("protect", ["plain", "masked"])
@pytest.mark.parametrize("method", ["fedheonn", "fedavg"])
def test_columns_match_by_name_in_any_order(protect, method):
    """Also where rows are kept aside, and where categories stand between the numbers."""
    sex = Column("sex", "category", ("f", "m"))
    values = np.column_stack([VALUES[:, :2], np.arange(len(VALUES)) % 2])
    table = Table("t", (Column("age"), Column("bmi"), sex), values, TARGET, classes=(0, 1))
    turned = table.arranged(["sex", "bmi", "age"])
    assert turned.values[:, 0].tolist() == values[:, 2].tolist()

    def model(*tables):
        return federation_of(*tables).train(method, protect=protect, min_count=1)

    expected, found = model(table, table, table), model(table, turned, table)
    assert [column.name for column in found.schema.columns] == ["age", "bmi", "sex"]
    assert found.outcome.digest == expected.outcome.digest
    # Also whoever scores the model, and who pools the rows for comparison.
    assert found.model.scores(turned) == found.model.scores(table)
    pooled = federation_of(table, turned, table).pooled(found.schema).holdings.table
    assert pooled.values.tolist() == [*values.tolist()] * 3


def test_a_column_of_text_at_one_client_is_named():
    good = tabled("abc")
    columns = (good.columns[0], Column("b", "category", ("lo", "hi")), good.columns[2])
    text = Table("t", columns, np.column_stack([VALUES[:, 0], TARGET, VALUES[:, 2]]), TARGET, classes=(0, 1))
    with pytest.raises(SchemaError, match="site 2: column 'b' is a category, the others have a number"):
        federation_of(good, good, text).train(FedHEONN(), protect="plain")


def test_classes_are_united_over_clients_that_hold_one_each():
    tables = [Table.of(VALUES[i : i + 10], [label] * 10) for i, label in ((0, "b"), (10, "a"), (20, "c"))]
    training = federation_of(*tables).train(FedHEONN(), protect="plain")
    assert training.model.classes_.tolist() == ["a", "b", "c"]


def test_a_label_nobody_agreed_on_stops_that_client_and_is_not_told():
    tables = [Table.of(VALUES, TARGET), Table.of(VALUES, TARGET + 1)]
    with pytest.raises(QuorumError, match="a label that nobody agreed on") as caught:
        federation_of(*tables, declared={"classes": [0, 1]}).train(FedHEONN(), protect="plain")
    assert "site 1" in str(caught.value)


def test_a_federation_of_one_class_is_refused():
    with pytest.raises(SchemaError, match="single class"):
        federation_of(Table.of(VALUES, np.zeros(40))).train(FedHEONN(), protect="plain")


def categorical(words: list[str], values: list[float]) -> Table:
    codes = {word: float(i) for i, word in enumerate(sorted(set(words) - {""}))}
    coded = [codes.get(word, np.nan) for word in words]
    columns = (Column("town", "category", tuple(codes)), Column("age"))
    return Table("t", columns, np.column_stack([coded, values]), np.arange(len(words)) % 2, classes=(0, 1))


def test_categories_are_united_and_mean_the_same_at_every_client():
    first = categorical(["Rome", "Oslo", "Rome", "Oslo"], [1, 2, 3, 4])
    second = categorical(["Lima", "Rome", "", "Lima"], [5, 6, 7, 8])
    training = federation_of(first, second).train(
        FedHEONN(), preparation=Preparation(scale="none"), protect="plain"
    )
    schema: Schema = training.schema
    assert schema.feature_names == ("town=Lima", "town=Oslo", "town=Rome", "age")
    np.testing.assert_array_equal(
        Recoding(schema, None).encode(second)[:, :3], [[1, 0, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]]
    )
    assert training.model.predict(np.array([["Rome", 3.0], ["Lima", 2.0]], dtype=object)).shape == (2,)
    with pytest.raises(DataError, match=r"nobody agreed on.*'Rom': did you mean 'Rome'"):
        training.model.predict(np.array([["Rom", 3.0]], dtype=object))


def test_schema_travels_as_a_message():
    schema = Schema((Column("a"), Column("b", "category", ("x", "y"))), "classification", (1, "z"), ("t",))
    back = Schema.from_message(schema.to_message())
    assert back.feature_names == schema.feature_names and back.classes == (1, "z")


def test_a_client_tells_no_words_in_the_clear_where_only_some_columns_are_declared():
    rows = pa.table({"ward": ["n", "s"], "town": ["Rome", "Oslo"], "target": ["no", "yes"]})
    table = to_table(rows, "rows")
    declared = {"classes": ["no", "yes"], "categories": {"ward": ["n", "s"]}}
    with pytest.raises(SchemaError, match="'town' has categories, and only those of other columns are decl"):
        introduce(table, declared)
    assert introduce(table, {**declared, "sought": True})["vocabulary"] == b"{}"
    declared["categories"]["town"] = ["Oslo", "Rome"]
    assert introduce(table, declared)["vocabulary"] == b"{}"


def test_lengths_of_columns_count_what_fills_gaps():
    """Three of four values are there, 1, 2 and 3: the mean of 2 stands in for the fourth."""
    schema = Schema((Column("a"),), "classification", ("k", "l"), ("y",))
    sums = {"rows": 4.0, "count": np.array([3.0]), "sum": np.array([6.0]), "square": np.array([14.0])}
    found = Preparation(scale="none", missing="mean").apply_moments(Total(sums, 2), Shared(schema, {}))
    assert found["norms"].tolist() == [4.0, 1 + 4 + 9 + 2**2]


def test_a_target_with_gaps_is_refused():
    table = Table.of(np.ones((3, 1)), np.array([1.0, np.nan, 2.0]), task="regression")
    with pytest.raises(DataError, match="ann: the target holds missing or infinite values"):
        check_rows(table, "ann", "mean")
