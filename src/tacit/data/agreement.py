"""How parties agree on a schema: each introduces its columns and the vocabulary that occurs in its own rows.

The coordinator compares and unites. Where the federation declares its classes and categories beforehand,
parties check themselves against them and tell nobody which they hold.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import msgspec
import numpy as np

from tacit.core.errors import DataError, SchemaError, closest, nearest
from tacit.core.message import Message
from tacit.data.findings import check_words, label_conflict, words_by_column
from tacit.data.inputs import refuse_any
from tacit.data.schema import OTHER, Schema
from tacit.data.table import Column, Table, Task, count_words, order_labels

# What a party may introduce: a feature that one party invents is one more for all of them.
MOST_COLUMNS = 100_000
MOST_WORDS = 1_000  # categories of all columns together, or classes, that are not declared
MOST_AGREED = 2_000  # the same of all parties together
LONGEST_WORD = 1_000  # characters of a name, a category or a class
MOST_BYTES = 4 << 20  # of an introduction
SOUGHT = "sought"  # declared in a run that agrees on words: nobody introduces any
DECLARE = "declare them beforehand, or put rare ones together"


def check_rows(table: Table, owner: str, missing: str) -> None:
    """Refuse rows that cannot be learnt from, naming the column and, at the site, the row."""
    if not table.rows:
        raise DataError(f"{owner} has no rows: leave it out, or give it data")
    if table.task == "regression" and not np.isfinite(table.target).all():
        raise DataError(f"{owner}: the target holds missing or infinite values: drop those rows")
    if table.values.dtype.kind != "f" or np.isfinite(table.values).all():
        return
    names = [column.name for column in table.columns]
    refuse_any(np.isinf(table.values), names, "infinite values: correct or drop those rows", owner)
    if missing == "refuse":
        numbers = np.array([column.kind == "number" for column in table.columns])
        way_out = "fill them in, drop those rows, or set missing = 'mean', with federboost 'keep'"
        refuse_any(np.isnan(table.values) & numbers, names, f"missing values: {way_out}", owner)


def introduce(table: Table, declared: Mapping[str, Any]) -> Message:
    """Describe this party's columns, and its vocabulary as far as it is not declared."""
    words: dict[str, Any] = {}
    if table.task == "classification":
        present = tuple(count_words(table.target, table.classes))
        if "classes" in declared:
            check_declared(present, declared["classes"], "label")
        else:
            words["classes"] = present
    check_words(table, declared.get("categories", {}), labels="classes" not in declared)
    for name, used in words_by_column(table).items():
        fixed = declared.get("categories", {}).get(name)
        if fixed is not None:
            check_declared(used, fixed, f"category of column '{name}'")
        elif {"classes", "categories"} <= declared.keys() and SOUGHT not in declared:
            # Nobody agrees on words under a protected sum then: these would be told in the clear.
            raise SchemaError(
                f"column '{name}' has categories, and only those of other columns are declared: declare "
                "them as well"
            )
        else:
            words.setdefault("categories", {})[name] = used
    told = {} if declared.get(SOUGHT) else words
    introduction = {"signature": signature_of(table), "vocabulary": msgspec.json.encode(told)}
    _read(*introduction.values())  # what the coordinator would refuse is refused here, where it can be mended
    return Message(introduction)


def signature_of(described: Table | Schema) -> bytes:
    """Encode columns, task and targets, for comparison."""
    columns = [(column.name, column.kind) for column in described.columns]
    words = {"columns": columns, "task": described.task, "targets": described.target_names}
    return msgspec.json.encode(words)


def check_declared(present: Iterable[Any], declared: Iterable[Any], what: str) -> None:
    """Refuse labels or categories that are not among those declared, unless others may be there as well."""
    allowed = set(declared)
    if OTHER in allowed:
        return
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


def _read(columns: bytes, words: bytes) -> _Vocabulary:
    if (size := len(columns) + len(words)) > MOST_BYTES:
        raise SchemaError(f"an introduction of {size:,} bytes, at most {MOST_BYTES:,} are read: {DECLARE}")
    try:
        signature = msgspec.json.decode(columns, type=_Signature)
        vocabulary = msgspec.json.decode(words, type=_Vocabulary)
    except ValueError as error:  # no JSON, not these fields, or not UTF-8
        raise SchemaError(f"an introduction that cannot be read: {error}") from None
    names = [name for name, _ in signature.columns]
    if not 1 <= len(names) <= MOST_COLUMNS:
        raise SchemaError(f"{len(names):,} columns: introduce 1 to {MOST_COLUMNS:,}")
    if len(set(names)) < len(names):
        raise SchemaError("two columns of one name: give each its own")
    if odd := vocabulary.categories.keys() - {name for name, kind in signature.columns if kind == "category"}:
        raise SchemaError(f"categories of '{min(odd)[:80]}', which is no column of categories")
    if vocabulary.classes and signature.task == "regression":  # the schema would be another one for all
        raise SchemaError("classes of a regression, which has none")
    categories = [word for values in vocabulary.categories.values() for word in values]
    for what, count in (("categories", len(categories)), ("classes", len(vocabulary.classes))):
        if count > MOST_WORDS:
            raise SchemaError(
                f"{count:,} {what} that are not declared, at most {MOST_WORDS:,} are taken: {DECLARE}"
            )
    labels = [label for label in vocabulary.classes if isinstance(label, str)]
    longest = max((*names, *signature.targets, *categories, *labels), key=len)
    if len(longest) > LONGEST_WORD:
        raise SchemaError(
            f"'{longest[:40]}…' has {len(longest):,} characters: a name, category or class has at most "
            f"{LONGEST_WORD:,}"
        )
    return vocabulary


