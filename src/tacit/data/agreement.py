"""How parties agree on a schema: each introduces its columns and the vocabulary that occurs in its own rows.

The coordinator compares and unites. Where the federation declares its classes and categories beforehand,
parties check themselves against them and tell nobody which they hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
import numpy as np

from tacit.core.errors import DataError, SchemaError, nearest
from tacit.core.message import Message
from tacit.data.schema import Schema
from tacit.data.table import Column, Table, Task


def check_rows(table: Table, owner: str, missing: str) -> None:
    """Refuse rows that cannot be learnt from, naming the column and, at the site, the row."""
    if not table.rows:
        raise DataError(f"{owner} has no rows: leave it out, or give it data")
    if table.task == "regression" and not np.isfinite(table.target).all():
        raise DataError(f"{owner}: the target holds missing or infinite values: drop those rows")
    if table.values.dtype.kind != "f" or np.isfinite(table.values).all():
        return
    infinite = np.isinf(table.values)
    numbers = np.array([column.kind == "number" for column in table.columns])
    gaps = np.isnan(table.values) & numbers if missing == "refuse" else np.zeros_like(infinite)
    for bad, what, way_out in (
        (infinite, "infinite", "correct or drop those rows"),
        (gaps, "missing", "fill them in, drop those rows, or set missing = 'mean'"),
    ):
        if bad.any():
            row, index = (int(value) for value in np.argwhere(bad)[0])
            raise DataError(
                f"{owner}: column '{table.columns[index].name}' holds {what} values: {way_out}",
                private=f"{int(bad[:, index].sum())} of {table.rows} rows, the first is row {row + 1}",
            )


def introduce(table: Table, declared: Mapping[str, Any]) -> Message:
    """Describe this party's data to the federation: columns, and vocabulary that is not declared.

    A label or category that the declared ones do not have is refused.
    """
    words: dict[str, Any] = {}
    if table.task == "classification":
        counts = np.bincount(table.target, minlength=len(table.classes))
        present = tuple(table.classes[code] for code in np.flatnonzero(counts))
        if "classes" in declared:
            _check_declared(present, declared["classes"], "label")
        else:
            words["classes"] = present
    for index, column in enumerate(table.columns):
        if column.kind == "category":
            codes = np.asarray(table.values[:, index], dtype=np.float64)
            used = tuple(column.categories[int(code)] for code in np.unique(codes[np.isfinite(codes)]))
            fixed = declared.get("categories", {}).get(column.name)
            if fixed is not None:
                _check_declared(used, fixed, f"category of column '{column.name}'")
            else:
                words.setdefault("categories", {})[column.name] = used
    return Message(signature=_signature(table), vocabulary=msgspec.json.encode(words))


def _signature(described: Table | Schema) -> bytes:
    """Columns, task and targets, for comparison."""
    columns = [(column.name, column.kind) for column in described.columns]
    words = {"columns": columns, "task": described.task, "targets": described.target_names}
    return msgspec.json.encode(words)


def _check_declared(present: Iterable[Any], declared: Iterable[Any], what: str) -> None:
    allowed = set(declared)
    if odd := [value for value in present if value not in allowed]:
        raise SchemaError(
            f"a {what} that nobody agreed on: declare it, or correct this client's data",
            private=f"{odd[0]!r}; {nearest(str(odd[0]), map(str, allowed))}",
        )


class _Signature(msgspec.Struct, forbid_unknown_fields=True):
    columns: list[tuple[str, Literal["number", "category"]]]
    task: Task
    targets: list[str]


class _Vocabulary(msgspec.Struct, forbid_unknown_fields=True):
    classes: list[str | int | float | bool] = []
    categories: dict[str, list[str]] = {}


class Agreement:
    """Collects introductions and settles on one schema, or names who differs and where.

    ``declared`` has the ``classes`` and ``categories`` that the federation fixed beforehand.
    """

    def __init__(self, declared: Mapping[str, Any]) -> None:
        self._declared = declared
        self._agreed: bytes | None = None
        self._groups: dict[bytes, list[str]] = {}
        self._vocabularies: dict[bytes, None] = {}

    def hold(self, schema: Schema) -> None:
        """Take only parties that have the columns and targets of this schema."""
        self._agreed = _signature(schema)

    def add(self, party: str, introduction: Mapping[str, Any]) -> None:
        """Take a party's introduction; one that cannot be read is refused."""
        try:
            signature, words = introduction["signature"], introduction["vocabulary"]
            if signature not in self._groups:
                msgspec.json.decode(signature, type=_Signature)
            if words not in self._vocabularies:
                msgspec.json.decode(words, type=_Vocabulary)
        except (KeyError, TypeError, msgspec.MsgspecError) as error:
            raise SchemaError(f"{party} introduced itself in a way that cannot be read: {error}") from None
        if self._agreed not in (None, signature):
            found, agreed = msgspec.json.decode(signature), msgspec.json.decode(self._agreed or b"")
            raise SchemaError(_difference([party], found, agreed))
        self._groups.setdefault(signature, []).append(party)
        self._vocabularies[words] = None

    def settle(self) -> Schema:
        """Unite the vocabularies under the one set of columns that all parties have."""
        sizes = Counter({signature: len(parties) for signature, parties in self._groups.items()})
        common = sizes.most_common(1)[0][0]
        reference = msgspec.json.decode(common)
        for signature, parties in self._groups.items():
            if signature != common:
                raise SchemaError(_difference(parties, msgspec.json.decode(signature), reference))
        classes: set[Any] = set(self._declared.get("classes", ()))
        categories: dict[str, set[str]] = {}
        for raw in self._vocabularies:
            words = msgspec.json.decode(raw)
            classes.update(words.get("classes", ()))
            for name, values in words.get("categories", {}).items():
                categories.setdefault(name, set()).update(values)
        declared: Mapping[str, Any] = self._declared.get("categories", {})
        columns = tuple(
            Column(name, kind, categories=tuple(declared.get(name) or sorted(categories.get(name, ()))))
            for name, kind in reference["columns"]
        )
        ordered = tuple(self._declared.get("classes") or _sorted_labels(classes))
        if reference["task"] == "classification" and len(ordered) < 2:
            raise SchemaError(
                f"the federation holds the single class {ordered}: a classifier needs two. "
                "Check the target column, or declare the classes"
            )
        return Schema(columns, reference["task"], ordered, tuple(reference["targets"]))


