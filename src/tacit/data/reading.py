"""What a user says of a file or a query: which columns, of which kind, and how the file is written."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from tacit.core.errors import ConfigError, nearest
from tacit.data.table import Task

THOUSANDS = r"^[+-]?[1-9]\d{0,2},\d{3}$"  # 1,234 may be a thousand and more, or one and a little
THREE = "has three digits after each point: if points part thousands"  # a warning, and no mere note


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
