"""Reading what people have: CSV dialects, Excel, SQL, chosen columns, and a file for each client."""

from __future__ import annotations

import gzip
import resource
import sqlite3
import zipfile
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tacit
from tacit.core.errors import ConfigError, DataError, SchemaError, UnavailableError
from tacit.data.arrow import to_table
from tacit.data.catalog import content_digest
from tacit.data.files import absolute, load
from tacit.data.inspection import check
from tacit.data.partition import partition
from tacit.data.reading import Reading
from tacit.data.sources import read_sheet
from tacit.data.table import Table
from tacit.runs.settings import Settings, usual_partition
from tacit.runs.tables import DataSettings

WARD = "age;bmi;sex;doctor;target\n31;22,5;f;Müller;0\n47;30,1;m;Öz;1\n58;27,0;f;Öz;1\n"
ROWS = [[31.0, 22.5, 0.0, 0.0], [47.0, 30.1, 1.0, 1.0], [58.0, 27.0, 0.0, 1.0]]


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: str | bytes, name: str = "mine.csv", encoding: str = "utf-8") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return path

    return write


# -- dialects ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_dialects_are_detected(file: Any, encoding: str, separator: str) -> None:
    table = load(file(WARD.replace(";", separator), encoding=encoding))
    assert table.values.tolist() == ROWS
    assert table.columns[3].categories == ("Müller", "Öz")
    (note,) = table.notes
    assert f"separator {separator!r}, decimal ','" in note
    assert ("encoding" in note) == (encoding in ("utf-16", "cp1252"))


def test_commas_may_separate_cells_and_stand_in_numbers(file: Any) -> None:
    quoted = "\n".join(",".join(f'"{cell}"' for cell in line.split(";")) for line in WARD.split("\n")[:-1])
    table = load(file(quoted))
    assert (table.values.tolist(), table.notes) == (ROWS, ("mine.csv: read with decimal ','",))


def test_letters_beyond_the_sample_tell_the_encoding(file: Any) -> None:
    table = load(file("a,b,target\n" + "1,x,0\n" * 60_000 + "2,Öz,1\n", encoding="cp1252"))
    assert (table.rows, table.columns[1].categories) == (60_001, ("x", "Öz"))
    assert table.notes == ("mine.csv: read with encoding 'cp1252'",)


def test_what_is_said_is_not_guessed(file: Any) -> None:
    polish = file("miasto;x;target\nŁódź;1;0\nŁódź;2;1\n", "polish.csv", encoding="cp1250")
    assert load(polish, encoding="cp1250").columns[0].categories == ("Łódź",)
    assert load(file("a;b,target\n1;2,0\n3;4,1\n"), separator=",").columns[0].name == "a;b"
    assert load(file("a\tb\ttarget\n1\t2\t0\n3\t4\t1\n"), separator="tab").values.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(DataError, match=r"not written in ascii: name its encoding"):
        load(polish, encoding="ascii")
    with pytest.raises(DataError, match=r"not written in nonsense"):
        load(polish, encoding="nonsense")
    with pytest.raises(ConfigError, match="separator is 'ab': give one character, or tab"):
        load(polish, separator="ab")
    with pytest.raises(ConfigError, match=r"decimal = 'x'"):
        load(polish, decimal="x")


def test_points_that_may_part_thousands_are_warned_of_with_the_column_and_the_way_out(file: Any) -> None:
    path = file("age;pay of a year;target\n31;61.000;0\n47;9.500;1\n")
    (note,) = (note for note in load(path).notes if "thousands" in note)
    assert note.endswith(
        "column 'pay of a year' has three digits after each point: if points part thousands, use --decimal , "
        "--numeric 'pay of a year'"
    )
    found = load(path, decimal=",", numeric=["pay of a year"])
    assert (found.values[:, 1].tolist(), found.notes[1:]) == ([61_000, 9_500], ())
    assert load(path).values[:, 1].tolist() == [61, 9.5]


