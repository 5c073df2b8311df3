"""Arrow tables: made of DataFrames, converted as users say, sorted into a :class:`~tacit.data.table.Table`.

pandas, Polars, DuckDB and Arrow itself hand over their columns by the Arrow PyCapsule interface: none has to
be installed, and none is imported here. A column that cannot be used is refused by name. Arrow takes a while
to load, so that this file is imported where rows are read.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc

from tacit.core.component import from_plain
from tacit.core.errors import ConfigError, DataError, nearest
from tacit.data.reading import THOUSANDS, Reading
from tacit.data.schema import check_names
from tacit.data.table import Column, Label, Table, Task

MOST_CLASSES = 50  # a numeric target with more distinct values than this is taken for a quantity
MOST_EXACT = 2.0**53  # whole numbers beyond it are not told apart
GROUPS = ("split", "subject")
PERIODS = {"year": 365.2425, "week": 7.0, "day": 1.0}  # in days
_DATES = ("%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%Y/%m/%d")  # none that can be read in two ways
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def to_arrow(data: Any, name: str) -> Any:
    """Return a DataFrame as an Arrow table; the index of a pandas frame is no column."""
    try:
        of_pandas = any(base.__module__.split(".")[0] == "pandas" for base in type(data).__mro__)
        found = pa.Table.from_pandas(data, preserve_index=False) if of_pandas else pa.table(data)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError, AttributeError) as error:
        column = re.search(r"for column (.*) with type", str(error.args[-1] if error.args else ""))
        where = f"column '{column[1]}' of {name}" if column else f"{name} is a {type(data).__name__} that"
        raise DataError(  # the cause may quote a value
            f"{where} cannot be read: give a DataFrame whose columns hold one type each"
        ) from None
    if len(set(found.column_names)) < found.num_columns:
        raise DataError(f"{name}: a column name is there more than once: rename the others")
    plain = [_plain(field.type) for field in found.schema]
    return found.cast(pa.schema(zip(found.column_names, plain, strict=True)))


def _plain(kind: Any) -> Any:
    """Return the type as which a column is read: one for text, of which libraries have three."""
    if pa.types.is_dictionary(kind):
        return pa.dictionary(pa.int32(), _plain(kind.value_type))
    return pa.string() if pa.types.is_string_view(kind) or pa.types.is_large_string(kind) else kind


def table_of(data: Any, columns: Sequence[Column], beside: Sequence[str] = ()) -> Table:
    """Return an Arrow table's columns as those of a model: dates as numbers, and words where it has words.

    Columns may come in any order, and those in ``beside`` as well; any other is refused, as one that is
    missing is.
    """
    kinds = {column.name: column.kind for column in columns}
    known = dict(zip(data.column_names, data.schema.types, strict=True))
    dates = tuple(name for name, kind in known.items() if pa.types.is_temporal(kind) and name in kinds)
    cyclic: Any = tuple(part for part in PERIODS if {f"{day} ({part}, sine)" for day in dates} & kinds.keys())
    words = tuple(name for name in known if kinds.get(name) == "category")
    data = convert(data, Reading(date=dates, cyclic=cyclic, categorical=words), "rows")
    check_names(data.column_names, columns, beside, "rows")
    pieces = [_feature(data[column.name], column.name, "rows") for column in columns]
    values = np.column_stack([piece for _, piece in pieces])
    return Table("rows", tuple(own for own, _ in pieces), values, np.zeros(len(values), np.int64))


def convert(data: Any, reading: Reading, table: str) -> Any:
    """Return an Arrow table whose columns have the kinds that were said; dates may become several columns."""
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
    times, missing = _times(column, name, reading, table).cast(pa.int64()), column.is_null().to_numpy()
    days = times.fill_null(0).to_numpy() / 86_400e6
    yield name, pa.array(days, mask=missing)
    for part in reading.cyclic or ():
        angle = 2 * np.pi * days / PERIODS[part]
        yield f"{name} ({part}, sine)", pa.array(np.sin(angle), mask=missing)
        yield f"{name} ({part}, cosine)", pa.array(np.cos(angle), mask=missing)


def _times(column: Any, name: str, reading: Reading, table: str) -> Any:
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


def to_table(
    data: Any,
    name: str,
    *,
    target: str | Sequence[str] | None = None,
    task: Task | None = None,
    groups: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    **choices: Any,
) -> Table:
    """Sort the columns of an Arrow table as :func:`tacit.data.files.load` says, with its choices."""
    reading = from_plain(Reading, choices, name, "choice")
    if doubled := sorted(word for word, times in Counter(data.column_names).items() if times > 1):
        raise DataError(f"{name}: the column name '{doubled[0]}' is there more than once: rename the others")
    if not data.num_rows:
        raise DataError(f"{name} has no rows: give a file with at least one")
    targets = _targets(data.column_names, target, name)
    apart = (*targets, *(reading.features or ()))
    grouped = [word for word in (GROUPS if groups is None else groups) if word not in apart]
    if unknown := [word for word in groups or () if word not in data.column_names]:
        raise ConfigError(f"{name} has no column '{unknown[0]}': {nearest(unknown[0], data.column_names)}")
    chosen = reading.choose(data.column_names, [*targets, *grouped], name)
    if not chosen:
        raise DataError(f"{name} has no feature beside {', '.join(targets)}: add a column to learn from")
    used = [word for word in data.column_names if word in {*chosen, *targets, *grouped}]
    data = convert(data.select(used), reading, name)
    chosen = [word for word in data.column_names if word not in targets and word not in grouped]
    pieces = [_feature(data[word], word, name) for word in chosen]
    codes, classes = _target([data[word] for word in targets], targets, task, name)
    return Table(
        name=name,
        columns=tuple(column for column, _ in pieces),
        values=np.column_stack([piece for _, piece in pieces]),
        target=codes,
        task="classification" if classes else "regression",
        classes=classes,
        target_names=tuple(targets),
        groups={word: _group(data[word], word, name) for word in grouped if word in data.column_names},
        notes=tuple(notes),
        chosen=reading.categorical or (),
    )


def _targets(names: Sequence[str], target: str | Sequence[str] | None, table: str) -> list[str]:
    if target is None:
        if "target" not in names:
            raise ConfigError(
                f"{table} has no column called 'target': name the one to predict with target (--target); "
                f"its columns: {', '.join(names[:40])}"
            )
        return ["target"]
    wanted = list(target)
    if isinstance(target, str):
        # A name may hold a comma itself, so the whole text is tried first.
        wanted = [target] if target in names else [word.strip() for word in target.split(",")]
    for word in wanted:
        if word not in names:
            raise ConfigError(f"{table} has no column '{word}' to predict: {nearest(word, names)}")
    return list(dict.fromkeys(wanted))


def _is_category(kind: Any) -> bool:
    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return bool(text or types.is_boolean(kind) or types.is_dictionary(kind))


def _feature(column: Any, name: str, table: str) -> tuple[Column, NDArray[Any]]:
    if _is_category(column.type):
        codes, words = _categories(column)
        if (codes < 0).any():
            coded = np.where(codes < 0, np.nan, codes).astype(np.float32)
        else:
            coded = codes.astype(np.int16 if len(words) < 2**15 else np.int32)
        return Column(name, "category", tuple(words)), coded
    numbers = _numbers(column, name, table)
    return Column(name), numbers


def _categories(column: Any) -> tuple[NDArray[np.int64], list[str]]:
    """Return each row's place among the words that occur, -1 if it has none, and these words in order."""
    text = column.cast(pa.string())
    words = pc.unique(text).drop_null()
    words = words.take(pc.array_sort_indices(words))
    places = pc.index_in(text, value_set=words).fill_null(-1).to_numpy()
    return places.astype(np.int64), words.to_pylist()


