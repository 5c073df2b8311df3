"""From an Arrow table (a parquet or CSV file) to a :class:`~tacit.data.table.Table`.

Text, truth values and dictionaries become categories, numbers stay numbers in their own type, and
nothing is dropped in silence: a column that cannot be used is refused by name.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.component import from_plain
from tacit.core.errors import ConfigError, DataError, nearest
from tacit.data.reading import Reading, convert
from tacit.data.table import Column, Label, Table, Task

MOST_CLASSES = 50  # a numeric target with more distinct values than this is taken for a quantity
MOST_EXACT = 2.0**53  # whole numbers beyond it are not told apart
GROUPS = ("split", "subject")


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
    from pyarrow import types

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
    import pyarrow as pa
    from pyarrow import compute as pc

    text = column.cast(pa.string())
    words = pc.unique(text).drop_null()
    words = words.take(pc.array_sort_indices(words))
    places = pc.index_in(text, value_set=words).fill_null(-1).to_numpy()
    return places.astype(np.int64), words.to_pylist()


def _numbers(column: Any, name: str, table: str) -> NDArray[Any]:
    import pyarrow as pa

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