def test_thousands_are_not_taken_for_fractions(file: Any) -> None:
    path = file("pay;x;target\n1,234;1;0\n2,345;2;1\n")
    assert load(path).columns[0].kind == "category"
    with pytest.raises(ConfigError, match=r"column 'pay' may hold thousands or fractions.*with decimal"):
        load(path, numeric=["pay"])
    assert load(path, numeric=["pay"], decimal=".").values[:, 0].tolist() == [1234, 2345]
    assert load(path, decimal=",").values[:, 0].tolist() == [1.234, 2.345]


def test_zeros_before_other_digits_are_kept(file: Any) -> None:
    """Postcodes and codes of wards are no numbers, and 01067 is not 1067."""
    path = file("zip,x,target\n01067,0,0\n50667,0.5,1\n")
    assert load(path).columns[0].categories == ("01067", "50667")
    assert [column.kind for column in load(path, numeric=["zip"]).columns] == ["number", "number"]


def test_names_of_columns_are_trimmed_and_none_is_empty(file: Any, tmp_path: Path) -> None:
    text = ", age ,target \n0,31,no\n1,47,yes\n"
    assert [column.name for column in load(file(text)).columns] == ["column 1", "age"]
    book = openpyxl.Workbook()
    for row in (["Ward 7", None, None], [2024, None, "target"], [1, 2, "no"]):
        book.active.append(row)
    book.save(tmp_path / "titled.xlsx")
    with pytest.raises(ConfigError, match=r"no column called 'target'.*: Ward 7, column 2, column 3$"):
        load(tmp_path / "titled.xlsx")
    book.active.delete_rows(1)
    book.save(tmp_path / "plain.xlsx")
    assert [column.name for column in load(tmp_path / "plain.xlsx").columns] == ["2024", "column 2"]


@pytest.mark.parametrize("first", ["66,1,0", "66,43.6,krank"])
def test_a_first_row_of_data_is_not_taken_for_names(file: Any, first: str) -> None:
    """Names of columns are told to others, and are in errors: a patient's row must not be."""
    with pytest.raises(
        DataError, match=r"^mine.csv has numbers in its first row, which names the columns: add"
    ):
        load(file(f"{first}\n58,27.1,1\n"))


def test_packed_files_and_others_say_the_same(file: Any, tmp_path: Path) -> None:
    plain = load(file(WARD))
    packed = tmp_path / "mine.csv.gz"
    packed.write_bytes(gzip.compress(WARD.encode()))
    names = [column.name for column in plain.columns]
    words = [["f", "m", "f"], ["Müller", "Öz", "Öz"]]
    cells = dict(zip(names, [[31, 47, 58], [22.5, 30.1, 27.0], *words], strict=True)) | {"target": [0, 1, 1]}
    pq.write_table(pa.table(cells), tmp_path / "mine.parquet")
    book = openpyxl.Workbook()
    for row in [[*cells], *zip(*cells.values(), strict=True)]:
        book.active.append(row)
    book.create_sheet("notes").append(["nothing"])
    book.save(tmp_path / "mine.xlsx")
    for path in (packed, tmp_path / "mine.parquet", tmp_path / "mine.xlsx"):
        table = load(path)
        assert (table.name, content_digest(table)) == ("mine", content_digest(plain))
    assert table.notes == ("mine.xlsx: sheet 'Sheet', the first of 2",)
    assert load(tmp_path / "mine.xlsx", sheet="Sheet").notes == ()
    with pytest.raises(ConfigError, match="no sheet 'Note': did you mean 'notes'"):
        load(tmp_path / "mine.xlsx", sheet="Note")
    with pytest.raises(ConfigError, match=r"mine\.csv\.gz: a query is for a database"):
        load(packed, query="SELECT 1")


