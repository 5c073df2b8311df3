"""DataFrames of any library as Arrow tables, and their columns by name.

pandas, Polars, DuckDB and Arrow itself hand over their columns by the Arrow PyCapsule interface: none has to
be installed, and none is imported here.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError, nearest
from tacit.data.reading import PERIODS, Reading, convert
from tacit.data.table import Column, some

Piece = NDArray[np.float64] | list[str | None]  # a column: of numbers, or of words


def is_frame(data: Any) -> bool:
    """Return whether this is a DataFrame, of whichever library."""
    return hasattr(data, "__arrow_c_stream__")


def to_arrow(data: Any, name: str) -> Any:
    """Return a DataFrame as an Arrow table; the index of a pandas frame is no column."""
    import pyarrow as pa

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
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return pa.dictionary(pa.int32(), _plain(kind.value_type))
    return pa.string() if pa.types.is_string_view(kind) or pa.types.is_large_string(kind) else kind


def columns_by_name(
    data: Any, columns: Sequence[Column], beside: Sequence[str] = (), name: str = "rows"
) -> list[Piece]:
    """Return the columns that a model was trained with, from an Arrow table with its columns in any order.

    Columns in ``beside`` may be there as well; any other is refused, as one that is missing is.
    """
    import pyarrow as pa

    wanted = {column.name for column in columns}
    kinds = zip(data.column_names, data.schema.types, strict=True)
    if dates := tuple(word for word, kind in kinds if pa.types.is_temporal(kind) and word in wanted):
        cyclic: Any = tuple(part for part in PERIODS if wanted & {f"{day} ({part}, sine)" for day in dates})
        data = convert(data, Reading(date=dates, cyclic=cyclic), name)
    check_names(data.column_names, columns, beside, name)
    return [_piece(data[column.name], column) for column in columns]


def check_names(
    names: Sequence[str], columns: Sequence[Column], beside: Sequence[str] = (), name: str = "rows"
) -> None:
    """Refuse rows that lack a column of the model, or have others."""
    wanted = [column.name for column in columns]
    if lacking := [word for word in wanted if word not in names]:
        raise DataError(
            f"{name}: no column {some(lacking)}, which the model was trained with: "
            + nearest(lacking[0], names)
        )
    if more := [word for word in names if word not in wanted and word not in beside]:
        raise DataError(f"{name}: the model was trained without column {some(more)}: leave it out")


def _piece(values: Any, column: Column) -> Piece:
    import pyarrow as pa

    if column.kind == "category":
        return list(words_of(values.to_pylist()))
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    types = pa.types
    if not any(fits(kind) for fits in (types.is_integer, types.is_floating, types.is_decimal, types.is_null)):
        raise DataError(f"column '{column.name}' holds {kind}: the model was trained with numbers")
    numbers: NDArray[np.float64] = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def words_of(values: Sequence[Any]) -> Iterator[str | None]:
    """Return each value as the word of a category: None if it is missing, "2" for 2.0, "true" for True."""
    for value in values:
        if value is None or value != value:  # only NaN differs from itself
            yield None
        elif isinstance(value, bool | np.bool_):
            yield str(value).lower()
        else:
            yield str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
