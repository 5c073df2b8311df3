"""Loading by name and by path: what becomes what, and what is refused with which advice."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.core.errors import ConfigError, DataError, UnavailableError
from tacit.data.arrow import to_table
from tacit.data.catalog import catalog, content_digest
from tacit.data.files import available, load
from tacit.data.table import Table


def csv(folder: Path, text: str, name: str = "mine.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def at_hand(name: str) -> str:
    if not Path(os.environ.get("TACIT_DATA", "nowhere"), f"{name}.parquet").is_file():
        pytest.skip(f"TACIT_DATA has no {name}.parquet")
    return name


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any data files."""
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "none"))
    monkeypatch.setattr("tacit.data.files.cache_folder", lambda: tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "shape", "labels"),
    [
        ("digits", (1797, 64), tuple(range(10))),
        ("breast_cancer", (569, 30), ("malignant", "benign")),
        ("wine", (178, 13), ("class_0", "class_1", "class_2")),
        ("iris", (150, 4), ("setosa", "versicolor", "virginica")),
    ],
)
def test_built_in_sets(name: str, shape: tuple[int, int], labels: tuple[Any, ...]) -> None:
    table = load(name)
    assert (table.values.shape, table.classes, table.target.dtype) == (shape, labels, np.int64)


@pytest.mark.parametrize("name", sorted(name for name, facts in catalog().items() if facts.sha256))
def test_files_at_hand_are_as_the_catalogue_says(name: str) -> None:
    table, facts = load(at_hand(name)), catalog()[name]
    assert (table.rows, len(table.columns), table.task) == (facts.rows, facts.features, facts.task)
    assert (table.target_names, set(table.groups)) == (facts.targets, set(facts.groups))
    if facts.classes:
        counts = np.bincount(table.target).tolist()
        assert dict(zip(map(str, table.classes), counts, strict=True)) == facts.classes


def test_images_stay_small_and_load_fast() -> None:
    name = at_hand("fashion_mnist")
    start = time.perf_counter()
    table = load(name)
    assert time.perf_counter() - start < 4
    assert (table.values.dtype, table.values.flags.c_contiguous) == (np.uint8, True)


def test_regression_with_three_targets() -> None:
    table = load(at_hand("carbon_nanotubes"))
    assert (table.task, table.target.shape, table.target.dtype) == ("regression", (10721, 3), np.float64)


def test_a_csv_of_ones_own(tmp_path: Path) -> None:
    path = csv(tmp_path, "age,city,member,score,label\n31,Bonn,true,1.5,no\n47,,false,,yes\n,Aix,true,2,no\n")
    table = load(path, target="label")
    assert [(c.name, c.kind, c.categories) for c in table.columns] == [
        ("age", "number", ()),
        ("city", "category", ("Aix", "Bonn")),
        ("member", "category", ("false", "true")),
        ("score", "number", ()),
    ]
    np.testing.assert_array_equal(table.values, [[31, 1, 1, 1.5], [47, np.nan, 0, np.nan], [np.nan, 0, 1, 2]])
    assert (table.classes, table.target.tolist(), table.name) == (("no", "yes"), [0, 1, 0], "mine")


@pytest.mark.parametrize(("name", "mark"), [("a.tsv", "\t"), ("a.csv", ";"), ("a.csv", "\t")])
def test_separators(tmp_path: Path, name: str, mark: str) -> None:
    path = csv(tmp_path, "a,b,target\n1,2,0\n3,4,1\n".replace(",", mark), name)
    assert load(str(path)).values.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("target", "task", "classes"),
    [
        (["no", "yes", "no"], None, ("no", "yes")),
        ([True, False, True], None, (False, True)),
        ([2, 1, 2], None, (1, 2)),
        ([2.0, 1.0, 2.0], None, (1, 2)),  # whole floats are labels
        ([2.5, 1.0, 2.0], None, ()),
        ([2, 1, 2], "regression", ()),
        ([2.5, 1.0, 2.5], "classification", (1.0, 2.5)),
    ],
)
def test_the_task_is_guessed(target: list[Any], task: Any, classes: tuple[Any, ...]) -> None:
    table = to_table(pa.table({"x": [1, 2, 3], "target": target}), "t", task=task)
    assert table.classes == classes
    assert table.task == ("classification" if classes else "regression")


