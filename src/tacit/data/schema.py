"""Schemas: what every party's data must have in common, agreed before anything is computed.

:mod:`tacit.data.agreement` says how parties agree on one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError, SchemaError, nearest
from tacit.core.message import Message
from tacit.data.table import Column, Label, Table, Task, is_frame, some

OTHER = "(other)"  # category of all words that too few rows have to be agreed on
ABSENT, UNSEEN = -1, -2  # codes of a category that is missing, and of one that nobody agreed on


@dataclass(frozen=True)
class Schema:
    """The agreed columns in order, with their categories, and the agreed classes or targets.

    Numbers become one feature each, a category becomes one feature per agreed value (one-hot); a
    missing category is all zeros. ``min_count`` rows at least must have a class or category.
    """

    columns: tuple[Column, ...]
    task: Task
    classes: tuple[Label, ...] = field(repr=False)
    target_names: tuple[str, ...]
    min_count: int = 1

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the encoded features."""
        names: list[str] = []
        for own in self.columns:
            names += [own.name] if own.kind == "number" else [f"{own.name}={word}" for word in own.categories]
        return tuple(names)

    @cached_property
    def numeric(self) -> bool:
        """Whether every column is a number."""
        return all(column.kind == "number" for column in self.columns)

    @cached_property
    def features(self) -> int:
        """Number of encoded features, without bias."""
        return len(self.feature_names)

    @cached_property
    def places(self) -> tuple[slice, ...]:
        """Where the encoded features of each column stand."""
        ends = np.cumsum([1 if own.kind == "number" else len(own.categories) for own in self.columns])
        return tuple(slice(first, end) for first, end in pairwise([0, *ends.tolist()]))

    @property
    def outputs(self) -> int:
        """Number of outputs a model needs: classes, or regression targets."""
        return len(self.classes) if self.task == "classification" else len(self.target_names)

    def arrange(self, table: Table) -> Table:
        """Put a table's columns into the agreed order; one that has other columns stays as it is."""
        return table.arranged([column.name for column in self.columns])

    def codes(self, table: Table, index: int, *, lenient: bool = False) -> NDArray[np.int64]:
        """Return agreed codes of a column's categories: -1 if missing; if ``lenient``, -2 if unknown."""
        values, agreed = np.asarray(table.values[:, index], dtype=np.float64), self.columns[index]
        present = np.isfinite(values)
        codes, known = np.full(len(values), ABSENT), values[present].astype(np.int64)
        own, where = table.columns[index].categories, f"column '{agreed.name}'"
        way_out = "replace it, or leave it empty, which counts as missing"
        codes[present] = _translate(known, own, agreed.categories, where, way_out, lenient=lenient)
        return codes

    def labels(self, table: Table) -> NDArray[np.int64]:
        """Translate a table's label codes to the agreed ones."""
        way_out = "correct it, or declare it"
        return _translate(table.target, table.classes, self.classes, "the target", way_out)

    def table_of(self, values: Any) -> Table:
        """Read rows as a table with these columns: a DataFrame or table by column names, others by place."""
        if isinstance(values, Table):
            return self._by_name(values)
        import pyarrow as pa

        from tacit.data.arrow import table_of, to_arrow

        if is_frame(values):
            return self._by_name(table_of(to_arrow(values, "rows"), self.columns, self.target_names))
        rows, pieces = np.asarray(values), dict[str, Any]()
        if rows.ndim != 2 or rows.shape[1] != len(self.columns):
            raise DataError(
                f"rows have shape {rows.shape}: give a matrix with the {len(self.columns)} columns "
                f"{', '.join(column.name for column in self.columns[:6])}…"
            )
        for column, piece in zip(self.columns, rows.T, strict=True):
            try:
                numeric = column.kind == "number"
                pieces[column.name] = piece.astype(np.float64) if numeric else pa.array(words_of(piece))
            except (TypeError, ValueError):
                raise DataError(f"column '{column.name}' holds text: give numbers") from None
        return self._by_name(table_of(pa.table(pieces), self.columns))

    def _by_name(self, table: Table) -> Table:
        own = {column.name: column.kind for column in table.columns}
        check_names([*own], self.columns, name=table.name)
        for column in self.columns:
            if own[column.name] != column.kind:
                told = f"is read as {own[column.name]}: the model was trained with it as {column.kind}"
                by_name = "name its stray words with na_values"
                way_out = by_name if column.kind == "number" else "choose it with categorical"
                raise DataError(f"{table.name}: column '{column.name}' {told}; {way_out}")
        return self.arrange(table)

    def to_message(self) -> Message:
        """Return the schema as a message."""
        return Message(schema=msgspec.json.encode(self))

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Read a schema."""
        try:
            return msgspec.json.decode(message["schema"], type=cls)
        except (KeyError, TypeError, ValueError) as error:  # no schema, or not UTF-8
            raise SchemaError(f"not a schema: {error}") from None


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


def words_of(values: Sequence[Any]) -> Iterator[str | None]:
    """Return each value as the word of a category: None if it is missing, "2" for 2.0, "true" for True."""
    for value in values:
        if value is None or value != value:  # only NaN differs from itself
            yield None
        elif isinstance(value, bool | np.bool_):
            yield str(value).lower()
        else:
            yield str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _translate(
    codes: NDArray[np.int64],
    own: tuple[Any, ...],
    agreed: tuple[Any, ...],
    where: str,
    way_out: str,
    *,
    lenient: bool = False,
) -> NDArray[np.int64]:
    """Turn codes into an own vocabulary into codes into the agreed one; -2 for none, if lenient."""
    if own == agreed:
        return codes
    positions = {value: code for code, value in enumerate(agreed)}
    unseen = positions.get(OTHER, UNSEEN)
    translated = np.array([positions.get(value, unseen) for value in own], dtype=np.int64)[codes]
    if not lenient and (translated < 0).any():
        unknown = str(own[codes[int(np.argmax(translated < 0))]])
        raise DataError(
            f"{where} holds a value that nobody agreed on: {way_out}",
            private=f"'{unknown}': {nearest(unknown, map(str, agreed))}",
        )
    return translated


def vocabulary(schema: Schema) -> dict[str, Any]:
    """Return a schema's vocabulary in the form in which a manifest declares it."""
    categories = {c.name: list(c.categories) for c in schema.columns if c.kind == "category"}
    return {"classes": list(schema.classes), "categories": categories}


def complete(declared: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is declared, and of other columns the words that were found."""
    categories = {**words.get("categories", {}), **declared.get("categories", {})}
    return {**words, **declared, "categories": categories}
