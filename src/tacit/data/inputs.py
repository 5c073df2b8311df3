"""What a model learns from: rows as the federation agreed to encode, fill and scale them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.core.shared import Shared
from tacit.data.recoding import Recoding
from tacit.data.schema import Schema
from tacit.data.table import Table

Matrix = NDArray[np.float64]


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
    def of(cls, shared: Shared) -> Inputs:
        """Take what the federation has agreed."""
        return cls(shared.schema, shared)

    @cached_property
    def recoding(self) -> Recoding:
        """How rows are encoded, small cells put together."""
        return Recoding(self.schema, self.values.get("cells"))

    def table_of(self, rows: Any) -> Table:
        """Read plain rows as the schema's table; a category that nobody agreed on counts as "other"."""
        return self.schema.table_of(rows, self.recoding.unseen)

    def columns(self, table: Table, *, lenient: bool = False) -> NDArray[np.float32]:
        """Return rows × columns, neither filled nor scaled: categories as agreed codes, NaN if missing.

        A category that nobody agreed on is refused or, if ``lenient``, counts as "other", else as missing.
        """
        return self.recoding.columns(self.schema.arrange(table), lenient=lenient)

    def matrix(self, table: Table, *, lenient: bool = False, bias: bool = False) -> Matrix:
        """Return prepared rows; refuse infinite values, and missing ones unless there is a fill value.

        ``lenient`` takes a category that nobody agreed on for "other" or, if there is none, for a missing
        one; ``bias`` puts a one first.
        """
        table, as_stored = self.schema.arrange(table), self.schema.numeric and "cells" not in self.values
        raw = table.values if as_stored else self.recoding.encode(table, lenient=lenient)
        if not np.isfinite(raw).all():
            if "fill" not in self.values or np.isinf(raw).any():
                raise DataError(
                    "rows hold missing or infinite values: fill them in, or train with missing = 'mean'"
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


def shorten_rows(X: Matrix, longest: float) -> Matrix:
    """Return the rows, those that are longer than ``longest`` shortened to it.

    A row without a finite length becomes one of zeros: if it spoiled a sum, the failure would tell of it.

    >>> shorten_rows(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0).round(9).tolist()
    [[0.6, 0.8], [0.3, 0.4]]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        return np.where(np.isfinite(lengths), X / np.maximum(lengths / longest, 1.0), 0.0)