@pytest.mark.parametrize("cast", [int, float])
def test_more_than_fifty_whole_numbers_are_a_quantity(cast: type) -> None:
    few, many = (
        to_table(pa.table({"x": range(n), "target": [cast(i) for i in range(n)]}), "t") for n in (50, 51)
    )
    assert (few.task, many.task) == ("classification", "regression")


def test_several_targets_and_names_with_commas() -> None:
    data = pa.table({"x": [1, 2], "a": [0, 1], "b": [0.5, 1.5], "c,d": [3, 4]})
    assert to_table(data, "t", target="a, b").target.tolist() == [[0, 0.5], [1, 1.5]]
    assert to_table(data, "t", target="c,d").target_names == ("c,d",)
    with pytest.raises(ConfigError, match="2 targets cannot be one class"):
        to_table(data, "t", target="a,b", task="classification")


def test_groups_are_not_features() -> None:
    data = pa.table({"x": [1, 2], "split": ["train", "test"], "ward": ["n", "s"], "target": [0, 1]})
    assert list(to_table(data, "t").groups) == ["split"]
    table = to_table(data, "t", groups=["ward"])
    assert ([c.name for c in table.columns], table.groups["ward"].tolist()) == (["x", "split"], ["n", "s"])
    with pytest.raises(ConfigError, match="did you mean 'ward'"):
        to_table(data, "t", groups=["wrad"])


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (pa.array([1, 2], pa.uint8()), "uint8"),
        (pa.array([1, None], pa.int16()), "float32"),
        (pa.array([1, None], pa.int32()), "float64"),
        (pa.array([1.5, 2], pa.float16()), "float32"),
        (pa.array([None, None]), "float32"),
        (pa.array(["1.5", "2"]).cast(pa.decimal128(5, 2)), "float64"),
        (pa.array(["a", None]), "float32"),
        (pa.array(["a", "b"]).dictionary_encode(), "int16"),
    ],
)
def test_types_stay_as_small_as_they_can(array: pa.Array, dtype: str) -> None:
    table = to_table(pa.table({"x": array, "target": [0, 1]}), "t")
    assert str(table.values.dtype) == dtype
    assert np.isnan(table.values[:, 0].astype(float)).tolist() == [v is None for v in array.to_pylist()]