def _numbers(column: Any, name: str, table: str) -> NDArray[Any]:
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_float16(kind):
        column = column.cast(pa.float32())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_integer(kind):
        if column.null_count:
            column = column.cast(pa.float32() if kind.bit_width <= 16 else pa.float64(), safe=False)
    elif not pa.types.is_floating(kind):
        dated = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        raise DataError(
            f"{table}: column '{name}' holds {kind}, which is neither number nor text: "
            + ("name it with date" if dated else "turn it into a number")
            + ", or leave it out with drop"
        )
    numbers: NDArray[Any] = column.to_numpy()
    return numbers


def _group(column: Any, name: str, table: str) -> NDArray[Any]:
    if not _is_category(column.type):
        return np.array(_numbers(column, name, table))
    codes, words = _categories(column)
    return np.array([*words, ""])[codes]


def _target(
    columns: list[Any], names: list[str], task: Task | None, table: str
) -> tuple[NDArray[Any], tuple[Label, ...]]:
    if len(columns) > 1 and task == "classification":
        raise ConfigError(
            f"{table}: {len(columns)} targets cannot be one class: name one, or task='regression'"
        )
    if any(_is_category(column.type) for column in columns):
        if task == "regression" or len(columns) > 1:
            raise DataError(f"{table}: target {', '.join(names)} is text and cannot be predicted as a number")
        codes, words = _categories(columns[0])
        _complete(codes < 0, names[0], table)
        truth = str(columns[0].type) == "bool"
        return codes, tuple(word == "true" for word in words) if truth else tuple(words)
    numbers = [_numbers(column, name, table) for column, name in zip(columns, names, strict=True)]
    for number, name in zip(numbers, names, strict=True):
        _complete(~np.isfinite(number), name, table)
    if len(numbers) == 1 and task != "regression":
        labels, codes = np.unique(numbers[0], return_inverse=True)
        whole = bool(((labels == np.trunc(labels)) & (np.abs(labels) <= MOST_EXACT)).all())
        if task == "classification" or (whole and len(labels) <= MOST_CLASSES):
            return codes.astype(np.int64), tuple((labels.astype(np.int64) if whole else labels).tolist())
    return np.stack(numbers, axis=1).astype(np.float64), ()


def _complete(missing: NDArray[np.bool_], name: str, table: str) -> None:
    if missing.any():
        raise DataError(
            f"{table}: target '{name}' is missing or not finite: fill it in, or leave such rows out",
            private=f"{int(missing.sum())} of {len(missing)} rows, first in row {int(missing.argmax()) + 1}",
        )
