"""Small cells: what is counted, what becomes "other", and what stops a run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Federation, FedHEONN, Table
from tacit.core.coordinator import Coordinator
from tacit.core.errors import ConfigError, DataError, QuorumError
from tacit.core.events import Events, Noted
from tacit.core.manifest import Manifest
from tacit.core.shared import Shared, Total
from tacit.data import cells
from tacit.data.inputs import Recoding, describe
from tacit.data.schema import ABSENT, OTHER, Schema
from tacit.data.table import Column
from tacit.models.files import load_model
from tacit.runs.settings import Settings
from tests.helpers.onnx_rows import onnx_feed
from tests.quick import examples

WORDS = ("a", "b", "c", "d")


def mixed(codes, numbers, target=None) -> Table:
    """One column of categories (NaN is missing) and one of numbers."""
    columns = (Column("word", "category", categories=WORDS), Column("number"))
    target = np.arange(len(codes)) % 2 if target is None else np.asarray(target)
    return Table(
        "mixed", columns, np.column_stack([codes, numbers]).astype(float), target, classes=("n", "y")
    )


def schema_of(table: Table, least: int = 5) -> Schema:
    return Schema(table.columns, table.task, table.classes, table.target_names, least)


def total_of(table: Table, least: int, clients: int) -> Total:
    """The opened total over clients that hold every so-manieth row."""
    parts = [
        cells.count(table.take(slice(i, None, clients)), schema_of(table, least)) for i in range(clients)
    ]
    return Total({name: sum(part[name] for part in parts) for name in parts[0]}, clients)


def recoding_of(table: Table, least: int = 5, clients: int = 1):
    found = cells.Cells.of(total_of(table, least, clients), least)
    found.check(schema_of(table))
    return found.recoding(schema_of(table))


def federation_of(table: Table, clients: int = 4) -> Federation:
    tables = {f"site-{i}": table.take(slice(i, None, clients)) for i in range(clients)}
    words = {column.name: list(column.categories) for column in table.columns if column.categories}
    return Federation.of(tables, declared={"classes": list(table.classes), "categories": words})


COMMON = np.arange(40) % 2  # categories a and b, twenty each
NUMBERS = np.random.default_rng(1).normal(size=40)


def test_nothing_changes_if_every_cell_has_enough_rows():
    assert recoding_of(mixed(COMMON, NUMBERS)) is None


codes = st.lists(st.sampled_from([0, 1, 2, 3, np.nan]), min_size=20, max_size=60)


@settings(max_examples=examples(200), deadline=None)
@given(codes=codes, least=st.integers(2, 8), clients=st.integers(1, 20))
def test_afterwards_no_cell_is_small_whoever_holds_which_rows(codes, least, clients):
    table = mixed(codes, np.arange(len(codes)))
    found = recoding_of(table, least, clients)
    assert np.array_equal(found, recoding_of(table, least))
    encoded = Recoding(schema_of(table), found).encode(table)[:, :4]
    sizes = [*encoded.sum(axis=0), (encoded.sum(axis=1) == 0).sum()]
    assert all(size == 0 or size >= least for size in sizes)
    assert set(np.unique(encoded)) <= {0.0, 1.0} and (encoded.sum(axis=1) <= 1).all()


def test_rare_categories_that_are_enough_together_are_other_by_themselves():
    table = mixed(np.append(COMMON, [2, 2, 2, 3, 3]), np.append(NUMBERS, range(5)))
    known = Recoding(schema_of(table), recoding_of(table))
    assert known.features.tolist() == [0, 1, 2, 2, 4]
    assert known.unseen.tolist() == [2, ABSENT] and known.gaps.tolist() == [ABSENT, ABSENT]


def test_a_rare_category_counts_as_missing_where_enough_are_missing():
    table = mixed(np.append(COMMON, [2, *[np.nan] * 5]), np.append(NUMBERS, range(6)))
    known = Recoding(schema_of(table), recoding_of(table))
    assert known.features.tolist() == [0, 1, 2, 3, 4]
    assert known.unseen.tolist() == [2, ABSENT] and known.gaps.tolist() == [2, ABSENT]


def test_counts_of_rare_categories_go_to_the_one_they_count_as():
    schema = schema_of(mixed([0], [0.0]))
    # Of a, b, c, d: a and d stay, b counts as d, c is left out; missing ones count as a.
    recoding = Recoding(schema, np.array([0, 3, ABSENT, 3, 4, ABSENT, ABSENT, 0, ABSENT]))
    assert recoding.merged(0, np.array([10, 2, 4, 6, 1])).tolist() == [11, 0, 0, 8, 0]


def test_what_is_left_out_and_put_together_is_told():
    schema = schema_of(mixed([0], [0.0]))
    cells_found = np.array([0, 3, ABSENT, 3, 4, ABSENT, ABSENT, 0, ABSENT])
    told = describe(Shared(schema, {"cells": cells_found, "min_count": 5}))
    assert told[0].startswith("'word=b': in fewer than min_count = 5 rows, or put together with such")
    assert told[1] == "'word=c': constant but for fewer than min_count = 5 rows, and left out"


def test_a_word_that_nobody_agreed_on_counts_as_other_where_there_is_one():
    schema = Schema((Column("word", "category", categories=("a", OTHER)),), "classification", (0, 1), ("y",))
    assert Recoding(schema, None).unseen.tolist() == [1]


def test_few_missing_categories_are_a_small_cell_too():
    table = mixed(np.append(COMMON, [np.nan]), np.append(NUMBERS, 0))
    known = Recoding(schema_of(table), recoding_of(table))
    assert known.features.tolist() == [0, 1, 2, 3, 4] and known.gaps.tolist() == [0, ABSENT]


def test_a_column_with_one_frequent_category_is_left_out():
    table = mixed([0] * 40 + [1] * 4, np.append(NUMBERS, range(4)))
    assert Recoding(schema_of(table), recoding_of(table)).features.tolist() == [ABSENT] * 4 + [4]


@pytest.mark.parametrize("usual", [0.0, 1.0, 7.0, -0.1, 1e300])
@pytest.mark.parametrize("clients", [1, 7, 44])
def test_a_column_that_is_constant_but_for_four_rows_is_left_out(usual, clients):
    table = mixed(np.arange(44) % 2, np.append(np.full(40, usual), [3.5, 2.0, -9.0, 1e5]))
    assert Recoding(schema_of(table), recoding_of(table, clients=clients)).features[4] == ABSENT


@pytest.mark.parametrize("values", [(0, 1), (1, 2), (1, 3), (-1, 1), (64, 128), (100, 164), (0.25, 0.75)])
def test_a_column_of_two_values_with_five_rows_each_is_kept(values):
    table = mixed(np.arange(45) % 2, np.repeat(values, [40, 5]))
    assert recoding_of(table, clients=9) is None


def test_a_column_of_zeros_stays_as_it_is():
    assert recoding_of(mixed(COMMON, np.zeros(40))) is None


def test_a_column_of_which_few_values_are_there_is_left_out():
    numbers = np.full(40, np.nan)
    numbers[:4] = range(1, 5)
    assert (
        Recoding(schema_of(mixed(COMMON, numbers)), recoding_of(mixed(COMMON, numbers))).features[4] == ABSENT
    )


def test_what_is_counted_of_large_cells_is_cut_at_the_least_count():
    counts = cells.count(mixed(COMMON, NUMBERS), schema_of(mixed(COMMON, NUMBERS)))
    assert counts["classes"].tolist() == [5, 5] and counts["categories"].tolist() == [5, 5, 0, 0, 0]
    assert np.all(counts["marks"] == 5) and counts["rows"] == 10


def test_too_few_rows_stop_a_run():
    with pytest.raises(DataError, match="fewer than 10 rows, twice min_count = 5"):
        federation_of(mixed(COMMON[:9], NUMBERS[:9]), 3).train(FedHEONN(), protect="masked")


def test_a_target_that_few_rows_do_not_share_stops_a_run():
    table = Table.of(NUMBERS[:, None], np.append(np.zeros(38), [1.0, 2.0]), task="regression")
    with pytest.raises(
        DataError, match="the target 'target' is the same in all but fewer than min_count = 5"
    ):
        federation_of(table).train(FedHEONN(activation="linear"), protect="masked")


def rare_words() -> Table:
    return mixed(np.append(COMMON, [2, 2, 2, 3, 3, np.nan]), np.append(NUMBERS, range(6)))


def test_pooled_rows_give_the_same_model():
    table = rare_words()
    pooled = federation_of(table, 1).train(FedHEONN(), protect="plain", min_count=5).model
    for protect in ("plain", "masked", "ckks"):
        model = federation_of(table).train(FedHEONN(), protect=protect, min_count=5).model
        np.testing.assert_allclose(model.outputs(table), pooled.outputs(table), atol=1e-6)


def test_a_saved_model_knows_other(tmp_path):
    model = federation_of(rare_words()).train(FedHEONN(), protect="masked").model
    again = load_model(model.save(tmp_path / "model.safetensors"))
    rows = np.array([["c", 1.0], ["d", 1.0], ["z", 1.0]], dtype=object)
    np.testing.assert_array_equal(again.outputs(rows), model.outputs(rows))
    assert np.ptp(model.outputs(rows), axis=0).max() == 0


def test_an_onnx_model_knows_other():
    onnx = pytest.importorskip("onnx.reference")
    from tacit.models.onnx_export import to_onnx

    table = rare_words()
    model = federation_of(table).train(FedHEONN(), protect="masked").model
    codes = np.nan_to_num(table.values[:, 0], nan=-1).astype(int)
    words = [*np.array([*table.columns[0].categories, None], dtype=object)[codes], "z", None]
    raw = np.array([*zip(words, [*table.values[:, 1], 2.0, 2.0], strict=True)], dtype=object)
    (found,) = onnx.ReferenceEvaluator(to_onnx(model)).run(["probabilities"], onnx_feed(model, raw))
    np.testing.assert_allclose(found[:-2], model.predict_proba(table), atol=1e-9)
    unseen = np.array([["z", 2.0]], dtype=object)
    np.testing.assert_allclose(found[-2:-1], model.predict_proba(unseen), atol=1e-9)


def test_without_a_least_count_the_run_says_so():
    told = []
    events = Events(lambda number, event: told.append(event))
    federation_of(mixed(COMMON, NUMBERS)).train(FedHEONN(), protect="masked", min_count=1, events=events)
    assert any(isinstance(event, Noted) and "min_count is 1" in event.text for event in told)


def test_a_client_contributes_nothing_before_cells_are_counted(coordinator_of):
    coordinator: Coordinator = coordinator_of(min_count=5)
    coordinator.enrol()
    with pytest.raises(QuorumError, match="'moments' is asked for before the federation has counted"):
        coordinator.components.preparation.train(coordinator)
    coordinator.shared = coordinator.shared | {"min_count": 4}  # as if fewer had been agreed
    with pytest.raises(QuorumError, match="'moments' is asked for before the federation has counted"):
        coordinator.components.preparation.train(coordinator)


def test_clients_that_join_later_are_counted_by_themselves():
    first = federation_of(mixed(COMMON, NUMBERS)).train(FedHEONN(), protect="masked")
    few = mixed([0] * 20 + [1], np.append(NUMBERS[:20], 0))
    tables = {f"late-{i}": few.take(slice(i, None, 3)) for i in range(3)}
    later = Federation.of(tables)
    with pytest.raises(DataError, match="rows of these clients differ from the rest in column 'word'"):
        later.train(FedHEONN(), protect="masked", start=first)
    rare = mixed(COMMON[:21], NUMBERS[:21], target=[1, *[0] * 20])
    with pytest.raises(DataError, match="the class 'y' occurs in fewer than min_count = 5 rows"):
        federation_of(rare, 3).train(FedHEONN(), protect="masked", start=first)
    enough = {f"late-{i}": mixed(COMMON, NUMBERS).take(slice(i, None, 3)) for i in range(3)}
    Federation.of(enough).train(FedHEONN(), protect="masked", start=first)


@pytest.mark.parametrize("value", [0, -1, 1001, 2.5, True])
def test_a_least_count_out_of_range_is_refused(value):
    with pytest.raises(ConfigError, match="min_count is"):
        Manifest("run", {}, min_count=value)


def test_a_setting_of_a_run_has_the_least_count():
    assert Settings.from_tables({"run": {"min_count": 7}}).run.min_count == 7
    with pytest.raises(ConfigError, match=r"\[run\] min_count is 0: give 1 to 1000"):
        Settings.from_tables({"run": {"min_count": 0}})


def test_a_protection_that_rounds_too_coarsely_cannot_count():
    coarse = {"protect": {"name": "masked", "bits": 8}, "method": {"name": "fedavg"}}
    Settings.from_tables(coarse)
    with pytest.raises(ConfigError, match=r"min_count is 12, but masked rounds to .* too coarse"):
        Settings.from_tables({**coarse, "run": {"min_count": 12}})


def test_counts_with_noise_cannot_be_compared():
    with pytest.raises(ConfigError, match="counts with noise cannot be compared"):
        Settings.from_tables(
            {
                "run": {"min_count": 5},
                "method": {"name": "fedavg", "weighting": "equal"},
                "protect": {"name": "noised"},
            }
        )