def test_cells_of_a_sheet_keep_their_kind(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (
        ["when", "code", "dose", "sure", "target"],
        [date(2026, 1, 2), 12345678, 1.5, True, "no"],
        [date(2026, 1, 5), "4a", None, False, "yes"],
    ):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    table = load(tmp_path / "a.xlsx", date=["when"])
    assert [column.kind for column in table.columns] == ["number", "category", "number", "category"]
    assert table.columns[1].categories == ("12345678", "4a")
    assert table.values[1, 0] - table.values[0, 0] == 3 and np.isnan(table.values[1, 2])


# -- columns -----------------------------------------------------------------------------------------


def test_columns_are_chosen_by_name_in_the_order_of_the_file(file: Any) -> None:
    path = file(WARD)

    def names(**choices: Any) -> list[str]:
        return [column.name for column in load(path, **choices).columns]

    assert names(features=["sex", "age"]) == ["age", "sex"]
    assert names(drop=["doctor", "bmi"]) == ["age", "sex"]
    assert names(target="sex", drop=["target"]) == ["age", "bmi", "doctor"]
    kinds = load(path, features=["age", "bmi"], categorical=["age"]).columns
    assert [(c.kind, c.categories) for c in kinds] == [("category", ("31", "47", "58")), ("number", ())]


def test_codes_read_the_same_in_every_type() -> None:
    for codes in ([12345678901, 7], [12345678901.0, 7.0, None], ["12345678901", "7"]):
        data = pa.table({"code": codes, "target": [0, 1, 0][: len(codes)]})
        table = to_table(data, "t", categorical=["code"])
        assert table.columns[0].categories == ("12345678901", "7")


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"features": ["Age"]}, "mine has no column 'Age': did you mean 'age'"),
        ({"drop": ["docter"]}, "mine has no column 'docter': did you mean 'doctor'"),
        ({"target": "Target"}, "mine has no column 'Target' to predict: did you mean 'target'"),
        ({"date": ["bday"]}, "mine has no column 'bday'"),
        ({"features": ["age"], "drop": ["age"]}, "'age' is a feature and left out as well"),
        ({"numeric": ["age"], "date": ["age"]}, "a column is named as two of categorical, numeric and date"),
        ({"cyclic": ["week"]}, "no column is named as one: name it with date"),
        ({"date": ["age"], "cyclic": ["moon"]}, "Invalid enum value 'moon'"),
        ({"feature": ["age"]}, "has no argument 'feature': did you mean 'features'"),
    ],
)
def test_wrong_names_get_the_nearest(file: Any, choices: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(file(WARD), **choices)


def test_sets_that_come_with_columns_take_no_choices() -> None:
    with pytest.raises(ConfigError, match="iris comes with its target, task and columns: leave out drop"):
        load("iris", drop=["petal width (cm)"])


def test_numbers_among_words(file: Any) -> None:
    path = file("lab,x,target\n 1.5,1,0\n> 40,2,1\n2,3,0\n")
    assert load(path).columns[0].kind == "category"
    with pytest.raises(DataError, match=r"'lab' holds text that is no number.*1 of 3.*row 2") as refused:
        load(path, numeric=["lab"])
    assert "40" not in str(refused.value)
    values = load(path, numeric=["lab"], na_values=["> 40"]).values
    assert values[:, 0].tolist()[::2] == [1.5, 2.0] and np.isnan(values[1, 0])


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_text_of_every_kind_becomes_numbers(kind: pa.DataType) -> None:
    column = pa.array(["1,5", "20", "?"]).cast(kind)
    table = to_table(pa.table({"a": column, "target": [0, 1, 0]}), "t", numeric=["a"], na_values=["?"])
    assert table.columns[0].kind == "number" and table.values[:2].tolist() == [[1.5], [20.0]]


def test_words_and_numbers_that_mean_missing(file: Any) -> None:
    csv = load(file("a,b,target\n-999,x,0\n3.5,unknown,1\n"), na_values=["-999", "unknown"])
    arrow = pa.table({"a": [-999.0, 3.5], "b": ["x", "unknown"], "target": [0, 1]})
    for table in (csv, to_table(arrow, "t", na_values=["-999", "unknown"])):
        assert np.isnan(table.values).tolist() == [[True, False], [False, True]]
        assert table.columns[1].categories == ("x",)


@pytest.mark.parametrize(
    ("cells", "choices"),
    [
        (["2026-03-01", "2026-03-08", ""], {}),
        (["2026-03-01 00:00", "2026-03-08 00:00:00", ""], {}),
        (["01.03.2026", "08.03.2026", ""], {}),
        (["03/01/2026", "03/08/2026", ""], {"date_format": "%m/%d/%Y"}),
        (["20260301", "20260308", ""], {"date_format": "%Y%m%d"}),
    ],
)
def test_dates_are_days(file: Any, cells: list[str], choices: dict[str, Any]) -> None:
    lines = "".join(f"{cell},{i},{i % 2}\n" for i, cell in enumerate(cells))
    table = load(file("when,x,target\n" + lines), date=["when"], **choices)
    first = (datetime(2026, 3, 1) - datetime(1970, 1, 1)).days
    assert table.values[:2, 0].tolist() == [first, first + 7] and np.isnan(table.values[2, 0])


def test_parts_of_dates_that_come_round() -> None:
    times = [datetime(2026, 3, 1, 6), datetime(2026, 3, 8, 18), datetime(2027, 3, 1, 6)]
    data = pa.table({"when": pa.array(times, pa.timestamp("s", "UTC")), "target": [0, 1, 0]})
    table = to_table(data, "t", date=["when"], cyclic=["year", "week", "day"])
    names = [column.name for column in table.columns]
    assert names[:3] == ["when", "when (year, sine)", "when (year, cosine)"] and len(names) == 7
    found = dict(zip(names, table.values.T, strict=True))
    assert found["when"][0] % 1 == 0.25
    np.testing.assert_allclose(found["when (day, sine)"], [1, -1, 1], atol=1e-9)
    np.testing.assert_allclose(*found["when (year, sine)"][[0, 2]], atol=0.01)
    for part in ("year", "week", "day"):
        squares = found[f"when ({part}, sine)"] ** 2 + found[f"when ({part}, cosine)"] ** 2
        np.testing.assert_allclose(squares, 1)


def test_dates_that_can_be_read_in_two_ways_are_not_guessed(file: Any) -> None:
    path = file("when,x,target\n01/02/2026,1,0\n02/03/2026,2,1\n")
    with pytest.raises(DataError, match=r"'when' holds dates.*not written as ISO.*say how.*date_format"):
        load(path, date=["when"])
    with pytest.raises(DataError, match=r"not written as %d\.%m\.%Y"):
        load(path, date=["when"], date_format="%d.%m.%Y")
    with pytest.raises(DataError, match=r"holds date32.*name it with date, or leave it out with drop"):
        load(file("when,x,target\n2026-01-02,1,0\n"))


# -- a file for each client --------------------------------------------------------------------------


def three(file: Any, folder: str = "wards") -> list[Path]:
    """Three hospitals, of which one has its columns in another order, and one another category."""
    random, paths = np.random.default_rng(0), []
    for place, (name, rows) in enumerate({"west": 30, "north": 50, "south": 40}.items()):
        order = ["age", "bmi", "sex", "ill"] if place else ["ill", "sex", "bmi", "age"]
        lines = [",".join(order)]
        for _ in range(rows):
            age = int(random.integers(20, 90))
            row = {"age": age, "bmi": round(random.normal(25, 4), 1), "ill": "yes" if age > 55 else "no"}
            row["sex"] = random.choice(["f", "m", "x"] if place == 1 else ["f", "m"])
            lines.append(",".join(str(row[word]) for word in order))
        paths.append(file("\n".join(lines) + "\n", f"{folder}/{name}.csv"))
    return paths


def test_a_file_is_a_client_under_its_name(file: Any, tmp_path: Path) -> None:
    paths = three(file)
    (tmp_path / "wards" / "readme.txt").write_text("not data")
    (tmp_path / "wards" / ".hidden.csv").write_text("a\n")
    for data in (paths, [str(path) for path in paths], tmp_path / "wards", str(tmp_path / "wards")):
        federation = tacit.Federation.embedded(data, target="ill", test=None)
        held = federation.holdings
        assert held.names == ("north", "south", "west")
        assert [held.rows(i).rows for i in range(3)] == [50, 40, 30]
    assert federation.test is None and held.table.columns[2].categories == ("f", "m", "x")
    ages = load(paths[0], target="ill").values[:, 2]
    assert sorted(held.rows(2).values[:, 0]) == sorted(ages)
    training = federation.train("fedheonn", protect="masked", min_count=1)
    assert training.schema.feature_names == ("age", "bmi", "sex=f", "sex=m", "sex=x")


def test_files_that_do_not_fit_are_named(file: Any, tmp_path: Path) -> None:
    *_, south = three(file)
    text = south.read_text()
    south.write_text(text.replace("age,", "Age,", 1))
    with pytest.raises(SchemaError, match="south: the others call column 'Age' 'age': rename it"):
        load(tmp_path / "wards", target="ill")
    south.write_text(text.replace("bmi,", "", 1).replace(".", ",0.", 1))
    with pytest.raises(DataError, match=r"south\.csv cannot be read as CSV"):
        load(tmp_path / "wards", target="ill")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="empty is a directory without data"):
        load(tmp_path / "empty")
    with pytest.raises(ConfigError, match="needs several files"):
        partition(Table.of([[1.0]], [0]), "by-file", None)