def test_dictionaries_of_several_chunks_agree() -> None:
    chunks = pa.chunked_array(
        [pa.array(["b", "c"]).dictionary_encode(), pa.array(["a", "b"]).dictionary_encode()]
    )
    table = to_table(pa.table({"x": chunks, "target": [0, 0, 1, 1]}), "t")
    assert (table.columns[0].categories, table.values.ravel().tolist()) == (("a", "b", "c"), [1, 2, 0, 1])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,label\n1,2\n", {}, "no column called 'target': name the one to predict"),
        ("a,label\n1,2\n", {"target": "lable"}, "did you mean 'label'"),
        ("a,target\n1,x\n2,y\n", {"task": "regresion"}, "did you mean 'regression'"),
        ("a,target\n1,x\n", {"repeat": 0}, "repeat is 0: give a whole number"),
        ("a,target\n1,x\n", {"rows": 2}, "has 1 rows, 2 were asked for"),
    ],
)
def test_bad_settings(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(csv(tmp_path, text), **options)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "cannot be read as CSV"),
        ("a,target\n", {}, "no rows"),
        ("a,target\n1,2\n1,2,3\n", {}, "Expected 2 columns, got 3"),
        ("a,target\n1,x\n2,\n3,\n", {}, r"missing or not finite.*2 of 3 rows, first in row 2"),
        ("a,target\n1,0.5\n2,inf\n", {}, "first in row 2"),
        ("a,target\n1,x\n2,y\n", {"task": "regression"}, "is text and cannot be predicted"),
        ("a,a,target\n1,2,3\n", {}, "'a' is there more than once"),
        ("day,target\n2024-01-02,1\n", {}, "column 'day' holds date32.*neither number nor text"),
        ("target\n1\n", {}, "no feature beside target"),
    ],
)
def test_bad_data(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(csv(tmp_path, text), **options)


def test_bad_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"gr\x81\x8de,target\n1,2\n")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "a.xlsx").write_bytes(b"")
    pq.write_table(
        pa.table({"when": [datetime(2024, 1, 2)], "l": [[1]], "target": [1]}), tmp_path / "b.parquet"
    )
    with pytest.raises(DataError, match="save it as UTF-8"):
        load(tmp_path / "a.csv")
    with pytest.raises(DataError, match="cannot be read as parquet"):
        load(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.xlsx cannot be read as an Excel file"):
        load(tmp_path / "a.xlsx")
    (tmp_path / "a.sav").touch()
    with pytest.raises(ConfigError, match=r"ends in '\.sav': give a \.csv"):
        load(tmp_path / "a.sav")
    with pytest.raises(DataError, match="column 'when' holds timestamp"):
        load(tmp_path / "b.parquet")
    with pytest.raises(ConfigError, match=r"no file .*c\.csv"):
        load(str(tmp_path / "c.csv"))


def test_names_are_looked_up_in_order(empty: Path) -> None:
    with pytest.raises(UnavailableError, match=r"tacit data fetch adult.*put adult\.parquet into"):
        load("adult")
    with pytest.raises(UnavailableError, match=r"'mnist' is not on this machine: put mnist\.parquet"):
        load("mnist")
    with pytest.raises(ConfigError, match="did you mean 'dry_bean'"):
        load("dry_beans")
    for folder, value in ((empty / "cache", 1), (empty / "data", 2), (empty / "none", 3)):
        folder.mkdir()
        pq.write_table(pa.table({"x": [value], "target": [0]}), folder / "own.parquet")
        assert load("own").values.tolist() == [[value]]
    kinds = {known.name: known.kind for known in available()}
    assert [kinds[name] for name in ("own", "iris", "adult", "mnist", "synthetic-higgs")] == [
        "file",
        "built-in",
        "downloadable",
        "absent",
        "synthetic",
    ]


def test_rows_and_repeat() -> None:
    whole = load("wine")
    ten = load("wine", repeat=10)
    assert (ten.rows, ten.name) == (1780, "wine×10")
    np.testing.assert_array_equal(ten.values[178:356], whole.values)
    some = load("wine", rows=40, seed=3)
    assert some.rows == 40
    np.testing.assert_array_equal(some.values, load("wine", rows=40, seed=3).values)
    assert not np.array_equal(some.values, load("wine", rows=40, seed=4).values)
    assert load("wine", repeat=2, rows=300).rows == 300
    assert load("synthetic-susy", rows=10, repeat=4).rows == 10
    with pytest.raises(ConfigError, match="comes with its target"):
        load("wine", target="alcohol")


def test_content_is_what_a_table_says_and_not_how_it_is_stored() -> None:
    columns = {
        "x": pa.array([1, 2, None], pa.int8()),
        "c": ["b", "a", None],
        "split": ["train", "test", "test"],
    }
    first = to_table(pa.table({**columns, "target": ["u", "v", "u"]}), "one")
    wide = {**columns, "x": pa.array([1.0, 2.0, None]), "c": pa.array(["b", "a", None]).dictionary_encode()}
    second = to_table(pa.table({**wide, "target": pa.array(["u", "v", "u"]).dictionary_encode()}), "two")
    assert content_digest(first) == content_digest(second)
    changed = [
        {**columns, "x": [1, 3, None]},
        {**columns, "c": ["b", "a", "a"]},
        {**columns, "split": ["train"] * 3},
    ]
    others = [to_table(pa.table({**other, "target": ["u", "v", "u"]}), "one") for other in changed]
    others += [to_table(pa.table({**columns, "target": ["u", "u", "v"]}), "one")]
    others += [to_table(pa.table({**columns, "target": [0.5, 1, 2]}), "one")]
    assert len({content_digest(table) for table in [first, *others]}) == 6
    # Categories that no row has any more do not count.
    cut = Table.of([[1.0], [2.0], [3.0]], ["a", "b", "c"]).take([0, 1])
    assert content_digest(cut) == content_digest(Table.of([[1.0], [2.0]], ["a", "b"]))


def test_importing_is_light() -> None:
    code = (
        "import sys, tacit.data.files, tacit.data.partition; "
        "sys.exit(' '.join({'pyarrow', 'sklearn', 'urllib.request', 'pandas'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