def _sorted_labels(labels: set[Any]) -> list[Any]:
    """Numbers by size, then text; the order that NumPy gives a pooled column of one type."""
    return sorted(labels, key=lambda label: (isinstance(label, str), label))


def _difference(parties: list[str], found: Any, reference: Any) -> str:
    """Say in one sentence who differs from the rest, in which column, and how."""
    who = parties[0] + (f" (and {len(parties) - 1} more)" if len(parties) > 1 else "")
    ours, theirs = found["columns"], reference["columns"]
    for index, (own, agreed) in enumerate(zip(ours, theirs, strict=False)):
        if own[0] != agreed[0]:
            return (
                f"{who}: column {index} is '{own[0]}', the others have '{agreed[0]}' there: put it in order"
            )
        if own[1] != agreed[1]:
            return f"{who}: column '{own[0]}' is a {own[1]}, the others have a {agreed[1]}: convert it"
    if len(ours) != len(theirs):
        odd = (ours if len(ours) > len(theirs) else theirs)[min(len(ours), len(theirs))][0]
        return f"{who}: {len(ours)} columns, the others have {len(theirs)}; the first odd one is '{odd}'"
    return (
        f"{who}: task {found['task']} with targets {found['targets']}, "
        f"the others have {reference['task']} with {reference['targets']}"
    )