def test_files_of_one_name_are_told_apart_by_their_folders(file: Any, tmp_path: Path) -> None:
    north, south = (three(file, folder)[0] for folder in ("north", "south"))
    assert set(load([north, south], target="ill").groups["file"]) == {"north-west", "south-west"}
    with pytest.raises(ConfigError, match="two files have one name"):
        load([north, north], target="ill")


def test_own_data_are_divided_as_real_data_are(file: Any) -> None:
    def usual(data: Any, **given: Any) -> dict[str, Any]:
        return usual_partition({"data": {"name": data}, "partition": given})

    assert usual("digits") == {"name": "label-sorted", "clients": 100} == Settings().partition
    assert usual("mine.csv") == usual("sqlite:///a.db") == {"name": "iid", "clients": 10}
    assert usual("mine.csv", name="by-column") == {"name": "iid"}
    wards = [str(path) for path in three(file)]
    assert usual(wards) == usual(str(Path(wards[0]).parent)) == {"name": "by-file"}
    assert usual(wards, name="dirichlet") == {"name": "by-file", "clients": 10}
    assert Settings.from_tables({"data": {"name": wards}}).partition == {"name": "by-file"}


def test_the_column_that_divides_rows_is_not_learnt_from(file: Any) -> None:
    path = three(file)[1]
    federation = tacit.Federation.embedded(path, target="ill", partition="by-column", column="sex", test=None)
    assert federation.clients == 3
    assert [column.name for column in federation.holdings.table.columns] == ["age", "bmi"]


