"""Files and databases as Arrow tables: CSV in the dialects that people write, Excel, parquet, SQL."""

import codecs
import csv
import io
import re
import zipfile
import zlib
from functools import reduce
from pathlib import Path
from shlex import quote
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from tacit.core.errors import ConfigError, DataError, extra, nearest
from tacit.data.database import is_database, read_query
from tacit.data.reading import THOUSANDS, THREE, Reading

ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".xlsx", ".parquet")
ONE_OF = "a .csv, .tsv, .csv.gz, .xlsx or .parquet file"
_MISSING = [*(" " * width for width in range(9)), "NA", "N/A", "NaN", "nan", "NULL", "null"]
_SAMPLE = 1 << 18  # bytes from which the dialect of a CSV file is guessed
_NUMBER, _FRACTION = re.compile(r"\s*[+-]?\d+([.,]\d+)?\s*"), re.compile(r"\s*[+-]?\d+[.,]\d+\s*")
_PARTED = r"[+-]?[1-9]\d{0,2}(\.\d{3})+$"  # 61.000 in a file of a country with decimal commas
_TAG = re.compile(  # of a sheet
    rb"""<(?:[\w.-]+:)?(row|c|sheetData)(?=[\s/>])((?:[^>"']|"[^"]*"|'[^']*')*+)"""
)
_PLACE = re.compile(rb"""\br\s*=\s*["']([A-Za-z]*)(\d*)["']""")  # of a row or cell, by its name
_EMPTY_CELLS = 5_000_000  # that a sheet may have beside ten times those that are written: each takes memory
_COMMA, _POINT = r"[+-]?\d+,\d+([eE][+-]?\d+)?", r"[+-]?\d*\.\d+([eE][+-]?\d+)?"


def is_data(source: str | Path) -> bool:
    """Return whether this ends as files of data do."""
    return str(source).lower().endswith(ENDINGS)


def stem_of(source: str | Path) -> str:
    """Return the name of a file without its ending, or of a database."""
    name = Path(urlsplit(str(source)).path if is_database(source) else source).name
    ending = next((end for end in (*ENDINGS, ".db", ".duckdb") if name.lower().endswith(end)), "")
    return name[: len(name) - len(ending)]


def read_source(source: str | Path, reading: Reading) -> tuple[Any, list[str]]:
    """Read a file or a query, and return also what of its dialect was guessed and is not the usual."""
    if is_database(source):
        return read_query(str(source), reading.query), []
    path, ending = Path(source), Path(source).suffix.lower()
    if reading.query is not None or (reading.sheet is not None and ending != ".xlsx"):
        raise ConfigError(f"{path.name}: a query is for a database, a sheet for an .xlsx file: leave it out")
    if ending == ".parquet":
        return read_parquet(path), []
    data, notes = _read_excel(path, reading.sheet) if ending == ".xlsx" else _read_csv(path, reading)
    return data.rename_columns(_names(data.column_names, path.name)), notes


def _names(header: list[str], file: str) -> list[str]:
    if all(map(_NUMBER.fullmatch, header)) or any(map(_FRACTION.fullmatch, header)):
        raise DataError(f"{file} has numbers in its first row, which names the columns: add a row of names")
    return [word.strip() or f"column {place}" for place, word in enumerate(header, 1)]


