"""What a model learns from: rows as the federation agreed to encode, fill and scale them.

Features may count as others, once it is known which classes and categories few rows have.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.core.shared import Shared
from tacit.data.schema import ABSENT, OTHER, UNSEEN, Schema
from tacit.data.table import Table, some

Counts = NDArray[np.int64]
Matrix = NDArray[np.float64]


class Recoding:
    """Which feature stands for which, once small cells are known.

    ``features`` has for each feature the one that its rows count as: itself, that of "other", or none if it
    is left out. ``unseen`` and ``gaps`` have for each column the place among its categories that a category
    which nobody agreed on, and a missing one, counts as, if any.
    """

    def __init__(self, schema: Schema, cells: Counts | None) -> None:
        size, columns = schema.features, len(schema.columns)
        if cells is None:
            cells = np.concatenate([np.arange(size), np.full(2 * columns, ABSENT)])
        self.schema = schema
        self.features: Counts = cells[:size]
        self.unseen: Counts = cells[size : size + columns].copy()
        for index, column in enumerate(schema.columns if not schema.numeric else ()):
            if self.unseen[index] == ABSENT and OTHER in column.categories:
                self.unseen[index] = column.categories.index(OTHER)
        self.gaps: Counts = cells[size + columns :]

    @property
    def moved(self) -> Counts:
        """Features that count as another one, or as none."""
        return np.flatnonzero(self.features != np.arange(len(self.features)))

    def merged(self, index: int, counts: Counts) -> Counts:
        """Return a column's counts, the last of what is missing, once its rare cells are put together."""
        places, result = np.delete(self._places(index), UNSEEN), np.zeros_like(counts)
        counted = places != ABSENT
        counted[-1] = True  # what counts as nothing else stays missing
        np.add.at(result, places[counted], counts[counted])
        return result

    def encode(self, table: Table, *, lenient: bool = False) -> Matrix:
        """Encode a table's features; the result is the caller's own to change.

        A category that nobody agreed on is refused or, if ``lenient``, counts as "other"; where there is no
        such category it is all zeros, like a missing one.
        """
        if self.schema.numeric:
            X = np.array(table.values, dtype=np.float64)
            X[:, self.features == ABSENT] = 0.0
            return X
        X = np.zeros((table.rows, self.schema.features))
        for index, (column, own) in enumerate(zip(self.schema.columns, self.schema.places, strict=True)):
            if column.kind == "category":
                places = self._places(index)[self._codes(table, index, lenient)]
                rows = np.flatnonzero(places != ABSENT)
                X[rows, own.start + places[rows]] = 1.0
            elif self.features[own.start] != ABSENT:
                X[:, own.start] = table.values[:, index]
        return X

    def _places(self, index: int) -> Counts:
        """Return the place by which each code of a column counts, if any; codes -2 and -1 as well."""
        own = self.schema.places[index]
        features = np.append(self.features[own], ABSENT)
        places = np.where(features == ABSENT, ABSENT, features - own.start)
        return np.append(places[:-1], places[[self.unseen[index], self.gaps[index]]])

    def _codes(self, table: Table, index: int, lenient: bool) -> Counts:
        return self.schema.codes(table, index, lenient=lenient or self.unseen[index] != ABSENT)

    def columns(self, table: Table, *, lenient: bool = False) -> NDArray[np.float32]:
        """Return one value for each column: a number, or the code of a category; NaN if it is missing."""
        X = np.empty((table.rows, len(self.schema.columns)), dtype=np.float32)
        for index, (column, own) in enumerate(zip(self.schema.columns, self.schema.places, strict=True)):
            if column.kind == "category":
                places = self._places(index)
                X[:, index] = np.where(places == ABSENT, np.nan, places)[self._codes(table, index, lenient)]
            else:
                with np.errstate(over="ignore"):
                    X[:, index] = table.values[:, index] if self.features[own.start] != ABSENT else 0.0
                if np.isinf(X[:, index]).any():
                    raise DataError(
                        f"column '{column.name}' holds values that are infinite or beyond ±3.4e38, the limit "
                        "of 32-bit floats: correct them, or leave them empty, which counts as missing"
                    )
        return X