def test_python_takes_the_same_choices(file: Any) -> None:
    choices = {"target": "ill", "drop": ["sex"], "categorical": ["age"]}
    federation = tacit.Federation.embedded(three(file), test=None, **choices)
    assert {(c.name, c.kind) for c in federation.holdings.table.columns} == {
        ("age", "category"),
        ("bmi", "number"),
    }
    with pytest.raises(ConfigError, match="no option 'dropp'"):
        tacit.Federation.embedded("iris", dropp=["a"])


# -- databases ---------------------------------------------------------------------------------------

QUERY = "SELECT age, bmi, sex, outcome FROM visits WHERE age > 30"


@pytest.fixture(params=["sqlite", "duckdb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / "ward.db"
    rows = [(20 + i, None if i < 1500 else i / 2, "f" if i % 3 else "m", i % 2) for i in range(2000)]
    text = "CREATE TABLE visits (age INTEGER, bmi REAL, sex VARCHAR, outcome INTEGER)"
    if request.param == "sqlite":
        with sqlite3.connect(path) as connection:
            connection.execute(text)
            connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", rows)
        connection.close()
    else:
        import duckdb

        with duckdb.connect(str(path)) as connection:
            connection.execute(text)
            ages, bmis, sexes, outcomes = zip(*rows, strict=True)
            data = pa.table({"a": ages, "b": bmis, "c": sexes, "d": outcomes})  # noqa: F841  # named in SQL
            connection.execute("INSERT INTO visits SELECT * FROM data")
    return f"{request.param}:///{path}"


def test_a_query_is_a_table(database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = load(database, query=QUERY, target="outcome")
    assert (table.name, table.rows, table.classes) == ("ward", 1989, (0, 1))
    assert [column.kind for column in table.columns] == ["number", "number", "category"]
    shuffled = load(database, query=f"{QUERY} ORDER BY abs(age * 7919) % 101", target="outcome")
    assert shuffled.values.tobytes() == table.values.tobytes()
    monkeypatch.chdir(tmp_path)
    relative = database.replace(f"{tmp_path}/", "")
    assert absolute(relative) == absolute(relative, tmp_path) == database
    assert content_digest(load(relative, query=QUERY, target="outcome")) == content_digest(table)


def test_a_query_is_checked_as_a_file_is(database: str, tmp_path: Path) -> None:
    found = check(database, query=QUERY, target="outcome", missing="mean")
    assert (found["ok"], found["rows"], found["leaves"]["categories"]) == (True, 1989, {"sex": ["f", "m"]})
    refused = check(database, query=QUERY, target="outcome")
    assert [(f["kind"], f["column"]) for f in refused["findings"] if f["severity"] == "error"] == [
        ("missing", "bmi")
    ]
    with pytest.raises(ConfigError, match="address holds a password") as told:
        check("postgresql://ann:s3cret@host/ward", query=QUERY)
    assert "s3cret" not in str(told.value)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (None, "is a database: say which rows with query"),
        ("SELECT * FROM visit", "cannot answer the query .*visit"),
        ("SELEKT 1", "cannot answer the query .*(syntax error|Parser Error)"),
        ("DELETE FROM visits", "cannot answer the query .*read-?only"),
        ("CREATE TABLE more (a INTEGER)", "cannot answer the query"),
    ],
)
def test_queries_that_cannot_be_answered(database: str, query: str | None, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        load(database, query=query)
    assert load(database, query=QUERY, target="outcome").rows == 1989


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    for scheme in ("sqlite", "duckdb"):
        with pytest.raises(UnavailableError, match=f"{scheme}:///.*none.db cannot be opened"):
            load(f"{scheme}:///{tmp_path}/none.db", query=QUERY)
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:s3cret@host/ward",
        "postgres://ann:s3@cret:x@host/ward",
        "postgresql://host/ward?user=ann&password=s3cret",
        "postgresql://host/ward?sslpassword=s3cret",
        "postgresql://[s3cret",
        "postgresql://host/ward?user=ann;password=s3cret",
        "mysql://ann:s3cret@host/ward",  # no database that is read: the error would quote it as a file's path
        "Postgresql://ann:s3cret@host/ward",
    ],
)
def test_an_address_with_a_password_is_refused_everywhere(address: str) -> None:
    for take in (
        lambda: DataSettings(name=address),
        lambda: DataSettings(name=("a.csv", address)),
        lambda: Settings.from_tables({"data": {"name": address}}),
        lambda: load(address, query=QUERY),
        lambda: tacit.Federation.embedded(address, query=QUERY),
    ):
        with pytest.raises(ConfigError, match=r"holds a password.*PGPASSWORD") as refused:
            take()
        assert "s3" not in str(refused.value)
    assert Reading(query=QUERY).choices() == {"query": QUERY}


