"""Files and databases as Arrow tables: CSV in the dialects that people write, Excel, parquet, SQL."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from tacit.core.errors import ConfigError, DataError, UnavailableError, nearest
from tacit.data.database import is_database, read_query
from tacit.data.reading import THOUSANDS, Reading

_TEXT = (".csv", ".tsv")
ENDINGS = (*_TEXT, *(f"{ending}.gz" for ending in _TEXT), ".xlsx", ".parquet")
ONE_OF = "a .csv, .tsv, .csv.gz, .xlsx or .parquet file"
_MISSING = ["", "NA", "N/A", "NaN", "nan", "NULL", "null"]
_SAMPLE = 1 << 18  # bytes from which the dialect of a CSV file is guessed
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_COMMA, _POINT = r"[+-]?\d+,\d+([eE][+-]?\d+)?", r"[+-]?\d*\.\d+([eE][+-]?\d+)?"


def is_data(source: str | Path) -> bool:
    """Return whether this ends as files of data do.

    >>> is_data("mine.csv"), is_data("mine.csv.gz"), is_data("federation.toml")
    (True, True, False)
    """
    return str(source).lower().endswith(ENDINGS)


def stem_of(source: str | Path) -> str:
    """Return the name of a file without its ending.

    >>> stem_of("wards/north.csv.gz")
    'north'
    """
    name = Path(source).name
    ending = next((end for end in ENDINGS if name.lower().endswith(end)), "")
    return name[: len(name) - len(ending)]


def read_source(source: str | Path, reading: Reading) -> tuple[Any, list[str]]:
    """Read a file or a query, and return also what of its dialect was guessed and is not the usual."""
    if is_database(source):
        return read_query(str(source), reading.query), []
    path = Path(source)
    for name, endings in (("query", ()), ("sheet", (".xlsx",))):
        if getattr(reading, name) is not None and path.suffix.lower() not in endings:
            raise ConfigError(f"{path.name} takes no {name}: leave it out, or give other data")
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path), []
    return _read_excel(path, reading.sheet) if path.suffix.lower() == ".xlsx" else _read_csv(path, reading)


def _read_parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            return file.read()
    except (pa.ArrowException, OSError) as error:
        text = f"{path.name} cannot be read as parquet: write it again, or give a CSV"
        raise DataError(text, private=str(error)) from error


def _read_excel(path: Path, sheet: str | None) -> tuple[Any, list[str]]:
    """Read a sheet whose first row has the names of the columns."""
    import pyarrow as pa

    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError:
        raise UnavailableError(f"reading {path.name} needs pip install 'tacit-fl[excel]'") from None
    try:
        with CalamineWorkbook.from_path(str(path)) as book:
            if sheet is not None and sheet not in book.sheet_names:
                raise ConfigError(f"{path.name} has no sheet '{sheet}': {nearest(sheet, book.sheet_names)}")
            chosen = sheet or book.sheet_names[0]
            header, *rows = book.get_sheet_by_name(chosen).to_python() or [[]]
    except (CalamineError, OSError) as error:
        raise DataError(f"{path.name} cannot be read as an Excel file: save it again, or as CSV") from error
    cells = [[None if cell in _MISSING else cell for cell in row] for row in rows]
    columns = [_excel_column(list(column)) for column in zip(*cells, strict=True)]
    columns = columns or [pa.nulls(0)] * len(header)
    others = len(book.sheet_names) > 1 and sheet is None
    notes = [f"{path.name}: sheet '{chosen}', the first of {len(book.sheet_names)}"] if others else []
    return pa.Table.from_arrays(columns, names=[str(word) for word in header]), notes


def _excel_column(cells: list[Any]) -> Any:
    """Return cells of one kind as they are, and mixed ones as text."""
    import pyarrow as pa

    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {int, float} or len(kinds) == 1:
        return pa.array(cells)
    words = [f"{cell:g}" if isinstance(cell, float) else cell for cell in cells]
    return pa.array([None if word is None else str(word) for word in words])


class Dialect(NamedTuple):
    """How a CSV file is written."""

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"


def _read_csv(path: Path, reading: Reading) -> tuple[Any, list[str]]:
    """Read a CSV file with a header line.

    Empty cells and the words NA, N/A, NaN and NULL are missing, unless they stand in quotes.
    """
    import pyarrow as pa

    try:
        with pa.input_stream(str(path), compression="detect") as file:
            sample = file.read(_SAMPLE)
        dialect = detect(sample, reading, tabs=".tsv" in path.suffixes)
        data = _parse(path, dialect, reading)
        odd = any(pa.types.is_binary(kind) for kind in data.schema.types)  # not UTF-8 further down
        if odd and reading.encoding is None:
            dialect = dialect._replace(encoding="cp1252")
            data = _parse(path, dialect, reading)
    except (UnicodeError, LookupError) as error:
        text = f"{path.name} is not written in {reading.encoding or 'UTF-8, UTF-16 or Windows-1252'}"
        raise DataError(f"{text}: name its encoding (--encoding), or save it as UTF-8") from error
    except (pa.ArrowException, OSError) as error:  # which may quote a row
        raise DataError(f"{path.name} cannot be read as CSV: correct the file", private=str(error)) from error
    usual, given = Dialect(), (reading.separator, reading.decimal, reading.encoding)
    guessed = [
        f"{name} {value!r}"
        for name, value, normal, said in zip(Dialect._fields, dialect, usual, given, strict=True)
        if value != normal and said is None
    ]
    return data, [f"{path.name}: read with {', '.join(guessed)}"] if guessed else []


def _parse(path: Path, dialect: Dialect, reading: Reading) -> Any:
    from pyarrow import csv as arrow_csv

    return arrow_csv.read_csv(
        path,
        read_options=arrow_csv.ReadOptions(encoding=dialect.encoding),
        parse_options=arrow_csv.ParseOptions(delimiter=dialect.separator),
        convert_options=arrow_csv.ConvertOptions(
            null_values=[*_MISSING, *(reading.na_values or ())],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            decimal_point=dialect.decimal,
        ),
    )


def detect(sample: bytes, reading: Reading, *, tabs: bool = False) -> Dialect:
    """Guess how a CSV file is written from its first bytes; what the user says is not guessed.

    >>> detect(b"age;bmi\\n31;22,5\\n47;30,1\\n", Reading())
    Dialect(separator=';', decimal=',', encoding='utf-8')
    """
    encoding = reading.encoding or _encoding(sample)
    text = codecs.getincrementaldecoder(encoding)(errors="strict").decode(sample).removeprefix("\ufeff")
    separator = {"tab": "\t"}.get(str(reading.separator), reading.separator) or ("\t" if tabs else None)
    if separator is not None and len(separator) != 1:
        raise ConfigError(f"separator is {separator!r}: give one character, or tab")
    rows = {each: _rows(text, each) for each in ([separator] if separator else "\t;|,")}
    chosen = max(rows, key=lambda each: _fit(rows[each]))
    cells = [cell.strip() for row in rows[chosen][1:] for cell in row]
    commas = [cell for cell in cells if re.fullmatch(_COMMA, cell)]
    points = any(re.fullmatch(_POINT, cell) for cell in cells)
    clear = not points and not all(re.fullmatch(THOUSANDS, cell) for cell in commas)
    return Dialect(chosen, reading.decimal or ("," if clear else "."), encoding)


def _encoding(sample: bytes) -> str:
    for mark, encoding in _MARKS:
        if sample.startswith(mark):
            return encoding
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _rows(text: str, separator: str) -> list[list[str]]:
    rows = list(csv.reader(io.StringIO(text), delimiter=separator))
    return [row for row in rows[: -1 if len(rows) > 2 else None] if row]  # the last may be cut short


def _fit(rows: list[list[str]]) -> tuple[float, int]:
    """Return how well a separator fits: the share of rows as wide as the header, then that width."""
    width = len(rows[0]) if rows else 1
    return (Counter(map(len, rows))[width] / len(rows), width) if width > 1 else (0.0, 1)
