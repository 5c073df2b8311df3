"""Schemas: what every party's data must have in common, agreed before anything is computed.

Each party introduces its columns and the vocabulary that occurs in its own rows; the coordinator
compares and unites. Where the federation declares its classes and categories beforehand, parties check
themselves against them and tell nobody which they hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError, SchemaError, nearest
from tacit.core.message import Message
from tacit.data.table import Column, Label, Table, Task


@dataclass(frozen=True)
class Schema:
    """The agreed columns in order, with their categories, and the agreed classes or targets.

    Numbers become one feature each, a category becomes one feature per agreed value (one-hot); a
    missing category is all zeros.
    """

    columns: tuple[Column, ...]
    task: Task
    classes: tuple[Label, ...]
    target_names: tuple[str, ...]

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

    @property
    def outputs(self) -> int:
        """Number of outputs a model needs: classes, or regression targets."""
        return len(self.classes) if self.task == "classification" else len(self.target_names)

    def matrix(self, table: Table, *, lenient: bool = False) -> NDArray[np.float64]:
        """Encode a table's features; the result is the caller's own to change.

        A category that nobody agreed on is refused or, if ``lenient``, all zeros like a missing one.
        """
        if self.numeric:
            return np.array(table.values, dtype=np.float64)
        pieces = []
        for index, (agreed, own) in enumerate(zip(self.columns, table.columns, strict=True)):
            values = np.asarray(table.values[:, index], dtype=np.float64)
            if agreed.kind == "number":
                pieces.append(values[:, None])
                continue
            rows = np.flatnonzero(np.isfinite(values))
            codes = values[rows].astype(np.int64)
            onehot = np.zeros((len(values), len(agreed.categories)))
            where = f"column '{agreed.name}'"
            found = _translate(codes, own.categories, agreed.categories, where, lenient=lenient)
            onehot[rows[found >= 0], found[found >= 0]] = 1.0
            pieces.append(onehot)
        return np.concatenate(pieces, axis=1)

    def labels(self, table: Table) -> NDArray[np.int64]:
        """Translate a table's label codes to the agreed ones."""
        return _translate(table.target, table.classes, self.classes, "the target")

    def table_of(self, values: Any) -> Table:
        """Read plain rows (numbers, or objects where there are categories) as this schema's table."""
        if isinstance(values, Table):
            return values
        rows = np.asarray(values)
        if rows.ndim != 2 or rows.shape[1] != len(self.columns):
            raise DataError(
                f"rows have shape {rows.shape}: give a matrix with the {len(self.columns)} columns "
                f"{', '.join(column.name for column in self.columns[:6])}…"
            )
        encoded = np.empty(rows.shape, dtype=np.float64)
        for index, column in enumerate(self.columns):
            if column.kind == "number":
                try:
                    encoded[:, index] = rows[:, index].astype(np.float64)
                except (TypeError, ValueError):
                    raise DataError(f"column '{column.name}' holds text: give numbers") from None
            else:
                codes = {category: code for code, category in enumerate(column.categories)}
                texts = [str(value) for value in rows[:, index]]
                if unknown := sorted({text for text in texts if text not in codes}):
                    raise DataError(
                        f"column '{column.name}': '{unknown[0]}' is not among its categories: "
                        + nearest(unknown[0], column.categories)
                    )
                encoded[:, index] = [codes[text] for text in texts]
        empty = np.zeros(len(rows), dtype=np.int64)
        target = empty if self.task == "classification" else empty[:, None].astype(np.float64)
        return Table("rows", self.columns, encoded, target, self.task, self.classes[:1], self.target_names)

    def to_message(self) -> Message:
        """Give the schema as a message."""
        return Message(schema=msgspec.json.encode(self))

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Schema:
        """Read a schema."""
        try:
            return msgspec.json.decode(message["schema"], type=cls)
        except (KeyError, msgspec.MsgspecError) as error:
            raise SchemaError(f"not a schema: {error}") from None


def _translate(
    codes: NDArray[np.int64],
    own: tuple[Any, ...],
    agreed: tuple[Any, ...],
    where: str,
    *,
    lenient: bool = False,
) -> NDArray[np.int64]:
    """Turn codes into an own vocabulary into codes into the agreed one; -1 for none, if lenient."""
    if own == agreed:
        return codes
    positions = {value: code for code, value in enumerate(agreed)}
    translated = np.array([positions.get(value, -1) for value in own], dtype=np.int64)[codes]
    if not lenient and (translated < 0).any():
        unknown = str(own[codes[int(np.argmax(translated < 0))]])
        raise DataError(
            f"{where} holds a value that nobody agreed on",
            private=f"'{unknown}': {nearest(unknown, map(str, agreed))}",
        )
    return translated


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
        # Numbers by size, then text: the order that NumPy gives a pooled column of one type.
        ordered = tuple(
            self._declared.get("classes")
            or sorted(classes, key=lambda label: (isinstance(label, str), label))
        )
        if reference["task"] == "classification" and len(ordered) < 2:
            raise SchemaError(
                f"the federation holds the single class {ordered}: a classifier needs two. "
                "Check the target column, or declare the classes"
            )
        return Schema(columns, reference["task"], ordered, tuple(reference["targets"]))


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


def vocabulary(schema: Schema) -> dict[str, Any]:
    """Give a schema's vocabulary in the form in which a manifest declares it."""
    categories = {c.name: list(c.categories) for c in schema.columns if c.kind == "category"}
    return {"classes": list(schema.classes), "categories": categories}