class Agreement:
    """Collects introductions and settles on one schema, or names who differs and where."""

    def __init__(self, declared: Mapping[str, Any], min_count: int = 1) -> None:
        self._declared = declared  # ``classes`` and ``categories`` that the federation fixed beforehand
        self._min_count = min_count  # rows that must have each
        self._agreed: bytes | None = None
        self._sorted: dict[bytes, bytes] = {}  # a signature, and the same with its columns by name
        self._groups: dict[bytes, list[str]] = {}
        self._vocabularies: set[bytes] = set()
        self._classes: set[Any] = set()
        self._categories: dict[str, set[str]] = {}

    def hold(self, schema: Schema) -> None:
        """Take only parties that have the columns and targets of this schema."""
        self._agreed = _by_name(signature_of(schema))

    def add(self, party: str, introduction: Mapping[str, Any]) -> None:
        """Take a party's introduction; one that cannot be read is refused."""
        signature, words = introduction.get("signature"), introduction.get("vocabulary")
        if not isinstance(signature, bytes) or not isinstance(words, bytes):
            raise SchemaError(f"{party}: an introduction without its columns or vocabulary")
        if signature not in self._sorted or words not in self._vocabularies:
            try:
                self._unite(_read(signature, words))
            except SchemaError as error:
                raise SchemaError(f"{party}: {error}") from None
        if signature not in self._sorted:
            self._sorted[signature] = _by_name(signature)
        by_name = self._sorted[signature]
        if self._agreed is not None and self._agreed != by_name:
            raise SchemaError(_difference([party], by_name, self._agreed))
        self._groups.setdefault(by_name, []).append(party)
        self._vocabularies.add(words)

    def _unite(self, vocabulary: _Vocabulary) -> None:
        classes = self._classes | set(vocabulary.classes)
        categories = {
            name: self._categories.get(name, set()) | set(v) for name, v in vocabulary.categories.items()
        }
        united = {**self._categories, **categories}
        for what, count in (("classes", len(classes)), ("categories", sum(map(len, united.values())))):
            if count > MOST_AGREED:
                raise SchemaError(
                    f"with its {what} the federation would have {count:,} that are not declared, at most "
                    f"{MOST_AGREED:,} are united: {DECLARE}"
                )
        self._classes, self._categories = classes, united

    def outvoted(self) -> dict[str, str]:
        """Return the parties whose columns or targets are not those that most have, with what differs."""
        common = self._common()
        return {
            party: _difference([party], signature, common)
            for signature, parties in self._groups.items()
            if signature != common
            for party in parties
        }

    def _common(self) -> bytes:
        return max(self._groups, key=lambda signature: len(self._groups[signature]))

    def make_schema(self, *, without: Collection[str] = ()) -> Schema:
        """Unite the vocabularies under the one set of columns that all parties have, but for some."""
        common = self._common()
        # Columns stand in the order of the first party that has them; the others follow it.
        first = next(own for own, by_name in self._sorted.items() if by_name == common)
        for signature, parties in self._groups.items():
            if signature != common and (odd := [party for party in parties if party not in without]):
                raise SchemaError(_difference(odd, signature, first))
        reference = msgspec.json.decode(first)
        declared: Mapping[str, Any] = self._declared.get("categories", {})
        columns = tuple(
            Column(name, kind, categories=tuple(declared.get(name) or sorted(self._categories.get(name, ()))))
            for name, kind in reference["columns"]
        )
        ordered = tuple(self._declared.get("classes") or order_labels(self._classes))
        if self._declared.get(SOUGHT):  # in place of what nobody knows yet
            columns = tuple(replace(c, categories=("",) if c.kind == "category" else ()) for c in columns)
            ordered = ordered or ((0, 1) if reference["task"] == "classification" else ())
        if reference["task"] == "classification" and len(ordered) < 2:
            raise SchemaError(
                f"the federation holds the single class {ordered}: a classifier needs two. "
                "Check the target column, or declare the classes"
            )
        if conflict := label_conflict(ordered):
            raise SchemaError(f"the target of the clients together {conflict}")
        return Schema(columns, reference["task"], ordered, tuple(reference["targets"]), self._min_count)


def _by_name(signature: bytes) -> bytes:
    words = msgspec.json.decode(signature)
    return msgspec.json.encode({**words, "columns": sorted(words["columns"])})


def _difference(parties: list[str], signature: bytes, common: bytes) -> str:
    found, reference = msgspec.json.decode(signature), msgspec.json.decode(common)
    who = parties[0] + (f" (and {len(parties) - 1} more)" if len(parties) > 1 else "")
    ours, theirs = dict(found["columns"]), dict(reference["columns"])
    extra, lacking = ([name for name in a if name not in b] for a, b in ((ours, theirs), (theirs, ours)))
    if lacking:
        similar = closest(lacking[0], extra)
        if similar is not None:
            return f"{who}: the others call column '{similar}' '{lacking[0]}': rename it"
        return f"{who}: there is no column '{lacking[0]}', which the others have: add it, or drop it there"
    if extra:
        return f"{who}: the others have no column '{extra[0]}': leave it out with drop"
    for name, kind in ours.items():
        if kind != theirs[name]:
            word = {"number": "numeric"}.get(theirs[name], "categorical")
            said = f"{who}: column '{name}' is a {kind}, the others have a {theirs[name]}: convert it, or"
            return f"{said} choose its kind with {word}"
    return (
        f"{who}: task {found['task']} with targets {found['targets']}, "
        f"the others have {reference['task']} with {reference['targets']}"
    )
