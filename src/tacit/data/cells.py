"""Small cells: classes, categories and columns that few rows of the whole federation have.

A protected sum before all others counts how many rows have each class and category: docs/preparation.md says
why, and what becomes of small ones. A client contributes min(count, min_count): the total reaches the least
count exactly if the count of all rows does.

Of a column of numbers, every value has a few public yes-or-no marks: whether it is 0, and the bits of a code.
The column is kept if for one of its marks both answers have enough rows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError
from tacit.core.layout import Field, Layout
from tacit.core.shared import Total
from tacit.data.inputs import Counts, Matrix, Recoding
from tacit.data.schema import ABSENT, Schema
from tacit.data.table import Table, some

BITS = 6  # of a value's code: whole numbers of one range of 64 all differ, other two values in 63 of 64 cases
MIXER = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ over the golden ratio, as in multiplicative hashing
FIRST_CHUNK, LARGEST_CHUNK = 256, 1 << 16  # rows that are looked at together


def layout(schema: Schema) -> Layout:
    """Return the layout of a client's counts."""
    count = partial(Field, bound=float(schema.min_count), whole=True)
    fields = [Field("rows", (), bound=2.0 * schema.min_count, whole=True), count("aside", ())]
    if schema.task == "classification":
        fields.append(count("classes", (len(schema.classes),)))
    if words := sum(len(column.categories) + 1 for column in schema.columns if column.kind == "category"):
        fields.append(count("categories", (words,)))
    numbers = sum(column.kind == "number" for column in schema.columns)
    if numbers := numbers + len(schema.target_names) * (schema.task == "regression"):
        fields.append(count("marks", (numbers, 1 + BITS, 2)))
    return Layout(*fields)


def count(table: Table, schema: Schema, aside: int = 0) -> dict[str, Any]:
    """Return the counts of a client that keeps so many rows ``aside``, each at most the least count."""
    least = schema.min_count
    # With fewer rows than twice as many no column can be told from a constant one.
    found: dict[str, Any] = {"rows": min(table.rows, 2 * least), "aside": min(aside, least)}
    if schema.task == "classification":
        classes = np.bincount(schema.labels(table), minlength=len(schema.classes))
        found["classes"] = np.minimum(classes, least)
    sizes = {i: len(one.categories) + 1 for i, one in enumerate(schema.columns) if one.kind == "category"}
    if sizes:  # the code of a missing category is -1, and its count comes last
        counts = [np.bincount(schema.codes(table, i) % size, minlength=size) for i, size in sizes.items()]
        found["categories"] = np.minimum(np.concatenate(counts), least)
    chosen = [index for index, column in enumerate(schema.columns) if column.kind == "number"]
    numbers = table.values if len(chosen) == len(schema.columns) else table.values[:, chosen]
    if schema.task == "regression":
        numbers = np.concatenate([numbers, table.target], axis=1)
    if numbers.shape[1]:
        found["marks"] = _count_marks(numbers, least)
    return found


def _count_marks(values: NDArray[Any], least: int) -> Counts:
    """Return for each column and mark how many rows say no and yes, at most the least count.

    A column with enough rows on both sides of one mark says so of all: its other rows need no look.
    """
    found = np.zeros((values.shape[1], 1 + BITS, 2), dtype=np.int64)
    open_columns = np.arange(values.shape[1])
    start, size = 0, FIRST_CHUNK
    while start < len(values) and len(open_columns):
        found[open_columns] += _marks(np.array(values[start : start + size, open_columns], dtype=np.float64))
        enough = _both_reach(found[open_columns], least)
        found[open_columns[enough]] = least
        open_columns = open_columns[~enough]
        start, size = start + size, min(2 * size, LARGEST_CHUNK)
    return np.minimum(found, least)


def _marks(values: Matrix) -> Counts:
    with np.errstate(invalid="ignore"):  # what is no whole number, or too large for one, is hashed
        numbers = values.astype(np.int64)
    codes = numbers ^ (numbers >> BITS) ^ (numbers >> 2 * BITS) ^ (numbers >> 3 * BITS)
    if not (whole := numbers == values).all():
        raw = values.view(np.uint64)
        mixed = ((raw ^ (raw >> np.uint64(32))) * MIXER) >> np.uint64(64 - BITS)
        codes = np.where(whole, codes, mixed.astype(np.int64))
    # One byte for each value: the bits of its code, and above them whether it is 0.
    said = ((codes & ((1 << BITS) - 1)) | ((values != 0).astype(np.int64) << BITS)).astype(np.uint8)
    asked = np.full(values.shape[1], len(values))
    if not (known := np.isfinite(values)).all():
        said, asked = np.where(known, said, np.uint8(0)), known.sum(axis=0)
    yes = np.unpackbits(said[:, :, None], axis=2)[:, :, 7 - BITS :].sum(axis=0, dtype=np.int64)
    return np.stack([asked[:, None] - yes, yes], axis=2)


def _both_reach(marks: Counts, least: int) -> NDArray[np.bool_]:
    """Return for each column whether both answers to one of its marks have enough rows."""
    return np.asarray(np.any(np.all(marks >= least, axis=2), axis=1))


def check_at_hand(tables: Iterable[Table], schema: Schema, least: int, aside: int) -> None:
    """Refuse the rows of all clients, where they are at hand, for which :class:`Cells` would end the run."""
    if schema.task == "classification":
        found = np.sum([np.bincount(schema.labels(t), minlength=len(schema.classes)) for t in tables], axis=0)
        Cells.of(Total({"rows": found.sum(), "aside": aside, "classes": found}, 1), least).check(schema)