def read_parquet(path: Path) -> Any:
    """Read a parquet file whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            return file.read()
    except (pa.ArrowException, OSError) as error:
        text = f"{path.name} cannot be read as parquet: write it again, or give a CSV"
        raise DataError(text, private=str(error)) from error


def read_sheet(file: IO[bytes], name: str, sheet: str | None = None) -> tuple[list[list[Any]], str]:
    """Return the cells of a sheet of an Excel file, row by row, and a note if it is one of several."""
    with extra(f"reading {name} needs pip install 'tacit-fl[excel]'"):
        from python_calamine import CalamineError, CalamineWorkbook
    raw = file.read()
    try:
        _check_extent(raw, name)
        book = CalamineWorkbook.from_filelike(io.BytesIO(raw))
        sheets = book.sheet_names
        if sheet is not None and sheet not in sheets:
            raise ConfigError(f"{name} has no sheet '{sheet}': {nearest(sheet, sheets)}")
        rows: list[list[Any]] = book.get_sheet_by_name(sheet or sheets[0]).to_python()
    except (CalamineError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{name} cannot be read as an Excel file: save it again, or as CSV") from error
    several = sheet is None and len(sheets) > 1
    return rows or [[]], f"{name}: sheet '{sheets[0]}', the first of {len(sheets)}" if several else ""


def _check_extent(raw: bytes, name: str) -> None:
    """Refuse an Excel file with a sheet of which nearly all is empty: its reader makes room for every cell.

    A sheet that has a cell in the last row and column is a few hundred bytes, and 17 thousand million cells.
    """
    with zipfile.ZipFile(io.BytesIO(raw)) as book:
        if not any(part.startswith("xl/") for part in book.namelist()):
            raise zipfile.BadZipFile("it is of another program")
        for part in book.namelist():
            with book.open(part) as file:
                rows, columns, written = _extent(file)
            if rows * columns > _EMPTY_CELLS + 10 * written:
                extent = f"to row {rows:,} and column {columns:,}, {rows * columns:,} cells"
                raise DataError(
                    f"{name}: a sheet reaches {extent} of which {written:,} are written, and "
                    f"{_EMPTY_CELLS:,} may be empty: delete the rows and columns after the last value, or "
                    "save it as CSV"
                )


def _extent(file: IO[bytes]) -> tuple[int, int, int]:
    """Return the last row and column that a sheet names, and how many cells it writes; 0 of another part."""
    row = column = rows = columns = written = 0
    rest, is_sheet = b"", False  # such as a chain of formulas, whatever its name: it names cells, too
    while (chunk := file.read(_SAMPLE)) or rest:
        # The last tag may go on in the next bytes.
        whole, last, rest = (rest + chunk).rpartition(b"<") if chunk else (rest, b"", b"")
        rest = last + rest
        for tag, attributes in _TAG.findall(whole):
            letters, digits = found.groups() if (found := _PLACE.search(attributes)) else (b"", b"")
            if tag == b"row":
                row, column = int(digits[:19] or row + 1), 0
            elif tag == b"c":
                written += 1
                column = reduce(lambda n, c: 26 * n + c - 64, letters[:9].upper(), 0) or column + 1
                row = int(digits[:19] or row)
            is_sheet |= tag == b"sheetData"
            rows, columns = max(rows, row), max(columns, column)
    return (rows, columns, written) if is_sheet else (0, 0, 0)


def _read_excel(path: Path, sheet: str | None) -> tuple[Any, list[str]]:
    import pyarrow as pa

    with path.open("rb") as file:
        (header, *rows), note = read_sheet(file, path.name, sheet)
    columns = []
    for index in range(len(header)):
        cells = [None if row[index] in _MISSING else row[index] for row in rows]
        kinds = {type(cell) for cell in cells if cell is not None}
        if len(kinds) > 1 and not kinds <= {int, float}:
            cells = [None if cell is None else _written(cell) for cell in cells]
        columns.append(pa.array(cells))
    return pa.Table.from_arrays(columns, names=[_written(word) for word in header]), [note] if note else []


def _written(cell: Any) -> str:
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell)


class Dialect(NamedTuple):
    """How a CSV file is written."""

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"


def _read_csv(path: Path, reading: Reading) -> tuple[Any, list[str]]:
    import pyarrow as pa

    try:
        with pa.input_stream(str(path), compression="detect") as file:
            sample = file.read(_SAMPLE)
        dialect = detect(sample, reading, tabs=".tsv" in path.suffixes)
        data = _parse(path, dialect, reading, sample)
        if reading.encoding is None and any(map(pa.types.is_binary, data.schema.types)):
            dialect = dialect._replace(encoding="cp1252")  # further down than the sample it is not UTF-8
            data = _parse(path, dialect, reading, sample)
    except (UnicodeError, LookupError) as error:
        text = f"{path.name} is not written in {reading.encoding or 'UTF-8, UTF-16 or Windows-1252'}"
        raise DataError(f"{text}: name its encoding (--encoding), or save it as UTF-8") from error
    except (pa.ArrowException, OSError, csv.Error) as error:
        # It may quote a row: only where that stands, and how it differs, is passed on.
        told = ", ".join(re.findall(r"Row #\d+|Expected \d+ columns, got \d+|column #\d+", str(error)))
        raise DataError(f"{path.name} cannot be read as CSV: correct the file", private=told) from None
    found = zip(Dialect._fields, dialect, Dialect(), strict=True)
    odd = [f"{key} {value!r}" for key, value, usual in found if value != usual and not getattr(reading, key)]
    notes = [f"{path.name}: read with {', '.join(odd)}"] if odd else []
    guessed = dialect.separator == ";" and not reading.decimal
    pairs = [pair for pair in _numbers(sample, dialect) if guessed and re.fullmatch(_POINT, pair[1])]
    parted = all(re.match(_PARTED, cell) for _, cell in pairs)
    for name in dict.fromkeys(name for name, _ in pairs if parted):
        notes.append(f"{path.name}: column '{name}' {THREE}, use --decimal , --numeric {quote(name)}")
    return data, notes


def _numbers(sample: bytes, dialect: Dialect) -> list[tuple[str, str]]:
    text = codecs.getincrementaldecoder(dialect.encoding)().decode(sample).removeprefix("\ufeff")
    header, *rows = _cells(text, dialect.separator) or [[]]
    pairs = (pair for row in rows for pair in zip(header, row, strict=False))
    return [(name, cell) for name, cell in pairs if re.fullmatch(r"[+-]?\d[\d.]*", cell)]


def _parse(path: Path, dialect: Dialect, reading: Reading, sample: bytes) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    # Where 0 stands before other digits, as in postcodes, cells are no numbers.
    text = [name for name, cell in _numbers(sample, dialect) if re.fullmatch(r"0\d+", cell)]
    return arrow_csv.read_csv(
        path,
        read_options=arrow_csv.ReadOptions(encoding=dialect.encoding),
        parse_options=arrow_csv.ParseOptions(delimiter=dialect.separator),
        convert_options=arrow_csv.ConvertOptions(
            null_values=[*_MISSING, *(reading.na_values or ())],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            decimal_point=dialect.decimal,
            column_types=dict.fromkeys(text, pa.string()),
        ),
    )


def detect(sample: bytes, reading: Reading, *, tabs: bool = False) -> Dialect:
    """Guess how a CSV file is written from its first bytes; what the user says is not guessed."""
    encoding = reading.encoding or _encoding(sample)
    text = codecs.getincrementaldecoder(encoding)().decode(sample).removeprefix("\ufeff")
    separator = "\t" if reading.separator == "tab" else reading.separator or ("\t" if tabs else None)
    if separator is not None and len(separator) != 1:
        raise ConfigError(f"separator is {separator!r}: give one character, or tab")
    rows = {one: _cells(text, one) for one in separator or "\t;|,"}
    chosen = max(rows, key=lambda one: _fit([len(row) for row in rows[one] if row]))
    cells = [cell.strip() for row in rows[chosen][1:] for cell in row]
    commas = [cell for cell in cells if re.fullmatch(_COMMA, cell)]
    unclear = any(re.fullmatch(_POINT, cell) for cell in cells) or all(re.match(THOUSANDS, c) for c in commas)
    return Dialect(chosen, reading.decimal or ("." if unclear else ","), encoding)


def _cells(text: str, separator: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=None), delimiter=separator))


def _encoding(sample: bytes) -> str:
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _fit(widths: list[int]) -> tuple[float, int]:
    return (widths.count(widths[0]) / len(widths), widths[0]) if widths and widths[0] > 1 else (0.0, 1)