def test_missing_drivers_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("adbc_driver_manager", "python_calamine"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(UnavailableError, match=r"pip install 'tacit-fl\[sql\]'"):
        load("postgresql://host/ward", query=QUERY)
    (tmp_path / "a.xlsx").touch()
    with pytest.raises(UnavailableError, match=r"pip install 'tacit-fl\[excel\]'"):
        load(tmp_path / "a.xlsx")


def test_lines_may_end_as_on_old_machines(file: Any) -> None:
    assert load(file("a,target\r1,yes\r2,no\r")).rows == 2


def test_a_cell_without_end_is_refused_in_our_words(file: Any) -> None:
    with pytest.raises(DataError, match=r"mine\.csv cannot be read as CSV: correct the file"):
        load(file(f'a,b,target\n1,"{"x" * 200_000}",yes\n'))


def test_labels_beyond_what_floats_tell_apart_do_not_become_others(file: Any) -> None:
    table = load(file(f"a,target\n1,{10**26}\n2,3\n"), task="classification")
    assert table.classes == (3.0, 1e26)


class TestSheetsThatAreNearlyEmpty:
    """What reads Excel files makes room for every cell up to the last row and column: 17 thousand million."""

    def sheet(self, folder, body, called="sheet1.xml", more=""):
        book = openpyxl.Workbook()
        book.active.append(["a", "b"])
        book.save(folder / "plain.xlsx")
        with zipfile.ZipFile(folder / "plain.xlsx") as plain, zipfile.ZipFile(folder / "a.xlsx", "w") as new:
            for name in plain.namelist():
                kept = f"<worksheet><sheetData>{body}</sheetData></worksheet>".encode()
                held = kept if name.endswith("sheet1.xml") else plain.read(name)
                new.writestr(
                    *(
                        word.replace(*pair)
                        for word, pair in (
                            (name, ("sheet1.xml", called)),
                            (held, (b"sheet1.xml", called.encode())),
                        )
                    )
                )
            if more:
                new.writestr("xl/calcChain.xml", more)
        return folder / "a.xlsx"

    @pytest.mark.parametrize(
        "body",
        [
            '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row>',
            "<row><c s=\"a > b\" r='xfd1048576'><v>1</v></c></row>",
            '<row r="1000000"><x:c\n r = "A1000000"><v>1</v></x:c></row><row r="1"><c r="ZZ1"/></row>',
            "<row/>" * 2_000 + "<row>" + "<c/>" * 16_000 + "<c><v>1</v></c></row>",
            '<row r="1"><c r="ALL1"/></row><row r="12345678"><c r="A12345678"><v>1</v></c></row>',
        ],
    )
    def test_they_are_refused_before_anything_is_allocated(self, tmp_path, body):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(DataError, match=r"a\.xlsx: a sheet reaches to row [\d,]+ .*delete the rows and"):
            load(self.sheet(tmp_path, body))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # kB

    def test_a_sheet_that_is_called_a_chain_of_formulas_is_one(self, tmp_path):
        body = '<row r="1"><c r="A1"/></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
        with pytest.raises(DataError, match="a sheet reaches to row"):
            load(self.sheet(tmp_path, body, called="calcChain.xml"))

    def test_a_chain_of_formulas_is_none(self, tmp_path):
        rows = "".join(f'<row><c t="str"><v>{word}</v></c></row>' for word in ("name", 1, 2))
        chain = '<calcChain><c r="XFD1" i="1"/><c r="A1048576"/></calcChain>'
        assert self.read_width(self.sheet(tmp_path, rows, more=chain)) == 1

    def test_one_value_aside_is_no_reason(self, tmp_path):
        rows = "".join(f'<row><c t="str"><v>{word}</v></c></row>' for word in ("name", 1, 2))
        assert self.read_width(self.sheet(tmp_path, rows + '<row><c r="ZZ9"><v>1</v></c></row>')) == 702

    def read_width(self, path):
        with path.open("rb") as file:
            return len(read_sheet(file, path.name)[0][0])

    def test_what_is_not_of_excel_is_refused(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as file:
            file.writestr("content.xml", "<a/>")
        with pytest.raises(DataError, match=r"a\.xlsx cannot be read as an Excel file"):
            load(tmp_path / "a.xlsx")
