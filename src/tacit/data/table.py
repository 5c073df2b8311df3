"""A table: the rows one party (or, in an experiment, everybody) holds, as numbers and codes.

Numbers stay in the type of their file. Categories are codes into the column's own vocabulary, and
labels are codes into ``classes``; which codes mean the same at two parties is settled by
:mod:`tacit.data.schema`, never by looking at pooled data.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tacit.core.display import Shown
from tacit.core.errors import DataError, nearest

Label = str | int | float | bool
Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Column:
    """One feature: its name, its kind, and its categories if it has any."""

    name: str
    kind: Literal["number", "category"] = "number"
    categories: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class Table(Shown):
    """Rows of features with their target.

    >>> table = Table.of([[1.0, 2.0], [3.0, 4.0]], ["no", "yes"])
    >>> table.rows, table.classes, table.target.tolist()
    (2, ('no', 'yes'), [0, 1])
    """

    name: str
    columns: tuple[Column, ...]
    values: NDArray[Any]  # rows × columns: numbers as stored, codes of categories; NaN is missing
    target: NDArray[Any]  # int64 codes into ``classes``, or float64 of shape (rows, targets)
    task: Task = "classification"
    classes: tuple[Label, ...] = ()  # empty for regression
    target_names: tuple[str, ...] = ("target",)
    groups: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # columns such as ``split``: no features
    chosen: tuple[str, ...] = ()  # said to be categories: words may look like numbers or identifiers
    notes: tuple[str, ...] = ()  # what whoever brought the rows should know of how they were read

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.columns):
            raise DataError(
                f"{self.name}: values have shape {self.values.shape}, but {len(self.columns)} columns are "
                "named: give a matrix of rows × columns"
            )
        if len(self.target) != len(self.values):
            raise DataError(
                f"{self.name}: {len(self.values)} rows but {len(self.target)} targets: give one for each row"
            )

    @classmethod
    def of(
        cls,
        values: Any,
        target: Any,
        *,
        task: Task = "classification",
        names: Iterable[str] | None = None,
        name: str = "table",
    ) -> Self:
        """Make a table from plain arrays of numbers and labels."""
        matrix = np.asarray(values)
        if matrix.ndim != 2:
            raise DataError(f"{name}: values have {matrix.ndim} dimensions: give a matrix of rows × columns")
        titles = list(names) if names is not None else [f"x{i}" for i in range(matrix.shape[1])]
        columns = tuple(Column(title) for title in titles)
        if task == "classification":
            labels, codes = np.unique(np.asarray(target), return_inverse=True)
            return cls(name, columns, matrix, codes.astype(np.int64).ravel(), task, tuple(labels.tolist()))
        outputs = np.asarray(target, dtype=np.float64).reshape(len(matrix), -1)
        many = tuple(f"target{i}" for i in range(outputs.shape[1]))
        return cls(name, columns, matrix, outputs, task, (), many if len(many) != 1 else ("target",))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.values)

    def facts(self) -> dict[str, Any]:
        size = {"name": self.name, "rows": self.rows, "columns": len(self.columns)}
        return {**size, "task": self.task, "classes": len(self.classes) or None}

    def take(self, rows: Any) -> Self:
        """Choose rows by index array, boolean mask or slice (a slice is a view)."""
        return replace(
            self,
            values=self.values[rows],
            target=self.target[rows],
            groups={key: value[rows] for key, value in self.groups.items()},
        )

    def arranged(self, names: Sequence[str]) -> Self:
        """Put the columns into the order of some names; with other names the table stays as it is."""
        own = [column.name for column in self.columns]
        if own == names or sorted(own) != sorted(names):
            return self
        order = [own.index(name) for name in names]
        return replace(self, columns=tuple(self.columns[i] for i in order), values=self.values[:, order])

    def set_apart(self, name: str | None) -> Self:
        """Make a feature a group, by which rows may be divided; any other name changes nothing."""
        chosen = [index for index, column in enumerate(self.columns) if column.name == name]
        if not chosen or len(self.columns) == 1:
            return self
        columns = tuple(column for column in self.columns if column.name != name)
        groups = {**self.groups, str(name): self.values[:, chosen[0]]}
        return replace(self, columns=columns, values=np.delete(self.values, chosen, axis=1), groups=groups)

    def group(self, name: str) -> NDArray[Any]:
        """Return the values of a column that may divide rows: a group, a category or a numeric feature."""
        if name in self.groups:
            return self.groups[name]
        names = [column.name for column in self.columns]
        if name in names:
            return self.values[:, names.index(name)]
        raise DataError(f"{self.name} has no column '{name}': {nearest(name, [*self.groups, *names])}")


def is_frame(data: Any) -> bool:
    """Return whether this is a DataFrame, of whichever library."""
    return hasattr(data, "__arrow_c_stream__")


def count_words(codes: NDArray[Any], words: Sequence[Any]) -> Counter[Any]:
    """Return how many rows have each word that occurs, in the order of the words; missing ones have none."""
    counts = np.bincount(codes[np.isfinite(codes)].astype(np.int64), minlength=len(words)).tolist()
    return +Counter(dict(zip(words, counts, strict=True)))


def order_labels(labels: Iterable[Label]) -> list[Label]:
    """Order labels: numbers by size, then text, as NumPy orders a pooled column of one type."""
    return sorted(labels, key=lambda label: (isinstance(label, str), label))


def some(names: Sequence[Any]) -> str:
    """Return a few names, and how many more there are."""
    quoted = [f"'{name}'" for name in names[:5]]
    return ", ".join(quoted) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def joined(tables: Sequence[Table]) -> Table:
    """Put the rows of tables with the same columns, in any order, into one, their vocabularies united."""
    first = tables[0]
    tables = [table.arranged([column.name for column in first.columns]) for table in tables]
    for table in tables:
        if [(c.name, c.kind) for c in table.columns] != [(c.name, c.kind) for c in first.columns]:
            raise DataError(f"{table.name} and {first.name} have different columns: they cannot be joined")
    columns, values = list(first.columns), [np.array(table.values, dtype=np.float64) for table in tables]
    for index, column in enumerate(columns):
        if column.kind == "category":
            words = tuple(sorted({word for table in tables for word in table.columns[index].categories}))
            for matrix, table in zip(values, tables, strict=True):
                own = table.columns[index].categories
                codes = np.array([*(words.index(word) for word in own), np.nan])
                present = np.where(np.isfinite(matrix[:, index]), matrix[:, index], len(own))
                matrix[:, index] = codes[present.astype(np.int64)]
            columns[index] = replace(column, categories=words)
    classes = tuple(order_labels({label for table in tables for label in table.classes}))
    target = np.concatenate(
        [np.array([classes.index(c) for c in t.classes])[t.target] if classes else t.target for t in tables]
    )
    common = [name for name in first.groups if all(name in table.groups for table in tables)]
    return replace(
        first,
        columns=tuple(columns),
        values=np.concatenate(values),
        target=target,
        classes=classes,
        groups={name: np.concatenate([table.groups[name] for table in tables]) for name in common},
        notes=tuple(note for table in tables for note in table.notes),
    )