# -- whoever opens the total ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """Counts of the whole federation, as far as they are needed: exact below the least count only."""

    least: int
    rows: int
    aside: Counts
    classes: Counts
    categories: Counts
    marks: Counts

    @classmethod
    def of(cls, total: Total, least: int) -> Self:
        """Read an opened total."""
        none = {"aside": np.zeros(()), "classes": np.zeros(0), "categories": np.zeros(0)}
        found = (total.get(name, empty) for name, empty in (none | {"marks": np.zeros((0, 1, 2))}).items())
        counts = (np.rint(numbers).astype(np.int64) for numbers in found)
        return cls(least, int(np.rint(float(total["rows"]))), *counts)

    def check(self, schema: Schema) -> None:
        """Refuse too few rows, also kept aside, a rare class, and a target that is constant but for few."""
        least = self.least
        way_out = "or set min_count = 1 and say what that shows"
        if self.rows < 2 * least:
            raise DataError(
                f"all clients together have fewer than {2 * least} rows, twice min_count = {least}: a total "
                f"over so few shows single rows. Have more rows, {way_out}"
            )
        if self._is_rare(self.aside):
            raise DataError(
                f"all clients together keep fewer than min_count = {least} rows aside, and scores on so few "
                f"show them: raise holdout, set it to 0, {way_out}"
            )
        if rare := [schema.classes[place] for place in np.flatnonzero(self._is_rare(self.classes))]:
            raise DataError(
                f"the class{'es' * (len(rare) > 1)} {some(rare)} occur{'s' * (len(rare) == 1)} in fewer "
                f"than min_count = {least} rows of all clients together, and what is learnt of it would show "
                f"them: put it together with another class, leave its rows out, {way_out}"
            )
        targets = schema.target_names if schema.task == "regression" else ()
        told = (self._varies() | self._all_zero())[len(self.marks) - len(targets) :]
        if odd := [name for name, fine in zip(targets, told, strict=True) if not fine]:
            raise DataError(
                f"the target {some(odd)} is the same in all but fewer than min_count = {least} rows of all "
                f"clients together, and what is learnt of it would show them: choose another, {way_out}"
            )

    def recoding(self, schema: Schema) -> Counts | None:
        """Return which feature stands for which, or None if all can stay: see :class:`Recoding`."""
        features = np.arange(schema.features)
        unseen, gaps = (np.full(len(schema.columns), ABSENT) for _ in range(2))
        varies = iter(self._varies() | self._all_zero())
        for index, first, counts in self._by_column(schema):
            if counts is None:
                features[first] = first if next(varies) else ABSENT
            elif len(pool := self._pool(counts)):
                words = len(counts) - 1
                rest = np.setdiff1d(np.flatnonzero(counts), pool)
                other = ABSENT if not len(rest) else int(pool[0])
                inside = first + pool[pool < words]
                features[inside] = ABSENT if other == ABSENT else first + other
                unseen[index] = other
                gaps[index] = other if words in pool else ABSENT
                if other == ABSENT:  # nothing is left to tell apart
                    features[first : first + words] = ABSENT
        changed = (features != np.arange(schema.features)).any() or (unseen != ABSENT).any()
        return np.concatenate([features, unseen, gaps]) if changed else None

    def check_again(self, schema: Schema, recoding: Counts | None) -> None:
        """Refuse clients that continue with a cell which only few of their rows have."""
        known = Recoding(schema, recoding)
        varies, hints = self._varies(), self.marks.min(axis=2).max(axis=1, initial=0) > 0
        place = 0
        for index, first, counts in self._by_column(schema):
            if counts is None:
                flaw = known.features[first] != ABSENT and not varies[place] and bool(hints[place])
                place += 1
            else:
                flaw = bool(self._is_rare(known.merged(index, counts)).any())
            if flaw:
                raise DataError(
                    f"fewer than min_count = {self.least} rows of these clients differ from the rest in "
                    f"column '{schema.columns[index].name}', and their total would show them: let more "
                    "clients take part at once"
                )

    def _by_column(self, schema: Schema) -> Iterator[tuple[int, int, Counts | None]]:
        rest = self.categories
        for index, (column, place) in enumerate(zip(schema.columns, schema.places, strict=True)):
            own, rest = np.split(rest, [len(column.categories) + 1 if column.kind == "category" else 0])
            yield index, place.start, own if column.kind == "category" else None

    def _is_rare(self, counts: Counts) -> NDArray[np.bool_]:
        return (counts > 0) & (counts < self.least)

    def _varies(self) -> NDArray[np.bool_]:
        return _both_reach(self.marks, self.least)

    def _all_zero(self) -> NDArray[np.bool_]:
        """Return for each column of numbers whether it has no value but 0: it tells nothing, and may stay."""
        return np.asarray(self.marks[:, 0, 1] == 0)

    def _pool(self, counts: Counts) -> Counts:
        """Return which of a column's cells become "other": the rare ones, and more if those are too few.

        Which more follows from their order alone, so that it makes no difference who holds which rows.
        """
        pool = np.flatnonzero(self._is_rare(counts))
        if not len(pool) or counts[pool].sum() >= self.least:
            return pool
        frequent = np.flatnonzero(counts >= self.least)
        missing = len(counts) - 1
        return np.sort(np.append(pool, missing if missing in frequent else frequent[0]))
