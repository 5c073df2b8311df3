"""What a user says of a file or a query: which columns, of which kind, and how the file is written."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from tacit.core.errors import ConfigError, DataError, nearest
from tacit.data.table import Task

PERIODS = {"year": 365.2425, "week": 7.0, "day": 1.0}  # in days
_DATES = ("%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%Y/%m/%d")  # none that can be read in two ways
THOUSANDS = r"^[+-]?[1-9]\d{0,2},\d{3}$"  # 1,234 may be a thousand and more, or one and a little
THREE = "has three digits after each point: if points part thousands"  # a warning, and no mere note
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How rows are read, and what becomes of their columns; several columns are separated by commas.

    Parameters
    ----------
    target : str, optional
        Column to predict in an own file, by default ``target``; several as ``a,b`` for regression.
    task : str, optional
        ``classification`` or ``regression``, where it cannot be guessed.
    features : list, optional
        Columns to learn from; else all that are not left out by name.
    drop : list, optional
        Columns to leave out.
    categorical : list, optional
        Columns whose values are categories, though they are written as numbers.
    numeric : list, optional
        Columns whose values are numbers, though they are written as text.
    date : list, optional
        Columns that hold dates or times: they become numbers of days.
    cyclic : list, optional
        What comes round in these dates, as sine and cosine beside the days: ``year``, ``week``, ``day``.
    date_format : str, optional
        How dates are written, such as ``%m/%d/%Y``, where it is neither ISO nor ``31.12.2026``.
    na_values : list, optional
        Words or numbers that mean a missing value, such as ``-999``, beside blank, NA, N/A, NaN and NULL.
    separator : str, optional
        Character between the cells of a CSV file, or ``tab``; else detected.
    decimal : str, optional
        Decimal sign of a CSV file, ``.`` or ``,``; else detected.
    encoding : str, optional
        Encoding of a CSV file, such as ``cp1250``; else UTF-8 or UTF-16, or Windows-1252 if it is neither.
    sheet : str, optional
        Sheet of an Excel file; else the first.
    query : str, optional
        SQL query whose answer is the table, where the data are a database.
    """

    target: str | None = None
    task: Task | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] | None = None
    categorical: tuple[str, ...] | None = None
    numeric: tuple[str, ...] | None = None
    date: tuple[str, ...] | None = None
    cyclic: tuple[Literal["year", "week", "day"], ...] | None = None
    date_format: str | None = None
    na_values: tuple[str, ...] | None = None
    separator: str | None = None
    decimal: Literal[".", ","] | None = None
    encoding: str | None = None
    sheet: str | None = None
    query: str | None = None

    def choices(self) -> dict[str, Any]:
        """Return what was said, as keywords of :func:`tacit.data.files.load`."""
        said = {field.name: getattr(self, field.name) for field in fields(Reading)}
        return {name: value for name, value in said.items() if value is not None}

    def kinds(self) -> dict[str, str]:
        """Return the kinds of columns that were said; no column can be of two."""
        kinds = ("categorical", "numeric", "date")
        found = [(name, kind) for kind in kinds for name in getattr(self, kind) or ()]
        if self.cyclic and not self.date:
            raise ConfigError("cyclic parts are of dates, and no column is named as one: name it with date")
        if len(dict(found)) < len(found):
            raise ConfigError("a column is named as two of categorical, numeric and date: choose one")
        return dict(found)

    def choose(self, names: Sequence[str], kept: Sequence[str], table: str) -> list[str]:
        """Return the columns to learn from, in the order of the file; ``kept`` are targets and groups."""
        features, out = self.features or (), {*kept, *(self.drop or ())}
        for word in (*features, *(self.drop or ()), *self.kinds()):
            if word not in names:
                raise ConfigError(f"{table} has no column '{word}': {nearest(word, names)}")
            if word in features and word in out:
                raise ConfigError(f"{table}: column '{word}' is a feature and left out as well: choose one")
        return [word for word in names if word not in out and (not features or word in features)]


def convert(data: Any, reading: Reading, table: str) -> Any:
    """Return an Arrow table whose columns have the kinds that were said; dates may become several columns."""
    import pyarrow as pa
    from pyarrow import compute as pc

    columns: dict[str, Any] = {}
    for name, column in zip(data.column_names, data.columns, strict=True):
        kind = reading.kinds().get(name)
        if (kind or reading.na_values) and pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        if reading.na_values:
            absent = pc.is_in(column.cast(pa.string()), pa.array(reading.na_values))
            column = pc.if_else(absent, pa.scalar(None, column.type), column)
        if kind == "date":
            columns |= _date_columns(column, name, reading, table)
        elif kind == "categorical":
            if pa.types.is_floating(column.type) and pc.all(pc.equal(column, pc.floor(column))).as_py():
                column = column.cast(pa.int64(), safe=False)  # a column with gaps reads as one without
            columns[name] = column.cast(pa.string())
        else:
            columns[name] = _as_number(column, name, reading, table) if kind == "numeric" else column
    return pa.table(columns)


def _as_number(column: Any, name: str, reading: Reading, table: str) -> Any:
    import pyarrow as pa
    from pyarrow import compute as pc

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
    text = pc.utf8_trim_whitespace(column)
    with_comma = text.filter(pc.match_substring(text, ","))
    if reading.decimal is None and pc.all(pc.match_substring_regex(with_comma, THOUSANDS)).as_py():
        raise ConfigError(
            f"{table}: column '{name}' may hold thousands or fractions, as in 1,234: say which with decimal"
        )
    if reading.decimal is not None:
        text = pc.replace_substring(text, "." if reading.decimal == "," else ",", "")
    text = pc.replace_substring(text, ",", ".")
    wrong = pc.invert(pc.match_substring_regex(text, _NUMBER)).combine_chunks()
    if count := pc.sum(wrong).as_py():
        raise DataError(
            f"{table}: column '{name}' holds text that is no number: correct it, or name the words that mean "
            "a missing value with na_values",
            private=f"{count} of {len(column)} rows, the first is row {wrong.index(True).as_py() + 1}",
        )
    return text.cast(pa.float64())


def _date_columns(column: Any, name: str, reading: Reading, table: str) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa

    times, missing = _times(column, name, reading, table).cast(pa.int64()), column.is_null().to_numpy()
    days = times.fill_null(0).to_numpy() / 86_400e6
    yield name, pa.array(days, mask=missing)
    for part in reading.cyclic or ():
        angle = 2 * np.pi * days / PERIODS[part]
        yield f"{name} ({part}, sine)", pa.array(np.sin(angle), mask=missing)
        yield f"{name} ({part}, cosine)", pa.array(np.cos(angle), mask=missing)


def _times(column: Any, name: str, reading: Reading, table: str) -> Any:
    import pyarrow as pa
    from pyarrow import compute as pc

    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us"), safe=False)
    text = column.cast(pa.string())
    for form in (reading.date_format,) if reading.date_format else ("", *_DATES):
        try:
            parsed = (
                pc.strptime(text, format=form, unit="us", error_is_null=True)
                if form
                else text.cast(pa.timestamp("us"))
            )
        except pa.ArrowInvalid:  # not ISO
            continue
        if parsed.null_count == column.null_count:
            return parsed
    known = reading.date_format or "ISO or 31.12.2026"
    raise DataError(
        f"{table}: column '{name}' holds dates that are not written as {known}: say how they are with "
        "date_format, such as %m/%d/%Y"
    )