def describe(shared: Shared) -> list[str]:
    """Return what people should know of the cells that were too small."""
    if "cells" not in shared:
        return []
    schema: Schema = shared.schema
    known, names, least = Recoding(schema, shared["cells"]), schema.feature_names, shared["min_count"]
    dropped = [names[place] for place in known.moved if known.features[place] == ABSENT]
    kept = [place for place in known.moved if known.features[place] != ABSENT]
    others = [
        names.index(f"{column.name}={column.categories[place]}")
        for column, place in zip(schema.columns, known.unseen, strict=True)
        if place != ABSENT
    ]
    merged = [names[place] for place in sorted({*kept, *others})]
    texts = []
    if merged:
        texts.append(
            f"{some(merged)}: in fewer than min_count = {least} rows, or put together with such, and now "
            'part of "other"'
        )
    if dropped:
        texts.append(f"{some(dropped)}: constant but for fewer than min_count = {least} rows, and left out")
    return texts


class Inputs:
    """Turns a table into the matrix that a model learns from: encoded, filled and scaled.

    Of ``values``, those in ``NAMES`` are used, as far as the federation agreed on them. ``longest`` is the
    norm to which rows are shortened, if they were so when the model learnt from them.
    """

    NAMES = ("centre", "spread", "constant", "fill", "cells", "longest")

    def __init__(self, schema: Schema, values: Mapping[str, Any]) -> None:
        self.schema = schema
        self.values = {name: values[name] for name in self.NAMES if name in values}

    def check_shapes(self) -> None:
        """Refuse values that do not belong to the schema, as those of a damaged file may be."""
        features = self.schema.features
        lengths = {"cells": features + 2 * len(self.schema.columns), "longest": 1}
        for name, value in self.values.items():
            agreed = (lengths.get(name, features),)
            if np.shape(value) != agreed:
                raise DataError(f"'{name}' has shape {np.shape(value)}, the schema asks for {agreed}")

    @classmethod
    def of(cls, shared: Shared) -> Self:
        """Take what the federation has agreed."""
        return cls(shared.schema, shared)

    @cached_property
    def recoding(self) -> Recoding:
        """How rows are encoded, small cells put together."""
        return Recoding(self.schema, self.values.get("cells"))

    def columns(self, table: Table, *, lenient: bool = False) -> NDArray[np.float32]:
        """Return rows × columns, neither filled nor scaled: categories as agreed codes, NaN if missing."""
        return self.recoding.columns(self.schema.arrange(table), lenient=lenient)

    def matrix(self, table: Table, *, lenient: bool = False, bias: bool = False) -> Matrix:
        """Return prepared rows, behind a ``bias`` of one; refuse what is infinite, or missing without fill.

        ``lenient`` takes a category that nobody agreed on for "other" or, if there is none, for missing.
        """
        table, as_stored = self.schema.arrange(table), self.schema.numeric and "cells" not in self.values
        raw = table.values if as_stored else self.recoding.encode(table, lenient=lenient)
        if not np.isfinite(raw).all():
            names = self.schema.feature_names
            refuse_any(np.isinf(raw), names, "infinite values: correct or drop those rows")
            if "fill" not in self.values:
                refuse_any(
                    np.isnan(raw), names, "missing values: fill them in, or train with missing = 'mean'"
                )
            raw = np.where(np.isnan(raw), self.values["fill"], raw)
        first = int(bias)
        X = np.empty((len(raw), first + raw.shape[1]))
        X[:, :first], X[:, first:] = 1.0, raw
        if "centre" in self.values:  # whole rows at a time: the one that comes first stays what it is
            X -= np.append(np.zeros(first), self.values["centre"])
            X /= np.append(np.ones(first), self.values["spread"])
            if self.values["constant"].any():
                X[:, first:][:, self.values["constant"]] = 0.0
        if "longest" in self.values:
            X[:, first:] = shorten_rows(X[:, first:], float(self.values["longest"][0]))
        return X


def refuse_any(bad: NDArray[np.bool_], names: Sequence[str], told: str, owner: str = "") -> None:
    """Refuse rows of which some values are bad, naming the column and, at the site, the row."""
    if bad.any():
        row, place = (int(value) for value in np.argwhere(bad)[0])
        raise DataError(
            f"{owner and f'{owner}: '}column '{names[place]}' holds {told}",
            private=f"{int(bad[:, place].sum())} of {len(bad)} rows, the first is row {row + 1}",
        )


def shorten_rows(X: Matrix, longest: float) -> Matrix:
    """Return the rows, those that are longer than ``longest`` shortened to it.

    A row without a finite length becomes one of zeros: if it spoiled a sum, the failure would tell of it.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        return np.where(np.isfinite(lengths), X / np.maximum(lengths / longest, 1.0), 0.0)
